//! Behaviour specific to the mechanisms over io_uring and to batched epoll: queues that run full,
//! requests that hold a file, and a ring that is bound to a thread.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use hearken::mechanism::{Registry, Trigger, find};
use hearken::{Interest, Mechanism, Readiness, Token};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::suite::{Tests, lock_many_descriptors, tests};

/// Returns the tests of this module.
pub(crate) fn tests() -> Tests {
    tests! {
        thousands_of_changes_exceed_the_queues
        overflows_are_counted
        changes_are_submitted_in_one_call
        reused_numbers_receive_no_stale_events
        a_duplicate_of_a_revoked_descriptor_causes_no_wakeups
        files_are_always_ready
        events_between_waits_are_reported
        exclusive_watches_take_turns
        many_instances_can_be_opened_and_dropped
    }
}

const READ: Interest = Interest::READ;
const BOTH: Interest = READ.union(Interest::WRITE);
const AT_ONCE: Option<Duration> = Some(Duration::ZERO);
const PATIENCE: Option<Duration> = Some(Duration::from_secs(20));

/// Polls through io_uring, with completion queues that are small enough to run full.
const POLLS: [&str; 3] = [
    "uring-poll:completions=16",
    "uring-poll:completions=16:work=cooperative",
    "uring-poll:completions=16:shots=one",
];
/// epoll(7) with batched changes.
const BATCHED: [&str; 4] = [
    "epoll-batched",
    "epoll-batched:trigger=level",
    "epoll-batched:wait=ring",
    "epoll-batched:via=calls",
];

type Watched = Registry<Box<dyn Mechanism>, Rc<OwnedFd>>;

/// Runs `test` with each of `specs` that is available, in a new thread. Runs no tests concurrently,
/// since they open many descriptors.
fn over(specs: &[&str], test: fn(&mut Watched)) {
    let _lock = lock_many_descriptors();
    raise_limit();
    for spec in specs {
        let spec = spec.to_string();
        let tested = thread::spawn(move || match find(&spec).expect("a spec").open() {
            Ok(mechanism) => test(&mut Registry::new(mechanism)),
            Err(reason) => eprintln!("skipped: {spec}: {reason}"),
        });
        tested.join().unwrap();
    }
}

fn all(test: fn(&mut Watched)) {
    over(&POLLS, test);
    over(&BATCHED, test);
}

fn raise_limit() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

fn pair() -> (UnixStream, UnixStream) {
    let (socket, peer) = UnixStream::pair().expect("socketpair");
    socket.set_nonblocking(true).expect("nonblocking");
    peer.set_nonblocking(true).expect("nonblocking");
    (socket, peer)
}

fn add(registry: &mut Watched, source: UnixStream, interest: Interest) -> Token {
    let token = registry.insert(Rc::new(source.into()));
    registry.declare(token, interest).expect("declare");
    token
}

/// Waits once. Returns the reported tokens.
fn wait(registry: &mut Watched, max: usize, timeout: Option<Duration>) -> Vec<Token> {
    let got = registry.wait(max, timeout).expect("wait");
    assert!(got <= max);
    let tokens: Vec<_> = (0..got).filter_map(|at| registry.event(at)).map(|it| it.token).collect();
    let distinct: HashSet<_> = tokens.iter().collect();
    assert_eq!(distinct.len(), tokens.len(), "a token is twice in a batch");
    tokens
}

/// Reads until the source would block, and arms one-shot mechanisms again.
fn read_and_arm(registry: &mut Watched, who: Token) {
    let source = registry.get(who).expect("registered");
    while rustix::io::read(source, &mut [0; 64]).is_ok_and(|got| got > 0) {}
    if registry.semantics().trigger == Trigger::OneShot {
        registry.declare(who, registry.interest(who)).expect("arm");
    }
}

