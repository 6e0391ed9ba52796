//! Behaviour specific to `locality`: its sets, their members, and the number of waits until an
//! event is found.
//!
//! The tests count waits and descriptors. The adaptive tuning also reads the clock: on a slower
//! machine it checks all descriptors more often, which no test treats as an error.

pub(crate) mod threads;

use std::collections::HashSet;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Once;
use std::thread;
use std::time::{Duration, Instant};

use hearken::mechanism::locality::Locality;
use hearken::mechanism::{Open, Options, Registry};
use hearken::{EventQueue, Interest, Mechanism, Token};
use proptest::prelude::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::suite::{Tests, lock_many_descriptors, property, tests};

/// Returns the tests of this module.
pub(crate) fn tests() -> Tests {
    tests! {
        descriptors_are_demoted_after_calls_without_events
        an_event_restarts_the_count
        events_in_two_consecutive_calls_promote
        one_event_promotes_with_adaptive_tuning
        a_changed_interest_promotes
        listeners_and_locked_descriptors_stay_active
        the_wake_up_of_a_queue_stays_active
        idle_descriptors_are_found_within_the_bound
        a_wait_without_timeout_finds_idle_descriptors
        active_descriptors_do_not_starve_others
        one_active_descriptor_among_many_costs_like_one
        n_grows_until_the_active_set_is_complete
        active_descriptors_cost_one_check_each
        moving_bursts_leave_no_descriptor_behind
        n_can_be_set_at_run_time
        a_busy_wait_sleeps_after_k_calls_without_events
        fixed_tuning_matches_the_paper
        adaptive_tuning_respects_its_bound
    }
}

const AT_ONCE: Option<Duration> = Some(Duration::ZERO);

