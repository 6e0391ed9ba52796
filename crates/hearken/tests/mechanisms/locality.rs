//! What only `locality` has: its sets, who is in which, and by when it comes to whom.
//!
//! All is counted in waits and in descriptors. Where the adaptive tuning reads the clock, a slower
//! machine looks at all more often, and nothing here is wrong then.

use std::collections::HashSet;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Once;
use std::thread;
use std::time::Duration;

use hearken::mechanism::locality::Locality;
use hearken::mechanism::{Open, Options, Registry};
use hearken::{EventQueue, Interest, Mechanism, Token};
use proptest::prelude::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::suite::{Tests, lock_many_descriptors, property, tests};

/// Returns the tests of this module.
pub(crate) fn tests() -> Tests {
    tests! {
        demoted_after_so_many_quiet_calls
        an_event_begins_the_count_anew
        promoted_by_events_in_two_calls_in_a_row
        one_event_is_enough_for_the_adaptive
        a_changed_interest_makes_active
        listeners_and_what_is_locked_stay_active
        the_wake_up_of_a_queue_stays_active
        what_is_idle_is_found_within_the_bound
        a_wait_without_end_hears_the_idle
        none_is_passed_over_for_the_active
        one_active_of_many_costs_what_one_does
        n_grows_until_it_holds_who_is_active
        everyone_active_costs_one_look_each
        bursts_that_move_leave_nobody_behind
        the_fixed_tuning_is_the_papers
        the_adaptive_tuning_keeps_its_bound
    }
}

const AT_ONCE: Option<Duration> = Some(Duration::ZERO);

fn raise_the_limit() {
    static RAISED: Once = Once::new();
    RAISED.call_once(|| {
        let maximum = getrlimit(Resource::Nofile).maximum;
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    });
}

fn open(options: &[(&str, &str)]) -> Locality {
    let mut chosen = Options::defaults(Locality::OPTIONS);
    for (name, value) in options {
        chosen.set(name, value).unwrap();
    }
    Locality::open_with(&chosen).unwrap()
}

fn fixed(n: u32) -> World {
    World::over(open(&[("tuning", "fixed"), ("n", &n.to_string())]))
}

fn adaptive() -> World {
    World::over(open(&[]))
}

/// Sockets that are registered, by their indices, and their peers.
struct World {
    registry: Registry<Locality, OwnedFd>,
    sockets: Vec<(Token, UnixStream)>,
}

impl World {
    fn over(mechanism: Locality) -> World {
        World { registry: Registry::new(mechanism), sockets: Vec::new() }
    }

    fn add(&mut self) -> usize {
        raise_the_limit();
        let (here, there) = UnixStream::pair().unwrap();
        here.set_nonblocking(true).unwrap();
        let token = self.registry.insert(here.into());
        self.registry.declare(token, Interest::READ).unwrap();
        self.sockets.push((token, there));
        self.sockets.len() - 1
    }

    fn with(mut self, sockets: usize) -> World {
        for _ in 0..sockets {
            self.add();
        }
        self
    }

    fn sets(&self) -> (usize, usize, usize) {
        self.registry.mechanism().sets()
    }

    fn asked(&self) -> u64 {
        self.registry.mechanism().asked()
    }

    fn write(&self, at: usize) {
        assert_eq!(rustix::io::write(&self.sockets[at].1, b"x"), Ok(1));
    }

    fn read(&self, at: usize) {
        let source = self.registry.get(self.sockets[at].0).unwrap();
        assert_ne!(rustix::io::read(source, &mut [0; 64]), Ok(0));
    }

    /// One wait, and whom it has reported.
    fn wait(&mut self, max: usize, timeout: Option<Duration>) -> Vec<usize> {
        let got = self.registry.wait(max, timeout).unwrap();
        let whose = (0..got).filter_map(|index| self.registry.event(index)).map(|event| {
            self.sockets.iter().position(|(token, _)| *token == event.who).expect("registered")
        });
        whose.collect::<Vec<_>>()
    }

    fn quiet(&mut self, waits: u32) {
        for _ in 0..waits {
            assert_eq!(self.wait(8, AT_ONCE), []);
        }
    }

