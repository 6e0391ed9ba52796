//! Connections that carry requests.
//!
//! A request that becomes due takes an available connection. Otherwise it opens a new connection if
//! the settings allow one, or waits in a queue. Where connections or sessions arrive, each arrival
//! opens a connection and sends its requests over it in sequence. Each request ends exactly once:
//! with a reply or with one failure.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hearken::Token;
use hearken::io::Io;
use hearken::timer::Time;

use crate::channel::Scratch;
use crate::config::Config;
use crate::connection::{Connection, NextAction, Request, Stage};
use crate::failure::{Failure, TimeoutKind};
use crate::reply::HeadCache;
use crate::report::Model;
use crate::shard::Shard;
use crate::statistics::Statistics;
use crate::target::Target;
use crate::workload::{Count, Cursor, Distribution, SessionState, Workload};
use crate::{MAX_CONNECTING, PER_TURN};

mod close;
mod events;

/// Delay before the generator connects again after a connection failed, in a closed loop.
const RETRY_DELAY: Duration = Duration::from_millis(100);
/// A time later than all others.
const NEVER: Time = Time::from_nanos(u64::MAX);

/// The scheduled time of a request, or `None` to use its send time, if it follows a reply directly.
type ScheduledTime = Option<Time>;

/// The connections of a thread that carry requests.
#[derive(Debug)]
pub(crate) struct ActiveConnections {
    pub(crate) stats: Statistics,
    model: Model,
    target: Target,
    workload: Arc<Workload>,
    cursor: Cursor,
    /// Maximum number of concurrent connections.
    limit: usize,
    /// Number of requests on each connection.
    per_connection: Option<Count>,
    connection_time: Option<Distribution>,
    timeout: Duration,
    connect_timeout: Option<Duration>,
    first_byte_timeout: Option<Duration>,
    /// Connections, indexed by the slot of their token.
    connections: Vec<Connection>,
    open_count: usize,
    connecting_count: usize,
    /// Number of connections still to open before the first request.
    unopened: usize,
    /// Whether the load has started.
    started: bool,
    /// Connections that can carry a request. Connections lost in the meantime are skipped.
    available: VecDeque<Token>,
    /// Requests that wait for a connection, oldest first, with their scheduled times.
    queue: VecDeque<(Time, u32)>,
    /// Times at which a closed loop retries connections that it could not open.
    retry_times: VecDeque<Time>,
    random: fastrand::Rng,
    head_cache: HeadCache,
    scratch: Scratch,
    /// Buffer that joins the requests of a burst.
    burst_buffer: Vec<u8>,
}

impl ActiveConnections {
    /// Creates the connections of a shard of the load that `config` describes. Without
    /// `sends_requests` the thread only holds idle connections.
    pub(crate) fn new(
        config: &Config,
        model: Model,
        target: Target,
        workload: &Arc<Workload>,
        share: Shard,
        seed: u64,
        sends_requests: bool,
    ) -> ActiveConnections {
        let connections = share.share_of(config.connection_limit());
        let opens_ahead = match model {
            _ if !sends_requests => false,
            Model::Requests => config.requests_per_connection.is_none() && !config.is_silent(),
            Model::Closed => true,
            Model::Connections | Model::Sessions => false,
        };
        ActiveConnections {
            stats: Statistics::new(),
            model,
            target,
            workload: workload.clone(),
            cursor: workload.cursor(share.index as u32, share.count as u32, seed),
            limit: if opens_ahead { connections } else { usize::MAX },
            per_connection: config.requests_per_connection,
            connection_time: config.connection_lifetime,
            timeout: config.timeout,
            connect_timeout: config.connect_timeout,
            first_byte_timeout: config.first_byte_timeout,
            connections: Vec::new(),
            open_count: 0,
            connecting_count: 0,
            unopened: if opens_ahead { connections } else { 0 },
            started: false,
            available: VecDeque::new(),
            queue: VecDeque::new(),
            retry_times: VecDeque::new(),
            random: fastrand::Rng::with_seed(share.derive_seed(!seed)),
            head_cache: HeadCache::default(),
            scratch: Scratch::default(),
            burst_buffer: Vec::new(),
        }
    }

    /// Opens connections ahead of the requests, a few in each turn. Returns true if more can be
    /// opened immediately.
    pub(crate) fn open_some(&mut self, io: &mut impl Io) -> bool {
        let room = MAX_CONNECTING.saturating_sub(self.connecting_count);
        for _ in 0..room.min(PER_TURN).min(self.unopened) {
            self.unopened -= 1;
            self.connect(io, None, NextAction::Nothing);
        }
        self.unopened > 0 && self.connecting_count < MAX_CONNECTING
    }

    /// Returns true once all connections are open that are opened before the first request.
    pub(crate) fn is_prepared(&self) -> bool {
        self.unopened == 0 && self.connecting_count == 0
    }

    /// Returns the number of open connections.
    pub(crate) fn open_count(&self) -> usize {
        self.open_count
    }

