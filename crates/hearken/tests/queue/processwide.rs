//! Process-wide interest in one descriptor, over every mechanism.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use hearken::mechanism::{Spec, Trigger};
use hearken::queue::{Shared, Wake};
use hearken::{EventQueue, Interest, Registration};
use libtest_mimic::Trial;

use crate::suite::{self, AnyMechanism};

type Queue = EventQueue<u64, AnyMechanism>;

const PATIENCE: Option<Duration> = Some(Duration::from_secs(20));
const READ: Interest = Interest::READ;

/// A test function with its name.
type Test = (&'static str, fn(&Spec));

/// Returns the trials of this module.
pub(crate) fn trials() -> Vec<Trial> {
    let tests: [Test; 7] = [
        ("wake_all_notifies_every_queue", wake_all_notifies_every_queue),
        ("wake_one_loses_no_event", wake_one_loses_no_event),
        ("a_leaving_queue_passes_the_event_on", a_leaving_queue_passes_the_event_on),
        ("a_joining_queue_receives_current_readiness", a_joining_queue_receives_current_readiness),
        ("interest_can_be_changed", interest_can_be_changed),
        ("threads_share_a_listener", threads_share_a_listener),
        ("the_last_queue_to_leave_closes_the_source", the_last_queue_to_leave_closes_the_source),
    ];
    suite::trials_over("processwide", suite::variants(), |spec| {
        tests
            .into_iter()
            .map(|(name, test)| suite::trial("processwide", spec, name, test))
            .collect()
    })
}

fn queue(spec: &Spec) -> Queue {
    Queue::with_mechanism(suite::open(spec)).unwrap()
}

fn shared(wake: Wake) -> (Shared<UnixStream>, UnixStream) {
    let (socket, peer) = UnixStream::pair().unwrap();
    socket.set_nonblocking(true).unwrap();
    (Shared::new(socket, wake), peer)
}

fn join(queue: &Queue, source: &Shared<UnixStream>) -> Registration<Shared<UnixStream>> {
    queue.declare_processwide_interest(source.clone(), READ, 7).unwrap().0
}

/// Waits for up to `patience` milliseconds. Returns the number of readable events.
fn count_events(
    queue: &Queue,
    registration: &Registration<Shared<UnixStream>>,
    patience: u64,
) -> usize {
    let timeout = Some(Duration::from_millis(patience));
    let mut count = 0;
    for event in queue.next_events(8, timeout).unwrap() {
        assert_eq!(event.token, 7);
        count += usize::from(event.readiness.is_readable());
        if queue.semantics().trigger == Trigger::OneShot {
            registration.change_interest(READ).unwrap();
        }
    }
    count
}

fn read(source: &Shared<UnixStream>) -> usize {
    match (&**source).read(&mut [0; 64]) {
        Ok(got) => got,
        Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
        Err(error) => panic!("{error}"),
    }
}

fn wake_all_notifies_every_queue(spec: &Spec) {
    let (source, mut peer) = shared(Wake::All);
    let queues = [queue(spec), queue(spec), queue(spec)];
    let joined = queues.each_ref().map(|queue| join(queue, &source));
    for _ in 0..3 {
        peer.write_all(b"x").unwrap();
        for (queue, joined) in queues.iter().zip(&joined) {
            assert_eq!(count_events(queue, joined, 20_000), 1);
        }
        assert_eq!(read(&source), 1);
    }
}

fn wake_one_loses_no_event(spec: &Spec) {
    let (source, mut peer) = shared(Wake::One);
    let queues = [queue(spec), queue(spec)];
    let joined = queues.each_ref().map(|queue| join(queue, &source));
    let mut events = 0;
    for round in 0..20 {
        peer.write_all(b"x").unwrap();
        let mut got = 0;
        for turn in 0..2000 {
            let at = (round + turn) % 2;
            let count = count_events(&queues[at], &joined[at], u64::from(turn > 2));
            events += count;
            if count > 0 {
                got += read(&source);
            }
            if got == 1 {
                break;
            }
        }
        assert_eq!(got, 1, "no queue received event {round}");
    }
    // One queue is notified each time. The other one may be notified too if it waits before the
    // data are read.
    assert!((20..=40).contains(&events), "{events}");
}

fn a_leaving_queue_passes_the_event_on(spec: &Spec) {
    let (source, mut peer) = shared(Wake::One);
    let queues = [queue(spec), queue(spec)];
    let [first, second] = queues.each_ref().map(|queue| join(queue, &source));
    peer.write_all(b"x").unwrap();
    // The remaining queue receives the event, or the next one, whichever queue it was sent to.
    drop(first);
    let mut count = count_events(&queues[1], &second, 100);
    if count == 0 {
        peer.write_all(b"y").unwrap();
        count = count_events(&queues[1], &second, 20_000);
    }
    assert_eq!(count, 1);
}

fn a_joining_queue_receives_current_readiness(spec: &Spec) {
    let (source, mut peer) = shared(Wake::All);
    peer.write_all(b"x").unwrap();
    let queue = queue(spec);
    let declared = queue.declare_processwide_interest(source, READ, 7).unwrap();
    assert!(declared.1.is_readable());
    assert_eq!(count_events(&queue, &declared.0, 20_000), 1);
}

fn interest_can_be_changed(spec: &Spec) {
    for wake in [Wake::One, Wake::All] {
        let (source, mut peer) = shared(wake);
        let queue = queue(spec);
        let joined = join(&queue, &source);
        joined.change_interest(Interest::empty()).unwrap();
        peer.write_all(b"x").unwrap();
        assert_eq!(count_events(&queue, &joined, 20), 0);
        joined.change_interest(READ).unwrap();
        assert_eq!(count_events(&queue, &joined, 20_000), 1);
    }
}

fn threads_share_a_listener(spec: &Spec) {
    const THREADS: usize = 3;
    const CONNECTIONS: usize = 120;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let listener = Shared::new(listener, Wake::One);
    let accepted = AtomicUsize::new(0);
    let (joined, all_joined) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let (listener, joined, accepted) = (listener.clone(), joined.clone(), &accepted);
            scope.spawn(move || {
                let queue = queue(spec);
                let waker = queue.waker();
                let declared = queue.declare_processwide_interest(listener, READ, 7);
                let (listener, _) = declared.unwrap();
                joined.send(waker).unwrap();
                loop {
                    let events = queue.next_events(8, PATIENCE).unwrap();
                    let woken = events.woken();
                    for _ in events {
                        while let Ok((mut stream, _)) = listener.accept() {
                            stream.write_all(b"data").unwrap();
                            accepted.fetch_add(1, Ordering::Relaxed);
                        }
                        if queue.semantics().trigger == Trigger::OneShot {
                            listener.change_interest(READ).unwrap();
                        }
                    }
                    if woken {
                        return;
                    }
                }
            });
        }
        let wakers: Vec<_> = all_joined.iter().take(THREADS).collect();
        for _ in 0..CONNECTIONS {
            let mut stream = TcpStream::connect(address).unwrap();
            let mut answer = String::new();
            stream.set_read_timeout(PATIENCE).unwrap();
            stream.read_to_string(&mut answer).unwrap();
            assert_eq!(answer, "data");
        }
        wakers.iter().for_each(hearken::Waker::wake);
    });
    assert_eq!(accepted.load(Ordering::Relaxed), CONNECTIONS);
}

fn the_last_queue_to_leave_closes_the_source(spec: &Spec) {
    let (source, mut peer) = shared(Wake::All);
    peer.set_nonblocking(true).unwrap();
    let queues = [queue(spec), queue(spec)];
    let [first, second] = queues.each_ref().map(|queue| join(queue, &source));
    drop(source);
    drop(first);
    assert_eq!(peer.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    drop(second);
    peer.set_nonblocking(false).unwrap();
    assert_eq!(peer.read(&mut [0]).unwrap(), 0);
}
