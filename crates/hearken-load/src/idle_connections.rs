//! Idle connections, like most connections of a server. Optionally each sends a request from time
//! to time, so that the set of active connections changes.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hearken::Token;
use hearken::io::{Completion, CompletionKind, Io};
use hearken::timer::Time;

use crate::channel::{Channel, Handshake, Scratch};
use crate::config::Config;
use crate::idle_errors::IdleErrors;
use crate::reply::Reply;
use crate::report::{self, Bytes, Handshakes};
use crate::shard::Shard;
use crate::target::Target;
use crate::tls::State;
use crate::workload::{Distribution, Workload};
use crate::{MAX_CONNECTING, PER_TURN};

/// Delay before the generator connects again after a connection failed.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// The idle connections of a thread.
#[derive(Debug)]
pub(crate) struct IdleConnections {
    pub(crate) counts: report::Idle,
    pub(crate) bytes: Bytes,
    pub(crate) handshakes: Handshakes,
    pub(crate) errors: IdleErrors,
    target: Target,
    workload: Arc<Workload>,
    /// Whether each connection sends a request first.
    requests_first: bool,
    /// Time until a connection sends its next request.
    think: Option<Distribution>,
    random: fastrand::Rng,
    /// Connections, indexed by the slot of their token.
    connections: Vec<Connection>,
    connecting: usize,
    /// Number of connections to open now.
    unopened: u64,
    /// Times at which failed connections are retried.
    retry_times: VecDeque<Time>,
    /// Minimum time between two connection attempts.
    connect_gap: Duration,
    /// Earliest time of the next connection attempt.
    next_connect: Time,
    scratch: Scratch,
}

#[derive(Debug, Default)]
struct Connection {
    /// The token, or `None` if the slot is unused.
    token: Option<Token>,
    /// Time since which the connection is established and idle.
    held_since: Option<Time>,
    /// The reply that the connection waits for.
    reply: Option<Box<Reply>>,
    channel: Channel,
}