    /// Duplicates of one that stays quiet: a descriptor each, which is all that a list asks for.
    fn with_a_crowd(mut self, count: usize) -> World {
        let at = self.add();
        let room = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) as usize / 2;
        for _ in 0..count.min(room) {
            let source = self.registry.get(self.sockets[at].0).unwrap().try_clone().unwrap();
            let token = self.registry.insert(source);
            self.registry.declare(token, Interest::READ).unwrap();
        }
        self
    }

    /// Writes to one, and looks until it is reported; then what was written is read.
    fn event(&mut self, at: usize) {
        self.hear(at, AT_ONCE);
    }

    fn hear(&mut self, at: usize, timeout: Option<Duration>) {
        self.write(at);
        while !self.wait(64, timeout).contains(&at) {}
        self.read(at);
    }

    /// In how many waits, at the most, something of `at` is reported.
    fn found_within(&mut self, at: usize) -> u32 {
        (1..).find(|_| self.wait(64, AT_ONCE).contains(&at)).unwrap()
    }
}

fn demoted_after_so_many_quiet_calls() {
    for n in [2, 3, 5, 10] {
        let mut world = fixed(n).with(1);
        world.quiet(n - 2);
        assert_eq!(world.sets(), (1, 0, 0), "with {n}");
        world.quiet(1);
        assert_eq!(world.sets(), (0, 1, 0), "after N-1");
        world.quiet(n * n - n - 1);
        assert_eq!(world.sets(), (0, 1, 0), "with {n}");
        world.quiet(1);
        assert_eq!(world.sets(), (0, 0, 1), "after N*N-N more");
    }
}

fn an_event_begins_the_count_anew() {
    let mut world = fixed(4).with(1);
    for _ in 0..5 {
        world.quiet(2);
        world.event(0);
        assert_eq!(world.sets(), (1, 0, 0));
    }
    world.quiet(3);
    assert_eq!(world.sets(), (0, 1, 0));
}

fn promoted_by_events_in_two_calls_in_a_row() {
    const N: u32 = 3;
    for (quiet, home) in [(N - 1, (0, 1, 0)), (N * N - 1, (0, 0, 1))] {
        let mut world = fixed(N).with(1);
        world.quiet(quiet);
        assert_eq!(world.sets(), home);
        // One is not enough.
        world.event(0);
        assert_eq!(world.sets(), (1, 0, 0), "it is asked about in the next call");
        world.quiet(1);
        assert_eq!(world.sets(), home);
        // Two are.
        world.event(0);
        world.write(0);
        assert_eq!(world.wait(8, AT_ONCE), [0]);
        world.read(0);
        world.quiet(N - 2);
        assert_eq!(world.sets(), (1, 0, 0));
        world.quiet(1);
        assert_eq!(world.sets(), (0, 1, 0));
    }
}

fn one_event_is_enough_for_the_adaptive() {
    let mut world = adaptive().with(40);
    while world.sets().0 > 0 {
        world.quiet(1);
    }
    world.event(7);
    world.quiet(1);
    assert_eq!(world.sets().0, 1);
}

fn a_changed_interest_makes_active() {
    let mut world = fixed(3).with(1);
    world.quiet(8);
    assert_eq!(world.sets(), (0, 0, 1));
    let token = world.sockets[0].0;
    world.registry.declare(token, Interest::all()).unwrap();
    assert_eq!(world.sets(), (1, 0, 0));
    assert_eq!(world.wait(8, AT_ONCE), [0], "it is writable");
    world.registry.declare(token, Interest::empty()).unwrap();
    assert_eq!(world.sets(), (0, 0, 0));
    world.registry.declare(token, Interest::READ).unwrap();
    assert_eq!(world.sets(), (1, 0, 0));
}