fn raise_limit() {
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

/// Registered sockets and their peers, by index.
struct World {
    registry: Registry<Locality, OwnedFd>,
    sockets: Vec<(Token, UnixStream)>,
}

impl World {
    fn over(mechanism: Locality) -> World {
        World { registry: Registry::new(mechanism), sockets: Vec::new() }
    }

    fn add(&mut self) -> usize {
        raise_limit();
        let (socket, peer) = UnixStream::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        let token = self.registry.insert(socket.into());
        self.registry.declare(token, Interest::READ).unwrap();
        self.sockets.push((token, peer));
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

    fn checked(&self) -> u64 {
        self.registry.mechanism().polled()
    }

    fn write(&self, at: usize) {
        assert_eq!(rustix::io::write(&self.sockets[at].1, b"x"), Ok(1));
    }

    fn read(&self, at: usize) {
        let source = self.registry.get(self.sockets[at].0).unwrap();
        assert_ne!(rustix::io::read(source, &mut [0; 64]), Ok(0));
    }

    fn calls(&self) -> u64 {
        self.registry.counters().calls
    }

    /// Waits once. Returns the indices of the reported sockets.
    fn wait(&mut self, max: usize, timeout: Option<Duration>) -> Vec<usize> {
        let got = self.registry.wait(max, timeout).unwrap();
        let indices = (0..got).filter_map(|index| self.registry.event(index)).map(|event| {
            self.sockets.iter().position(|(token, _)| *token == event.token).expect("registered")
        });
        indices.collect::<Vec<_>>()
    }

    fn wait_without_events(&mut self, waits: u32) {
        for _ in 0..waits {
            assert_eq!(self.wait(8, AT_ONCE), []);
        }
    }

    /// Adds duplicates of an inactive socket, which have a descriptor each.
    fn with_duplicates(mut self, count: usize) -> World {
        let at = self.add();
        let room = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) as usize / 2;
        for _ in 0..count.min(room) {
            let source = self.registry.get(self.sockets[at].0).unwrap().try_clone().unwrap();
            let token = self.registry.insert(source);
            self.registry.declare(token, Interest::READ).unwrap();
        }
        self
    }

    /// Writes to a socket, waits until it is reported, and reads.
    fn event(&mut self, at: usize) {
        self.write_and_wait(at, AT_ONCE);
    }

    fn write_and_wait(&mut self, at: usize, timeout: Option<Duration>) {
        self.write(at);
        while !self.wait(64, timeout).contains(&at) {}
        self.read(at);
    }

    /// Returns the number of waits until `at` is reported.
    fn found_within(&mut self, at: usize) -> u32 {
        (1..).find(|_| self.wait(64, AT_ONCE).contains(&at)).unwrap()
    }
}

fn n_can_be_set_at_run_time() {
    let mut world = fixed(2).with(3);
    world.registry.mechanism().set_n(4096);
    assert_eq!(world.registry.mechanism().n(), 4096);
    assert_eq!(world.registry.mechanism().scan_interval(), 4096 * 4096);
    world.wait_without_events(1000);
    assert_eq!(world.sets(), (3, 0, 0));
    world.registry.mechanism().set_n(0);
    assert_eq!(world.registry.mechanism().n(), 2);
    world.wait_without_events(10);
    assert_eq!(world.sets(), (0, 0, 3));
}

fn a_busy_wait_sleeps_after_k_calls_without_events() {
    let timeout = Duration::from_millis(60);
    let busy = [("tuning", "fixed"), ("n", "3"), ("busy", "50")];
    let mut world = World::over(open(&busy)).with(3);
    for is_first in [true, false] {
        let (before, start) = (world.calls(), Instant::now());
        assert_eq!(world.wait(8, Some(timeout)), []);
        assert!(start.elapsed() >= timeout);
        let calls = world.calls() - before;
        // A call can also recognise a listener, and the sleep takes two.
        let expected = if is_first { 50..60 } else { 1..5 };
        assert!(expected.contains(&calls), "{calls} calls");
    }
    assert_eq!(world.sets(), (0, 0, 3));
    // An event starts the count again.
    world.event(1);
    let before = world.calls();
    assert_eq!(world.wait(8, Some(timeout)), []);
    assert!(world.calls() - before >= 50);
    // A timeout ends the calls.
    let mut world = World::over(open(&[("busy", "4294967295")])).with(3);
    let start = Instant::now();
    assert_eq!(world.wait(8, Some(timeout)), []);
    assert!((timeout..timeout * 100).contains(&start.elapsed()));
    world.write_and_wait(2, None);
}

fn descriptors_are_demoted_after_calls_without_events() {
    for n in [2, 3, 5, 10] {
        let mut world = fixed(n).with(1);
        world.wait_without_events(n - 2);
        assert_eq!(world.sets(), (1, 0, 0), "with {n}");
        world.wait_without_events(1);
        assert_eq!(world.sets(), (0, 1, 0), "after N-1 calls");
        world.wait_without_events(n * n - n - 1);
        assert_eq!(world.sets(), (0, 1, 0), "with {n}");
        world.wait_without_events(1);
        assert_eq!(world.sets(), (0, 0, 1), "after N*N-N more");
    }
}

fn an_event_restarts_the_count() {
    let mut world = fixed(4).with(1);
    for _ in 0..5 {
        world.wait_without_events(2);
        world.event(0);
        assert_eq!(world.sets(), (1, 0, 0));
    }
    world.wait_without_events(3);
    assert_eq!(world.sets(), (0, 1, 0));
}

fn events_in_two_consecutive_calls_promote() {
    const N: u32 = 3;
    for (quiet, set) in [(N - 1, (0, 1, 0)), (N * N - 1, (0, 0, 1))] {
        let mut world = fixed(N).with(1);
        world.wait_without_events(quiet);
        assert_eq!(world.sets(), set);
        // One event is not sufficient.
        world.event(0);
        assert_eq!(world.sets(), (1, 0, 0), "it is checked in the next call");
        world.wait_without_events(1);
        assert_eq!(world.sets(), set);
        // Two events are.
        world.event(0);
        world.write(0);
        assert_eq!(world.wait(8, AT_ONCE), [0]);
        world.read(0);
        world.wait_without_events(N - 2);
        assert_eq!(world.sets(), (1, 0, 0));
        world.wait_without_events(1);
        assert_eq!(world.sets(), (0, 1, 0));
    }
}

fn one_event_promotes_with_adaptive_tuning() {
    let mut world = adaptive().with(40);
    while world.sets().0 > 0 {
        world.wait_without_events(1);
    }
    world.event(7);
    world.wait_without_events(1);
    assert_eq!(world.sets().0, 1);
}

fn a_changed_interest_promotes() {
    let mut world = fixed(3).with(1);
    world.wait_without_events(8);
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

fn listeners_and_locked_descriptors_stay_active() {
    for mut world in [fixed(3), adaptive()] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let token = world.registry.insert(listener.into());
        world.registry.declare(token, Interest::READ).unwrap();
        let mut world = world.with(2);
        let locked = world.sockets[1].0;
        world.registry.keep_active(locked);
        world.wait_without_events(40);
        let (active, doze, idle) = world.sets();
        assert_eq!((active, doze + idle), (2, 1));
        // A descriptor that was idle can be locked too.
        let other = world.sockets[0].0;
        world.registry.keep_active(other);
        world.wait_without_events(40);
        assert_eq!(world.sets(), (3, 0, 0));
        for token in [token, locked, other] {
            world.registry.remove(token).unwrap();
        }
        assert_eq!(world.sets(), (0, 0, 0));
    }
}

fn the_wake_up_of_a_queue_stays_active() {
    let mechanism = open(&[("tuning", "fixed"), ("n", "64"), ("sleep-us", "100000")]);
    let queue = EventQueue::<u64, _>::with_mechanism(mechanism).unwrap();
    let (socket, _there) = UnixStream::pair().unwrap();
    let _registration = queue.declare_interest(socket, Interest::READ, 1).unwrap();
    for _ in 0..200 {
        assert!(!queue.next_events(8, AT_ONCE).unwrap().woken());
    }
    for _ in 0..100 {
        queue.waker().wake();
        assert!(queue.next_events(8, AT_ONCE).unwrap().woken(), "in the first wait");
    }
}

fn idle_descriptors_are_found_within_the_bound() {
    let _lock = lock_many_descriptors();
    // With so many descriptors, some waits of the adaptive tuning do not check all, which depends
    // on the clock.
    let adaptive = World::over(open(&[("sleep-us", "100000")]));
    let worlds = [(fixed(2), 200), (fixed(3), 200), (fixed(7), 200), (adaptive, 6000)];
    for mut world in worlds.map(|(world, duplicates)| world.with(100).with_duplicates(duplicates)) {
        let within = world.registry.mechanism().scan_interval();
        // The first socket is always ready, so no wait has a reason to check the other sets.
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
            // Afterwards, the descriptor is in every batch.
            for _ in 0..3 {
                assert_eq!(world.wait(64, AT_ONCE).len(), 2);
            }
            world.read(at);
            for _ in 0..at % 11 {
                world.wait(64, AT_ONCE);
            }
        }
        if within < 1024 {
            assert!(latest > 1, "no wait failed to find one: they were not idle");
        }
    }
}

