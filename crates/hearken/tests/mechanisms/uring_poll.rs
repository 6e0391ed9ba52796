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
        thousands_at_once
        an_overflow_is_counted
        changes_go_together
        numbers_come_and_go
        what_cannot_be_deleted_is_left_behind
        what_is_always_ready
        a_thread_that_does_not_wait_misses_nothing
        an_exclusive_watch_takes_turns
        many_instances_come_and_go
    }
}

const READ: Interest = Interest::READ;
const AT_ONCE: Option<Duration> = Some(Duration::ZERO);
const PATIENCE: Option<Duration> = Some(Duration::from_secs(20));

/// With room for so few completions that queues run full.
const POLLS: [&str; 3] = [
    "uring-poll:completions=16",
    "uring-poll:completions=16:work=cooperative",
    "uring-poll:completions=16:shots=one",
];
const BATCHED: [&str; 4] = [
    "epoll-batched",
    "epoll-batched:trigger=level",
    "epoll-batched:wait=ring",
    "epoll-batched:via=calls",
];

type Watched = Registry<Box<dyn Mechanism>, Rc<OwnedFd>>;

/// Holds each of `specs` that can be had to `test`, in a thread of its own and one at a time, as
/// many descriptors are opened.
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
    let (here, there) = UnixStream::pair().expect("socketpair");
    here.set_nonblocking(true).expect("nonblocking");
    there.set_nonblocking(true).expect("nonblocking");
    (here, there)
}

fn add(registry: &mut Watched, source: UnixStream, interest: Interest) -> Token {
    let token = registry.insert(Rc::new(source.into()));
    registry.declare(token, interest).expect("declare");
    token
}

/// Whoever is named in one wait.
fn named(registry: &mut Watched, max: usize, timeout: Option<Duration>) -> Vec<Token> {
    let got = registry.wait(max, timeout).expect("wait");
    assert!(got <= max);
    let named: Vec<_> = (0..got).filter_map(|at| registry.event(at)).map(|it| it.who).collect();
    let distinct: HashSet<_> = named.iter().collect();
    assert_eq!(distinct.len(), named.len(), "twice in a batch");
    named
}

/// Reads what is there, and arms again where that is needed.
fn deal_with(registry: &mut Watched, who: Token) {
    let source = registry.get(who).expect("registered");
    while rustix::io::read(source, &mut [0; 64]).is_ok_and(|got| got > 0) {}
    if registry.semantics().trigger == Trigger::OneShot {
        registry.declare(who, registry.interest(who)).expect("arm");
    }
}

/// Everybody is named, within so many waits that each brought something.
fn everybody(registry: &mut Watched, expected: &HashSet<Token>) {
    let mut seen = HashSet::new();
    for _ in 0..4 * expected.len() + 100 {
        if seen.len() == expected.len() {
            return;
        }
        for who in named(registry, 64, PATIENCE) {
            assert!(expected.contains(&who));
            seen.insert(who);
            deal_with(registry, who);
        }
    }
    panic!("{} of {} were named", seen.len(), expected.len());
}

/// More are declared between two waits, and more is ready at once, than either queue has room for.
fn thousands_at_once() {
    all(|registry| {
        let mut pairs = Vec::new();
        for _ in 0..2000 {
            let (here, there) = pair();
            pairs.push((add(registry, here, READ), there));
        }
        assert_eq!(named(registry, 64, AT_ONCE), []);
        let tokens: HashSet<_> = pairs.iter().map(|(token, _)| *token).collect();
        for _ in 0..3 {
            for (_, there) in &mut pairs {
                there.write_all(b"x").unwrap();
            }
            everybody(registry, &tokens);
            while !named(registry, 64, AT_ONCE).is_empty() {}
        }
        // And all are changed, twice, between two waits.
        for (token, there) in &mut pairs {
            registry.declare(*token, Interest::empty()).unwrap();
            there.write_all(b"y").unwrap();
        }
        assert_eq!(named(registry, 64, AT_ONCE), []);
        for (token, _) in &pairs {
            registry.declare(*token, Interest::all()).unwrap();
            registry.declare(*token, READ).unwrap();
        }
        everybody(registry, &tokens);
    });
}

