//! A set of long-lived connections at the side of the load. They are opened with a limited number of
//! attempts at once, and replaced when they are lost.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use hearken::Token;
use hearken::io::{Completion, CompletionKind, Io};
use hearken::timer::Time;

use crate::channel::{Channel, Handshake, Scratch};
use crate::report::{Bytes, Handshakes};
use crate::target::Target;
use crate::tls::{State, WithRemedy};
use crate::{MAX_CONNECTING, PER_TURN};

/// Delay before the generator connects again after a connection failed.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Maximum number of incomplete sends on a connection. A server that never reads would otherwise make
/// the generator buffer without limit.
const MAX_PENDING_SENDS: u32 = 64;

/// Numbers of connections of a population.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct PopulationCounts {
    /// Number of connections to establish.
    pub(crate) requested: u64,
    /// Number of connections that are established.
    pub(crate) open: u64,
    /// Number of connections that have been established.
    pub(crate) established: u64,
    pub(crate) lost: u64,
    /// Number of lost connections that were established again.
    pub(crate) reestablished: u64,
}

/// The status of a population.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Status {
    pub(crate) counts: PopulationCounts,
    pub(crate) bytes: Bytes,
    pub(crate) handshakes: Handshakes,
    /// Time of the next connection attempt.
    pub(crate) next_attempt: Option<Time>,
}

/// A set of connections, each with a state `S` of its owner.
#[derive(Debug)]
pub(crate) struct Population<S> {
    pub(crate) counts: PopulationCounts,
    bytes: Bytes,
    handshakes: Handshakes,
    target: Target,
    /// Connections, indexed by the slot of their token.
    members: Vec<Member<S>>,
    connecting: usize,
    /// Number of connections to open now.
    unopened: u64,
    /// Times at which failed connections are retried.
    retry_times: VecDeque<Time>,
    /// Minimum time between two connection attempts.
    connect_gap: Duration,
    /// Earliest time of the next connection attempt, if there was one before.
    next_connect: Option<Time>,
    /// Whether connections are no longer opened or replaced.
    closing: bool,
    scratch: Scratch,
}

#[derive(Debug, Default)]
struct Member<S> {
    /// The token, or `None` if the slot is unused.
    token: Option<Token>,
    /// Time since which the connection is established.
    established: Option<Time>,
    /// Number of incomplete sends.
    pending_sends: u32,
    channel: Channel,
    state: S,
}

/// The meaning of a completion for the owner of a population. Several events may have happened at
/// once, in the order of the fields.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// The connection can carry data: TCP, and TLS if it is used, are ready.
    pub(crate) connected: bool,
    /// Number of bytes received, including those of TLS. The content is in the buffer that was passed.
    pub(crate) received: usize,
    /// All sends are complete.
    pub(crate) sent: bool,
    /// The deadline of an established connection has passed.
    pub(crate) deadline: bool,
    /// The connection has ended.
    pub(crate) end: Option<Loss>,
}

/// The reason why a connection was lost.
#[derive(Debug)]
pub(crate) enum Loss {
    /// The server closed the connection.
    Closed,
    /// A timeout expired.
    TimedOut,
    /// An error of the kernel.
    Error(io::Error),
    /// Any other reason.
    Other(Cow<'static, str>),
}

impl Loss {
    /// Returns whether the server closed or reset the connection.
    pub(crate) fn is_by_server(&self) -> bool {
        use io::ErrorKind::{BrokenPipe, ConnectionReset};
        match self {
            Loss::Closed => true,
            Loss::Error(error) => matches!(error.kind(), ConnectionReset | BrokenPipe),
            Loss::TimedOut | Loss::Other(_) => false,
        }
    }

    /// Returns the reason as text.
    pub(crate) fn reason(&self) -> Cow<'_, str> {
        match self {
            Loss::Closed => "the server closed the connection".into(),
            Loss::TimedOut => "timed out".into(),
            Loss::Error(error) => error.to_string().into(),
            Loss::Other(reason) => (&**reason).into(),
        }
    }
}

