//! Events, idle deadlines and wake-ups of `EventQueue`, over every mechanism of the table.

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
/// Maximum time to wait for an event, which no successful test reaches.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(20));
const AT_ONCE: Option<Duration> = Some(Duration::ZERO);

/// Lists the tests with their names.
macro_rules! tests {
    ($($test:ident)*) => {
        [$((stringify!($test), $test as fn(Queue)),)*]
    };
}

/// Returns the trials of this module.
pub(crate) fn trials() -> Vec<Trial> {
    let tests = tests! {
        declaring_returns_current_readiness
        readiness_before_declaring_is_an_event
        an_event_contains_payload_and_readiness
        events_come_in_order_of_arrival
        several_arrivals_are_one_event
        a_batch_omits_dropped_registrations
        a_batch_omits_events_of_reused_slots
        remaining_events_come_first
        handled_readiness_is_not_reported
        at_most_max
        any_max_is_accepted
        a_timeout_is_never_early
        batches_may_be_nested
        an_idle_deadline_expires_once_and_never_early
        activity_postpones_the_idle_deadline
        an_event_restarts_the_idle_deadline
        an_idle_deadline_can_be_cancelled
        an_expired_idle_deadline_can_be_cancelled
        an_expired_idle_deadline_can_be_postponed
        activity_cancels_an_unreported_idle_event
        an_idle_event_is_not_combined_with_readiness
        dropping_a_registration_cancels_its_idle_deadline
        a_reused_slot_has_no_idle_deadline
        distant_idle_deadlines_are_accepted
        a_waker_ends_a_wait
        a_wake_up_before_a_wait_ends_it
        many_wake_ups_are_reported_once
        a_waker_may_outlive_its_queue
        a_waker_does_not_hide_events
        a_changed_interest_filters_the_batch
        a_changed_interest_reports_current_readiness
        a_source_can_be_taken_back_and_declared_again
        a_forgotten_registration_stays_registered
        a_registration_may_outlive_its_queue
        a_refused_source_is_returned
        dropping_queue_and_registrations_closes_all
        a_source_may_use_the_queue_as_it_is_dropped
        counters_are_exact
    };
    suite::trials_over("events", suite::variants(), |spec| {
        let test = |(name, test): (&str, fn(Queue))| {
            suite::trial("events", spec, name, move |spec| {
                test(EventQueue::with_mechanism(suite::open(spec)).expect("a queue"));
            })
        };
        tests.into_iter().map(test).collect()
    })
}

type Queue = EventQueue<u64, AnyMechanism>;
type Stream = Registration<UnixStream>;

fn pair() -> (UnixStream, UnixStream) {
    let (socket, peer) = UnixStream::pair().expect("socketpair");
    socket.set_nonblocking(true).expect("nonblocking");
    peer.set_nonblocking(true).expect("nonblocking");
    (socket, peer)
}

fn declared(queue: &Queue, interest: Interest, payload: u64) -> (Stream, UnixStream) {
    let (socket, peer) = pair();
    let (registration, _) = queue.declare_interest(socket, interest, payload).unwrap();
    (registration, peer)
}

/// Registers readable sources with the payloads 0, 1, 2...
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
        let twice = events[..at].iter().any(|other| other.token == event.token);
        assert!(!twice, "{} twice in a batch", event.token);
    }
    events
}

/// Waits for a batch, and takes none of its events.
fn leave_batch(queue: &Queue) {
    let _ = queue.next_events(64, PATIENCE).unwrap();
}

/// Arms a one-shot mechanism again after an event.
fn arm(queue: &Queue, registration: &Stream) {
    if queue.semantics().trigger == Trigger::OneShot {
        registration.change_interest(READ).unwrap();
    }
}