/// Waits until all expected tokens are reported, and limits the number of waits.
fn expect_all(registry: &mut Watched, expected: &HashSet<Token>) {
    let mut seen = HashSet::new();
    for _ in 0..4 * expected.len() + 100 {
        if seen.len() == expected.len() {
            return;
        }
        for who in wait(registry, 64, PATIENCE) {
            assert!(expected.contains(&who));
            seen.insert(who);
            read_and_arm(registry, who);
        }
    }
    panic!("{} of {} were reported", seen.len(), expected.len());
}

/// Checks more changes between two waits, and more ready descriptors, than the queues hold.
fn thousands_of_changes_exceed_the_queues() {
    all(|registry| {
        let mut pairs = Vec::new();
        for _ in 0..2000 {
            let (socket, peer) = pair();
            pairs.push((add(registry, socket, READ), peer));
        }
        assert_eq!(wait(registry, 64, AT_ONCE), []);
        let tokens: HashSet<_> = pairs.iter().map(|(token, _)| *token).collect();
        for _ in 0..3 {
            for (_, peer) in &mut pairs {
                peer.write_all(b"x").unwrap();
            }
            expect_all(registry, &tokens);
            while !wait(registry, 64, AT_ONCE).is_empty() {}
        }
        // All are changed twice between two waits.
        for (token, peer) in &mut pairs {
            registry.declare(*token, Interest::empty()).unwrap();
            peer.write_all(b"y").unwrap();
        }
        assert_eq!(wait(registry, 64, AT_ONCE), []);
        for (token, _) in &pairs {
            registry.declare(*token, BOTH).unwrap();
            registry.declare(*token, READ).unwrap();
        }
        expect_all(registry, &tokens);
    });
}

/// Checks that an overflow of the completion queue loses no event and is counted.
fn overflows_are_counted() {
    // With deferred work the kernel creates no more completions than are taken.
    over(&POLLS[1..2], |registry| {
        let mut pairs: Vec<_> = (0..100)
            .map(|_| {
                let (socket, peer) = pair();
                (add(registry, socket, READ), peer)
            })
            .collect();
        assert_eq!(wait(registry, 256, AT_ONCE), []);
        for (_, peer) in &mut pairs {
            peer.write_all(b"x").unwrap();
        }
        let tokens: HashSet<_> = pairs.iter().map(|(token, _)| *token).collect();
        expect_all(registry, &tokens);
        assert!(registry.counters().overflows > 0);
    });
}

/// Checks that all changes between two waits cost one call, or one call each.
fn changes_are_submitted_in_one_call() {
    let counted = |spec: &str| {
        let spec = spec.to_owned();
        let counted = thread::spawn(move || {
            let mut registry = Watched::new(find(&spec).unwrap().open().ok()?);
            let pairs: Vec<_> = (0..100)
                .map(|_| {
                    let (socket, peer) = pair();
                    (add(&mut registry, socket, READ), peer)
                })
                .collect();
            let before = registry.counters().calls;
            assert_eq!(wait(&mut registry, 256, AT_ONCE), []);
            let added = registry.counters().calls - before;
            for (token, _) in &pairs[50..] {
                registry.declare(*token, BOTH).unwrap();
                registry.declare(*token, READ).unwrap();
            }
            let sources: Vec<_> =
                pairs[..50].iter().map(|(token, _)| registry.remove(*token).unwrap()).collect();
            let before = registry.counters().calls;
            assert_eq!(wait(&mut registry, 256, AT_ONCE), []);
            drop(sources);
            // Descriptors that are closed before they are submitted cost nothing.
            for _ in 0..50 {
                let token = add(&mut registry, pair().0, READ);
                assert!(registry.close(token));
            }
            let calls = registry.counters().calls - before;
            let before = registry.counters().calls;
            assert_eq!(wait(&mut registry, 256, AT_ONCE), []);
            assert_eq!(registry.counters().calls - before, 1);
            Some((added, calls))
        });
        counted.join().unwrap()
    };
    if counted("epoll-batched:wait=ring").is_some() {
        assert_eq!(counted("epoll-batched"), Some((2, 2)));
        assert_eq!(counted("epoll-batched:wait=ring"), Some((1, 1)));
    }
    assert_eq!(counted("epoll-batched:via=calls"), Some((101, 101)));
}