impl<S: Default> Population<S> {
    /// Creates a set of `count` connections, opened with at least `connect_gap` between two attempts.
    pub(crate) fn new(target: Target, count: usize, connect_gap: Duration) -> Population<S> {
        let requested = count as u64;
        Population {
            counts: PopulationCounts { requested, ..PopulationCounts::default() },
            bytes: Bytes::default(),
            handshakes: Handshakes::default(),
            target,
            members: Vec::new(),
            connecting: 0,
            unopened: requested,
            retry_times: VecDeque::new(),
            connect_gap,
            next_connect: None,
            closing: false,
            scratch: Scratch::default(),
        }
    }

    /// Opens some of the remaining connections. The number of concurrent attempts is small, because
    /// the listen backlog of a server is. Calls `failed` with the errors of immediate failures.
    /// Returns true if more can be opened immediately.
    pub(crate) fn open_some(
        &mut self,
        io: &mut impl Io,
        mut failed: impl FnMut(&io::Error),
    ) -> bool {
        let now = io.now();
        while self.retry_times.front().is_some_and(|&at| at <= now) {
            self.retry_times.pop_front();
            self.unopened += 1;
        }
        for _ in 0..PER_TURN {
            if !self.can_connect() || self.next_connect.is_some_and(|at| at > now) {
                break;
            }
            self.unopened -= 1;
            // After a delay, do not catch up in a burst.
            let due = self.next_connect.unwrap_or(now);
            self.next_connect = Some((due + self.connect_gap).max(now));
            if let Err(error) = self.connect(io) {
                // A lack of descriptors or ports may be temporary.
                failed(&error);
                self.retry_times.push_back(now + RETRY_DELAY);
            }
        }
        self.can_connect() && self.next_connect.is_none_or(|at| at <= now)
    }

    fn can_connect(&self) -> bool {
        self.unopened > 0 && self.connecting < MAX_CONNECTING && !self.closing
    }

    /// Returns the current status.
    pub(crate) fn status(&self) -> Status {
        Status {
            counts: self.counts,
            bytes: self.bytes,
            handshakes: self.handshakes,
            next_attempt: self.next_attempt(),
        }
    }

    /// Returns the time of the next connection attempt.
    pub(crate) fn next_attempt(&self) -> Option<Time> {
        let next = self.next_connect.filter(|_| self.can_connect());
        let retry = self.retry_times.front().copied().filter(|_| !self.closing);
        [next, retry].into_iter().flatten().min()
    }

    fn connect(&mut self, io: &mut impl Io) -> io::Result<()> {
        let (token, channel) = self.target.connect(io)?;
        let slot = token.slot() as usize;
        if slot >= self.members.len() {
            self.members.resize_with(slot + 1, Member::default);
        }
        self.members[slot] = Member { token: Some(token), channel, ..Member::default() };
        self.connecting += 1;
        io.set_deadline(token, Some(io.now() + self.target.timeout));
        Ok(())
    }

    /// Returns the timeout for opening a connection and for a reply.
    pub(crate) fn timeout(&self) -> Duration {
        self.target.timeout
    }

    /// Returns whether `token` identifies one of these connections.
    pub(crate) fn owns(&self, token: Token) -> bool {
        self.members.get(token.slot() as usize).is_some_and(|of| of.token == Some(token))
    }

    /// Returns whether the connection is established.
    pub(crate) fn is_established(&self, token: Token) -> bool {
        self.members[token.slot() as usize].established.is_some()
    }

    /// Returns whether the transport has not taken all sent bytes.
    pub(crate) fn is_sending(&self, token: Token) -> bool {
        self.members[token.slot() as usize].pending_sends > 0
    }

    /// Returns the owner's state of a connection.
    pub(crate) fn state(&mut self, token: Token) -> &mut S {
        &mut self.members[token.slot() as usize].state
    }

    /// Returns the tokens of all connections.
    pub(crate) fn tokens(&self) -> Vec<Token> {
        self.members.iter().filter_map(|member| member.token).collect()
    }

    /// Sends bytes.
    pub(crate) fn send(&mut self, io: &mut impl Io, token: Token, bytes: &[u8]) {
        let member = &mut self.members[token.slot() as usize];
        self.bytes.sent += bytes.len() as u64;
        if !member.channel.send(io, token, bytes, &mut self.scratch) {
            member.pending_sends += 1;
        }
    }

