//! `Poller` over every mechanism: changes by several threads, wake-ups, and who may wait.

// The poller watches descriptors that these tests keep open.
#![allow(unsafe_code)]

use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use hearken::mechanism::{Spec, Trigger};
use hearken::queue::Poller;
use hearken::{Event, Interest, Readiness};
use libtest_mimic::Trial;
use rustix::io::Errno;

use crate::suite;

const READ: Interest = Interest::READ;
const PATIENCE: Option<Duration> = Some(Duration::from_secs(20));

/// A test function with its name.
type Test = (&'static str, fn(&Spec));

/// Returns the trials of this module.
pub(crate) fn trials() -> Vec<Trial> {
    let tests: [Test; 7] = [
        ("events_carry_the_data_of_their_descriptor", events_carry_the_data_of_their_descriptor),
        ("level_repeats_events_over_any_mechanism", level_repeats_events_over_any_mechanism),
        ("a_wait_applies_changes_of_other_threads", a_wait_applies_changes_of_other_threads),
        (
            "errors_reach_the_thread_that_made_the_change",
            errors_reach_the_thread_that_made_the_change,
        ),
        ("a_wake_ends_one_wait", a_wake_ends_one_wait),
        ("one_thread_at_a_time_waits", one_thread_at_a_time_waits),
        (
            "any_thread_waits_unless_the_mechanism_is_bound",
            any_thread_waits_unless_the_mechanism_is_bound,
        ),
    ];
    suite::trials_over("poller", suite::variants(), |spec| {
        let make = |(name, test): Test| suite::trial("poller", spec, name, test);
        tests.into_iter().map(make).collect()
    })
}

fn open(spec: &Spec) -> Poller {
    Poller::open(&spec.to_string()).unwrap()
}

fn pair() -> (UnixStream, UnixStream) {
    let (socket, peer) = UnixStream::pair().unwrap();
    socket.set_nonblocking(true).unwrap();
    (socket, peer)
}

fn set(poller: &Poller, source: impl AsFd, interest: Interest, data: u64) -> std::io::Result<()> {
    // SAFETY: the tests keep the descriptors open until they remove them, or drop the poller.
    unsafe { poller.set(source.as_fd().as_raw_fd(), interest, data) }
}

/// Waits for the first batch with events that are not empty.
fn next(poller: &Poller) -> Vec<Event<u64>> {
    let mut events = Vec::new();
    let start = Instant::now();
    while events.is_empty() {
        poller.wait(&mut events, 8, PATIENCE, None).unwrap();
        assert!(start.elapsed() < PATIENCE.unwrap(), "no event came");
    }
    events
}

/// Checks that there are no events of `data` now.
fn assert_quiet(poller: &Poller, data: u64) {
    let mut events = Vec::new();
    poller.wait(&mut events, 8, Some(Duration::from_millis(2)), None).unwrap();
    assert!(events.iter().all(|event| event.token != data), "{events:?}");
}

fn events_carry_the_data_of_their_descriptor(spec: &Spec) {
    let poller = open(spec);
    let pairs: Vec<_> = (0..4).map(|_| pair()).collect();
    for (data, (socket, _)) in (100..).zip(&pairs) {
        set(&poller, socket, READ, data).unwrap();
    }
    (&pairs[2].1).write_all(b"x").unwrap();
    assert_eq!(next(&poller), [Event { token: 102, readiness: Readiness::READABLE }]);
    set(&poller, &pairs[2].0, READ, u64::MAX).unwrap();
    (&pairs[2].1).write_all(b"y").unwrap();
    assert_eq!(next(&poller), [Event { token: u64::MAX, readiness: Readiness::READABLE }]);
    poller.remove(pairs[2].0.as_raw_fd()).unwrap();
    assert_quiet(&poller, u64::MAX);
    let missing = poller.remove(pairs[2].0.as_raw_fd()).unwrap_err();
    assert_eq!(Errno::from_io_error(&missing), Some(Errno::NOENT));
    // SAFETY: no descriptor has this number.
    assert!(unsafe { poller.set(-1, READ, 0) }.is_err());
}

fn level_repeats_events_over_any_mechanism(spec: &Spec) {
    let poller = Poller::open_level(&spec.to_string()).unwrap();
    assert_eq!(poller.semantics().trigger, Trigger::Level);
    let (socket, mut peer) = pair();
    set(&poller, &socket, READ, 1).unwrap();
    peer.write_all(b"x").unwrap();
    for _ in 0..3 {
        assert_eq!(next(&poller), [Event { token: 1, readiness: Readiness::READABLE }]);
    }
    (&socket).read_exact(&mut [0]).unwrap();
    assert_quiet(&poller, 1);
}

fn a_wait_applies_changes_of_other_threads(spec: &Spec) {
    let poller = Arc::new(open(spec));
    let shared = poller.clone();
    let changes = thread::spawn(move || {
        thread::sleep(Duration::from_millis(5));
        let pairs: Vec<_> = (0..20).map(|_| pair()).collect();
        for (data, (socket, peer)) in (0..).zip(&pairs) {
            set(&shared, socket, READ, data).unwrap();
            // No event of it is reported after this.
            if data < 19 {
                shared.remove(socket.as_raw_fd()).unwrap();
            }
            (&*peer).write_all(b"x").unwrap();
        }
        pairs
    });
    // Without changes during the wait, it would not end.
    let mut events = Vec::new();
    while events.is_empty() {
        poller.wait(&mut events, 8, None, None).unwrap();
    }
    assert_eq!(events, [Event { token: 19, readiness: Readiness::READABLE }]);
    drop(changes.join().unwrap());
}

fn errors_reach_the_thread_that_made_the_change(spec: &Spec) {
    let poller = Arc::new(open(spec));
    let shared = poller.clone();
    let (socket, peer) = pair();
    let changes = thread::spawn(move || {
        thread::sleep(Duration::from_millis(5));
        let missing = shared.remove(socket.as_raw_fd()).unwrap_err();
        assert_eq!(Errno::from_io_error(&missing), Some(Errno::NOENT));
        set(&shared, &socket, READ, 3).unwrap();
        socket
    });
    (&peer).write_all(b"x").unwrap();
    assert_eq!(next(&poller)[0].token, 3);
    drop(changes.join().unwrap());
}

fn a_wake_ends_one_wait(spec: &Spec) {
    let poller = Arc::new(open(spec));
    let mut events = Vec::new();
    poller.wake();
    poller.wake();
    poller.wait(&mut events, 8, None, None).unwrap();
    assert!(events.is_empty());
    let shared = poller.clone();
    let waker = thread::spawn(move || {
        thread::sleep(Duration::from_millis(5));
        shared.wake();
    });
    poller.wait(&mut events, 8, None, None).unwrap();
    assert!(events.is_empty());
    waker.join().unwrap();
    for timeout in [Duration::ZERO, Duration::from_micros(1500)] {
        let start = Instant::now();
        poller.wait(&mut events, 8, Some(timeout), None).unwrap();
        assert!(events.is_empty() && start.elapsed() >= timeout);
    }
}

fn one_thread_at_a_time_waits(spec: &Spec) {
    let poller = Arc::new(open(spec));
    let shared = poller.clone();
    let other = thread::spawn(move || {
        let start = Instant::now();
        loop {
            let refused = shared.wait(&mut Vec::new(), 8, Some(Duration::ZERO), None);
            match refused.map_err(|error| Errno::from_io_error(&error)) {
                Err(Some(Errno::BUSY | Errno::PERM)) => break shared.wake(),
                _ => assert!(start.elapsed() < PATIENCE.unwrap(), "both threads wait"),
            }
        }
    });
    // The other thread may have waited first.
    while let Err(error) = poller.wait(&mut Vec::new(), 8, None, None) {
        assert_eq!(error.kind(), ErrorKind::ResourceBusy);
    }
    other.join().unwrap();
}

fn any_thread_waits_unless_the_mechanism_is_bound(spec: &Spec) {
    let poller = open(spec);
    let (socket, mut peer) = pair();
    set(&poller, &socket, READ, 5).unwrap();
    peer.write_all(b"x").unwrap();
    if !poller.is_bound() {
        let moved = thread::spawn(move || {
            assert_eq!(next(&poller)[0].token, 5);
            drop(poller);
        });
        return moved.join().unwrap();
    }
    let late = pair();
    thread::scope(|scope| {
        scope.spawn(|| {
            let refused = poller.wait(&mut Vec::new(), 8, PATIENCE, None).unwrap_err();
            assert_eq!(Errno::from_io_error(&refused), Some(Errno::PERM));
            // The change is made by the next wait.
            set(&poller, &late.0, READ, 6).unwrap();
        });
    });
    (&late.1).write_all(b"x").unwrap();
    let mut seen = Vec::new();
    while !(seen.contains(&5) && seen.contains(&6)) {
        seen.extend(next(&poller).iter().map(|event| event.token));
    }
}
