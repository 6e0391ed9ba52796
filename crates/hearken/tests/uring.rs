//! What only the mechanisms over io_uring have: queues that run full, requests that hold a file, a
//! ring that is bound to a thread, and refusal.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use hearken::io::uring::{Settings, UringIo};
use hearken::io::{Address, Body, Completion, CompletionKind, Io, ListenOptions, Outgoing};
use hearken::mechanism::{Registry, Trigger, Unavailable, find};
use hearken::{Interest, Mechanism, Readiness, Token};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

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
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock();
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
#[test]
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
#[test]
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
#[test]
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
#[test]
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
#[test]
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
#[test]
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
#[test]
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
#[test]
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
#[test]
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

/// Without a free descriptor there is no ring, and the error names the limit: however many
/// descriptors the process inherited.
#[test]
fn refused_for_want_of_descriptors() {
    let null = std::fs::File::open("/dev/null").unwrap();
    // dup(2) does not set FD_CLOEXEC, so the children inherit these.
    let _inherited: Vec<OwnedFd> = (0..20).map(|_| rustix::io::dup(&null).unwrap()).collect();
    in_a_child("refused_for_want_of_descriptors", || {
        let maximum = getrlimit(Resource::Nofile).maximum;
        // All descriptors below this one are open.
        let free = u64::try_from(rustix::io::dup(&null).unwrap().as_raw_fd()).unwrap();
        setrlimit(Resource::Nofile, Rlimit { current: Some(free), maximum }).unwrap();
        for spec in POLLS.iter().chain(&BATCHED) {
            let Unavailable { call, error, remedy } = find(spec).unwrap().open().unwrap_err();
            assert!(["io_uring_setup", "epoll_create1"].contains(&call));
            assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
            assert!(remedy.contains("limit of open files"), "{remedy}");
        }
        let refused = UringIo::new(Settings::default()).unwrap_err();
        assert_eq!(refused.call, "io_uring_setup");
        // A ring, and no pair of sockets for wake-ups.
        setrlimit(Resource::Nofile, Rlimit { current: Some(free + 1), maximum }).unwrap();
        let refused = UringIo::new(Settings::default()).unwrap_err();
        assert_eq!(
            (refused.call, refused.error.raw_os_error()),
            ("socketpair", Some(libc::EMFILE))
        );
    });
}

/// Where a sandbox refuses io_uring, polls are refused with the reason, and changes are told one by
/// one.
#[test]
fn refused_by_a_sandbox() {
    in_a_child("refused_by_a_sandbox", || {
        refuse(libc::SYS_io_uring_setup);
        for spec in POLLS.iter().chain(&["epoll-batched:wait=ring"]) {
            let Unavailable { call, error, remedy } = find(spec).unwrap().open().unwrap_err();
            assert_eq!((call, error.raw_os_error()), ("io_uring_setup", Some(libc::EPERM)));
            assert!(remedy.contains("kernel.io_uring_disabled"), "{remedy}");
        }
        let Unavailable { call, error, remedy } = UringIo::new(Settings::default()).unwrap_err();
        assert_eq!((call, error.raw_os_error()), ("io_uring_setup", Some(libc::EPERM)));
        assert!(remedy.contains("kernel.io_uring_disabled"), "{remedy}");
        let mut registry = Watched::new(find("epoll-batched").unwrap().open().unwrap());
        let mut pairs: Vec<_> = (0..10)
            .map(|_| {
                let (here, there) = pair();
                (add(&mut registry, here, READ), there)
            })
            .collect();
        let before = registry.counters().calls;
        assert_eq!(named(&mut registry, 64, AT_ONCE), []);
        assert_eq!(registry.counters().calls - before, 11);
        for (token, there) in &mut pairs {
            there.write_all(b"x").unwrap();
            assert_eq!(named(&mut registry, 64, PATIENCE), [*token]);
        }
    });
}

/// A connection to `io`, and its other side.
fn accepted(io: &mut UringIo) -> (Token, TcpStream) {
    let listener =
        io.listen(&Address::Inet(([127, 0, 0, 1], 0).into()), &ListenOptions::default()).unwrap();
    io.start(listener);
    let peer = TcpStream::connect(io.local_addr(listener).unwrap()).unwrap();
    peer.set_read_timeout(PATIENCE).unwrap();
    let CompletionKind::Accepted { token: on, .. } = completion(io).kind else {
        panic!("not accepted")
    };
    io.close(listener);
    (on, peer)
}

/// The next completion, of whatever turn.
fn completion(io: &mut UringIo) -> Completion {
    loop {
        if let Some(completion) = io.next() {
            return completion;
        }
        io.wait(None).unwrap();
    }
}

