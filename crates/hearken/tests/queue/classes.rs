//! Priority classes of registrations, over every mechanism.

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
/// Maximum number of events of earlier classes before one of a later class, and one event of each
/// other class.
const BOUND: usize = 16 + 3;

/// A test function with its name.
type Test = (&'static str, fn(&World));

/// Returns the trials of this module.
pub(crate) fn trials() -> Vec<Trial> {
    let tests: [Test; 6] = [
        ("earlier_classes_come_first", earlier_classes_come_first),
        ("events_of_a_class_keep_their_order", events_of_a_class_keep_their_order),
        ("the_first_class_precedes_all_ready_events", the_first_class_precedes_all_ready_events),
        ("no_class_is_starved", no_class_is_starved),
        ("remaining_events_keep_their_class", remaining_events_keep_their_class),
        ("a_class_can_be_changed", a_class_can_be_changed),
    ];
    suite::trials_over("classes", suite::variants(), |spec| {
        let make = |(name, test): Test| {
            suite::trial("classes", spec, name, move |spec| {
                let queue = EventQueue::with_mechanism(suite::open(spec)).unwrap();
                test(&World { queue, watched: RefCell::default() });
            })
        };
        tests.into_iter().map(make).collect()
    })
}

/// A queue, and its registrations and their peers, by payload.
struct World {
    queue: EventQueue<usize, AnyMechanism>,
    watched: RefCell<Vec<(Registration<UnixStream>, UnixStream)>>,
}

impl World {
    /// Registers `count` readable sources of a class. Returns their payloads.
    fn ready(&self, class: Class, count: usize) -> Vec<usize> {
        let mut watched = self.watched.borrow_mut();
        let make = |_| {
            let payload = watched.len();
            let (socket, mut peer) = UnixStream::pair().unwrap();
            socket.set_nonblocking(true).unwrap();
            let declared = self.queue.declare_interest(socket, Interest::READ, payload);
            let (registration, _) = declared.unwrap();
            registration.set_class(class);
            peer.write_all(b"x").unwrap();
            watched.push((registration, peer));
            payload
        };
        (0..count).map(make).collect()
    }

    fn write(&self, to: usize) {
        self.watched.borrow_mut()[to].1.write_all(b"x").unwrap();
    }

    /// Takes up to `taken` events of a batch of up to `max`, and reads from each source. Returns
    /// the payloads.
    fn take(&self, max: usize, taken: usize) -> Vec<usize> {
        let mut seen = Vec::new();
        for event in self.queue.next_events(max, PATIENCE).unwrap().take(taken) {
            seen.push(event.token);
            let registration = &self.watched.borrow()[event.token].0;
            assert_ne!((&**registration).read(&mut [0; 64]).unwrap(), 0);
            if self.queue.semantics().trigger == Trigger::OneShot {
                registration.change_interest(Interest::READ).unwrap();
            }
        }
        seen
    }

    /// Waits until the queue knows all ready sources, which takes two waits with some mechanisms.
    fn wait_until_ready(&self) {
        for _ in 0..2 {
            let _ = self.queue.next_events(1024, PATIENCE).unwrap();
        }
    }
}

fn earlier_classes_come_first(world: &World) {
    let groups: Vec<_> = ALL.iter().rev().map(|class| world.ready(*class, 3)).collect();
    world.wait_until_ready();
    let seen = world.take(64, 64);
    assert_eq!(seen.len(), 12);
    for (nth, group) in groups.iter().rev().enumerate() {
        let mut of_class = seen[3 * nth..][..3].to_vec();
        of_class.sort_unstable();
        assert_eq!(&of_class, group, "{seen:?}");
    }
}

fn events_of_a_class_keep_their_order(world: &World) {
    let bulk = world.ready(Class::BULK, 5);
    world.wait_until_ready();
    let normal = world.ready(Class::NORMAL, 1);
    let first = world.take(1, 1);
    assert_eq!(first, normal);
    // The remaining events of the first batch keep their order.
    let seen = world.take(64, 64);
    assert_eq!(seen.len(), bulk.len());
}

fn the_first_class_precedes_all_ready_events(world: &World) {
    world.ready(Class::BULK, 50);
    world.ready(Class::NORMAL, 50);
    let control = world.ready(Class::CONTROL, 1);
    world.wait_until_ready();
    assert_eq!(world.take(1, 1), control, "it comes first, although 100 others were ready before");
}

fn no_class_is_starved(world: &World) {
    let busy = world.ready(Class::CONTROL, 8);
    let preferred = world.ready(Class::PREFERRED, 8);
    let bulk = world.ready(Class::BULK, 1)[0];
    world.wait_until_ready();
    let mut before = 0;
    for _ in 0..10 * BOUND {
        let seen = world.take(1, 1)[0];
        if seen == bulk {
            break;
        }
        before += 1;
        assert!(busy.contains(&seen) || preferred.contains(&seen));
        // The source is ready again immediately.
        world.write(seen);
    }
    assert!((8..=BOUND).contains(&before), "{before} events came before it");
}

fn remaining_events_keep_their_class(world: &World) {
    let bulk = world.ready(Class::BULK, 1)[0];
    let normal = world.ready(Class::NORMAL, 3);
    world.wait_until_ready();
    let first = world.take(64, 1)[0];
    assert!(normal.contains(&first));
    let control = world.ready(Class::CONTROL, 1)[0];
    world.wait_until_ready();
    let seen = world.take(64, 64);
    assert_eq!((seen[0], seen[3], seen.len()), (control, bulk, 4), "{seen:?}");
}

fn a_class_can_be_changed(world: &World) {
    let two = world.ready(Class::NORMAL, 2);
    world.wait_until_ready();
    assert_eq!(world.take(64, 64).len(), 2);
    for (raised, other) in [(two[0], two[1]), (two[1], two[0])] {
        let set = |payload: usize, class| world.watched.borrow()[payload].0.set_class(class);
        set(raised, Class::CONTROL);
        set(other, Class::BULK);
        world.write(other);
        world.write(raised);
        world.wait_until_ready();
        assert_eq!(world.take(64, 64), [raised, other]);
    }
}
