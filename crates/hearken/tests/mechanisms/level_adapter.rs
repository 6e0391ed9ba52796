//! The adapter from edge to level: it loses no event, and its cost. The suites check the contract
//! over it.

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
        a_level_costs_a_look_at_what_was_reported
        a_level_goes_on_with_the_other_direction
        a_level_loses_nothing
        wakers_work_again_and_again
    }
}

const READ: Interest = Interest::READ;
const WRITE: Interest = Interest::WRITE;
const NOW: Option<Duration> = Some(Duration::ZERO);
const SHORT: Option<Duration> = Some(Duration::from_millis(3));
/// No test that passes waits so long.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(20));

fn pair() -> (UnixStream, UnixStream) {
    let (here, there) = UnixStream::pair().unwrap();
    here.set_nonblocking(true).unwrap();
    (here, there)
}

/// Reads until that would block, and says how much there was.
fn drain(mut from: &UnixStream) -> usize {
    let mut sum = 0;
    loop {
        match from.read(&mut [0; 512]) {
            Ok(0) => panic!("the peer has gone"),
            Ok(got) => sum += got,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return sum,
            Err(error) => panic!("{error}"),
        }
    }
}

type Watch<M> = Registry<M, UnixStream>;

/// What one wait brings.
fn wait<M: Mechanism>(watch: &mut Watch<M>, timeout: Option<Duration>) -> Vec<(Token, Readiness)> {
    let got = watch.wait(64, timeout).unwrap();
    (0..got).filter_map(|at| watch.event(at)).map(|event| (event.who, event.readiness)).collect()
}

fn the_trigger_is_level() {
    let watch = Watch::new(AsLevel::new(Epoll::<Edge>::open().unwrap()));
    assert_eq!(watch.semantics().trigger, Trigger::Level);
    let [one, other] = [(); 2].map(|()| AsLevel::believing(Epoll::<Edge>::open().unwrap()));
    assert_eq!(one.semantics().reports, <Epoll<Edge> as Open>::SEMANTICS.reports);
    assert!(std::ptr::eq(one.semantics(), other.semantics()), "they are kept once");
}

/// A level costs a look at what was reported, which who says that it was used up is spared; the
/// idle cost nothing.
fn a_level_costs_a_look_at_what_was_reported() {
    let mut watch = Watch::new(AsLevel::believing(Epoll::<Edge>::open().unwrap()));
    let idle: Vec<_> = (0..50).map(|_| pair()).collect();
    let (idle, _peers): (Vec<_>, Vec<_>) = idle.into_iter().unzip();
    for source in idle {
        let token = watch.insert(source);
        watch.declare(token, READ).unwrap();
    }
    let (here, mut there) = pair();
    let token = watch.insert(here);
    watch.declare(token, READ).unwrap();
    for (tells, calls) in [(false, 2), (true, 1)] {
        assert_eq!(wait(&mut watch, NOW), []);
        for _ in 0..5 {
            let before = watch.counters().calls;
            there.write_all(b"x").unwrap();
            assert_eq!(wait(&mut watch, PATIENCE), [(token, Readiness::READABLE)]);
            drain(watch.get(token).unwrap());
            if tells {
                watch.would_block(token, READ);
            }
            assert_eq!(wait(&mut watch, NOW), []);
            assert_eq!(watch.counters().calls, before + 1 + calls);
        }
    }
}

/// One direction is used up, and the other still said.
fn a_level_goes_on_with_the_other_direction() {
    for mechanism in [AsLevel::believing as fn(Epoll<Edge>) -> _, AsLevel::new] {
        let mut watch = Watch::new(mechanism(Epoll::open().unwrap()));
        let (here, mut there) = pair();
        let token = watch.insert(here);
        watch.declare(token, READ | WRITE).unwrap();
        for _ in 0..3 {
            there.write_all(b"x").unwrap();
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

/// Writers as fast as they can, and a reader who relies on the next event after what `read` does:
/// were one lost, it would wait for ever.
fn nothing_is_lost<M: Mechanism + 'static>(
    mechanism: M,
    read: fn(&Registration<UnixStream>) -> usize,
) {
    let queue = EventQueue::<usize, M>::over(mechanism).unwrap();
    let mut registrations = Vec::new();
    let mut writers = Vec::new();
    for who in 0..3 {
        let (here, mut there) = pair();
        registrations.push(queue.declare_interest(here, READ, who).unwrap().0);
        writers.push(thread::spawn(move || {
            for message in 0..MESSAGES {
                there.write_all(&[7; 3]).unwrap();
                if message % 64 == 0 {
                    thread::yield_now();
                }
            }
            there
        }));
    }
    let mut left = 3 * 3 * MESSAGES;
    while left > 0 {
        let mut events = 0;
        for event in queue.next_events(2, PATIENCE).unwrap() {
            events += 1;
            left -= read(&registrations[event.who]);
        }
        assert!(events > 0, "{left} bytes were not told of");
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

/// A short read tells that there is no more, too.
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

/// As a level allows.
fn a_little_of_it(from: &Registration<UnixStream>) -> usize {
    (&**from).read(&mut [0; 7]).unwrap_or(0)
}

fn a_level_loses_nothing() {
    for read in [until_it_would_block, until_a_short_read, a_little_of_it] {
        nothing_is_lost(AsLevel::new(Epoll::<Edge>::open().unwrap()), read);
        nothing_is_lost(AsLevel::believing(Epoll::<Edge>::open().unwrap()), read);
    }
}

/// The queue tells of its own wake-ups.
fn wakers_work_again_and_again() {
    fn over<M: Mechanism + 'static>(mechanism: M) {
        let queue = EventQueue::<u64, M>::over(mechanism).unwrap();
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
