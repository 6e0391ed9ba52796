//! Drives an `Io` and keeps what it completes.

use std::collections::HashMap;
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hearken::Token;
use hearken::io::{Body, Buffer, CompletionKind, FilePart, Io, ListenOptions, Outgoing, RelayEnd};
use hearken::io::{SendOutcome, Then};

use crate::Case;
use crate::checked::Checked;

/// When a test that does not come to its end is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// For how long nothing happens before nothing more is expected.
const QUIET: Duration = Duration::from_millis(2);

/// An `Io` with a started listener, and all that has come of it.
pub(crate) struct Net<I: Io> {
    pub(crate) io: Checked<I>,
    pub(crate) listener: Token,
    pub(crate) addr: SocketAddr,
    /// In the order in which they came.
    pub(crate) accepted: Vec<Token>,
    /// The peer of the last of them, as it was reported.
    pub(crate) last_peer: Option<SocketAddr>,
    pub(crate) accept_failures: Vec<std::io::Error>,
    pub(crate) woken: usize,
    /// Whether received buffers are kept, and those that were.
    pub(crate) hold: bool,
    pub(crate) held: Vec<Buffer>,
    seen: HashMap<Token, Seen>,
    completions: u64,
}

/// What has come of a connection.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) received: Vec<u8>,
    pub(crate) pieces: usize,
    pub(crate) ended: bool,
    pub(crate) failed: Option<ErrorKind>,
    pub(crate) sent: Vec<Result<(), ErrorKind>>,
    pub(crate) connected: Option<Result<(), ErrorKind>>,
    pub(crate) deadlines: usize,
    /// How much each relay has moved, and how it ended.
    pub(crate) relayed: Vec<(u64, Relayed)>,
}

/// How a relay has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Relayed {
    Most,
    End,
    ReceiveFailed(ErrorKind),
    SendFailed(ErrorKind),
}

/// A completion without what it owns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Accepted(Token),
    AcceptFailed,
    Connected,
    Received(usize),
    End,
    ReceiveFailed,
    Sent,
    Relayed(u64),
    Deadline,
    Woken,
}

impl<I: Io> Net<I> {
    pub(crate) fn new(case: &Case<'_, I>) -> Net<I> {
        let mut io = Checked::new((case.io)());
        let listener = io.listen(&loopback().into(), &ListenOptions::default()).unwrap();
        let addr = io.local_addr(listener).unwrap();
        io.start(listener);
        Net {
            io,
            listener,
            addr,
            accepted: Vec::new(),
            last_peer: None,
            accept_failures: Vec::new(),
            woken: 0,
            hold: false,
            held: Vec::new(),
            seen: HashMap::new(),
            completions: 0,
        }
    }

    /// What has come of `on`.
    pub(crate) fn seen(&mut self, on: Token) -> &mut Seen {
        self.seen.entry(on).or_default()
    }

    /// The next completion of the turn, kept.
    pub(crate) fn next(&mut self) -> Option<(Token, Kind)> {
        let completion = self.io.next()?;
        self.completions += 1;
        let on = completion.token;
        let seen = self.seen.entry(on).or_default();
        let kind = match completion.kind {
            CompletionKind::Accepted { token, peer } => {
                self.accepted.push(token);
                self.last_peer = peer.map(|peer| *peer);
                Kind::Accepted(token)
            }
            CompletionKind::AcceptFailed(error) => {
                self.accept_failures.push(error);
                Kind::AcceptFailed
            }
            CompletionKind::Connected(result) => {
                seen.connected = Some(result.map_err(|error| error.kind()));
                Kind::Connected
            }
            CompletionKind::Received(buffer) => {
                seen.received.extend_from_slice(&buffer);
                seen.pieces += 1;
                let length = buffer.len();
                if self.hold {
                    self.held.push(buffer);
                }
                Kind::Received(length)
            }
            CompletionKind::End => {
                seen.ended = true;
                Kind::End
            }
            CompletionKind::ReceiveFailed(error) => {
                seen.failed = Some(error.kind());
                Kind::ReceiveFailed
            }
            CompletionKind::Sent(result) => {
                seen.sent.push(result.map_err(|error| error.kind()));
                Kind::Sent
            }
            CompletionKind::Relayed { moved, ended } => {
                let how = match ended {
                    RelayEnd::Most => Relayed::Most,
                    RelayEnd::End => Relayed::End,
                    RelayEnd::ReceiveFailed(error) => Relayed::ReceiveFailed(error.kind()),
                    RelayEnd::SendFailed(error) => Relayed::SendFailed(error.kind()),
                };
                seen.relayed.push((moved, how));
                Kind::Relayed(moved)
            }
            CompletionKind::Deadline => {
                seen.deadlines += 1;
                Kind::Deadline
            }
            CompletionKind::Woken => {
                self.woken += 1;
                Kind::Woken
            }
            other => panic!("unknown completion {other:?}"),
        };
        Some((on, kind))
    }

