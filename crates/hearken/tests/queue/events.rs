//! `EventQueue`, over every mechanism in the table.

// Each test owns its queue, as some drop it.
#![allow(clippy::needless_pass_by_value)]

use std::io::{ErrorKind, Read, Write};
use std::mem;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use hearken::mechanism::{Trigger, WaitCost};
use hearken::{Event, EventQueue, Interest, Readiness, Registration};
use libtest_mimic::Trial;

use crate::suite::{self, AnyMechanism};

const READ: Interest = Interest::READ;
const WRITE: Interest = Interest::WRITE;
/// How long a wait may last that is expected to end by an event. No test that passes runs into it.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(20));
const AT_ONCE: Option<Duration> = Some(Duration::ZERO);

/// The tests, each with its name.
macro_rules! tests {
    ($($test:ident)*) => {
        [$((stringify!($test), $test as fn(Queue)),)*]
    };
}

/// Returns the trials of this module.
pub(crate) fn trials() -> Vec<Trial> {
    let tests = tests! {
        declaring_answers_what_is_ready_now
        what_came_before_is_an_event_too
        an_event_says_whose_it_is_and_what
        events_come_in_order_of_arrival
        one_event_however_much_happened
        dropped_while_it_waits_in_the_batch
        a_slot_used_again_within_a_batch
        what_is_left_comes_first
        what_was_dealt_with_is_not_said
        at_most_max
        any_max_will_do
        a_timeout_is_never_early
        batches_may_be_nested
        an_idle_deadline_is_never_early_and_comes_once
        activity_puts_idleness_off
        an_event_arms_idleness_again
        idleness_taken_back
        idleness_taken_back_after_it_came
        idleness_put_off_after_it_came
        idleness_that_ended_before_it_was_said
        idleness_is_said_alone
        idleness_goes_with_the_registration
        a_slot_used_again_does_not_inherit_idleness
        idleness_for_ever
        a_waker_ends_a_wait
        a_waker_may_come_first
        wakers_do_not_add_up
        a_waker_may_outlive_its_queue
        a_waker_does_not_hide_events
        a_changed_interest_holds_at_once
        a_changed_interest_asks_again
        a_source_comes_back
        a_forgotten_registration_stays
        a_registration_may_outlive_its_queue
        a_refused_source_is_given_back
        dropping_everything_closes_everything
        a_source_may_use_the_queue_as_it_is_dropped
        counters_count
    };
    suite::trials_over("events", suite::variants(), |spec| {
        let test = |(name, test): (&str, fn(Queue))| {
            suite::trial("events", spec, name, move |spec| {
                test(EventQueue::over(suite::open(spec)).expect("a queue"));
            })
        };
        tests.into_iter().map(test).collect()
    })
}

type Queue = EventQueue<u64, AnyMechanism>;
type Stream = Registration<UnixStream>;

fn pair() -> (UnixStream, UnixStream) {
    let (here, there) = UnixStream::pair().expect("socketpair");
    here.set_nonblocking(true).expect("nonblocking");
    there.set_nonblocking(true).expect("nonblocking");
    (here, there)
}

fn declared(queue: &Queue, interest: Interest, payload: u64) -> (Stream, UnixStream) {
    let (here, there) = pair();
    let (registration, _) = queue.declare_interest(here, interest, payload).unwrap();
    (registration, there)
}

/// Some that have something to read, called 0, 1, 2...
fn readable(queue: &Queue, count: u64) -> Vec<(Stream, UnixStream)> {
    (0..count)
        .map(|payload| {
            let (registration, mut peer) = declared(queue, READ, payload);
            peer.write_all(b"x").unwrap();
            (registration, peer)
        })
        .collect()
}

fn take(queue: &Queue, timeout: Option<Duration>) -> Vec<Event<u64>> {
    let events: Vec<_> = queue.next_events(64, timeout).unwrap().collect();
    for (at, event) in events.iter().enumerate() {
        let twice = events[..at].iter().any(|other| other.who == event.who);
        assert!(!twice, "{} twice in a batch", event.who);
    }
    events
}