/// Received bytes are their holder's, though what received them is gone; and its peers are told.
#[test]
fn what_was_received_outlives_the_ring() {
    let receiving = thread::spawn(|| {
        let mut io = UringIo::new(Settings::default()).ok()?;
        let (on, mut peer) = accepted(&mut io);
        io.start(on);
        peer.write_all(b"kept").unwrap();
        let CompletionKind::Received(mut bytes) = completion(&mut io).kind else {
            panic!("not received")
        };
        let pool = io.pool().clone();
        drop(io);
        assert_eq!(peer.read(&mut [0; 8]).unwrap(), 0, "its end is not told");
        assert_eq!((&*bytes, pool.lent()), (&b"kept"[..], 1));
        bytes.consume(1);
        bytes.as_vec().extend_from_slice(b" on");
        assert_eq!(&*bytes, b"ept on");
        drop(bytes);
        assert_eq!(pool.lent(), 0);
        Some(())
    });
    receiving.join().unwrap();
}

/// What is being sent when it is dropped is not sent on, and not leaked.
#[test]
fn dropped_amid_everything() {
    let sending = thread::spawn(|| {
        for round in 0..20 {
            let mut io = UringIo::new(Settings::default()).ok()?;
            let (on, mut peer) = accepted(&mut io);
            io.start(on);
            let body = Bytes::from(vec![7; 8 << 20]);
            let shared = body.clone();
            for _ in 0..2 {
                let head = io.pool().lend_beyond();
                io.send(on, Outgoing { head, body: Body::Bytes(body.clone()) });
            }
            drop(body);
            if round % 2 == 0 {
                io.wait(Some(io.now())).unwrap();
                while io.next().is_some() {}
            }
            drop(io);
            assert!(shared.is_unique(), "it is still held");
            let mut all = Vec::new();
            let _ = peer.read_to_end(&mut all);
            assert!(all.len() < shared.len() && all.iter().all(|byte| *byte == 7));
        }
        Some(())
    });
    sending.join().unwrap();
}

/// How many connections wait to be accepted on a port, by /proc/net/tcp.
fn listen_queue(port: u16) -> u32 {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let local = format!("0100007F:{port:04X}");
    let listens =
        |line: &&str| line.split_whitespace().nth(1) == Some(&local) && line.contains(" 0A ");
    let line = table.lines().find(listens).unwrap();
    let queues = line.split_whitespace().nth(4).unwrap();
    u32::from_str_radix(queues.split_once(':').unwrap().1, 16).unwrap()
}

/// Of what waits, no more is accepted than was reserved, by a listener that is told to stop in time.
#[test]
fn accepts_no_more_than_was_reserved() {
    let accepting = thread::spawn(|| {
        let mut io = UringIo::new(Settings::default()).ok()?;
        io.reserve(5);
        let listener = io
            .listen(&Address::Inet(([127, 0, 0, 1], 0).into()), &ListenOptions::default())
            .unwrap();
        let addr = io.local_addr(listener).unwrap();
        let peers: Vec<_> = (0..20).map(|_| TcpStream::connect(addr).unwrap()).collect();
        io.start(listener);
        for _ in 0..5 {
            let accepted = completion(&mut io);
            assert!(matches!(accepted.kind, CompletionKind::Accepted { .. }), "{accepted:?}");
        }
        io.stop(listener);
        for _ in 0..5 {
            io.wait(Some(io.now())).unwrap();
            assert!(io.next().is_none());
        }
        // Those that nobody has accepted are not heard of by what the peers see; the kernel tells.
        let waiting = listen_queue(addr.port());
        assert_eq!(waiting, 15, "some were accepted ahead");
        assert_eq!(io.open(), 6);
        io.start(listener);
        for _ in 5..20 {
            assert!(matches!(completion(&mut io).kind, CompletionKind::Accepted { .. }));
        }
        drop(peers);
        Some(())
    });
    accepting.join().unwrap();
}

/// Runs `test` in a process of its own: this one again, with that test only.
fn in_a_child(name: &str, test: impl FnOnce()) {
    const CHILD: &str = "HEARKEN_TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        return test();
    }
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--test-threads", "1"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && said.contains("1 passed"), "{said}");
}

/// Has the system call refused with EPERM from here on.
fn refuse(call: libc::c_long) {
    let step = |code: u32, k: u32, jt, jf| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut filter = [
        // The number of the call comes first in what a filter sees.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, call as u32, 0, 1),
        step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, 0, 0),
        step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    #[allow(unsafe_code)]
    // SAFETY: the program outlives the calls, which only take privileges away.
    let refused = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    assert!(refused, "{}", std::io::Error::last_os_error());
}
