//! Classes of registrations, over every mechanism.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use hearken::mechanism::Trigger;
use hearken::queue::Class;
use hearken::{EventQueue, Interest, Registration};
use libtest_mimic::Trial;

use crate::suite::{self, AnyMechanism};

const ALL: [Class; 4] = [Class::CONTROL, Class::PREFERRED, Class::NORMAL, Class::BULK];
const PATIENCE: Option<Duration> = Some(Duration::from_secs(20));
/// What is promised: so many of earlier classes before one of a later, and one of each other class.
const BOUND: usize = 16 + 3;

/// A test with its name.
type Test = (&'static str, fn(&World));

/// Returns the trials of this module.
pub(crate) fn trials() -> Vec<Trial> {
    let tests: [Test; 6] = [
        ("earlier_classes_come_first", earlier_classes_come_first),
        ("in_order_within_a_class", in_order_within_a_class),
        ("the_first_of_all_that_is_ready", the_first_of_all_that_is_ready),
        ("none_is_starved", none_is_starved),
        ("what_is_left_keeps_its_class", what_is_left_keeps_its_class),
        ("a_class_may_be_changed", a_class_may_be_changed),
    ];
    suite::trials_over("classes", suite::variants(), |spec| {
        let make = |(name, test): Test| {
            suite::trial("classes", spec, name, move |spec| {
                let queue = EventQueue::over(suite::open(spec)).unwrap();
                test(&World { queue, watched: RefCell::default() });
            })
        };
        tests.into_iter().map(make).collect()
    })
}

/// A queue, and what is registered with it, by payload.
struct World {
    queue: EventQueue<usize, AnyMechanism>,
    watched: RefCell<Vec<(Registration<UnixStream>, UnixStream)>>,
}

impl World {
    /// Registers so many of a class that have something to read, and says what they are called.
    fn ready(&self, class: Class, count: usize) -> Vec<usize> {
        let mut watched = self.watched.borrow_mut();
        let make = |_| {
            let who = watched.len();
            let (here, mut there) = UnixStream::pair().unwrap();
            here.set_nonblocking(true).unwrap();
            let declared = self.queue.declare_interest(here, Interest::READ, who);
            let (registration, _) = declared.unwrap();
            registration.set_class(class);
            there.write_all(b"x").unwrap();
            watched.push((registration, there));
            who
        };
        (0..count).map(make).collect()
    }

    fn write(&self, to: usize) {
        self.watched.borrow_mut()[to].1.write_all(b"x").unwrap();
    }

    /// Takes at most so many of a batch, reading what there is to be read of each.
    fn take(&self, max: usize, taken: usize) -> Vec<usize> {
        let mut seen = Vec::new();
        for event in self.queue.next_events(max, PATIENCE).unwrap().take(taken) {
            seen.push(event.who);
            let registration = &self.watched.borrow()[event.who].0;
            assert_ne!((&**registration).read(&mut [0; 64]).unwrap(), 0);
            if self.queue.semantics().trigger == Trigger::OneShot {
                registration.change_interest(Interest::READ).unwrap();
            }
        }
        seen
    }

    /// The first batch of which all are ready by then, a wait having been given to each mechanism
    /// that does not come to all of them in one.
    fn settle(&self) {
        for _ in 0..2 {
            let _ = self.queue.next_events(1024, PATIENCE).unwrap();
        }
    }
}

fn earlier_classes_come_first(world: &World) {
    let groups: Vec<_> = ALL.iter().rev().map(|class| world.ready(*class, 3)).collect();
    world.settle();
    let seen = world.take(64, 64);
    assert_eq!(seen.len(), 12);
    for (nth, group) in groups.iter().rev().enumerate() {
        let mut of_class = seen[3 * nth..][..3].to_vec();
        of_class.sort_unstable();
        assert_eq!(&of_class, group, "{seen:?}");
    }
}

fn in_order_within_a_class(world: &World) {
    let bulk = world.ready(Class::BULK, 5);
    world.settle();
    let normal = world.ready(Class::NORMAL, 1);
    let first = world.take(1, 1);
    assert_eq!(first, normal);
    // What was left of the first batch comes in the order in which it came, whatever was between.
    let seen = world.take(64, 64);
    assert_eq!(seen.len(), bulk.len());
}

fn the_first_of_all_that_is_ready(world: &World) {
    world.ready(Class::BULK, 50);
    world.ready(Class::NORMAL, 50);
    let control = world.ready(Class::CONTROL, 1);
    world.settle();
    assert_eq!(world.take(1, 1), control, "though 100 were ready before it, and one was asked for");
}

fn none_is_starved(world: &World) {
    let busy = world.ready(Class::CONTROL, 8);
    let preferred = world.ready(Class::PREFERRED, 8);
    let bulk = world.ready(Class::BULK, 1)[0];
    world.settle();
    let mut before = 0;
    for _ in 0..10 * BOUND {
        let seen = world.take(1, 1)[0];
        if seen == bulk {
            break;
        }
        before += 1;
        assert!(busy.contains(&seen) || preferred.contains(&seen));
        // It is ready again at once.
        world.write(seen);
    }
    assert!((8..=BOUND).contains(&before), "{before} before it");
}

fn what_is_left_keeps_its_class(world: &World) {
    let bulk = world.ready(Class::BULK, 1)[0];
    let normal = world.ready(Class::NORMAL, 3);
    world.settle();
    let first = world.take(64, 1)[0];
    assert!(normal.contains(&first));
    let control = world.ready(Class::CONTROL, 1)[0];
    world.settle();
    let seen = world.take(64, 64);
    assert_eq!((seen[0], seen[3], seen.len()), (control, bulk, 4), "{seen:?}");
}

fn a_class_may_be_changed(world: &World) {
    let two = world.ready(Class::NORMAL, 2);
    world.settle();
    assert_eq!(world.take(64, 64).len(), 2);
    for (raised, other) in [(two[0], two[1]), (two[1], two[0])] {
        let set = |who: usize, class| world.watched.borrow()[who].0.set_class(class);
        set(raised, Class::CONTROL);
        set(other, Class::BULK);
        world.write(other);
        world.write(raised);
        world.settle();
        assert_eq!(world.take(64, 64), [raised, other]);
    }
}