/// Has a batch of which nobody takes anything.
fn leave(queue: &Queue) {
    let _ = queue.next_events(64, PATIENCE).unwrap();
}

/// As after an event has been dealt with: one-shot mechanisms are armed again.
fn arm(queue: &Queue, registration: &Stream) {
    if queue.semantics().trigger == Trigger::OneShot {
        registration.change_interest(READ).unwrap();
    }
}

fn said(who: u64, readiness: Readiness) -> Event<u64> {
    Event { who, readiness }
}

fn drain(mut stream: &UnixStream) -> usize {
    let mut bytes = [0; 4096];
    let mut sum = 0;
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return sum,
            Ok(got) => sum += got,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return sum,
            Err(error) => panic!("{error}"),
        }
    }
}

fn quiet(queue: &Queue) {
    for millis in [0, 10] {
        let events = take(queue, Some(Duration::from_millis(millis)));
        assert!(events.is_empty(), "{events:?}");
    }
}

/// The peer's end of what is closed.
fn is_closed(mut peer: &UnixStream) -> bool {
    match peer.read(&mut [0]) {
        Ok(0) => true,
        Err(error) if error.kind() == ErrorKind::ConnectionReset => true,
        Err(error) if error.kind() == ErrorKind::WouldBlock => false,
        other => panic!("{other:?}"),
    }
}

fn declaring_answers_what_is_ready_now(queue: Queue) {
    let (here, _there) = pair();
    let (_registration, ready) = queue.declare_interest(here, READ, 1).unwrap();
    assert_eq!(ready, Readiness::WRITABLE, "of all it could be asked for");

    let (here, mut there) = pair();
    there.write_all(b"x").unwrap();
    let (_registration, ready) = queue.declare_interest(here, Interest::empty(), 2).unwrap();
    assert_eq!(ready, Readiness::READABLE | Readiness::WRITABLE);

    let (here, there) = pair();
    drop(there);
    let (_registration, ready) = queue.declare_interest(here, READ, 3).unwrap();
    assert!(ready.contains(Readiness::READABLE | Readiness::READ_CLOSED));
}

fn what_came_before_is_an_event_too(queue: Queue) {
    let (here, mut there) = pair();
    there.write_all(b"x").unwrap();
    let _registration = queue.declare_interest(here, READ, 5).unwrap();
    assert_eq!(take(&queue, PATIENCE), [said(5, Readiness::READABLE)]);
}

fn an_event_says_whose_it_is_and_what(queue: Queue) {
    let (read, mut peer) = declared(&queue, READ, u64::MAX);
    quiet(&queue);
    peer.write_all(b"x").unwrap();
    assert_eq!(take(&queue, PATIENCE), [said(u64::MAX, Readiness::READABLE)]);
    drop(read);
    let (_write, mut peer) = declared(&queue, WRITE, 0);
    peer.write_all(b"x").unwrap();
    assert_eq!(take(&queue, PATIENCE), [said(0, Readiness::WRITABLE)]);
}