    /// A whole turn that waits for `at_most`; how many completions it had.
    pub(crate) fn turn(&mut self, at_most: Duration) -> u64 {
        let before = self.completions;
        self.wait(at_most);
        while self.next().is_some() {}
        self.completions - before
    }

    /// Begins a turn, having waited for `at_most`.
    pub(crate) fn wait(&mut self, at_most: Duration) {
        // A clock that stands still between turns.
        let until = self.io.now() + at_most;
        self.io.wait(Some(until)).unwrap();
    }

    /// Takes completions until `done` says so of one: the turn is left where it is.
    pub(crate) fn drive(
        &mut self,
        what: &str,
        mut done: impl FnMut(&mut Net<I>, Token, Kind) -> bool,
    ) {
        let began = Instant::now();
        loop {
            while let Some((on, kind)) = self.next() {
                if done(self, on, kind) {
                    return;
                }
            }
            assert!(began.elapsed() < PATIENCE, "waited in vain: {what}");
            self.wait(PATIENCE); // Nothing else may be needed to end it.
        }
    }

    /// Turns, until `done`.
    pub(crate) fn run(&mut self, what: &str, mut done: impl FnMut(&mut Net<I>) -> bool) {
        let began = Instant::now();
        while !done(self) {
            assert!(began.elapsed() < PATIENCE, "waited in vain: {what}");
            self.turn(PATIENCE); // Nothing else may be needed to end it.
        }
    }

    /// Turns, until nothing has happened for a while.
    pub(crate) fn settle(&mut self) {
        let mut quiet_since = self.io.now();
        let mut quiet_turns = 0;
        while quiet_turns < 4 || self.io.now() - quiet_since < QUIET {
            let at_most = if quiet_turns < 3 { Duration::ZERO } else { QUIET };
            quiet_turns += 1;
            if self.turn(at_most) > 0 {
                quiet_since = self.io.now();
                quiet_turns = 0;
            }
        }
    }

    /// Turns, until `on` has received `bytes`, which are what it was sent.
    pub(crate) fn receives(&mut self, on: Token, bytes: &[u8]) {
        self.run("all that was sent is received", |net| net.seen(on).received.len() >= bytes.len());
        assert!(self.seen(on).received == bytes, "received something else");
    }

    /// Turns, until `count` sends on `on` are completed, none of which has failed.
    pub(crate) fn sends(&mut self, on: Token, count: usize) {
        self.run("all is sent", |net| net.seen(on).sent.len() >= count);
        assert_eq!(self.seen(on).sent, vec![Ok(()); count]);
    }

    /// Turns, until `on` has met the end, after `bytes`.
    pub(crate) fn ends(&mut self, on: Token, bytes: &[u8]) {
        self.run("the end is met", |net| net.seen(on).ended);
        assert!(self.seen(on).received == bytes, "received something else");
    }

    /// A connection to itself: the side that connected, and the side that accepted, neither started.
    pub(crate) fn pair(&mut self) -> (Token, Token) {
        let from = self.io.connect(&self.addr.into(), None).unwrap();
        self.run("a connection is made", |net| {
            net.seen(from).connected.is_some() && net.peer(from).is_some()
        });
        assert_eq!(self.seen(from).connected, Some(Ok(())));
        (from, self.peer(from).unwrap())
    }

    /// As [`pair`](Net::pair), both started.
    pub(crate) fn started_pair(&mut self) -> (Token, Token) {
        let (from, to) = self.pair();
        self.io.start(from);
        self.io.start(to);
        (from, to)
    }

    /// The accepted side of the connection of which `from` is the other.
    fn peer(&self, from: Token) -> Option<Token> {
        let addr = self.io.local_addr(from).ok()?;
        let mut accepted = self.accepted.iter().copied();
        accepted.find(|&on| self.io.peer_addr(on).is_ok_and(|peer| peer == addr))
    }