/// Checks that descriptors that reuse a number between waits receive no events of their
/// predecessors.
fn reused_numbers_receive_no_stale_events() {
    all(|registry| {
        let (socket, mut steady_peer) = pair();
        let steady = add(registry, socket, READ);
        for round in 0..2000_usize {
            let (socket, mut peer) = pair();
            let token = add(registry, socket, READ);
            if round % 2 == 0 {
                assert_eq!(wait(registry, 8, AT_ONCE), []);
            }
            peer.write_all(b"old").unwrap();
            if round % 3 == 0 {
                // The event is under way, and not taken.
                let _ = registry.wait(1, AT_ONCE).unwrap();
            }
            match round % 5 {
                0 => drop(registry.remove(token)),
                1 => {
                    // The number is closed before the revocation is submitted.
                    let source = registry.remove(token).unwrap();
                    let again = registry.insert(source.clone());
                    registry.declare(again, Interest::WRITE).unwrap();
                    drop(source);
                    assert!(registry.close(again));
                }
                _ => assert!(registry.close(token)),
            }
            peer.read(&mut [0; 1]).expect_err("reset, as something was unread, or the end");
            // The number is usually the same. No event of its predecessor may be reported.
            let (socket, mut peer) = pair();
            let new = add(registry, socket, READ);
            assert_eq!(wait(registry, 8, AT_ONCE), []);
            peer.write_all(b"new").unwrap();
            assert_eq!(wait(registry, 8, PATIENCE), [new]);
            assert!(registry.close(new));
            assert_eq!(peer.read(&mut [0; 1]).ok().filter(|got| *got > 0), None);
        }
        steady_peer.write_all(b"x").unwrap();
        assert_eq!(wait(registry, 8, PATIENCE), [steady]);
    });
}

/// Checks a number that is closed after it was revoked, and before this was submitted, while a
/// duplicate is open.
fn a_duplicate_of_a_revoked_descriptor_causes_no_wakeups() {
    all(|registry| {
        let (steady, mut steady_peer) = pair();
        let steady = add(registry, steady, READ);
        let (socket, mut peer) = pair();
        let duplicate = socket.try_clone().unwrap();
        let token = add(registry, socket, BOTH);
        assert_eq!(wait(registry, 8, PATIENCE), [token]);
        drop(registry.remove(token));
        peer.write_all(b"x").unwrap();
        // The mechanism may see events of the duplicate, but not indefinitely.
        for _ in 0..8 {
            assert_eq!(wait(registry, 8, AT_ONCE), []);
        }
        let before = registry.counters().waits;
        let start = std::time::Instant::now();
        while start.elapsed() < Duration::from_millis(30) {
            assert_eq!(wait(registry, 8, Some(Duration::from_millis(30))), []);
        }
        assert!(registry.counters().waits - before < 5, "it ends every wait");
        steady_peer.write_all(b"x").unwrap();
        assert_eq!(wait(registry, 8, PATIENCE), [steady]);
        drop(duplicate);
    });
}

/// Checks that a file is always reported as ready, and does not starve others.
fn files_are_always_ready() {
    all(|registry| {
        let file = registry.insert(Rc::new(tempfile::tempfile().unwrap().into()));
        registry.declare(file, BOTH).unwrap();
        let (socket, mut peer) = pair();
        let other = add(registry, socket, READ);
        assert_eq!(wait(registry, 8, PATIENCE), [file]);
        match registry.semantics().trigger {
            Trigger::Level => assert_eq!(wait(registry, 1, PATIENCE), [file]),
            _ => assert_eq!(wait(registry, 8, Some(Duration::from_millis(5))), []),
        }
        peer.write_all(b"x").unwrap();
        for max in [8, 1] {
            let is_reported = (0..3).any(|_| wait(registry, max, AT_ONCE).contains(&other));
            assert!(is_reported || registry.semantics().trigger != Trigger::Level);
        }
        registry.declare(file, READ).unwrap();
        let got = registry.wait(8, PATIENCE).unwrap();
        let event = (0..got).filter_map(|at| registry.event(at)).find(|it| it.token == file);
        assert_eq!(event.unwrap().readiness, Readiness::READABLE);
        // The next descriptor with its number is not ready.
        assert!(registry.close(file) && registry.close(other));
        let (socket, _there) = pair();
        add(registry, socket, READ);
        assert_eq!(wait(registry, 8, Some(Duration::from_millis(5))), []);
    });
}