    /// Handles a completion on one of the connections. Replaces `data` by the bytes received.
    pub(crate) fn on_completion(
        &mut self,
        io: &mut impl Io,
        completion: Completion,
        data: &mut Vec<u8>,
    ) -> Events {
        let Completion { token, kind } = completion;
        let member = &mut self.members[token.slot() as usize];
        let mut events = Events::default();
        data.clear();
        match kind {
            CompletionKind::Connected(Ok(())) if self.target.is_self_connection(io, token) => {
                events.end = Some(Loss::Other("no server listens on the port".into()));
            }
            CompletionKind::Connected(Ok(())) => {
                io.start(token);
                events.connected = !member.channel.is_tls();
                member.channel.start(io, token, &mut self.scratch);
            }
            CompletionKind::Received(mut bytes) => {
                self.bytes.received += bytes.len() as u64;
                events.received = bytes.len();
                if member.channel.is_tls() {
                    self.receive_tls(io, token, bytes.bytes_mut(), data, &mut events);
                } else {
                    data.extend_from_slice(&bytes);
                }
            }
            CompletionKind::Connected(Err(error)) => {
                events.end = Some(Loss::Error(error));
            }
            CompletionKind::Sent(Err(error)) | CompletionKind::ReceiveFailed(error) => {
                self.handshakes.failed += u64::from(member.channel.is_handshaking());
                events.end = Some(Loss::Error(error));
            }
            CompletionKind::Sent(Ok(())) => {
                // Messages of TLS itself are not counted.
                member.pending_sends = member.pending_sends.saturating_sub(1);
                events.sent = member.pending_sends == 0;
            }
            CompletionKind::End => {
                self.handshakes.failed += u64::from(member.channel.is_handshaking());
                events.end = Some(Loss::Closed);
            }
            CompletionKind::Deadline if member.established.is_some() => events.deadline = true,
            CompletionKind::Deadline => events.end = Some(Loss::TimedOut),
            _ => {}
        }
        if self.members[token.slot() as usize].pending_sends > MAX_PENDING_SENDS {
            events.end = Some(Loss::Other("the server does not read".into()));
        }
        events
    }

    fn receive_tls(
        &mut self,
        io: &mut impl Io,
        token: Token,
        bytes: &mut [u8],
        data: &mut Vec<u8>,
        events: &mut Events,
    ) {
        let member = &mut self.members[token.slot() as usize];
        let handshaking = member.channel.is_handshaking();
        match member.channel.receive(io, token, bytes, &mut self.scratch) {
            Ok((handshake, state)) => {
                if let Handshake::Complete { resumed } = handshake {
                    self.handshakes.record(resumed);
                    events.connected = true;
                }
                if state == State::Closed {
                    events.end = Some(Loss::Closed);
                }
                std::mem::swap(data, &mut self.scratch.plain);
            }
            Err(error) => {
                self.handshakes.failed += u64::from(handshaking);
                events.end = Some(Loss::Other(WithRemedy(&error).to_string().into()));
            }
        }
    }

    /// Records that a connection is established. Its deadline then belongs to the owner.
    pub(crate) fn establish(&mut self, io: &mut impl Io, token: Token) {
        self.members[token.slot() as usize].established = Some(io.now());
        io.set_deadline(token, None);
        self.connecting -= 1;
        self.counts.open += 1;
        self.counts.established += 1;
        if self.counts.reestablished < self.counts.lost {
            self.counts.reestablished += 1;
        }
    }

    /// Closes a connection and schedules its replacement: immediately if it was established for some
    /// time, otherwise after a delay. It counts as lost if `lost` is set and it was established.
    pub(crate) fn close(&mut self, io: &mut impl Io, token: Token, lost: bool) {
        let member = std::mem::take(&mut self.members[token.slot() as usize]);
        let Member { mut channel, established, .. } = member;
        channel.close(io, token, &mut self.scratch);
        io.close(token);
        let now = io.now();
        if let Some(since) = established {
            self.counts.open -= 1;
            self.counts.lost += u64::from(lost);
            if now.duration_since(since) >= RETRY_DELAY {
                self.unopened += 1;
                return;
            }
        } else {
            self.connecting -= 1;
        }
        self.retry_times.push_back(now + RETRY_DELAY);
    }

    /// Stops opening and replacing connections.
    pub(crate) fn stop(&mut self) {
        self.closing = true;
    }

    /// Returns whether no connection is open or being opened.
    pub(crate) fn is_empty(&self) -> bool {
        self.counts.open == 0 && self.connecting == 0
    }
}