fn listeners_and_what_is_locked_stay_active() {
    for mut world in [fixed(3), adaptive()] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let token = world.registry.insert(listener.into());
        world.registry.declare(token, Interest::READ).unwrap();
        let mut world = world.with(2);
        let locked = world.sockets[1].0;
        world.registry.keep_active(locked);
        world.quiet(40);
        let (active, doze, idle) = world.sets();
        assert_eq!((active, doze + idle), (2, 1));
        // Also once it was idle.
        let other = world.sockets[0].0;
        world.registry.keep_active(other);
        world.quiet(40);
        assert_eq!(world.sets(), (3, 0, 0));
        for token in [token, locked, other] {
            world.registry.remove(token).unwrap();
        }
        assert_eq!(world.sets(), (0, 0, 0));
    }
}

fn the_wake_up_of_a_queue_stays_active() {
    let mechanism = open(&[("tuning", "fixed"), ("n", "64"), ("sleep-us", "100000")]);
    let queue = EventQueue::<u64, _>::over(mechanism).unwrap();
    let (here, _there) = UnixStream::pair().unwrap();
    let _registration = queue.declare_interest(here, Interest::READ, 1).unwrap();
    for _ in 0..200 {
        assert!(!queue.next_events(8, AT_ONCE).unwrap().woken());
    }
    for _ in 0..100 {
        queue.waker().wake();
        assert!(queue.next_events(8, AT_ONCE).unwrap().woken(), "in the first wait");
    }
}

fn what_is_idle_is_found_within_the_bound() {
    let _lock = lock_many_descriptors();
    // So many that the adaptive one's looks at all are not due, by the clock, for some waits.
    let adaptive = World::over(open(&[("sleep-us", "100000")]));
    let worlds = [(fixed(2), 200), (fixed(3), 200), (fixed(7), 200), (adaptive, 6000)];
    for mut world in worlds.map(|(world, crowd)| world.with(100).with_a_crowd(crowd)) {
        let within = world.registry.mechanism().within();
        // The first is always ready: the active set is busy, and no wait has a reason to look far.
        world.write(0);
        for _ in 0..2 * within {
            assert_eq!(world.wait(64, AT_ONCE), [0]);
        }
        let mut latest = 0;
        for at in 1..100 {
            world.write(at);
            let waits = world.found_within(at);
            assert!(waits <= within, "{waits} waits, of {within}");
            latest = latest.max(waits);
            // From then on it is in every batch.
            for _ in 0..3 {
                assert_eq!(world.wait(64, AT_ONCE).len(), 2);
            }
            world.read(at);
            for _ in 0..at % 11 {
                world.wait(64, AT_ONCE);
            }
        }
        if within < 1024 {
            assert!(latest > 1, "none was looked for in vain: they were not idle");
        }
    }
}

fn a_wait_without_end_hears_the_idle() {
    let _lock = lock_many_descriptors();
    for world in [fixed(3), fixed(64), adaptive()] {
        let mut world = world.with(300);
        for round in 0..3 {
            for at in [0, 5] {
                for _ in 0..200 {
                    world.event(9);
                }
                let peer = world.sockets[at].1.try_clone().unwrap();
                let writer = thread::spawn(move || {
                    thread::sleep(Duration::from_millis(3 * round));
                    rustix::io::write(peer, b"x").unwrap();
                });
                let mut events = Vec::new();
                while events.is_empty() {
                    events = world.wait(64, None);
                }
                assert_eq!(events, [at]);
                writer.join().unwrap();
                world.read(at);
            }
        }
    }
}

fn none_is_passed_over_for_the_active() {
    let _lock = lock_many_descriptors();
    for world in [fixed(3), adaptive()] {
        let mut world = world.with(260);
        let within = world.registry.mechanism().within();
        for _ in 0..100 {
            world.wait(1, AT_ONCE);
        }
        // Ready all the time, and one at a time is taken.
        (0..20).for_each(|at| world.write(at));
        while world.sets().0 < 20 {
            world.wait(1, AT_ONCE);
        }
        (20..60).for_each(|at| world.write(at));
        let mut seen = HashSet::new();
        for _ in 0..within + 60 {
            seen.extend(world.wait(1, AT_ONCE));
        }
        assert_eq!(seen, (0..60).collect());
        // The turns go round, though some leave in between.
        let mut leaving = 0..20;
        let mut turns = vec![0; 60];
        for round in 0..400 {
            for at in world.wait(1, AT_ONCE) {
                turns[at] += 1;
            }
            if round % 5 == 0 {
                leaving.next().into_iter().for_each(|at| world.read(at));
            }
        }
        let patient = &turns[20..];
        let (least, most) = (patient.iter().min().unwrap(), patient.iter().max().unwrap());
        // One in each full round, and perhaps one in those cut short at either end.
        assert!(most - least <= 2, "{patient:?}");
    }
}