fn a_wait_without_timeout_finds_idle_descriptors() {
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

fn active_descriptors_do_not_starve_others() {
    let _lock = lock_many_descriptors();
    for world in [fixed(3), adaptive()] {
        let mut world = world.with(260);
        let within = world.registry.mechanism().scan_interval();
        for _ in 0..100 {
            world.wait(1, AT_ONCE);
        }
        // Always ready, and one event is taken at a time.
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
        // All sockets take turns, although some become inactive.
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
        let waiting = &turns[20..];
        let (least, most) = (waiting.iter().min().unwrap(), waiting.iter().max().unwrap());
        // One event in each full round, and possibly one in the incomplete first and last rounds.
        assert!(most - least <= 2, "{waiting:?}");
    }
}

/// Returns the number of descriptors that each wait checked until an event was found, except waits
/// that checked all.
fn checks_per_wait(world: &mut World, at: usize) -> Vec<u64> {
    let all = world.sockets.len() as u64;
    world.write(at);
    let mut asked = Vec::new();
    loop {
        let before = world.checked();
        let found = world.wait(64, AT_ONCE).contains(&at);
        asked.push(world.checked() - before);
        if found {
            world.read(at);
            asked.retain(|asked| *asked < all);
            return asked;
        }
    }
}

fn one_active_descriptor_among_many_costs_like_one() {
    let _lock = lock_many_descriptors();
    let mut world = adaptive().with(1200);
    for _ in 0..500 {
        world.event(600);
    }
    for _ in 0..1000 {
        // Plus descriptors with recent events, of which there are none.
        assert!(checks_per_wait(&mut world, 600).iter().all(|asked| *asked <= 17));
    }
    let (active, ..) = world.sets();
    assert_eq!(active, 1);
}

fn n_grows_until_the_active_set_is_complete() {
    let _lock = lock_many_descriptors();
    let mut world = adaptive().with(1200);
    let mut chosen = 7_usize;
    // Forty sockets in random order: each has an event in about every fortieth call.
    let mut step = |world: &mut World| {
        chosen = (chosen * 1103 + 12345) % 1_000_003;
        world.write_and_wait(chosen % 40, None);
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

fn active_descriptors_cost_one_check_each() {
    let _lock = lock_many_descriptors();
    let mut world = adaptive().with(500);
    (0..500).for_each(|at| world.write(at));
    let before = world.checked();
    for _ in 0..50 {
        assert_eq!(world.wait(1000, AT_ONCE).len(), 500);
    }
    assert_eq!(world.checked() - before, 50 * 500);
    assert_eq!(world.sets(), (500, 0, 0));
}

fn moving_bursts_leave_no_descriptor_behind() {
    let _lock = lock_many_descriptors();
    let mut world = adaptive().with(1000);
    for burst in 0..20 {
        for _ in 0..40 {
            (burst * 50..burst * 50 + 5).for_each(|at| world.write_and_wait(at, None));
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
    /// Changes the interest, and changes it back.
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

/// A descriptor in the paper's model.
#[derive(Clone, Copy)]
struct Descriptor {
    set: Set,
    quiet: u32,
    ready: bool,
    /// The set it was in before the last call.
    tried: Option<Set>,
}

const NEW: Descriptor = Descriptor { set: Set::Active, quiet: 0, ready: false, tried: None };

/// Applies the paper's rules to each descriptor in turn. Returns the reported ones.
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
            (Set::Active, Some(set)) => set,
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

    fn fixed_tuning_matches_the_paper(n in 2_u32..5, steps in steps(6)) {
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

    fn adaptive_tuning_respects_its_bound(steps in steps(100)) {
        respects_its_bound(adaptive(), steps)?;
    }
}

/// Checks that ready descriptors among a hundred are found within the bound, and that no others
/// are reported, while descriptors are added, removed and change readiness.
fn respects_its_bound(world: World, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let _lock = lock_many_descriptors();
    let mut world = world.with(100);
    let within = world.registry.mechanism().scan_interval();
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
    Ok(())
}
