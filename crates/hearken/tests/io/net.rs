//! A driver of an `Io`, which records its completions.

use std::collections::HashMap;
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hearken::Token;
use hearken::io::sim::Checked;
use hearken::io::{Body, Buffer, CompletionKind, FilePart, Io, ListenOptions, Outgoing, RelayEnd};
use hearken::io::{CloseMode, SendOutcome};

use crate::Case;

/// Maximum time to wait for an expected event, which no successful test reaches.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Time without completions after which none is expected.
const QUIET: Duration = Duration::from_millis(2);

/// An `Io` with a started listener, and a record of its completions.
pub(crate) struct Net<I: Io> {
    pub(crate) io: Checked<I>,
    pub(crate) listener: Token,
    pub(crate) addr: SocketAddr,
    /// Accepted connections, in order.
    pub(crate) accepted: Vec<Token>,
    /// Address of the last accepted connection's peer, if it was reported.
    pub(crate) last_peer: Option<SocketAddr>,
    pub(crate) accept_failures: Vec<std::io::Error>,
    pub(crate) woken: usize,
    /// Whether received buffers are held.
    pub(crate) holds_buffers: bool,
    /// Received buffers that are held.
    pub(crate) held_buffers: Vec<Buffer>,
    seen: HashMap<Token, Seen>,
    completions: u64,
    /// See [`Case`].
    has_handshake: bool,
}

/// The completions of a connection.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) received: Vec<u8>,
    pub(crate) pieces: usize,
    pub(crate) ended: bool,
    pub(crate) failed: Option<ErrorKind>,
    pub(crate) sent: Vec<Result<(), ErrorKind>>,
    pub(crate) connected: Option<Result<(), ErrorKind>>,
    pub(crate) deadlines: usize,
    pub(crate) readable: usize,
    /// Number of bytes that each relay moved, and the reason for its end.
    pub(crate) relayed: Vec<(u64, Relayed)>,
}

/// The reason for the end of a relay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Relayed {
    Complete,
    End,
    ReceiveFailed(ErrorKind),
    SendFailed(ErrorKind),
}