fn events_come_in_order_of_arrival(queue: Queue) {
    let mut pairs: Vec<_> = (0..8).map(|who| declared(&queue, READ, who)).collect();
    // What rides on the next wait has no order before it.
    quiet(&queue);
    let order = [3, 1, 4, 7, 5, 0, 2, 6];
    for at in order {
        pairs[at].1.write_all(b"x").unwrap();
    }
    let mut whose: Vec<_> = take(&queue, PATIENCE).iter().map(|event| event.who).collect();
    // What scans a list has no other order than the list's.
    if queue.semantics().wait == WaitCost::Ready {
        assert_eq!(whose, order.map(|at| at as u64));
    } else {
        whose.sort_unstable();
        assert_eq!(whose, [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}

fn one_event_however_much_happened(queue: Queue) {
    let mut pairs = readable(&queue, 2);
    let first = queue.next_events(64, PATIENCE).unwrap().next().unwrap().who;
    // The other's event is left; more arrives for it.
    let other = usize::from(first == 0);
    drain(&pairs[1 - other].0);
    pairs[other].1.write_all(b"y").unwrap();
    pairs[other].1.write_all(b"z").unwrap();
    let events = take(&queue, PATIENCE);
    assert_eq!(events, [said(other as u64, Readiness::READABLE)]);
    assert_eq!(drain(&pairs[other].0), 3);
    quiet(&queue);
}

fn dropped_while_it_waits_in_the_batch(queue: Queue) {
    let mut pairs: Vec<_> = readable(&queue, 6).into_iter().map(Some).collect();
    let mut events = queue.next_events(64, PATIENCE).unwrap();
    let mut seen = vec![events.next().unwrap().who];
    for gone in [1, 2, 4] {
        if !seen.contains(&gone) {
            pairs[gone as usize] = None;
        }
    }
    let kept: Vec<_> = (0..6).filter(|&who| pairs[who as usize].is_some()).collect();
    seen.extend(events.map(|event| event.who));
    seen.sort_unstable();
    assert_eq!(seen, kept);
}

fn a_slot_used_again_within_a_batch(queue: Queue) {
    let mut pairs = readable(&queue, 3);
    let mut events = queue.next_events(64, PATIENCE).unwrap();
    let first = events.next().unwrap().who;
    // The others go, and strangers get their slots and, as a rule, their descriptors' numbers.
    pairs.clear();
    let mut strangers: Vec<_> = (10..13).map(|who| declared(&queue, READ, who)).collect();
    assert_eq!(events.next(), None, "after {first}");
    quiet(&queue);
    strangers[1].1.write_all(b"x").unwrap();
    assert_eq!(take(&queue, PATIENCE), [said(11, Readiness::READABLE)]);
}

fn what_is_left_comes_first(queue: Queue) {
    let mut pairs = readable(&queue, 3);
    let taken = queue.next_events(64, PATIENCE).unwrap().next().unwrap().who;
    drain(&pairs[taken as usize].0);
    arm(&queue, &pairs[taken as usize].0);
    pairs[taken as usize].1.write_all(b"new").unwrap();
    let mut whose: Vec<_> = take(&queue, PATIENCE).iter().map(|event| event.who).collect();
    assert_eq!(whose.pop(), Some(taken), "the later arrival is last");
    assert_eq!(whose.len(), 2, "and what was left is still there");
}

fn what_was_dealt_with_is_not_said(queue: Queue) {
    let pairs = readable(&queue, 3);
    leave(&queue);
    for at in [0, 2] {
        assert_eq!(drain(&pairs[at].0), 1);
    }
    assert_eq!(take(&queue, PATIENCE), [said(1, Readiness::READABLE)]);
}

fn at_most_max(queue: Queue) {
    let pairs = readable(&queue, 10);
    let mut seen = [false; 10];
    for _ in 0..4 {
        let events: Vec<_> = queue.next_events(3, PATIENCE).unwrap().collect();
        assert!((1..=3).contains(&events.len()), "{events:?}");
        for event in events {
            seen[event.who as usize] = true;
            drain(&pairs[event.who as usize].0);
        }
    }
    assert_eq!(seen, [true; 10]);
    // A batch that is over stays over, also when there is more.
    let _more = readable(&queue, 3);
    let mut events = queue.next_events(1, PATIENCE).unwrap();
    assert!(events.next().is_some());
    assert_eq!(events.next(), None);
    assert_eq!(events.next(), None);
}

fn any_max_will_do(queue: Queue) {
    let _pairs = readable(&queue, 2);
    assert_eq!(queue.next_events(0, PATIENCE).unwrap().count(), 1);
    assert!(queue.next_events(usize::MAX, PATIENCE).unwrap().count() >= 1);
}

fn a_timeout_is_never_early(queue: Queue) {
    let _pair = declared(&queue, READ, 0);
    for timeout in [1, 900_000, 3_100_000].map(Duration::from_nanos) {
        let start = Instant::now();
        let events = queue.next_events(8, Some(timeout)).unwrap();
        assert!(start.elapsed() >= timeout);
        assert!(!events.woken());
        assert_eq!(events.count(), 0);
    }
}

fn batches_may_be_nested(queue: Queue) {
    let pairs = readable(&queue, 4);
    let mut seen = Vec::new();
    let mut outer = queue.next_events(64, PATIENCE).unwrap();
    let first = outer.next().unwrap().who;
    drain(&pairs[first as usize].0);
    seen.push(first);
    for event in queue.next_events(2, PATIENCE).unwrap() {
        drain(&pairs[event.who as usize].0);
        seen.push(event.who);
    }
    seen.extend(outer.map(|event| event.who));
    seen.sort_unstable();
    assert_eq!(seen, [0, 1, 2, 3]);
}

const IDLE: Duration = Duration::from_millis(12);

fn an_idle_deadline_is_never_early_and_comes_once(queue: Queue) {
    let (registration, _peer) = declared(&queue, READ, 3);
    for idle in [Duration::ZERO, Duration::from_micros(700), IDLE] {
        let start = Instant::now();
        registration.set_idle_deadline(Some(idle));
        assert_eq!(take(&queue, None), [said(3, Readiness::IDLE)]);
        assert!(start.elapsed() >= idle);
        let longer = Some(idle * 2 + Duration::from_millis(5));
        assert_eq!(take(&queue, longer), []);
    }
}

fn activity_puts_idleness_off(queue: Queue) {
    let (registration, mut peer) = declared(&queue, READ, 3);
    let mut last = Instant::now();
    registration.set_idle_deadline(Some(IDLE));
    let mut writes = 0;
    loop {
        let events = take(&queue, Some(IDLE / 3));
        if events.iter().any(|event| event.readiness.is_idle()) {
            assert!(last.elapsed() >= IDLE, "after {writes} writes");
            break;
        }
        drain(&registration);
        arm(&queue, &registration);
        if writes < 6 {
            peer.write_all(b"x").unwrap();
            writes += 1;
            last = Instant::now();
        }
    }
}

fn an_event_arms_idleness_again(queue: Queue) {
    let (registration, mut peer) = declared(&queue, READ, 3);
    registration.set_idle_deadline(Some(IDLE));
    for _ in 0..2 {
        assert_eq!(take(&queue, PATIENCE), [said(3, Readiness::IDLE)]);
        let start = Instant::now();
        peer.write_all(b"x").unwrap();
        assert_eq!(take(&queue, PATIENCE), [said(3, Readiness::READABLE)]);
        drain(&registration);
        arm(&queue, &registration);
        assert_eq!(take(&queue, PATIENCE), [said(3, Readiness::IDLE)]);
        assert!(start.elapsed() >= IDLE);
        registration.set_idle_deadline(Some(IDLE));
    }
}

fn idleness_taken_back(queue: Queue) {
    let (registration, _peer) = declared(&queue, READ, 3);
    registration.set_idle_deadline(Some(IDLE));
    registration.set_idle_deadline(None);
    assert_eq!(take(&queue, Some(IDLE * 3)), []);
}

/// Two are idle, and the first to be told takes the other's back.
fn idleness_taken_back_after_it_came(queue: Queue) {
    let (one, two) = (declared(&queue, READ, 1), declared(&queue, READ, 2));
    for (registration, _) in [&one, &two] {
        registration.set_idle_deadline(Some(Duration::ZERO));
    }
    thread::sleep(Duration::from_millis(5));
    let mut events = queue.next_events(64, PATIENCE).unwrap();
    let first = events.next().unwrap();
    assert!(first.readiness.is_idle());
    let other = if first.who == 1 { &two } else { &one };
    other.0.set_idle_deadline(None);
    assert_eq!(events.next(), None);
    assert_eq!(take(&queue, Some(IDLE)), []);
}

fn idleness_put_off_after_it_came(queue: Queue) {
    let (registration, _peer) = declared(&queue, READ, 1);
    registration.set_idle_deadline(Some(Duration::ZERO));
    leave(&queue);
    let start = Instant::now();
    registration.set_idle_deadline(Some(IDLE));
    assert_eq!(take(&queue, PATIENCE), [said(1, Readiness::IDLE)]);
    assert!(start.elapsed() >= IDLE);
}

/// It was idle, but by the time it is told it no longer is.
fn idleness_that_ended_before_it_was_said(queue: Queue) {
    let (registration, mut peer) = declared(&queue, READ, 1);
    registration.set_idle_deadline(Some(IDLE));
    leave(&queue);
    peer.write_all(b"x").unwrap();
    let start = Instant::now();
    assert_eq!(take(&queue, PATIENCE), [said(1, Readiness::READABLE)]);
    drain(&registration);
    assert_eq!(take(&queue, PATIENCE), [said(1, Readiness::IDLE)]);
    assert!(start.elapsed() >= IDLE);
}

/// An event that was not taken waits longer than the deadline: it is no idleness.
fn idleness_is_said_alone(queue: Queue) {
    let pairs = readable(&queue, 1);
    pairs[0].0.set_idle_deadline(Some(Duration::from_millis(2)));
    leave(&queue);
    thread::sleep(Duration::from_millis(6));
    assert_eq!(take(&queue, PATIENCE), [said(0, Readiness::READABLE)]);
    drain(&pairs[0].0);
    assert_eq!(take(&queue, PATIENCE), [said(0, Readiness::IDLE)]);
}

fn idleness_goes_with_the_registration(queue: Queue) {
    let (registration, _peer) = declared(&queue, READ, 1);
    registration.set_idle_deadline(Some(IDLE));
    let source = registration.into_source();
    assert_eq!(take(&queue, Some(IDLE * 2)), []);
    drop(source);
}

fn a_slot_used_again_does_not_inherit_idleness(queue: Queue) {
    let (old, _old_peer) = declared(&queue, READ, 1);
    old.set_idle_deadline(Some(IDLE));
    drop(old);
    let (new, mut peer) = declared(&queue, READ, 2);
    assert_eq!(take(&queue, Some(IDLE * 2)), []);
    // Nor does activity arm what was the former's.
    peer.write_all(b"x").unwrap();
    assert_eq!(take(&queue, PATIENCE), [said(2, Readiness::READABLE)]);
    drain(&new);
    assert_eq!(take(&queue, Some(IDLE * 2)), []);
}

fn idleness_for_ever(queue: Queue) {
    let (registration, mut peer) = declared(&queue, READ, 1);
    for idle in [Duration::MAX, Duration::from_secs(100 * 365 * 86400)] {
        registration.set_idle_deadline(Some(idle));
        quiet(&queue);
        peer.write_all(b"x").unwrap();
        assert_eq!(take(&queue, PATIENCE), [said(1, Readiness::READABLE)]);
        drain(&registration);
        arm(&queue, &registration);
    }
}

fn a_waker_ends_a_wait(queue: Queue) {
    let _pair = declared(&queue, READ, 0);
    for _ in 0..3 {
        let waker = queue.waker();
        let other = thread::spawn(move || {
            thread::sleep(Duration::from_millis(8));
            waker.wake();
        });
        let events = queue.next_events(8, None).unwrap();
        assert!(events.woken());
        assert_eq!(events.count(), 0);
        other.join().unwrap();
    }
}

fn a_waker_may_come_first(queue: Queue) {
    queue.waker().wake();
    assert!(queue.next_events(1, None).unwrap().woken());
    // By its descriptor, as a signal handler does.
    rustix::io::write(queue.waker().as_fd(), &[0]).unwrap();
    assert!(queue.next_events(1, None).unwrap().woken());
}

fn wakers_do_not_add_up(queue: Queue) {
    for wakes in [2, 64, 65, 128, 100_000] {
        let waker = queue.waker();
        thread::spawn(move || (0..wakes).for_each(|_| waker.wake())).join().unwrap();
        assert!(queue.next_events(8, None).unwrap().woken());
        let start = Instant::now();
        let soon = Duration::from_millis(3);
        assert!(!queue.next_events(8, Some(soon)).unwrap().woken());
        assert!(start.elapsed() >= soon);
    }
}

fn a_waker_may_outlive_its_queue(queue: Queue) {
    let waker = queue.waker();
    drop(queue);
    waker.wake();
    waker.clone().wake();
}

fn a_waker_does_not_hide_events(queue: Queue) {
    let pairs = readable(&queue, 3);
    let (mut woken, mut seen) = (0, 0);
    queue.waker().wake();
    while seen < 3 || woken < 1 {
        // One at a time, so that the wake-up's own event takes its turn.
        let events = queue.next_events(1, PATIENCE).unwrap();
        woken += u32::from(events.woken());
        for event in events {
            seen += drain(&pairs[event.who as usize].0);
        }
    }
    quiet(&queue);
    assert_eq!((woken, seen), (1, 3));
}

fn a_changed_interest_holds_at_once(queue: Queue) {
    let pairs = readable(&queue, 3);
    // They are in the batch as readable, and nobody wants to know any more.
    let events = queue.next_events(64, PATIENCE).unwrap();
    for (registration, _) in &pairs {
        registration.change_interest(Interest::empty()).unwrap();
    }
    assert_eq!(events.count(), 0);
    quiet(&queue);
    pairs[1].0.change_interest(WRITE).unwrap();
    assert_eq!(take(&queue, PATIENCE), [said(1, Readiness::WRITABLE)]);
}

fn a_changed_interest_asks_again(queue: Queue) {
    let pairs = readable(&queue, 1);
    let registration = &pairs[0].0;
    // The event that is in the batch is withdrawn with the interest, and returns with it.
    leave(&queue);
    registration.change_interest(Interest::empty()).unwrap();
    registration.change_interest(READ).unwrap();
    assert_eq!(take(&queue, PATIENCE), [said(0, Readiness::READABLE)]);
    registration.change_interest(READ | WRITE).unwrap();
    let both = Readiness::READABLE | Readiness::WRITABLE;
    assert_eq!(take(&queue, PATIENCE), [said(0, both)]);
}

fn a_source_comes_back(queue: Queue) {
    let mut pairs = readable(&queue, 1);
    let (registration, mut peer) = pairs.remove(0);
    leave(&queue);
    let source = registration.into_source();
    peer.write_all(b"y").unwrap();
    quiet(&queue);
    assert_eq!(drain(&source), 2);
    // And can be declared again.
    let (_again, _) = queue.declare_interest(source, READ, 9).unwrap();
    peer.write_all(b"z").unwrap();
    assert_eq!(take(&queue, PATIENCE), [said(9, Readiness::READABLE)]);
}

fn a_forgotten_registration_stays(queue: Queue) {
    let (registration, mut peer) = declared(&queue, READ, 4);
    mem::forget(registration);
    peer.write_all(b"x").unwrap();
    assert_eq!(take(&queue, PATIENCE), [said(4, Readiness::READABLE)]);
    drop(queue);
    assert!(!is_closed(&peer));
}

fn a_registration_may_outlive_its_queue(queue: Queue) {
    let (registration, mut peer) = declared(&queue, READ, 4);
    let (other, other_peer) = declared(&queue, READ, 5);
    registration.set_idle_deadline(Some(IDLE));
    drop(queue);
    peer.write_all(b"x").unwrap();
    assert_eq!(drain(&registration), 1);
    registration.change_interest(WRITE).unwrap();
    registration.set_idle_deadline(None);
    let source = registration.into_source();
    assert!(!is_closed(&peer));
    drop(source);
    assert!(is_closed(&peer));
    drop(other);
    assert!(is_closed(&other_peer));
}

fn a_refused_source_is_given_back(queue: Queue) {
    let (here, mut there) = pair();
    let here = Rc::new(here);
    let (registration, _) = queue.declare_interest(here.clone(), READ, 1).unwrap();
    let refused = queue.declare_interest(here.clone(), WRITE, 2).unwrap_err();
    assert_eq!(refused.error.kind(), ErrorKind::AlreadyExists);
    assert!(refused.to_string().contains("declaring interest"));
    assert!(Rc::ptr_eq(&refused.source_given_back, &here));
    assert_eq!(Rc::strong_count(&here), 3, "and nobody else holds it");
    // The first knows nothing of it.
    quiet(&queue);
    there.write_all(b"x").unwrap();
    assert_eq!(take(&queue, PATIENCE), [said(1, Readiness::READABLE)]);
    drop(registration);
    let again = queue.declare_interest(refused.source_given_back, READ, 3);
    assert_eq!(take(&queue, PATIENCE), [said(3, Readiness::READABLE)]);
    drop(again);
}

fn dropping_everything_closes_everything(queue: Queue) {
    let waker = queue.waker();
    let (registrations, peers): (Vec<_>, Vec<_>) = readable(&queue, 5).into_iter().unzip();
    // With a batch in the queue, and idleness pending.
    leave(&queue);
    registrations[0].set_idle_deadline(Some(Duration::ZERO));
    drop(registrations);
    assert!(peers.iter().all(is_closed));
    drop(queue);
    // The pipe has no reader left, so the queue's core is gone with all that it held.
    let write = rustix::io::write(waker.as_fd(), &[0]);
    assert_eq!(write, Err(rustix::io::Errno::PIPE));
}

/// A source that says farewell through the queue that watched it.
struct Farewell(UnixStream, Rc<Queue>);

impl AsFd for Farewell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Farewell {
    fn drop(&mut self) {
        let (here, _there) = pair();
        let (registration, _) = self.1.declare_interest(here, READ, 99).unwrap();
        registration.set_idle_deadline(Some(IDLE));
        self.1.next_events(1, AT_ONCE).unwrap().for_each(drop);
        self.1.waker().wake();
    }
}

fn a_source_may_use_the_queue_as_it_is_dropped(queue: Queue) {
    let queue = Rc::new(queue);
    let source = |payload| {
        let (here, there) = pair();
        let farewell = Farewell(here, queue.clone());
        let (registration, _) = queue.declare_interest(farewell, READ, payload).unwrap();
        (registration, there)
    };
    let (dropped, _peer) = source(1);
    let (returned, _peer) = source(2);
    drop(dropped);
    assert!(queue.next_events(1, PATIENCE).unwrap().woken());
    drop(returned.into_source());
    assert!(queue.next_events(1, PATIENCE).unwrap().woken());
    quiet(&queue);
}

fn counters_count(queue: Queue) {
    // The queue's own pipe.
    assert_eq!(queue.counters().changes, 1);
    let (registration, mut peer) = declared(&queue, READ, 0);
    assert_eq!(take(&queue, AT_ONCE), []);
    let counters = queue.counters();
    assert_eq!((counters.changes, counters.events), (2, 0));
    assert_eq!(counters.waits, 1);
    if !queue.semantics().registers_both {
        assert_eq!(counters.empty_waits, 1);
    }
    peer.write_all(b"x").unwrap();
    assert_eq!(take(&queue, PATIENCE).len(), 1);
    queue.waker().wake();
    drain(&registration);
    assert!(queue.next_events(8, PATIENCE).unwrap().woken());
    registration.change_interest(Interest::empty()).unwrap();
    drop(registration);
    let counters = queue.counters();
    // The queue's own pipe is armed again, where that is needed.
    let rearmed = u64::from(queue.semantics().trigger == Trigger::OneShot);
    assert_eq!((counters.changes, counters.events), (4 + rearmed, 2));
}