/// The reason why a connection was lost.
#[derive(Clone, Copy)]
enum LossReason<'a> {
    Error(&'a io::Error),
    Text(&'a str),
}

impl IdleConnections {
    /// Creates the set of `target_count` connections of a thread. `holding` is the number of
    /// threads that share the rate of connection attempts.
    pub(crate) fn new(
        config: &Config,
        target: Target,
        workload: &Arc<Workload>,
        target_count: usize,
        holding: u64,
        share: Shard,
        seed: u64,
    ) -> IdleConnections {
        let target_count = target_count as u64;
        let gap = config.idle_rate.map_or(Duration::ZERO, |rate| {
            Duration::try_from_secs_f64(holding as f64 / rate).unwrap_or(Duration::MAX)
        });
        IdleConnections {
            counts: report::Idle { requested: target_count, ..report::Idle::default() },
            bytes: Bytes::default(),
            handshakes: Handshakes::default(),
            errors: IdleErrors::default(),
            target,
            workload: workload.clone(),
            requests_first: config.idle_sends_request,
            think: config.idle_think_time,
            random: fastrand::Rng::with_seed(share.derive_seed(seed.rotate_left(32))),
            connections: Vec::new(),
            connecting: 0,
            unopened: target_count,
            retry_times: VecDeque::new(),
            connect_gap: gap,
            next_connect: Time::now(),
            scratch: Scratch::default(),
        }
    }

    /// Opens some of the remaining connections. The number of concurrent attempts is small, because
    /// the listen backlog of a server is. Returns true if more can be opened immediately.
    pub(crate) fn open_some(&mut self, io: &mut impl Io) -> bool {
        let now = io.now();
        while self.retry_times.front().is_some_and(|&at| at <= now) {
            self.retry_times.pop_front();
            self.unopened += 1;
        }
        for _ in 0..PER_TURN {
            if self.unopened == 0 || self.connecting >= MAX_CONNECTING || self.next_connect > now {
                break;
            }
            self.unopened -= 1;
            // After a delay, do not catch up in a burst.
            self.next_connect = (self.next_connect + self.connect_gap).max(now);
            self.connect(io);
        }
        self.unopened > 0 && self.connecting < MAX_CONNECTING && self.next_connect <= now
    }

    /// Returns true once all connections are established.
    pub(crate) fn is_prepared(&self) -> bool {
        self.counts.open == self.counts.requested
    }

    /// Returns the time of the next connection attempt.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let paced = self.unopened > 0 && self.connecting < MAX_CONNECTING;
        let next = paced.then_some(self.next_connect);
        [next, self.retry_times.front().copied()].into_iter().flatten().min()
    }

    /// Returns whether `token` identifies one of these connections.
    pub(crate) fn owns(&self, token: Token) -> bool {
        self.connections.get(token.slot() as usize).is_some_and(|of| of.token == Some(token))
    }

    /// Handles a completion on one of the connections.
    pub(crate) fn on_completion(&mut self, io: &mut impl Io, completion: Completion) {
        let Completion { token, kind } = completion;
        let connection = &mut self.connections[token.slot() as usize];
        match kind {
            CompletionKind::Connected(Ok(())) if self.target.is_self_connection(io, token) => {
                self.on_connection_lost(
                    io,
                    token,
                    LossReason::Text("no server listens on the port"),
                );
            }
            CompletionKind::Connected(Ok(())) => {
                io.start(token);
                if connection.channel.is_tls() {
                    connection.channel.flush(io, token, &mut self.scratch);
                } else {
                    self.on_connected(io, token);
                }
            }
            CompletionKind::Received(bytes) => {
                self.bytes.received += bytes.len() as u64;
                if connection.channel.is_tls() {
                    self.receive_tls(io, token, &bytes);
                } else {
                    self.receive_plaintext(io, token, &bytes);
                }
            }
            CompletionKind::Connected(Err(error)) => {
                self.on_connection_lost(io, token, LossReason::Error(&error));
            }
            CompletionKind::Sent(Err(error)) | CompletionKind::ReceiveFailed(error) => {
                self.handshakes.failed += u64::from(connection.channel.is_handshaking());
                self.on_connection_lost(io, token, LossReason::Error(&error));
            }
            CompletionKind::End => {
                self.handshakes.failed += u64::from(connection.channel.is_handshaking());
                self.on_connection_lost(
                    io,
                    token,
                    LossReason::Text("the server closed the connection"),
                );
            }
            CompletionKind::Deadline
                if connection.held_since.is_some() && connection.reply.is_none() =>
            {
                self.send_request(io, token);
            }
            CompletionKind::Deadline => {
                self.on_connection_lost(io, token, LossReason::Text("timed out"));
            }
            _ => {}
        }
    }

    fn connect(&mut self, io: &mut impl Io) {
        let (token, channel) = match self.target.connect(io) {
            Ok(opened) => opened,
            Err(error) => {
                // A lack of descriptors or ports may be temporary.
                self.errors.record(&error);
                self.retry_times.push_back(io.now() + RETRY_DELAY);
                return;
            }
        };
        let slot = token.slot() as usize;
        if slot >= self.connections.len() {
            self.connections.resize_with(slot + 1, Connection::default);
        }
        self.connections[slot] =
            Connection { token: Some(token), channel, ..Connection::default() };
        self.connecting += 1;
        io.set_deadline(token, Some(io.now() + self.target.timeout));
    }

    /// Handles a completed connection, including its TLS handshake.
    fn on_connected(&mut self, io: &mut impl Io, token: Token) {
        if self.requests_first {
            self.send_request(io, token);
        } else {
            self.hold(io, token);
        }
    }

    fn send_request(&mut self, io: &mut impl Io, token: Token) {
        let connection = &mut self.connections[token.slot() as usize];
        connection.reply = Some(Box::default());
        let bytes = &self.workload.message(0).bytes;
        self.counts.requests += 1;
        self.bytes.sent += bytes.len() as u64;
        io.set_deadline(token, Some(io.now() + self.target.timeout));
        connection.channel.send(io, token, bytes, &mut self.scratch);
    }

    fn receive_tls(&mut self, io: &mut impl Io, token: Token, bytes: &[u8]) {
        let mut scratch = std::mem::take(&mut self.scratch);
        let connection = &mut self.connections[token.slot() as usize];
        let handshaking = connection.channel.is_handshaking();
        match connection.channel.receive(io, token, bytes, &mut scratch) {
            Ok((handshake, state)) => {
                if let Handshake::Complete { resumed } = handshake {
                    self.handshakes.record(resumed);
                    self.on_connected(io, token);
                }
                if !scratch.plain.is_empty() && self.owns(token) {
                    self.receive_plaintext(io, token, &scratch.plain);
                }
                if state == State::Closed && self.owns(token) {
                    self.on_connection_lost(
                        io,
                        token,
                        LossReason::Text("the server closed the connection"),
                    );
                }
            }
            Err(error) => {
                self.handshakes.failed += u64::from(handshaking);
                self.on_connection_lost(io, token, LossReason::Text(&error.to_string()));
            }
        }
        self.scratch = scratch;
    }

    fn receive_plaintext(&mut self, io: &mut impl Io, token: Token, bytes: &[u8]) {
        let connection = &mut self.connections[token.slot() as usize];
        // Unsolicited data, such as a final message, changes nothing: the connection is still open.
        let Some(reply) = &mut connection.reply else { return };
        match reply.feed(bytes, self.workload.message(0).method, |_| ()) {
            Ok(None) => {}
            Ok(Some(done)) => {
                self.counts.replies += 1;
                if done.keep_alive {
                    self.hold(io, token);
                } else {
                    self.on_connection_lost(
                        io,
                        token,
                        LossReason::Text("the server does not keep the connection open"),
                    );
                }
            }
            Err(malformed) => {
                self.on_connection_lost(io, token, LossReason::Text(&malformed.to_string()));
            }
        }
    }

    fn hold(&mut self, io: &mut impl Io, token: Token) {
        let random = &mut self.random;
        let next = self.think.as_ref().map(|think| io.now() + think.sample(random));
        io.set_deadline(token, next);
        let connection = &mut self.connections[token.slot() as usize];
        connection.reply = None;
        if connection.held_since.is_some() {
            return;
        }
        connection.held_since = Some(io.now());
        self.connecting -= 1;
        self.counts.open += 1;
        if self.counts.reestablished < self.counts.lost {
            self.counts.reestablished += 1;
        }
    }

    /// Handles a lost or failed connection and schedules its replacement: immediately if it was
    /// established for some time, otherwise after a delay.
    fn on_connection_lost(&mut self, io: &mut impl Io, token: Token, reason: LossReason<'_>) {
        io.close(token);
        let now = io.now();
        let connection = std::mem::take(&mut self.connections[token.slot() as usize]);
        match connection.held_since {
            Some(since) => {
                self.counts.open -= 1;
                self.counts.lost += 1;
                if now.duration_since(since) >= RETRY_DELAY {
                    self.unopened += 1;
                    return;
                }
            }
            None => {
                self.connecting -= 1;
                match reason {
                    LossReason::Error(error) => self.errors.record(error),
                    LossReason::Text(text) => self.errors.record_text(text),
                }
            }
        }
        self.retry_times.push_back(now + RETRY_DELAY);
    }
}