fn event(token: u64, readiness: Readiness) -> Event<u64> {
    Event { token, readiness }
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

fn assert_no_events(queue: &Queue) {
    for millis in [0, 10] {
        let events = take(queue, Some(Duration::from_millis(millis)));
        assert!(events.is_empty(), "{events:?}");
    }
}

/// Returns whether the other end of `peer` is closed.
fn is_closed(mut peer: &UnixStream) -> bool {
    match peer.read(&mut [0]) {
        Ok(0) => true,
        Err(error) if error.kind() == ErrorKind::ConnectionReset => true,
        Err(error) if error.kind() == ErrorKind::WouldBlock => false,
        other => panic!("{other:?}"),
    }
}

fn declaring_returns_current_readiness(queue: Queue) {
    let (socket, _there) = pair();
    let (_registration, ready) = queue.declare_interest(socket, READ, 1).unwrap();
    assert_eq!(ready, Readiness::WRITABLE, "the state of both directions");

    let (socket, mut peer) = pair();
    peer.write_all(b"x").unwrap();
    let (_registration, ready) = queue.declare_interest(socket, Interest::empty(), 2).unwrap();
    assert_eq!(ready, Readiness::READABLE | Readiness::WRITABLE);

    let (socket, peer) = pair();
    drop(peer);
    let (_registration, ready) = queue.declare_interest(socket, READ, 3).unwrap();
    assert!(ready.contains(Readiness::READABLE | Readiness::READ_CLOSED));
}

fn readiness_before_declaring_is_an_event(queue: Queue) {
    let (socket, mut peer) = pair();
    peer.write_all(b"x").unwrap();
    let _registration = queue.declare_interest(socket, READ, 5).unwrap();
    assert_eq!(take(&queue, PATIENCE), [event(5, Readiness::READABLE)]);
}

fn an_event_contains_payload_and_readiness(queue: Queue) {
    let (read, mut peer) = declared(&queue, READ, u64::MAX);
    assert_no_events(&queue);
    peer.write_all(b"x").unwrap();
    assert_eq!(take(&queue, PATIENCE), [event(u64::MAX, Readiness::READABLE)]);
    drop(read);
    let (_write, mut peer) = declared(&queue, WRITE, 0);
    peer.write_all(b"x").unwrap();
    assert_eq!(take(&queue, PATIENCE), [event(0, Readiness::WRITABLE)]);
}

fn events_come_in_order_of_arrival(queue: Queue) {
    let mut pairs: Vec<_> = (0..8).map(|who| declared(&queue, READ, who)).collect();
    // Registrations that the mechanism submits in the next wait have no order before it.
    assert_no_events(&queue);
    let order = [3, 1, 4, 7, 5, 0, 2, 6];
    for at in order {
        pairs[at].1.write_all(b"x").unwrap();
    }
    let mut payloads: Vec<_> = take(&queue, PATIENCE).iter().map(|event| event.token).collect();
    // A mechanism that scans a list reports in the order of the list.
    if queue.semantics().wait == WaitCost::Ready {
        assert_eq!(payloads, order.map(|at| at as u64));
    } else {
        payloads.sort_unstable();
        assert_eq!(payloads, [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}

fn several_arrivals_are_one_event(queue: Queue) {
    let mut pairs = readable(&queue, 2);
    let first = queue.next_events(64, PATIENCE).unwrap().next().unwrap().token;
    // The event of the other remains in the batch, and more data arrive for it.
    let other = usize::from(first == 0);
    drain(&pairs[1 - other].0);
    pairs[other].1.write_all(b"y").unwrap();
    pairs[other].1.write_all(b"z").unwrap();
    let events = take(&queue, PATIENCE);
    assert_eq!(events, [event(other as u64, Readiness::READABLE)]);
    assert_eq!(drain(&pairs[other].0), 3);
    assert_no_events(&queue);
}

fn a_batch_omits_dropped_registrations(queue: Queue) {
    let mut pairs: Vec<_> = readable(&queue, 6).into_iter().map(Some).collect();
    let mut events = queue.next_events(64, PATIENCE).unwrap();
    let mut seen = vec![events.next().unwrap().token];
    for dropped in [1, 2, 4] {
        if !seen.contains(&dropped) {
            pairs[dropped as usize] = None;
        }
    }
    let kept: Vec<_> = (0..6).filter(|&who| pairs[who as usize].is_some()).collect();
    seen.extend(events.map(|event| event.token));
    seen.sort_unstable();
    assert_eq!(seen, kept);
}

fn a_batch_omits_events_of_reused_slots(queue: Queue) {
    let mut pairs = readable(&queue, 3);
    let mut events = queue.next_events(64, PATIENCE).unwrap();
    let first = events.next().unwrap().token;
    // New registrations reuse the slots and, usually, the descriptor numbers.
    pairs.clear();
    let mut successors: Vec<_> = (10..13).map(|who| declared(&queue, READ, who)).collect();
    assert_eq!(events.next(), None, "after {first}");
    assert_no_events(&queue);
    successors[1].1.write_all(b"x").unwrap();
    assert_eq!(take(&queue, PATIENCE), [event(11, Readiness::READABLE)]);
}

fn remaining_events_come_first(queue: Queue) {
    let mut pairs = readable(&queue, 3);
    let taken = queue.next_events(64, PATIENCE).unwrap().next().unwrap().token;
    drain(&pairs[taken as usize].0);
    arm(&queue, &pairs[taken as usize].0);
    pairs[taken as usize].1.write_all(b"new").unwrap();
    let mut payloads: Vec<_> = take(&queue, PATIENCE).iter().map(|event| event.token).collect();
    assert_eq!(payloads.pop(), Some(taken), "the later arrival comes last");
    assert_eq!(payloads.len(), 2, "the remaining events are still reported");
}

fn handled_readiness_is_not_reported(queue: Queue) {
    let pairs = readable(&queue, 3);
    leave_batch(&queue);
    for at in [0, 2] {
        assert_eq!(drain(&pairs[at].0), 1);
    }
    assert_eq!(take(&queue, PATIENCE), [event(1, Readiness::READABLE)]);
}

fn at_most_max(queue: Queue) {
    let pairs = readable(&queue, 10);
    let mut seen = [false; 10];
    for _ in 0..4 {
        let events: Vec<_> = queue.next_events(3, PATIENCE).unwrap().collect();
        assert!((1..=3).contains(&events.len()), "{events:?}");
        for event in events {
            seen[event.token as usize] = true;
            drain(&pairs[event.token as usize].0);
        }
    }
    assert_eq!(seen, [true; 10]);
    // A finished batch stays finished, also when there are more events.
    let _more = readable(&queue, 3);
    let mut events = queue.next_events(1, PATIENCE).unwrap();
    assert!(events.next().is_some());
    assert_eq!(events.next(), None);
    assert_eq!(events.next(), None);
}

fn any_max_is_accepted(queue: Queue) {
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
    let first = outer.next().unwrap().token;
    drain(&pairs[first as usize].0);
    seen.push(first);
    for event in queue.next_events(2, PATIENCE).unwrap() {
        drain(&pairs[event.token as usize].0);
        seen.push(event.token);
    }
    seen.extend(outer.map(|event| event.token));
    seen.sort_unstable();
    assert_eq!(seen, [0, 1, 2, 3]);
}

const IDLE: Duration = Duration::from_millis(12);

fn an_idle_deadline_expires_once_and_never_early(queue: Queue) {
    let (registration, _peer) = declared(&queue, READ, 3);
    for idle in [Duration::ZERO, Duration::from_micros(700), IDLE] {
        let start = Instant::now();
        registration.set_idle_deadline(Some(idle));
        assert_eq!(take(&queue, None), [event(3, Readiness::IDLE)]);
        assert!(start.elapsed() >= idle);
        let longer = Some(idle * 2 + Duration::from_millis(5));
        assert_eq!(take(&queue, longer), []);
    }
}

fn activity_postpones_the_idle_deadline(queue: Queue) {
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

fn an_event_restarts_the_idle_deadline(queue: Queue) {
    let (registration, mut peer) = declared(&queue, READ, 3);
    registration.set_idle_deadline(Some(IDLE));
    for _ in 0..2 {
        assert_eq!(take(&queue, PATIENCE), [event(3, Readiness::IDLE)]);
        let start = Instant::now();
        peer.write_all(b"x").unwrap();
        assert_eq!(take(&queue, PATIENCE), [event(3, Readiness::READABLE)]);
        drain(&registration);
        arm(&queue, &registration);
        assert_eq!(take(&queue, PATIENCE), [event(3, Readiness::IDLE)]);
        assert!(start.elapsed() >= IDLE);
        registration.set_idle_deadline(Some(IDLE));
    }
}

fn an_idle_deadline_can_be_cancelled(queue: Queue) {
    let (registration, _peer) = declared(&queue, READ, 3);
    registration.set_idle_deadline(Some(IDLE));
    registration.set_idle_deadline(None);
    assert_eq!(take(&queue, Some(IDLE * 3)), []);
}

/// Checks that the handler of one of two expired deadlines can cancel the other.
fn an_expired_idle_deadline_can_be_cancelled(queue: Queue) {
    let (one, two) = (declared(&queue, READ, 1), declared(&queue, READ, 2));
    for (registration, _) in [&one, &two] {
        registration.set_idle_deadline(Some(Duration::ZERO));
    }
    thread::sleep(Duration::from_millis(5));
    let mut events = queue.next_events(64, PATIENCE).unwrap();
    let first = events.next().unwrap();
    assert!(first.readiness.is_idle());
    let other = if first.token == 1 { &two } else { &one };
    other.0.set_idle_deadline(None);
    assert_eq!(events.next(), None);
    assert_eq!(take(&queue, Some(IDLE)), []);
}

fn an_expired_idle_deadline_can_be_postponed(queue: Queue) {
    let (registration, _peer) = declared(&queue, READ, 1);
    registration.set_idle_deadline(Some(Duration::ZERO));
    leave_batch(&queue);
    let start = Instant::now();
    registration.set_idle_deadline(Some(IDLE));
    assert_eq!(take(&queue, PATIENCE), [event(1, Readiness::IDLE)]);
    assert!(start.elapsed() >= IDLE);
}

/// Checks that data that arrive between the expiry of a deadline and its report cancel it.
fn activity_cancels_an_unreported_idle_event(queue: Queue) {
    let (registration, mut peer) = declared(&queue, READ, 1);
    registration.set_idle_deadline(Some(IDLE));
    leave_batch(&queue);
    peer.write_all(b"x").unwrap();
    let start = Instant::now();
    assert_eq!(take(&queue, PATIENCE), [event(1, Readiness::READABLE)]);
    drain(&registration);
    assert_eq!(take(&queue, PATIENCE), [event(1, Readiness::IDLE)]);
    assert!(start.elapsed() >= IDLE);
}

/// Checks that a deadline is not reported together with an older event that was not taken.
fn an_idle_event_is_not_combined_with_readiness(queue: Queue) {
    let pairs = readable(&queue, 1);
    pairs[0].0.set_idle_deadline(Some(Duration::from_millis(2)));
    leave_batch(&queue);
    thread::sleep(Duration::from_millis(6));
    assert_eq!(take(&queue, PATIENCE), [event(0, Readiness::READABLE)]);
    drain(&pairs[0].0);
    assert_eq!(take(&queue, PATIENCE), [event(0, Readiness::IDLE)]);
}

fn dropping_a_registration_cancels_its_idle_deadline(queue: Queue) {
    let (registration, _peer) = declared(&queue, READ, 1);
    registration.set_idle_deadline(Some(IDLE));
    let source = registration.into_source();
    assert_eq!(take(&queue, Some(IDLE * 2)), []);
    drop(source);
}

fn a_reused_slot_has_no_idle_deadline(queue: Queue) {
    let (old, _old_peer) = declared(&queue, READ, 1);
    old.set_idle_deadline(Some(IDLE));
    drop(old);
    let (new, mut peer) = declared(&queue, READ, 2);
    assert_eq!(take(&queue, Some(IDLE * 2)), []);
    // Activity does not restart the deadline of the former registration.
    peer.write_all(b"x").unwrap();
    assert_eq!(take(&queue, PATIENCE), [event(2, Readiness::READABLE)]);
    drain(&new);
    assert_eq!(take(&queue, Some(IDLE * 2)), []);
}

fn distant_idle_deadlines_are_accepted(queue: Queue) {
    let (registration, mut peer) = declared(&queue, READ, 1);
    for idle in [Duration::MAX, Duration::from_secs(100 * 365 * 86400)] {
        registration.set_idle_deadline(Some(idle));
        assert_no_events(&queue);
        peer.write_all(b"x").unwrap();
        assert_eq!(take(&queue, PATIENCE), [event(1, Readiness::READABLE)]);
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

fn a_wake_up_before_a_wait_ends_it(queue: Queue) {
    queue.waker().wake();
    assert!(queue.next_events(1, None).unwrap().woken());
    // Written through the descriptor, as in a signal handler.
    rustix::io::write(queue.waker().as_fd().unwrap(), &[0]).unwrap();
    assert!(queue.next_events(1, None).unwrap().woken());
}

fn many_wake_ups_are_reported_once(queue: Queue) {
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
        // One event at a time, so that the wake-up is reported in its turn.
        let events = queue.next_events(1, PATIENCE).unwrap();
        woken += u32::from(events.woken());
        for event in events {
            seen += drain(&pairs[event.token as usize].0);
        }
    }
    assert_no_events(&queue);
    assert_eq!((woken, seen), (1, 3));
}

fn a_changed_interest_filters_the_batch(queue: Queue) {
    let pairs = readable(&queue, 3);
    // The batch contains them as readable when their interest is removed.
    let events = queue.next_events(64, PATIENCE).unwrap();
    for (registration, _) in &pairs {
        registration.change_interest(Interest::empty()).unwrap();
    }
    assert_eq!(events.count(), 0);
    assert_no_events(&queue);
    pairs[1].0.change_interest(WRITE).unwrap();
    assert_eq!(take(&queue, PATIENCE), [event(1, Readiness::WRITABLE)]);
}

fn a_changed_interest_reports_current_readiness(queue: Queue) {
    let pairs = readable(&queue, 1);
    let registration = &pairs[0].0;
    // The event in the batch is removed with the interest, and returns with it.
    leave_batch(&queue);
    registration.change_interest(Interest::empty()).unwrap();
    registration.change_interest(READ).unwrap();
    assert_eq!(take(&queue, PATIENCE), [event(0, Readiness::READABLE)]);
    registration.change_interest(READ | WRITE).unwrap();
    let both = Readiness::READABLE | Readiness::WRITABLE;
    assert_eq!(take(&queue, PATIENCE), [event(0, both)]);
}

fn a_source_can_be_taken_back_and_declared_again(queue: Queue) {
    let mut pairs = readable(&queue, 1);
    let (registration, mut peer) = pairs.remove(0);
    leave_batch(&queue);
    let source = registration.into_source();
    peer.write_all(b"y").unwrap();
    assert_no_events(&queue);
    assert_eq!(drain(&source), 2);
    // It can be declared again.
    let (_again, _) = queue.declare_interest(source, READ, 9).unwrap();
    peer.write_all(b"z").unwrap();
    assert_eq!(take(&queue, PATIENCE), [event(9, Readiness::READABLE)]);
}

fn a_forgotten_registration_stays_registered(queue: Queue) {
    let (registration, mut peer) = declared(&queue, READ, 4);
    mem::forget(registration);
    peer.write_all(b"x").unwrap();
    assert_eq!(take(&queue, PATIENCE), [event(4, Readiness::READABLE)]);
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

fn a_refused_source_is_returned(queue: Queue) {
    let (socket, mut peer) = pair();
    let socket = Rc::new(socket);
    let (registration, _) = queue.declare_interest(socket.clone(), READ, 1).unwrap();
    let refused = queue.declare_interest(socket.clone(), WRITE, 2).unwrap_err();
    assert_eq!(refused.error.kind(), ErrorKind::AlreadyExists);
    assert!(refused.to_string().contains("declaring interest"));
    assert!(Rc::ptr_eq(&refused.returned_source, &socket));
    assert_eq!(Rc::strong_count(&socket), 3, "nothing else owns the source");
    // The first registration is unaffected.
    assert_no_events(&queue);
    peer.write_all(b"x").unwrap();
    assert_eq!(take(&queue, PATIENCE), [event(1, Readiness::READABLE)]);
    drop(registration);
    let again = queue.declare_interest(refused.returned_source, READ, 3);
    assert_eq!(take(&queue, PATIENCE), [event(3, Readiness::READABLE)]);
    drop(again);
}

fn dropping_queue_and_registrations_closes_all(queue: Queue) {
    let waker = queue.waker();
    let (registrations, peers): (Vec<_>, Vec<_>) = readable(&queue, 5).into_iter().unzip();
    // With a batch in the queue, and a pending idle deadline.
    leave_batch(&queue);
    registrations[0].set_idle_deadline(Some(Duration::ZERO));
    drop(registrations);
    assert!(peers.iter().all(is_closed));
    drop(queue);
    // The wake-up socket has no peer, so the queue has released everything.
    let write = rustix::io::write(waker.as_fd().unwrap(), &[0]);
    assert_eq!(write, Err(rustix::io::Errno::PIPE));
}

/// A source that uses its queue when it is dropped.
struct UsesQueueOnDrop(UnixStream, Rc<Queue>);

impl AsFd for UsesQueueOnDrop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for UsesQueueOnDrop {
    fn drop(&mut self) {
        let (socket, _there) = pair();
        let (registration, _) = self.1.declare_interest(socket, READ, 99).unwrap();
        registration.set_idle_deadline(Some(IDLE));
        self.1.next_events(1, AT_ONCE).unwrap().for_each(drop);
        self.1.waker().wake();
    }
}

fn a_source_may_use_the_queue_as_it_is_dropped(queue: Queue) {
    let queue = Rc::new(queue);
    let source = |payload| {
        let (socket, peer) = pair();
        let source = UsesQueueOnDrop(socket, queue.clone());
        let (registration, _) = queue.declare_interest(source, READ, payload).unwrap();
        (registration, peer)
    };
    let (dropped, _peer) = source(1);
    let (returned, _peer) = source(2);
    drop(dropped);
    assert!(queue.next_events(1, PATIENCE).unwrap().woken());
    drop(returned.into_source());
    assert!(queue.next_events(1, PATIENCE).unwrap().woken());
    assert_no_events(&queue);
}

fn counters_are_exact(queue: Queue) {
    // The wake-up socket.
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
    // A one-shot mechanism arms the wake-up socket again.
    let rearmed = u64::from(queue.semantics().trigger == Trigger::OneShot);
    assert_eq!((counters.changes, counters.events), (4 + rearmed, 2));
}