/// Checks that events that occur between waits are reported by the next wait.
fn events_between_waits_are_reported() {
    all(|registry| {
        let mut pairs: Vec<_> = (0..50)
            .map(|_| {
                let (socket, peer) = pair();
                (add(registry, socket, READ), peer)
            })
            .collect();
        assert_eq!(wait(registry, 64, AT_ONCE), []);
        let tokens: HashSet<_> = pairs.iter().map(|(token, _)| *token).collect();
        let writer = thread::spawn(move || {
            for (_, peer) in &mut pairs {
                peer.write_all(b"x").unwrap();
            }
            pairs
        });
        let pairs = writer.join().unwrap();
        expect_all(registry, &tokens);
        drop(pairs);
    });
}

/// Checks that one of several exclusive watches of a listener is notified of each connection, in
/// turn.
fn exclusive_watches_take_turns() {
    over(&POLLS, |first| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let one_shot = first.semantics().trigger == Trigger::OneShot;
        let spec = if one_shot { "uring-poll:shots=one" } else { "uring-poll" };
        let mut second = Watched::new(find(spec).unwrap().open().unwrap());
        let mut both = [first, &mut second].map(|registry| {
            let token = registry.insert(Rc::new(listener.try_clone().unwrap().into()));
            registry.declare_exclusive(token, READ).unwrap();
            assert_eq!(wait(registry, 8, AT_ONCE), []);
            (registry, token, 0)
        });
        for _ in 0..8 {
            for (registry, ..) in &mut both {
                assert_eq!(
                    wait(registry, 8, AT_ONCE),
                    [],
                    "it is armed again, at the end of the queue"
                );
            }
            let _client = TcpStream::connect(address).unwrap();
            let mut woken = 0;
            for (registry, token, calls) in &mut both {
                let wait = wait(registry, 8, AT_ONCE);
                woken += wait.len();
                if wait == [*token] {
                    *calls += 1;
                    listener.accept().unwrap();
                    if one_shot {
                        registry.declare(*token, READ).unwrap();
                    }
                }
            }
            assert_eq!(woken, 1);
        }
        assert_eq!(both.map(|(_, _, calls)| calls), [4, 4]);
    });
}

/// Checks that many instances can exist, and that dropping one closes its sources at once, although
/// the kernel closes rings later.
fn many_instances_can_be_opened_and_dropped() {
    raise_limit();
    let many = POLLS.iter().chain(&BATCHED).cycle().take(140);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut kept = Vec::new();
            for spec in many {
                let Ok(mechanism) = find(spec).unwrap().open() else { continue };
                let mut registry = Watched::new(mechanism);
                let (socket, mut peer) = pair();
                let token = add(&mut registry, socket, READ);
                assert_eq!(wait(&mut registry, 8, AT_ONCE), []);
                peer.write_all(b"x").unwrap();
                kept.push((registry, token, peer));
                if kept.len() > 40 {
                    let (registry, _, mut peer) = kept.swap_remove(7);
                    drop(registry);
                    peer.read(&mut [0]).expect_err("reset, as it was unread");
                }
            }
            for (registry, token, _) in &mut kept {
                assert_eq!(wait(registry, 8, PATIENCE), [*token]);
            }
        });
    });
}
