//! The adapter from edge to level triggers: no event is lost, and its cost. `contract` runs over
//! the adapter as well.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use hearken::mechanism::epoll::{Edge, Epoll};
use hearken::mechanism::trigger::AsLevel;
use hearken::mechanism::{Open, Registry, Trigger};
use hearken::{EventQueue, Interest, Mechanism, Readiness, Registration, Token};

use crate::suite::{Tests, tests};

/// Returns the tests of this module.
pub(crate) fn tests() -> Tests {
    tests! {
        the_trigger_is_level
        a_level_costs_a_poll_of_reported_descriptors
        the_other_direction_is_still_reported
        no_event_is_lost
        wakers_work_repeatedly
    }
}

const READ: Interest = Interest::READ;
const WRITE: Interest = Interest::WRITE;
const NOW: Option<Duration> = Some(Duration::ZERO);
const SHORT: Option<Duration> = Some(Duration::from_millis(3));
/// Maximum time to wait for an event, which no successful test reaches.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(20));

fn pair() -> (UnixStream, UnixStream) {
    let (socket, peer) = UnixStream::pair().unwrap();
    socket.set_nonblocking(true).unwrap();
    (socket, peer)
}

/// Reads until the stream would block. Returns the number of bytes.
fn drain(mut from: &UnixStream) -> usize {
    let mut sum = 0;
    loop {
        match from.read(&mut [0; 512]) {
            Ok(0) => panic!("the peer has disconnected"),
            Ok(got) => sum += got,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return sum,
            Err(error) => panic!("{error}"),
        }
    }
}

type Watch<M> = Registry<M, UnixStream>;

/// Waits once. Returns the events.
fn wait<M: Mechanism>(watch: &mut Watch<M>, timeout: Option<Duration>) -> Vec<(Token, Readiness)> {
    let got = watch.wait(64, timeout).unwrap();
    (0..got).filter_map(|at| watch.event(at)).map(|event| (event.token, event.readiness)).collect()
}

fn the_trigger_is_level() {
    let watch = Watch::new(AsLevel::new(Epoll::<Edge>::open().unwrap()));
    assert_eq!(watch.semantics().trigger, Trigger::Level);
    let [one, other] =
        [(); 2].map(|()| AsLevel::without_verification(Epoll::<Edge>::open().unwrap()));
    assert_eq!(one.semantics().reports, <Epoll<Edge> as Open>::SEMANTICS.reports);
    assert!(std::ptr::eq(one.semantics(), other.semantics()), "equal semantics are stored once");
}

/// Checks that each reported descriptor costs one poll, except after the caller reports that a call
/// would block, and that inactive descriptors cost nothing.
fn a_level_costs_a_poll_of_reported_descriptors() {
    let mut watch = Watch::new(AsLevel::without_verification(Epoll::<Edge>::open().unwrap()));
    let idle: Vec<_> = (0..50).map(|_| pair()).collect();
    let (idle, _peers): (Vec<_>, Vec<_>) = idle.into_iter().unzip();
    for source in idle {
        let token = watch.insert(source);
        watch.declare(token, READ).unwrap();
    }
    let (socket, mut peer) = pair();
    let token = watch.insert(socket);
    watch.declare(token, READ).unwrap();
    for (reports, calls) in [(false, 2), (true, 1)] {
        assert_eq!(wait(&mut watch, NOW), []);
        for _ in 0..5 {
            let before = watch.counters().calls;
            peer.write_all(b"x").unwrap();
            assert_eq!(wait(&mut watch, PATIENCE), [(token, Readiness::READABLE)]);
            drain(watch.get(token).unwrap());
            if reports {
                watch.would_block(token, READ);
            }
            assert_eq!(wait(&mut watch, NOW), []);
            assert_eq!(watch.counters().calls, before + 1 + calls);
        }
    }
}

/// Checks that a direction is still reported after the other one would block.
fn the_other_direction_is_still_reported() {
    for mechanism in [AsLevel::without_verification as fn(Epoll<Edge>) -> _, AsLevel::new] {
        let mut watch = Watch::new(mechanism(Epoll::open().unwrap()));
        let (socket, mut peer) = pair();
        let token = watch.insert(socket);
        watch.declare(token, READ | WRITE).unwrap();
        for _ in 0..3 {
            peer.write_all(b"x").unwrap();
            let both = Readiness::READABLE | Readiness::WRITABLE;
            assert_eq!(wait(&mut watch, PATIENCE), [(token, both)]);
            drain(watch.get(token).unwrap());
            watch.would_block(token, READ);
            for _ in 0..2 {
                assert_eq!(wait(&mut watch, PATIENCE), [(token, Readiness::WRITABLE)]);
            }
        }
    }
}

const MESSAGES: usize = 4000;

/// Checks that every byte of fast writers is read. The reader relies on the next event after each
/// `read`, so a lost event makes it time out.
fn check_that_no_event_is_lost<M: Mechanism + 'static>(
    mechanism: M,
    read: fn(&Registration<UnixStream>) -> usize,
) {
    let queue = EventQueue::<usize, M>::with_mechanism(mechanism).unwrap();
    let mut registrations = Vec::new();
    let mut writers = Vec::new();
    for who in 0..3 {
        let (socket, mut peer) = pair();
        registrations.push(queue.declare_interest(socket, READ, who).unwrap().0);
        writers.push(thread::spawn(move || {
            for message in 0..MESSAGES {
                peer.write_all(&[7; 3]).unwrap();
                if message % 64 == 0 {
                    thread::yield_now();
                }
            }
            peer
        }));
    }
    let mut left = 3 * 3 * MESSAGES;
    while left > 0 {
        let mut events = 0;
        for event in queue.next_events(2, PATIENCE).unwrap() {
            events += 1;
            left -= read(&registrations[event.token]);
        }
        assert!(events > 0, "{left} bytes were not reported");
    }
    for writer in writers {
        drop(writer.join().unwrap());
    }
}

fn until_it_would_block(from: &Registration<UnixStream>) -> usize {
    let sum = drain(from);
    from.would_block(READ);
    sum
}

/// Reads until a short read, which also shows that the stream would block.
fn until_a_short_read(from: &Registration<UnixStream>) -> usize {
    let mut sum = 0;
    loop {
        match (&**from).read(&mut [0; 64]) {
            Ok(64) => sum += 64,
            Ok(got) => {
                from.would_block(READ);
                return sum + got;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                from.would_block(READ);
                return sum;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Reads a few bytes, which is sufficient with level triggers.
fn a_few_bytes(from: &Registration<UnixStream>) -> usize {
    (&**from).read(&mut [0; 7]).unwrap_or(0)
}

fn no_event_is_lost() {
    for read in [until_it_would_block, until_a_short_read, a_few_bytes] {
        check_that_no_event_is_lost(AsLevel::new(Epoll::<Edge>::open().unwrap()), read);
        check_that_no_event_is_lost(
            AsLevel::without_verification(Epoll::<Edge>::open().unwrap()),
            read,
        );
    }
}

/// Checks the wake-ups of a queue over the adapter.
fn wakers_work_repeatedly() {
    fn over<M: Mechanism + 'static>(mechanism: M) {
        let queue = EventQueue::<u64, M>::with_mechanism(mechanism).unwrap();
        for _ in 0..3 {
            let waker = queue.waker();
            let thread = thread::spawn(move || waker.wake());
            assert!(queue.next_events(8, PATIENCE).unwrap().woken());
            thread.join().unwrap();
        }
        assert!(!queue.next_events(8, SHORT).unwrap().woken());
    }
    over(AsLevel::new(Epoll::<Edge>::open().unwrap()));
}
