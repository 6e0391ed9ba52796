//! Functions that the clauses share.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use hearken::mechanism::{Registry, Trigger};
use hearken::{Event, Interest, Readiness, Token};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::suite::AnyMechanism;

pub(crate) const READ: Interest = Interest::READ;
pub(crate) const WRITE: Interest = Interest::WRITE;
pub(crate) const PRIORITY: Interest = Interest::PRIORITY;
pub(crate) const BOTH: Interest = READ.union(WRITE);
pub(crate) const NEITHER: Interest = Interest::empty();

/// Maximum time to wait for an event, which no successful test reaches.
const PATIENCE: Duration = Duration::from_secs(60);

/// A registry of shared sources, so that a test can register one number twice.
pub(crate) struct Watch(pub(crate) Registry<AnyMechanism, Rc<OwnedFd>>);

impl Watch {
    pub(crate) fn trigger(&self) -> Trigger {
        self.0.semantics().trigger
    }

    /// Returns whether the mechanism reports `flag`.
    pub(crate) fn reports(&self, flag: Readiness) -> bool {
        self.0.semantics().reports.contains(flag)
    }

    pub(crate) fn try_add(
        &mut self,
        source: impl Into<OwnedFd>,
        interest: Interest,
    ) -> io::Result<Token> {
        let token = self.0.insert(Rc::new(source.into()));
        self.0.declare(token, interest).map(|()| token)
    }

    pub(crate) fn add(&mut self, source: impl Into<OwnedFd>, interest: Interest) -> Token {
        self.try_add(source, interest).expect("declare")
    }

    pub(crate) fn change(&mut self, token: Token, interest: Interest) {
        self.0.declare(token, interest).expect("change");
    }

    /// Declares the same interest again, which arms a one-shot mechanism.
    pub(crate) fn arm(&mut self, token: Token) {
        let interest = self.0.interest(token);
        self.change(token, interest);
    }

    pub(crate) fn fd(&self, token: Token) -> &OwnedFd {
        self.0.get(token).expect("a registered source")
    }

    /// Waits once. Returns the batch, after checking everything that holds for every batch.
    pub(crate) fn wait(&mut self, max: usize, timeout: Duration) -> Vec<Event> {
        let got = self.0.wait(max, Some(timeout)).expect("wait");
        assert!(got <= max, "{got} events where {max} were allowed");
        let events: Vec<Event> = (0..got).filter_map(|index| self.0.event(index)).collect();
        for (at, event) in events.iter().enumerate() {
            let (token, readiness) = (event.token, event.readiness);
            let requested = self.0.interest(token);
            assert!(self.0.get(token).is_some(), "{token:?} is not registered");
            assert_eq!(
                readiness.restrict_to(requested),
                readiness,
                "not requested by {requested:?}"
            );
            let reported = self.0.semantics().reports;
            assert!(reported.contains(readiness), "{readiness:?} is not among {reported:?}");
            assert!(
                events[..at].iter().all(|other| other.token != token),
                "{token:?} is twice in a batch"
            );
        }
        events
    }

    /// Waits for the first batch that contains an event.
    pub(crate) fn next_batch(&mut self, max: usize) -> Vec<Event> {
        let start = Instant::now();
        loop {
            let events = self.wait(max, PATIENCE);
            if !events.is_empty() {
                return events;
            }
            assert!(start.elapsed() < PATIENCE, "no event came");
        }
    }

    /// Waits for an event of `token`, which must be the only one. Returns its readiness.
    pub(crate) fn next(&mut self, token: Token) -> Readiness {
        let events = self.next_batch(64);
        assert_eq!(events.len(), 1, "{events:?}");
        assert_eq!(events[0].token, token);
        events[0].readiness
    }

    /// Waits until an event of `token` contains `wanted`, since actions of a peer may arrive
    /// separately.
    pub(crate) fn until(&mut self, token: Token, wanted: Readiness) -> Readiness {
        let mut seen = Readiness::empty();
        let start = Instant::now();
        while !seen.contains(wanted) {
            assert!(start.elapsed() < PATIENCE, "{seen:?}, but not {wanted:?}");
            let events = self.wait(64, Duration::from_millis(100));
            for event in events.iter().filter(|event| event.token == token) {
                seen = event.readiness;
            }
            if self.trigger() == Trigger::OneShot {
                self.arm(token);
            }
        }
        seen
    }