/// How many descriptors were asked about in each of the waits that an event took, those apart that
/// asked about all.
fn asked_by(world: &mut World, at: usize) -> Vec<u64> {
    let all = world.sockets.len() as u64;
    world.write(at);
    let mut asked = Vec::new();
    loop {
        let before = world.asked();
        let found = world.wait(64, AT_ONCE).contains(&at);
        asked.push(world.asked() - before);
        if found {
            world.read(at);
            asked.retain(|asked| *asked < all);
            return asked;
        }
    }
}

fn one_active_of_many_costs_what_one_does() {
    let _lock = lock_many_descriptors();
    let mut world = adaptive().with(1200);
    for _ in 0..500 {
        world.event(600);
    }
    for _ in 0..1000 {
        // And what has had an event by chance; here, none.
        assert!(asked_by(&mut world, 600).iter().all(|asked| *asked <= 17));
    }
    let (active, ..) = world.sets();
    assert_eq!(active, 1);
}

fn n_grows_until_it_holds_who_is_active() {
    let _lock = lock_many_descriptors();
    let mut world = adaptive().with(1200);
    let mut chosen = 7_usize;
    // Forty, in no order: each has an event in every fortieth call or so.
    let mut step = |world: &mut World| {
        chosen = (chosen * 1103 + 12345) % 1_000_003;
        world.hear(chosen % 40, None);
    };
    (0..6000).for_each(|_| step(&mut world));
    assert!(world.registry.mechanism().n() > 40, "{}", world.registry.mechanism().n());
    let mut together = 0;
    for _ in 0..100 {
        step(&mut world);
        together += world.sets().0;
    }
    assert!((30 * 100..=300 * 100).contains(&together), "{} on average", together / 100);
}

fn everyone_active_costs_one_look_each() {
    let _lock = lock_many_descriptors();
    let mut world = adaptive().with(500);
    (0..500).for_each(|at| world.write(at));
    let before = world.asked();
    for _ in 0..50 {
        assert_eq!(world.wait(1000, AT_ONCE).len(), 500);
    }
    assert_eq!(world.asked() - before, 50 * 500);
    assert_eq!(world.sets(), (500, 0, 0));
}