    /// Sends `bytes` as a head.
    pub(crate) fn send(&mut self, on: Token, bytes: &[u8]) {
        self.send_with(on, bytes, Body::None);
    }

    /// Sends `head` and `body`.
    pub(crate) fn send_with(&mut self, on: Token, bytes: &[u8], body: Body) {
        let mut head = self.io.pool().lend_beyond();
        head.as_vec().extend_from_slice(bytes);
        self.io.send(on, Outgoing { head, body });
    }

    /// Sends `bytes`, at once where that can be.
    pub(crate) fn send_now(&mut self, on: Token, bytes: &[u8]) {
        if self.io.send_now(on, bytes) {
            self.seen(on).sent.push(Ok(()));
        }
    }

    /// Sends `bytes` as the last, and says whether it will be closed behind.
    pub(crate) fn send_last(&mut self, on: Token, bytes: &[u8]) -> bool {
        let last = self.io.send_last(on, bytes, Then::Close);
        if last == SendOutcome::Complete {
            self.seen(on).sent.push(Ok(()));
        }
        last == SendOutcome::PendingClose
    }

    /// Sends `bytes` as a body.
    pub(crate) fn send_body(&mut self, on: Token, bytes: Bytes) {
        self.send_with(on, &[], Body::Bytes(bytes));
    }

    /// That it comes to rest, and sleeps when there is nothing to do.
    pub(crate) fn sleeps(&mut self, case: &Case<'_, I>) {
        let began = Instant::now();
        loop {
            self.settle();
            let (waits, completions) = (self.io.counters().waits, self.completions);
            let until = self.io.now() + 2 * QUIET;
            while self.io.now() < until {
                self.io.wait(Some(until)).unwrap();
                while self.next().is_some() {}
            }
            let waits = self.io.counters().waits - waits;
            if self.completions == completions && (waits < 40 || case.spins) {
                return;
            }
            // What takes long may still have been under way.
            assert!(began.elapsed() < Duration::from_secs(5), "{waits} waits with nothing to do");
        }
    }
}

/// Turns of both, until `done`.
pub(crate) fn both<I: Io>(
    a: &mut Net<I>,
    b: &mut Net<I>,
    what: &str,
    mut done: impl FnMut(&mut Net<I>, &mut Net<I>) -> bool,
) {
    let began = Instant::now();
    while !done(a, b) {
        assert!(began.elapsed() < PATIENCE, "waited in vain: {what}");
        if a.turn(Duration::ZERO) + b.turn(Duration::ZERO) == 0 {
            a.turn(Duration::from_millis(1));
        }
    }
}

/// A connection of `a` to `b`: the token of each.
pub(crate) fn between<I: Io>(a: &mut Net<I>, b: &mut Net<I>) -> (Token, Token) {
    let from = a.io.connect(&b.addr.into(), None).unwrap();
    let before = b.accepted.len();
    both(a, b, "a connection is made", |a, b| {
        a.seen(from).connected.is_some() && b.accepted.len() > before
    });
    (from, b.accepted[before])
}

/// Any free port.
pub(crate) fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// More than the sockets take for a peer who does not read (`tcp_wmem` has 4 MiB), and than any
/// turn's share.
pub(crate) const LONG: usize = 5 << 20;

/// `length` bytes of which no part is like another.
pub(crate) fn pattern(seed: u64, length: usize) -> Vec<u8> {
    static STOCK: LazyLock<Vec<u8>> = LazyLock::new(|| random(0, LONG + 1000));
    if length < 1 << 17 {
        random(seed, length)
    } else {
        STOCK[seed as usize % 1000..][..length].to_vec()
    }
}

fn random(seed: u64, length: usize) -> Vec<u8> {
    let mut random = Random(seed);
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend_from_slice(&random.next().to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 1 to `most`.
    pub(crate) fn up_to(&mut self, most: usize) -> usize {
        1 + (self.next() % most as u64) as usize
    }
}

/// A file of `bytes`, which has no name.
pub(crate) fn file(bytes: &[u8]) -> Rc<OwnedFd> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    Rc::new(file.into())
}

/// A part of a file as a body.
pub(crate) fn part(file: &Rc<OwnedFd>, offset: u64, length: u64) -> Body {
    Body::File(FilePart { file: Rc::clone(file), offset, length })
}