/// A queue of completions that runs full is recovered, and says so.
fn an_overflow_is_counted() {
    // With deferred work the kernel makes no more completions than are taken.
    over(&POLLS[1..2], |registry| {
        let mut pairs: Vec<_> = (0..100)
            .map(|_| {
                let (here, there) = pair();
                (add(registry, here, READ), there)
            })
            .collect();
        assert_eq!(named(registry, 256, AT_ONCE), []);
        for (_, there) in &mut pairs {
            there.write_all(b"x").unwrap();
        }
        let tokens: HashSet<_> = pairs.iter().map(|(token, _)| *token).collect();
        everybody(registry, &tokens);
        assert!(registry.counters().overflows > 0);
    });
}

/// All that was changed between two waits costs one call, or one each.
fn changes_go_together() {
    let counted = |spec: &str| {
        let spec = spec.to_owned();
        let counted = thread::spawn(move || {
            let mut registry = Watched::new(find(&spec).unwrap().open().ok()?);
            let pairs: Vec<_> = (0..100)
                .map(|_| {
                    let (here, there) = pair();
                    (add(&mut registry, here, READ), there)
                })
                .collect();
            let before = registry.counters().calls;
            assert_eq!(named(&mut registry, 256, AT_ONCE), []);
            let added = registry.counters().calls - before;
            for (token, _) in &pairs[50..] {
                registry.declare(*token, Interest::all()).unwrap();
                registry.declare(*token, READ).unwrap();
            }
            let sources: Vec<_> =
                pairs[..50].iter().map(|(token, _)| registry.remove(*token).unwrap()).collect();
            let before = registry.counters().calls;
            assert_eq!(named(&mut registry, 256, AT_ONCE), []);
            drop(sources);
            // What is closed before it was told costs nothing.
            for _ in 0..50 {
                let token = add(&mut registry, pair().0, READ);
                assert!(registry.close(token));
            }
            let told = registry.counters().calls - before;
            let before = registry.counters().calls;
            assert_eq!(named(&mut registry, 256, AT_ONCE), []);
            assert_eq!(registry.counters().calls - before, 1);
            Some((added, told))
        });
        counted.join().unwrap()
    };
    if counted("epoll-batched:wait=ring").is_some() {
        assert_eq!(counted("epoll-batched"), Some((2, 2)));
        assert_eq!(counted("epoll-batched:wait=ring"), Some((1, 1)));
    }
    assert_eq!(counted("epoll-batched:via=calls"), Some((101, 101)));
}

/// Numbers come and go between waits as fast as can be, with events on the way.
fn numbers_come_and_go() {
    all(|registry| {
        let (here, mut steady_peer) = pair();
        let steady = add(registry, here, READ);
        for round in 0..2000_usize {
            let (here, mut there) = pair();
            let token = add(registry, here, READ);
            if round % 2 == 0 {
                assert_eq!(named(registry, 8, AT_ONCE), []);
            }
            there.write_all(b"old").unwrap();
            if round % 3 == 0 {
                // As for nobody: it is only to have the event on its way.
                let _ = registry.wait(1, AT_ONCE).unwrap();
            }
            match round % 5 {
                0 => drop(registry.remove(token)),
                1 => {
                    // The number goes before the revocation is told.
                    let source = registry.remove(token).unwrap();
                    let again = registry.insert(source.clone());
                    registry.declare(again, Interest::WRITE).unwrap();
                    drop(source);
                    assert!(registry.close(again));
                }
                _ => assert!(registry.close(token)),
            }
            there.read(&mut [0; 1]).expect_err("reset, as something was unread, or the end");
            // The same number, as a rule; nothing of its former holder is heard.
            let (here, mut there) = pair();
            let new = add(registry, here, READ);
            assert_eq!(named(registry, 8, AT_ONCE), []);
            there.write_all(b"new").unwrap();
            assert_eq!(named(registry, 8, PATIENCE), [new]);
            assert!(registry.close(new));
            assert_eq!(there.read(&mut [0; 1]).ok().filter(|got| *got > 0), None);
        }
        steady_peer.write_all(b"x").unwrap();
        assert_eq!(named(registry, 8, PATIENCE), [steady]);
    });
}

/// A number is closed after it was revoked and before that was told, while a duplicate is open.
fn what_cannot_be_deleted_is_left_behind() {
    all(|registry| {
        let (steady, mut steady_peer) = pair();
        let steady = add(registry, steady, READ);
        let (here, mut there) = pair();
        let duplicate = here.try_clone().unwrap();
        let token = add(registry, here, Interest::all());
        assert_eq!(named(registry, 8, PATIENCE), [token]);
        drop(registry.remove(token));
        there.write_all(b"x").unwrap();
        // It may be heard of inside, but not for ever.
        for _ in 0..8 {
            assert_eq!(named(registry, 8, AT_ONCE), []);
        }
        let before = registry.counters().waits;
        let start = std::time::Instant::now();
        while start.elapsed() < Duration::from_millis(30) {
            assert_eq!(named(registry, 8, Some(Duration::from_millis(30))), []);
        }
        assert!(registry.counters().waits - before < 5, "it wakes every wait");
        steady_peer.write_all(b"x").unwrap();
        assert_eq!(named(registry, 8, PATIENCE), [steady]);
        drop(duplicate);
    });
}