fn bursts_that_move_leave_nobody_behind() {
    let _lock = lock_many_descriptors();
    let mut world = adaptive().with(1000);
    for burst in 0..20 {
        for _ in 0..40 {
            (burst * 50..burst * 50 + 5).for_each(|at| world.hear(at, None));
        }
        if burst > 0 {
            let (active, ..) = world.sets();
            assert!((5..500).contains(&active), "{active} active in burst {burst}");
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write(usize),
    Read(usize),
    /// To another interest than READ, and back.
    Change(usize),
    Close(usize),
    Wait,
}

fn steps(sockets: usize) -> impl Strategy<Value = Vec<Step>> {
    let at = 0..sockets;
    let step = prop_oneof![
        2 => at.clone().prop_map(Step::Write),
        3 => at.clone().prop_map(Step::Read),
        1 => at.clone().prop_map(Step::Change),
        1 => at.prop_map(Step::Close),
        20 => Just(Step::Wait),
    ];
    prop::collection::vec(step, 1..300)
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Set {
    Active,
    Doze,
    Idle,
}

/// A descriptor as the paper has it.
#[derive(Clone, Copy)]
struct Descriptor {
    set: Set,
    quiet: u32,
    ready: bool,
    /// The set it was in before the last call.
    tried: Option<Set>,
}

const NEW: Descriptor = Descriptor { set: Set::Active, quiet: 0, ready: false, tried: None };

/// The paper's rules, one descriptor after the other.
fn call(all: &mut [Descriptor], n: u32, since: &mut [u32; 2]) -> Vec<usize> {
    since.iter_mut().for_each(|since| *since += 1);
    let alone = all.iter().all(|one| one.set == Set::Active);
    let depth = match since {
        _ if alone => Set::Idle,
        [_, all] if *all >= n * n => Set::Idle,
        [doze, _] if *doze >= n => Set::Doze,
        _ => Set::Active,
    };
    if depth >= Set::Doze {
        since[0] = 0;
    }
    if depth == Set::Idle {
        since[1] = 0;
    }
    let mut found = Vec::new();
    for (at, one) in all.iter_mut().enumerate() {
        if one.set <= depth && one.ready {
            found.push(at);
            one.tried = (one.set != Set::Active).then_some(one.set);
            (one.set, one.quiet) = (Set::Active, 0);
            continue;
        }
        one.quiet += 1;
        let next = match (one.set, one.tried.take()) {
            (Set::Active, Some(home)) => home,
            (Set::Active, None) if one.quiet >= n - 1 => Set::Doze,
            (Set::Doze, _) if depth >= Set::Doze && one.quiet >= n * n - n => Set::Idle,
            _ => continue,
        };
        (one.set, one.quiet) = (next, 0);
    }
    found
}

proptest! {
    #![proptest_config(property(150))]

    fn the_fixed_tuning_is_the_papers(n in 2_u32..5, steps in steps(6)) {
        let mut world = fixed(n).with(6);
        let mut model = [NEW; 6];
        let mut since = [0; 2];
        for step in steps {
            match step {
                Step::Write(at) => {
                    world.write(at);
                    model[at].ready = true;
                }
                Step::Read(at) if model[at].ready => {
                    world.read(at);
                    model[at].ready = false;
                }
                Step::Read(_) => {}
                Step::Change(at) => {
                    let token = world.sockets[at].0;
                    world.registry.declare(token, Interest::empty()).unwrap();
                    world.registry.declare(token, Interest::READ).unwrap();
                    model[at] = Descriptor { ready: model[at].ready, ..NEW };
                }
                Step::Close(at) => {
                    world.registry.close(world.sockets[at].0);
                    world.add();
                    world.sockets.swap_remove(at);
                    model[at] = NEW;
                }
                Step::Wait => {
                    let mut found = world.wait(64, AT_ONCE);
                    found.sort_unstable();
                    prop_assert_eq!(found, call(&mut model, n, &mut since));
                }
            }
            let count = |set| model.iter().filter(|one| one.set == set).count();
            let expected = (count(Set::Active), count(Set::Doze), count(Set::Idle));
            prop_assert_eq!(world.sets(), expected);
        }
    }
}

proptest! {
    #![proptest_config(property(30))]

    /// A hundred descriptors come and go, are ready and quiet; who is ready is found in time, and
    /// nobody else.
    fn the_adaptive_tuning_keeps_its_bound(steps in steps(100)) {
        let _lock = lock_many_descriptors();
        let mut world = adaptive().with(100);
        let within = world.registry.mechanism().within();
        let mut ready = [None; 100];
        for step in steps {
            match step {
                Step::Write(at) => {
                    world.write(at);
                    ready[at].get_or_insert(0);
                }
                Step::Read(at) => {
                    if ready[at].take().is_some() {
                        world.read(at);
                    }
                }
                Step::Change(_) => {}
                Step::Close(at) => {
                    world.registry.close(world.sockets[at].0);
                    world.add();
                    world.sockets.swap_remove(at);
                    ready[at] = None;
                }
                Step::Wait => {
                    for _ in 0..50 {
                        let found = world.wait(200, AT_ONCE);
                        for (at, waits) in ready.iter_mut().enumerate() {
                            prop_assert!(waits.is_some() || !found.contains(&at), "{} is quiet", at);
                            let Some(waits) = waits else { continue };
                            *waits = if found.contains(&at) { u32::MAX } else { *waits };
                            if *waits != u32::MAX {
                                *waits += 1;
                                prop_assert!(*waits < within);
                            } else {
                                prop_assert!(found.contains(&at), "{} was found before", at);
                            }
                        }
                    }
                }
            }
        }
    }
}