    /// Starts the load, which ends at `end`.
    pub(crate) fn start(&mut self, io: &mut impl Io, end: Time) {
        self.started = true;
        self.stats.last_arrival = end;
        if self.model == Model::Closed {
            while let Some(token) = self.take_available(io) {
                self.restart_session(io, token);
            }
        }
    }

    /// Returns the next time at which [`expire`](ActiveConnections::expire) has something to do.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let gives_up = self.queue.front().map(|&(scheduled, _)| scheduled + self.timeout);
        let again = self.retry_times.front().copied().filter(|_| self.started);
        [gives_up, again].into_iter().flatten().min()
    }

    /// Times out requests that waited too long in the queue, and retries connections that are due.
    pub(crate) fn expire(&mut self, io: &mut impl Io, now: Time) {
        while self.queue.front().is_some_and(|&(scheduled, _)| scheduled + self.timeout <= now) {
            self.queue.pop_front();
            self.stats.record_timeout(1, TimeoutKind::Reply);
        }
        while self.started && self.retry_times.front().is_some_and(|&at| at <= now) {
            self.retry_times.pop_front();
            if now < self.stats.last_arrival {
                self.start_session(io, now);
            }
        }
    }

    /// Handles an arrival. Returns false if the workload is exhausted.
    pub(crate) fn on_arrival(&mut self, io: &mut impl Io, scheduled: Time) -> bool {
        if self.model != Model::Requests {
            return self.start_session(io, scheduled);
        }
        let Some(message) = self.cursor.next_request() else { return false };
        self.stats.counts.scheduled += 1;
        let acted = if let Some(token) = self.take_available(io) {
            self.send_request(io, token, Some(scheduled), message)
        } else if self.open_count < self.limit {
            let now = Time::now();
            self.connect(io, None, NextAction::Message(scheduled, message));
            now
        } else {
            self.stats.counts.queued += 1;
            self.queue.push_back((scheduled, message));
            io.now()
        };
        // Any further delay of the request is caused by the server.
        self.stats.lateness.record(acted.duration_since(scheduled));
        true
    }

    /// Removes and returns an available connection. Closes connections whose lifetime has expired.
    fn take_available(&mut self, io: &mut impl Io) -> Option<Token> {
        loop {
            let token = self.available.pop_front()?;
            let connection = &self.connections[token.slot() as usize];
            if !self.owns(token) || connection.stage != Stage::Available {
                continue;
            }
            if connection.expires_at == NEVER || connection.expires_at > io.now() {
                return Some(token);
            }
            self.close_and_replace(io, token);
        }
    }

    /// Returns whether `token` identifies one of these connections.
    pub(crate) fn owns(&self, token: Token) -> bool {
        self.connections.get(token.slot() as usize).is_some_and(|of| of.token == Some(token))
    }

    /// Opens a connection and starts its session. Returns false if the workload is exhausted.
    fn start_session(&mut self, io: &mut impl Io, scheduled: Time) -> bool {
        let Some(mut script) = self.cursor.next_session() else { return false };
        let Some(burst) = self.cursor.next_burst(&mut script) else { return true };
        let messages = burst.messages;
        self.stats.counts.sessions.started += 1;
        self.stats.counts.scheduled += u64::from(messages);
        self.stats.lateness.record(Time::now().duration_since(scheduled));
        self.connect(
            io,
            Some(script),
            NextAction::Burst { due: scheduled, messages, counted: true },
        );
        true
    }

    /// Starts another session on an open connection.
    fn restart_session(&mut self, io: &mut impl Io, token: Token) {
        let now = io.now();
        let script = if now < self.stats.last_arrival { self.cursor.next_session() } else { None };
        let Some(mut script) = script else {
            return self.close_and_replace(io, token);
        };
        if let Some(burst) = self.cursor.next_burst(&mut script) {
            self.stats.counts.sessions.started += 1;
            self.connections[token.slot() as usize].script = Some(script);
            self.send_burst(io, token, now, burst.messages, false);
        }
    }

    /// Opens a connection, for `next` or ahead of the requests.
    fn connect(&mut self, io: &mut impl Io, script: Option<SessionState>, next: NextAction) {
        let opened = self.target.connect(io);
        let now = io.now();
        let (token, channel) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.stats.counts.scheduled += next.uncounted();
                let requests = next.counted() + next.uncounted();
                self.stats.record_failure_with_reason(
                    requests,
                    Failure::from_error(&error),
                    &error,
                );
                self.stats.counts.sessions.failed += u64::from(script.is_some());
                if self.model == Model::Closed {
                    self.retry_times.push_back(now + RETRY_DELAY);
                }
                return;
            }
        };
        let slot = token.slot() as usize;
        if slot >= self.connections.len() {
            self.connections.resize_with(slot + 1, Connection::unused);
        }
        let random = &mut self.random;
        let lasts = self.connection_time.as_ref().map(|time| time.sample(random));
        let connection = &mut self.connections[slot];
        connection.token = Some(token);
        connection.stage = Stage::Connecting;
        connection.opened_at = now;
        connection.expires_at = lasts.map_or(NEVER, |lasts| now + lasts);
        connection.reply_count = 0;
        connection.remaining_requests =
            self.per_connection.as_ref().map_or(u32::MAX, |count| count.sample(random).get());
        connection.script = script;
        connection.next = next;
        connection.reply.reset();
        connection.check = None;
        connection.channel = channel;
        self.open_count += 1;
        self.connecting_count += 1;
        let patience = next.scheduled().unwrap_or(now) + self.timeout;
        let limit = self.connect_timeout.map_or(patience, |limit| patience.min(now + limit));
        io.set_deadline(token, Some(limit));
    }

    /// Handles a completed connection, including its TLS handshake.
    fn on_connected(&mut self, io: &mut impl Io, token: Token) {
        let connection = &mut self.connections[token.slot() as usize];
        connection.stage = Stage::Available;
        self.connecting_count -= 1;
        self.stats.counts.connections_opened += 1;
        self.stats.connect.record(io.now().duration_since(connection.opened_at));
        match std::mem::take(&mut connection.next) {
            NextAction::Message(scheduled, message) => {
                self.send_request(io, token, Some(scheduled), message);
            }
            NextAction::Burst { due, messages, counted } => {
                self.send_burst(io, token, due, messages, counted);
            }
            NextAction::Nothing => self.make_available(io, token),
        }
    }

    /// Returns the deadline of a request whose reply has not begun. The server has been able to
    /// reply to it since `since`.
    fn first_byte_deadline(&self, scheduled: Time, since: Time) -> Time {
        let whole = scheduled + self.timeout;
        self.first_byte_timeout.map_or(whole, |first| whole.min(since + first))
    }

    /// Sends a request and returns the time at which it was sent.
    fn send_request(
        &mut self,
        io: &mut impl Io,
        token: Token,
        scheduled: ScheduledTime,
        message: u32,
    ) -> Time {
        // The only clock reading per request: the turn may have begun some time ago.
        let sent = Time::now();
        let scheduled = scheduled.unwrap_or(sent);
        // The deadline stays armed after the reply, because moving it to a later time is cheap.
        io.set_deadline(token, Some(self.first_byte_deadline(scheduled, sent)));
        let connection = &mut self.connections[token.slot() as usize];
        connection.stage = Stage::AwaitingReply;
        connection.awaits_first_byte = true;
        connection.in_flight.push(Request { scheduled, sent, message });
        let bytes = &self.workload.message(message).bytes;
        self.stats.counts.sent += 1;
        self.stats.counts.bytes.sent += bytes.len() as u64;
        connection.channel.send(io, token, bytes, &mut self.scratch);
        sent
    }

    /// Sends the next `messages` requests of the script in one write, or waits until they are due.
    fn send_burst(
        &mut self,
        io: &mut impl Io,
        token: Token,
        due: Time,
        messages: u32,
        counted: bool,
    ) {
        let connection = &mut self.connections[token.slot() as usize];
        if due > io.now() {
            connection.stage = Stage::Thinking;
            connection.next = NextAction::Burst { due, messages, counted };
            return io.set_deadline(token, Some(due));
        }
        if !counted {
            self.stats.counts.scheduled += u64::from(messages);
        }
        let scheduled = (counted || due < io.now()).then_some(due);
        let Some(mut script) = connection.script else { return };
        if messages == 1 {
            let message = self.cursor.next_message(&mut script);
            connection.script = Some(script);
            self.send_request(io, token, scheduled, message);
            return;
        }
        let sent = Time::now();
        let scheduled = scheduled.unwrap_or(sent);
        io.set_deadline(token, Some(self.first_byte_deadline(scheduled, sent)));
        let connection = &mut self.connections[token.slot() as usize];
        self.burst_buffer.clear();
        for _ in 0..messages {
            let message = self.cursor.next_message(&mut script);
            connection.in_flight.push(Request { scheduled, sent, message });
            self.burst_buffer.extend_from_slice(&self.workload.message(message).bytes);
        }
        connection.script = Some(script);
        connection.stage = Stage::AwaitingReply;
        connection.awaits_first_byte = true;
        self.stats.counts.sent += u64::from(messages);
        self.stats.counts.bytes.sent += self.burst_buffer.len() as u64;
        connection.channel.send(io, token, &self.burst_buffer, &mut self.scratch);
    }

    /// Gives the connection its next request, or makes it available for one.
    fn make_available(&mut self, io: &mut impl Io, token: Token) {
        if self.model == Model::Closed && self.started {
            return self.restart_session(io, token);
        }
        match self.queue.pop_front() {
            Some((scheduled, message)) => {
                self.send_request(io, token, Some(scheduled), message);
            }
            None => {
                let connection = &mut self.connections[token.slot() as usize];
                connection.stage = Stage::Available;
                if connection.expires_at < NEVER {
                    io.set_deadline(token, Some(connection.expires_at));
                }
                self.available.push_back(token);
            }
        }
    }
}