/// A completion without its resources.
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
    Readable,
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
            holds_buffers: false,
            held_buffers: Vec::new(),
            seen: HashMap::new(),
            completions: 0,
            has_handshake: case.has_handshake,
        }
    }

    /// Returns the completions of `token`.
    pub(crate) fn seen(&mut self, token: Token) -> &mut Seen {
        self.seen.entry(token).or_default()
    }

    /// Takes and records the next completion of the turn.
    pub(crate) fn next(&mut self) -> Option<(Token, Kind)> {
        let completion = self.io.next()?;
        self.completions += 1;
        let token = completion.token;
        let seen = self.seen.entry(token).or_default();
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
                if self.holds_buffers {
                    self.held_buffers.push(buffer);
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
                let reason = match ended {
                    RelayEnd::Complete => Relayed::Complete,
                    RelayEnd::End => Relayed::End,
                    RelayEnd::ReceiveFailed(error) => Relayed::ReceiveFailed(error.kind()),
                    RelayEnd::SendFailed(error) => Relayed::SendFailed(error.kind()),
                };
                seen.relayed.push((moved, reason));
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
            CompletionKind::Readable => {
                seen.readable += 1;
                Kind::Readable
            }
            other => panic!("unknown completion {other:?}"),
        };
        Some((token, kind))
    }

    /// Runs a turn that waits for up to `at_most`. Returns the number of completions.
    pub(crate) fn turn(&mut self, at_most: Duration) -> u64 {
        let before = self.completions;
        self.wait(at_most);
        while self.next().is_some() {}
        self.completions - before
    }

    /// Starts a turn, after a wait for up to `at_most`.
    pub(crate) fn wait(&mut self, at_most: Duration) {
        // This clock advances only between turns.
        let until = self.io.now() + at_most;
        self.io.wait(Some(until)).unwrap();
    }

    /// Takes completions until `done` returns true for one. The turn remains unfinished.
    pub(crate) fn drive(
        &mut self,
        what: &str,
        mut done: impl FnMut(&mut Net<I>, Token, Kind) -> bool,
    ) {
        let began = Instant::now();
        loop {
            while let Some((token, kind)) = self.next() {
                if done(self, token, kind) {
                    return;
                }
            }
            assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
            self.wait(PATIENCE); // No other event is needed to end the wait.
        }
    }

    /// Runs turns until `done` returns true.
    pub(crate) fn run(&mut self, what: &str, mut done: impl FnMut(&mut Net<I>) -> bool) {
        let began = Instant::now();
        while !done(self) {
            assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
            self.turn(PATIENCE); // No other event is needed to end the wait.
        }
    }

    /// Runs turns until no completion arrives for [`QUIET`].
    pub(crate) fn run_until_idle(&mut self) {
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

    /// Runs turns until `token` has received as many bytes as `bytes`, and checks them.
    pub(crate) fn expect_received(&mut self, token: Token, bytes: &[u8]) {
        self.run("all that was sent is received", |net| {
            net.seen(token).received.len() >= bytes.len()
        });
        assert!(self.seen(token).received == bytes, "the received bytes differ");
    }

    /// Runs turns until `count` sends on `token` have completed, and checks that none failed.
    pub(crate) fn expect_sent(&mut self, token: Token, count: usize) {
        self.run("all is sent", |net| net.seen(token).sent.len() >= count);
        assert_eq!(self.seen(token).sent, vec![Ok(()); count]);
    }

    /// Runs turns until the stream of `token` ends, and checks that it contained `bytes`.
    pub(crate) fn expect_end(&mut self, token: Token, bytes: &[u8]) {
        self.run("the end is met", |net| net.seen(token).ended);
        assert!(self.seen(token).received == bytes, "the received bytes differ");
    }

    /// Connects to its own listener. Returns the connecting and the accepting side, both not
    /// started.
    pub(crate) fn pair(&mut self) -> (Token, Token) {
        let from = self.io.connect(&self.addr.into(), None).unwrap();
        self.run("a connection is made", |net| {
            net.seen(from).connected.is_some() && net.peer(from).is_some()
        });
        assert_eq!(self.seen(from).connected, Some(Ok(())));
        if self.has_handshake {
            self.run_until_idle();
        }
        (from, self.peer(from).unwrap())
    }

    /// Connects like [`pair`](Net::pair), and starts both sides.
    pub(crate) fn started_pair(&mut self) -> (Token, Token) {
        let (from, to) = self.pair();
        self.io.start(from);
        self.io.start(to);
        (from, to)
    }

    /// Returns the accepting side of the connection whose connecting side is `from`.
    fn peer(&self, from: Token) -> Option<Token> {
        let addr = self.io.local_addr(from).ok()?;
        let mut accepted = self.accepted.iter().copied();
        accepted.find(|&token| self.io.peer_addr(token).is_ok_and(|peer| peer == addr))
    }

    /// Sends `bytes` as a head.
    pub(crate) fn send(&mut self, token: Token, bytes: &[u8]) {
        self.send_with(token, bytes, Body::None);
    }

    /// Sends `head` and `body`.
    pub(crate) fn send_with(&mut self, token: Token, bytes: &[u8], body: Body) {
        let mut head = self.io.pool().acquire_over_limit();
        head.as_vec().extend_from_slice(bytes);
        self.io.send(token, Outgoing { head, body });
    }

    /// Sends `bytes`, immediately if possible.
    pub(crate) fn send_now(&mut self, token: Token, bytes: &[u8]) {
        if self.io.send_now(token, bytes) {
            self.seen(token).sent.push(Ok(()));
        }
    }

    /// Sends `bytes` as the last ones. Returns whether the implementation closes the connection
    /// afterwards.
    pub(crate) fn send_last(&mut self, token: Token, bytes: &[u8]) -> bool {
        let last = self.io.send_last(token, bytes, CloseMode::Close);
        if last == SendOutcome::Complete {
            self.seen(token).sent.push(Ok(()));
        }
        last == SendOutcome::PendingClose
    }

    /// Sends `bytes` as a body.
    pub(crate) fn send_body(&mut self, token: Token, bytes: Bytes) {
        self.send_with(token, &[], Body::Bytes(bytes));
    }

    /// Checks that it becomes idle, and that waits then sleep.
    pub(crate) fn assert_sleeps(&mut self, case: &Case<'_, I>) {
        let began = Instant::now();
        loop {
            self.run_until_idle();
            let (waits, completions) = (self.io.counters().waits, self.completions);
            let until = self.io.now() + 2 * QUIET;
            while self.io.now() < until {
                self.io.wait(Some(until)).unwrap();
                while self.next().is_some() {}
            }
            let waits = self.io.counters().waits - waits;
            if self.completions == completions && (waits < 40 || case.wakes_when_idle) {
                return;
            }
            // A slow operation may still have been in progress.
            assert!(began.elapsed() < PATIENCE, "{waits} waits while idle");
        }
    }
}

/// Runs turns of both until `done` returns true.
pub(crate) fn both<I: Io>(
    a: &mut Net<I>,
    b: &mut Net<I>,
    what: &str,
    mut done: impl FnMut(&mut Net<I>, &mut Net<I>) -> bool,
) {
    let began = Instant::now();
    while !done(a, b) {
        assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        if a.turn(Duration::ZERO) + b.turn(Duration::ZERO) == 0 {
            a.turn(Duration::from_millis(1));
        }
    }
}

/// Connects `a` to `b`. Returns the token of each side.
pub(crate) fn between<I: Io>(a: &mut Net<I>, b: &mut Net<I>) -> (Token, Token) {
    let from = a.io.connect(&b.addr.into(), None).unwrap();
    let before = b.accepted.len();
    both(a, b, "a connection is made", |a, b| {
        a.seen(from).connected.is_some() && b.accepted.len() > before
    });
    if b.has_handshake {
        b.run_until_idle();
    }
    (from, b.accepted[before])
}

/// Returns the loopback address with port 0, which selects a free port.
pub(crate) fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// Number of bytes that exceeds every limit per turn, and the capacity of the sockets if the peer
/// does not read (`tcp_wmem` allows 4 MiB).
pub(crate) const LONG: usize = 5 << 20;

/// Returns `length` pseudo-random bytes.
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

    /// Returns a number from 1 to `max`.
    pub(crate) fn up_to(&mut self, max: usize) -> usize {
        1 + (self.next() % max as u64) as usize
    }
}

/// Creates an unnamed file that contains `bytes`.
pub(crate) fn file(bytes: &[u8]) -> Rc<OwnedFd> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    Rc::new(file.into())
}

/// Creates a body from a file range.
pub(crate) fn part(file: &Rc<OwnedFd>, offset: u64, length: u64) -> Body {
    Body::File(FilePart { file: Rc::clone(file), offset, length })
}