/// A file that is always ready is said to be, and does not keep the others from being heard.
fn what_is_always_ready() {
    all(|registry| {
        let file = registry.insert(Rc::new(tempfile::tempfile().unwrap().into()));
        registry.declare(file, Interest::all()).unwrap();
        let (here, mut there) = pair();
        let other = add(registry, here, READ);
        assert_eq!(named(registry, 8, PATIENCE), [file]);
        match registry.semantics().trigger {
            Trigger::Level => assert_eq!(named(registry, 1, PATIENCE), [file]),
            _ => assert_eq!(named(registry, 8, Some(Duration::from_millis(5))), []),
        }
        there.write_all(b"x").unwrap();
        for max in [8, 1] {
            let heard = (0..3).any(|_| named(registry, max, AT_ONCE).contains(&other));
            assert!(heard || registry.semantics().trigger != Trigger::Level);
        }
        registry.declare(file, READ).unwrap();
        let got = registry.wait(8, PATIENCE).unwrap();
        let event = (0..got).filter_map(|at| registry.event(at)).find(|it| it.who == file);
        assert_eq!(event.unwrap().readiness, Readiness::READABLE);
        // Its number is another's next, who is not ready.
        assert!(registry.close(file) && registry.close(other));
        let (here, _there) = pair();
        add(registry, here, READ);
        assert_eq!(named(registry, 8, Some(Duration::from_millis(5))), []);
    });
}

/// What happens while the thread does something else is there when it waits again.
fn a_thread_that_does_not_wait_misses_nothing() {
    all(|registry| {
        let mut pairs: Vec<_> = (0..50)
            .map(|_| {
                let (here, there) = pair();
                (add(registry, here, READ), there)
            })
            .collect();
        assert_eq!(named(registry, 64, AT_ONCE), []);
        let tokens: HashSet<_> = pairs.iter().map(|(token, _)| *token).collect();
        let writer = thread::spawn(move || {
            for (_, there) in &mut pairs {
                there.write_all(b"x").unwrap();
            }
            pairs
        });
        let pairs = writer.join().unwrap();
        everybody(registry, &tokens);
        drop(pairs);
    });
}

/// Of several that watch a listener one is told of each connection, and each is in its turn.
fn an_exclusive_watch_takes_turns() {
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
            assert_eq!(named(registry, 8, AT_ONCE), []);
            (registry, token, 0)
        });
        for _ in 0..8 {
            for (registry, ..) in &mut both {
                assert_eq!(named(registry, 8, AT_ONCE), [], "armed again, at the end of the line");
            }
            let _client = TcpStream::connect(address).unwrap();
            let mut woken = 0;
            for (registry, token, told) in &mut both {
                let named = named(registry, 8, AT_ONCE);
                woken += named.len();
                if named == [*token] {
                    *told += 1;
                    listener.accept().unwrap();
                    if one_shot {
                        registry.declare(*token, READ).unwrap();
                    }
                }
            }
            assert_eq!(woken, 1);
        }
        assert_eq!(both.map(|(_, _, told)| told), [4, 4]);
    });
}

/// The kernel closes a ring when it finds the time; the sources are closed when they are dropped.
fn many_instances_come_and_go() {
    raise_limit();
    let many = POLLS.iter().chain(&BATCHED).cycle().take(140);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut kept = Vec::new();
            for spec in many {
                let Ok(mechanism) = find(spec).unwrap().open() else { continue };
                let mut registry = Watched::new(mechanism);
                let (here, mut there) = pair();
                let token = add(&mut registry, here, READ);
                assert_eq!(named(&mut registry, 8, AT_ONCE), []);
                there.write_all(b"x").unwrap();
                kept.push((registry, token, there));
                if kept.len() > 40 {
                    let (registry, _, mut there) = kept.swap_remove(7);
                    drop(registry);
                    there.read(&mut [0]).expect_err("reset, as it was unread");
                }
            }
            for (registry, token, _) in &mut kept {
                assert_eq!(named(registry, 8, PATIENCE), [*token]);
            }
        });
    });
}
