//! Requests over connections.
//!
//! A request that is due takes a free connection; or opens one, if it may; or waits its turn. A
//! connection or session that is due opens one, and asks on it one thing after another. From there each
//! request ends exactly once: by its reply, or by one failure.

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
use crate::workload::{Count, Cursor, Distribution, Script, Workload};
use crate::{MOST_CONNECTING, PER_TURN};

mod close;
mod events;

/// How long it is until a server that refuses is asked again, in a closed loop.
const RETRY_DELAY: Duration = Duration::from_millis(100);
/// Later than all there is.
const NEVER: Time = Time::from_nanos(u64::MAX);

/// When a request was intended; where one follows the reply to another at once, when it is sent.
type ScheduledTime = Option<Time>;

/// The connections that carry requests.
#[derive(Debug)]
pub(crate) struct ActiveConnections {
    pub(crate) stats: Statistics,
    model: Model,
    target: Target,
    workload: Arc<Workload>,
    cursor: Cursor,
    /// Connections at a time, and requests on each.
    limit: usize,
    per_connection: Option<Count>,
    connection_time: Option<Distribution>,
    timeout: Duration,
    connect_timeout: Option<Duration>,
    first_byte_timeout: Option<Duration>,
    /// By slot of the token.
    connections: Vec<Connection>,
    open_count: usize,
    connecting_count: usize,
    /// Connections that are still to be opened before the first request.
    unopened: usize,
    /// The clock of the requests runs.
    started: bool,
    /// Connections that can carry a request; those that were lost meanwhile are passed over.
    available: VecDeque<Token>,
    /// Requests that wait for a connection, oldest first.
    queue: VecDeque<(Time, u32)>,
    /// When connections of a closed loop that could not be had are tried again.
    retry_times: VecDeque<Time>,
    random: fastrand::Rng,
    head_cache: HeadCache,
    scratch: Scratch,
    /// Where the requests of a burst are put together.
    burst_buffer: Vec<u8>,
}

impl ActiveConnections {
    /// That share of what `config` describes.
    pub(crate) fn new(
        config: &Config,
        model: Model,
        target: Target,
        workload: &Arc<Workload>,
        share: Shard,
        seed: u64,
        sends_requests: bool,
    ) -> ActiveConnections {
        let connections = share.share_of(config.connections.get());
        let opens_ahead = match model {
            _ if !sends_requests => false,
            Model::Requests => config.per_connection.is_none() && !config.is_silent(),
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
            per_connection: config.per_connection,
            connection_time: config.connection_time,
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

    /// Opens connections ahead of the requests, some in each turn. True if there is more to open at
    /// once.
    pub(crate) fn prepare(&mut self, io: &mut impl Io) -> bool {
        let room = MOST_CONNECTING.saturating_sub(self.connecting_count);
        for _ in 0..room.min(PER_TURN).min(self.unopened) {
            self.unopened -= 1;
            self.connect(io, None, NextAction::Nothing);
        }
        self.unopened > 0 && self.connecting_count < MOST_CONNECTING
    }

    /// True once there is nothing left to be opened before the first request.
    pub(crate) fn is_prepared(&self) -> bool {
        self.unopened == 0 && self.connecting_count == 0
    }

    /// How many connections there are.
    pub(crate) fn open(&self) -> usize {
        self.open_count
    }

    /// The clock of the requests has started, and goes on until `end`.
    pub(crate) fn start(&mut self, io: &mut impl Io, end: Time) {
        self.started = true;
        self.stats.last_arrival = end;
        if self.model == Model::Closed {
            while let Some(token) = self.take_available(io) {
                self.restart_session(io, token);
            }
        }
    }

    /// When there is something to do that no connection tells of.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let gives_up = self.queue.front().map(|&(scheduled, _)| scheduled + self.timeout);
        let again = self.retry_times.front().copied().filter(|_| self.started);
        [gives_up, again].into_iter().flatten().min()
    }

    /// Gives up requests that have waited too long, and tries again what is to be tried.
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

    /// Something is due. False if there is nothing left to ask.
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
        // What a request then waits for is the server's doing.
        self.stats.lateness.record(acted.since(scheduled));
        true
    }

    /// A connection that can carry a request.
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

    /// Whether the connection is one of these.
    pub(crate) fn owns(&self, token: Token) -> bool {
        self.connections.get(token.slot() as usize).is_some_and(|of| of.token == Some(token))
    }

    /// Opens a connection that asks one thing after another. False if there is nothing left to ask.
    fn start_session(&mut self, io: &mut impl Io, scheduled: Time) -> bool {
        let Some(mut script) = self.cursor.begin() else { return false };
        let Some(burst) = self.cursor.next_burst(&mut script) else { return true };
        let messages = burst.messages;
        self.stats.counts.sessions.begun += 1;
        self.stats.counts.scheduled += u64::from(messages);
        self.stats.lateness.record(Time::now().since(scheduled));
        self.connect(
            io,
            Some(script),
            NextAction::Burst { due: scheduled, messages, counted: true },
        );
        true
    }

    /// As [`begin`](Active::begin), on a connection that is open.
    fn restart_session(&mut self, io: &mut impl Io, token: Token) {
        let now = io.now();
        let script = if now < self.stats.last_arrival { self.cursor.begin() } else { None };
        let Some(mut script) = script else {
            return self.close_and_replace(io, token);
        };
        if let Some(burst) = self.cursor.next_burst(&mut script) {
            self.stats.counts.sessions.begun += 1;
            self.connections[token.slot() as usize].script = Some(script);
            self.send_burst(io, token, now, burst.messages, false);
        }
    }

    /// Opens a connection, for something or ahead of it.
    fn connect(&mut self, io: &mut impl Io, script: Option<Script>, next: NextAction) {
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

    /// The connection is made, with TLS to the end of the handshake.
    fn on_connected(&mut self, io: &mut impl Io, token: Token) {
        let connection = &mut self.connections[token.slot() as usize];
        connection.stage = Stage::Available;
        self.connecting_count -= 1;
        self.stats.counts.connections_opened += 1;
        self.stats.connect.record(io.now().since(connection.opened_at));
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

    /// When a request is given up whose reply has not begun, and which the server may answer since then.
    fn first_byte_deadline(&self, scheduled: Time, since: Time) -> Time {
        let whole = scheduled + self.timeout;
        self.first_byte_timeout.map_or(whole, |first| whole.min(since + first))
    }

    /// Sends a request, and tells when.
    fn send_request(
        &mut self,
        io: &mut impl Io,
        token: Token,
        scheduled: ScheduledTime,
        message: u32,
    ) -> Time {
        // The one reading of the clock for a request: the turn may have begun some time ago.
        let sent = Time::now();
        let scheduled = scheduled.unwrap_or(sent);
        // Left armed after the reply: to move it to a later time costs next to nothing.
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

    /// Sends so many requests of the script at once, when they are due.
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
            let message = self.cursor.next_in_burst(&mut script);
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
            let message = self.cursor.next_in_burst(&mut script);
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

    /// The connection can carry another request.
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