    /// Checks that there is no event, immediately and after a short wait.
    pub(crate) fn quiet(&mut self) {
        for millis in [0, 0, 15] {
            let events = self.wait(64, Duration::from_millis(millis));
            assert!(events.is_empty(), "{events:?}");
        }
    }

    /// Returns how many of `waits` short waits end with events, wanted or not.
    pub(crate) fn wakes(&mut self, waits: usize) -> usize {
        (0..waits)
            .filter(|_| self.0.wait(64, Some(Duration::from_millis(3))).expect("wait") > 0)
            .count()
    }
}

pub(crate) fn pipe() -> (OwnedFd, OwnedFd) {
    pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).expect("pipe")
}

pub(crate) fn unix() -> (OwnedFd, OwnedFd) {
    let (socket, peer) = UnixStream::pair().expect("socketpair");
    for end in [&socket, &peer] {
        end.set_nonblocking(true).expect("nonblocking");
    }
    (socket.into(), peer.into())
}

pub(crate) fn tcp() -> (OwnedFd, OwnedFd) {
    let (listener, address) = listener();
    let socket = TcpStream::connect(address).expect("connect");
    let peer = loop {
        match listener.accept() {
            Ok((peer, _)) => break peer,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
            Err(error) => panic!("accept: {error}"),
        }
    };
    for end in [&socket, &peer] {
        end.set_nonblocking(true).expect("nonblocking");
        end.set_nodelay(true).expect("nodelay");
    }
    (socket.into(), peer.into())
}

pub(crate) fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    listener.set_nonblocking(true).expect("nonblocking");
    let address = listener.local_addr().expect("getsockname");
    (listener, address)
}

pub(crate) fn write(to: impl AsFd, bytes: &[u8]) {
    assert_eq!(rustix::io::write(to, bytes), Ok(bytes.len()));
}

/// Writes until the socket is full. On TCP there may be space later, when bytes in flight have
/// arrived.
pub(crate) fn fill(to: impl AsFd) {
    let bytes = [7; 4096];
    // A stream may take less than a page when it does not take a page.
    for chunk in [4096, 1] {
        loop {
            match rustix::io::write(&to, &bytes[..chunk]) {
                Ok(_) => {}
                Err(Errno::AGAIN) => break,
                Err(errno) => panic!("write: {errno}"),
            }
        }
    }
}

/// Reads until the stream would block or ends. Returns the number of bytes, and whether it ended.
pub(crate) fn drain(from: impl AsFd) -> (usize, bool) {
    let mut bytes = [0; 65536];
    let mut sum = 0;
    loop {
        match rustix::io::read(&from, &mut bytes) {
            Ok(0) => return (sum, true),
            Ok(got) => sum += got,
            Err(Errno::AGAIN) => return (sum, false),
            Err(errno) => panic!("read: {errno}"),
        }
    }
}

/// Raises the limit of descriptors as far as possible, and returns it.
pub(crate) fn limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let maximum = limit.maximum;
    let raised = Rlimit { current: maximum, maximum };
    // No test needs more, and tables grow with the limit.
    let most = |limit: Option<u64>| limit.unwrap_or(u64::MAX).min(32768) as usize;
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => most(maximum),
        Err(_) => most(limit.current),
    }
}

/// Returns a descriptor number that no other test uses: higher than those that the kernel assigns,
/// lowest first. `None` if the limit of descriptors is too low.
pub(crate) fn number_of_my_own(among: RangeInclusive<usize>) -> Option<RawFd> {
    static NEXT: AtomicI32 = AtomicI32::new(0);
    let top = limit().min(*among.end());
    let number = top as RawFd - 1 - NEXT.fetch_add(1, Ordering::Relaxed);
    (number as usize >= *among.start()).then_some(number)
}

/// Moves the source to another descriptor number.
pub(crate) fn renumber(source: OwnedFd, number: RawFd) -> OwnedFd {
    let moved = rustix::io::fcntl_dupfd_cloexec(&source, number).expect("dup");
    drop(source);
    assert_eq!(std::os::fd::AsRawFd::as_raw_fd(&moved), number, "the number is in use");
    moved
}
