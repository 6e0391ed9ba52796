//! Connections that carry requests.
//!
//! A request that becomes due takes an available connection. Otherwise it opens a connection, up to
//! the maximum, or waits in a queue. Where connections or sessions arrive, each arrival opens a
//! connection and sends its requests over it in sequence. Each request ends exactly once: with a
//! reply, with one failure, or as missed.
//!
//! The timeout limits two times separately: the time in the queue, and the time from then on. So the
//! server always has the full timeout, and a request that expires in the queue is never a failure of
//! the server. Only the end of the run cuts the second time short, for requests from the queue.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hearken::Token;
use hearken::io::Io;
use hearken::timer::Time;
use hearken_http::h2::HeadBuffer;

use crate::channel::Scratch;
use crate::config::Config;
use crate::connection::{Connection, NextAction, Request, Stage};
use crate::cookies::CookieJar;
use crate::failure::Failure;
use crate::histogram::Histogram;
use crate::http2::{self, WaitingRequest};
use crate::queue::{Queue, Waiting, Work};
use crate::reply::HeadCache;
use crate::report::Model;
use crate::shard::Shard;
use crate::statistics::Statistics;
use crate::target::{Protocol, Target};
use crate::worker::{MAX_DELAY, NEVER};
use crate::workload::{Burst, Count, Cursor, Distribution, SessionState, Workload};
use crate::{MAX_CONNECTING, PER_TURN};

mod close;
mod events;
mod streams;

/// Delay before the generator connects again after a connection failed, in a closed loop.
const RETRY_DELAY: Duration = Duration::from_millis(100);
/// Number of connections that are opened ahead of the first request, in all threads together.
const OPENED_AHEAD: usize = 50;

/// Relative costs of what an arrival causes, to limit the work of a turn.
pub(crate) mod cost {
    /// An arrival that waits in the queue.
    pub(crate) const QUEUED: u32 = 1;
    /// A request that is sent.
    pub(crate) const SENT: u32 = 16;
    /// A connection that is opened.
    pub(crate) const OPENED: u32 = 64;
}

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
    /// Number of connections to open ahead of requests.
    ahead: usize,
    /// Number of requests on each connection.
    per_connection: Option<Count>,
    connection_time: Option<Distribution>,
    timeout: Duration,
    /// Timeout for opening a connection, at most `timeout`.
    connect_timeout: Duration,
    first_byte_timeout: Option<Duration>,
    /// Connections, indexed by the slot of their token.
    connections: Vec<Connection>,
    open_count: usize,
    /// Highest number of open connections.
    peak_count: usize,
    connecting_count: usize,
    /// Number of connections still to open before the first request.
    unopened: usize,
    /// Whether the load has started.
    started: bool,
    /// Connections that can carry a request. Connections lost in the meantime are skipped.
    available: VecDeque<Token>,
    /// Arrivals that wait for a connection.
    queue: Queue,
    /// Time at which all requests end: the timeout after the last arrival was handled.
    cut_at: Time,
    /// Time that the server usually takes to reply, measured early in the run.
    usual_reply_time: Option<Duration>,
    /// Times at which a closed loop retries connections that it could not open.
    retry_times: VecDeque<Time>,
    random: fastrand::Rng,
    head_cache: HeadCache,
    /// Whether sessions send cookies, and the cookies of a session that continues on another connection.
    keeps_cookies: bool,
    carried_cookies: Option<Box<CookieJar>>,
    scratch: Scratch,
    /// Buffer that joins the requests of a burst, or holds a request with cookies.
    burst_buffer: Vec<u8>,
    /// Settings of HTTP/2, if it is used.
    http2: Option<http2::Settings>,
    /// Whether scripts keep all streams of a connection busy, instead of sending in bursts.
    refills: bool,
    /// Connections with frames to send.
    unsent: Vec<Token>,
    /// Refused requests, which the next connection that is opened sends again.
    carried_requests: VecDeque<WaitingRequest>,
    head_buffer: HeadBuffer,
}

impl ActiveConnections {
    /// Creates the connections of a shard of the load that `config` describes, at most `limit`.
    /// Without `sends_requests` the thread only holds idle connections.
    #[expect(clippy::too_many_arguments, reason = "called once")]
    pub(crate) fn new(
        config: &Config,
        model: Model,
        target: Target,
        workload: &Arc<Workload>,
        limit: usize,
        share: Shard,
        seed: u64,
        sends_requests: bool,
    ) -> ActiveConnections {
        let ahead = match model {
            _ if !sends_requests => 0,
            Model::Closed => limit,
            Model::Requests if config.requests_per_connection.is_none() && !config.is_silent() => {
                limit.min(share.share_of(OPENED_AHEAD).max(1))
            }
            Model::Requests | Model::Connections | Model::Sessions => 0,
        };
        let http2 = config.http2.map(|streams| http2::Settings::new(streams, target.is_tls()));
        let protocol = if http2.is_some() { Protocol::Http2 } else { Protocol::Http1 };
        ActiveConnections {
            stats: Statistics::new(),
            model,
            target: target.with_protocol(protocol),
            workload: workload.clone(),
            cursor: workload.cursor(share.index as u32, share.count as u32, seed),
            limit,
            ahead,
            per_connection: config.requests_per_connection,
            connection_time: config.connection_lifetime,
            timeout: config.timeout,
            connect_timeout: config
                .connect_timeout
                .map_or(config.timeout, |connect| connect.min(config.timeout)),
            first_byte_timeout: config.first_byte_timeout,
            connections: Vec::new(),
            open_count: 0,
            peak_count: 0,
            connecting_count: 0,
            unopened: ahead,
            started: false,
            available: VecDeque::new(),
            queue: Queue::new(config.queue, config.timeout, config.threads.get()),
            cut_at: NEVER,
            usual_reply_time: None,
            retry_times: VecDeque::new(),
            random: fastrand::Rng::with_seed(share.derive_seed(!seed)),
            head_cache: HeadCache::default(),
            keeps_cookies: config.template.cookies,
            carried_cookies: None,
            scratch: Scratch::default(),
            burst_buffer: Vec::new(),
            refills: http2.is_some() && config.think_time.is_none() && !config.has_sessions(),
            http2,
            unsent: Vec::new(),
            carried_requests: VecDeque::new(),
            head_buffer: HeadBuffer::new(),
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
        let more = self.serve_queue(io);
        more || (self.unopened > 0 && self.connecting_count < MAX_CONNECTING)
    }

    /// Returns true once all connections are open that are opened before the first request.
    pub(crate) fn is_prepared(&self) -> bool {
        self.unopened == 0 && self.connecting_count == 0
    }

    /// Returns the number of open connections.
    pub(crate) fn open_count(&self) -> usize {
        self.open_count
    }

    /// Returns the highest number of open connections so far.
    pub(crate) fn peak_count(&self) -> usize {
        self.peak_count
    }

    /// Starts the load, which ends at `end`.
    pub(crate) fn start(&mut self, io: &mut impl Io, end: Time) {
        self.started = true;
        self.stats.last_arrival = end;
        self.cut_at = end + MAX_DELAY + self.timeout;
        if self.model == Model::Closed {
            while let Some(token) = self.take_available(io) {
                self.restart_session(io, token);
            }
        }
    }

    /// Returns the next time at which [`expire`](ActiveConnections::expire) has something to do.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let again = self.retry_times.front().copied().filter(|_| self.started);
        [self.queue.next_expiry(), again].into_iter().flatten().min()
    }

    /// Drops arrivals that waited too long in the queue, and retries connections that are due.
    pub(crate) fn expire(&mut self, io: &mut impl Io, now: Time) {
        self.drop_expired(now);
        while self.started && self.retry_times.front().is_some_and(|&at| at <= now) {
            self.retry_times.pop_front();
            if now < self.stats.last_arrival {
                self.start_session(io, now);
            }
        }
    }

    /// Drops the arrivals in the queue that have expired.
    fn drop_expired(&mut self, now: Time) {
        while let Some(expired) = self.queue.pop_expired(now) {
            self.record_dropped(expired);
        }
    }

    /// Records an arrival that found no connection.
    fn record_dropped(&mut self, dropped: Waiting) {
        self.stats.counts.missed.no_connection += dropped.work.requests();
        self.stats.counts.sessions.failed += u64::from(matches!(dropped.work, Work::Session(..)));
    }

    /// Skips `arrivals` arrivals, because the generator could not keep up. A session counts as one
    /// request.
    pub(crate) fn skip(&mut self, arrivals: u64) {
        let skipped = self.cursor.skip(arrivals, self.model == Model::Requests);
        self.stats.counts.scheduled += skipped;
        self.stats.counts.missed.generator += skipped;
        if self.model != Model::Requests {
            self.stats.counts.sessions.started += skipped;
            self.stats.counts.sessions.failed += skipped;
        }
    }

    /// Measures the time that the server usually takes to reply.
    pub(crate) fn measure_usual_reply_time(&mut self) {
        let quantile = |times: &Histogram| times.quantiles().p90;
        let connect = if self.ahead > 0 { 0 } else { quantile(&self.stats.connect) };
        let reply = quantile(&self.stats.service);
        self.usual_reply_time = (reply > 0).then(|| Duration::from_nanos(connect + reply));
    }

    /// Ends requests that arrived individually at the timeout after `end`, when no more arrive.
    pub(crate) fn end_requests_after(&mut self, end: Time) {
        if self.model == Model::Requests {
            self.cut_at = self.cut_at.min(end + self.timeout);
        }
    }

    /// Handles the end of the arrivals at `end`, when the generator has handled the last one at `now`:
    /// counts the requests that the server had enough time to answer.
    pub(crate) fn on_last_arrival(&mut self, end: Time, now: Time) {
        self.cut_at = now + self.timeout;
        if self.usual_reply_time.is_none() {
            self.measure_usual_reply_time();
        }
        let usual = self.usual_reply_time.unwrap_or(self.timeout);
        let is_recent = |scheduled: Time| scheduled + usual > end;
        let in_flight = self.connections.iter().filter(|connection| connection.token.is_some());
        let recent_in_flight = in_flight.map(|connection| {
            let sent = connection.requests();
            let sent = sent.filter(|request| is_recent(request.scheduled)).count() as u64;
            let next = connection.next.scheduled().is_some_and(is_recent);
            sent + if next { connection.next.counted() } else { 0 }
        });
        let recent_waiting = self.queue.iter().filter(|waiting| is_recent(waiting.scheduled));
        let recent: u64 =
            recent_in_flight.chain(recent_waiting.map(|waiting| waiting.work.requests())).sum();
        self.stats.answerable = self.stats.counts.scheduled - recent;
    }

    /// Handles an arrival. Returns its [cost], or `None` if the workload is exhausted.
    pub(crate) fn on_arrival(&mut self, io: &mut impl Io, scheduled: Time) -> Option<u32> {
        if self.model != Model::Requests {
            return self.start_session(io, scheduled);
        }
        let message = self.cursor.next_request()?;
        self.stats.counts.scheduled += 1;
        let (acted, cost) = if let Some(token) = self.take_available(io) {
            (self.send_request(io, token, Some(scheduled), None, message), cost::SENT)
        } else if self.open_count < self.limit {
            let now = io.clock();
            self.connect(io, None, NextAction::Message(scheduled, message));
            (now, cost::OPENED)
        } else {
            self.enqueue(scheduled, Work::Message(message));
            (io.now(), cost::QUEUED)
        };
        // Any further delay of the request is not caused by the generator.
        self.stats.lateness.record(acted.duration_since(scheduled));
        Some(cost)
    }

    /// Adds an arrival to the queue.
    fn enqueue(&mut self, scheduled: Time, work: Work) {
        self.stats.counts.queued += work.requests();
        if let Some(dropped) = self.queue.push(Waiting { scheduled, work }) {
            self.record_dropped(dropped);
        }
    }

    /// Removes and returns an available connection. Closes connections whose lifetime has expired.
    fn take_available(&mut self, io: &mut impl Io) -> Option<Token> {
        loop {
            let token = self.available.pop_front()?;
            let connection = &mut self.connections[token.slot() as usize];
            if connection.token != Some(token) || connection.stage != Stage::Available {
                continue;
            }
            if connection.streams.as_ref().is_some_and(|streams| !streams.is_free()) {
                connection.stage = Stage::AwaitingReply;
                continue;
            }
            if connection.expires_at == NEVER || connection.expires_at > io.now() {
                return Some(token);
            }
            if connection.outstanding() > 0 {
                // It closes when its last stream has ended.
                connection.stage = Stage::AwaitingReply;
                continue;
            }
            self.close_and_replace(io, token);
        }
    }

    /// Returns whether `token` identifies one of these connections.
    pub(crate) fn owns(&self, token: Token) -> bool {
        self.connections.get(token.slot() as usize).is_some_and(|of| of.token == Some(token))
    }

    /// Starts a session on a connection of its own. Returns the [cost], or `None` if the workload is
    /// exhausted.
    fn start_session(&mut self, io: &mut impl Io, scheduled: Time) -> Option<u32> {
        let mut script = self.cursor.next_session()?;
        let Some(Burst { messages, .. }) = self.cursor.next_burst(&mut script) else {
            return Some(cost::QUEUED);
        };
        self.stats.counts.sessions.started += 1;
        self.stats.counts.scheduled += u64::from(messages);
        self.stats.lateness.record(io.clock().duration_since(scheduled));
        if self.open_count >= self.limit {
            self.enqueue(scheduled, Work::Session(script, messages));
            return Some(cost::QUEUED);
        }
        let next = NextAction::Burst { due: scheduled, messages, counted: true };
        self.connect(io, Some(script), next);
        Some(cost::OPENED)
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
            let connection = &mut self.connections[token.slot() as usize];
            connection.script = Some(script);
            if let Some(cookies) = &mut connection.cookies {
                cookies.clear();
            }
            self.send_burst(io, token, now, burst.messages, false);
        }
    }

    /// Opens a connection, for `next` or ahead of the requests.
    fn connect(&mut self, io: &mut impl Io, script: Option<SessionState>, next: NextAction) {
        let opened = self.target.connect(io);
        let carried = self.carried_cookies.take();
        let requests = std::mem::take(&mut self.carried_requests);
        let now = io.now();
        let (token, channel) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.stats.counts.scheduled += next.uncounted();
                let failed = next.counted() + next.uncounted() + requests.len() as u64;
                self.stats.record_failure_with_reason(failed, Failure::from_error(&error), &error);
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
        (connection.opened_at, connection.issued_at) = (now, now);
        connection.expires_at = lasts.map_or(NEVER, |lasts| now + lasts);
        connection.reply_count = 0;
        connection.remaining_requests =
            self.per_connection.as_ref().map_or(u32::MAX, |count| count.sample(random).get());
        connection.script = script;
        connection.cookies = carried.or_else(|| self.keeps_cookies.then(Box::default));
        connection.next = next;
        connection.reply.reset();
        connection.check = None;
        connection.channel = channel;
        connection.streams = self.http2.as_ref().map(|http2| {
            let mut streams = http2.connect();
            streams.waiting = requests;
            streams
        });
        self.open_count += 1;
        self.peak_count = self.peak_count.max(self.open_count);
        self.connecting_count += 1;
        io.set_deadline(token, Some((now + self.connect_timeout).min(self.cut_at)));
    }

    /// Handles a completed connection, including its TLS handshake.
    fn on_connected(&mut self, io: &mut impl Io, token: Token) {
        let connection = &mut self.connections[token.slot() as usize];
        connection.stage = Stage::Available;
        self.connecting_count -= 1;
        self.stats.counts.connections_opened += 1;
        self.stats.connect.record(io.now().duration_since(connection.opened_at));
        let opened_at = Some(connection.opened_at);
        let next = std::mem::take(&mut connection.next);
        self.mark_unsent(token);
        match next {
            NextAction::Message(scheduled, message) => {
                self.send_request(io, token, Some(scheduled), opened_at, message);
            }
            NextAction::Burst { due, messages, counted } => {
                self.send_burst(io, token, due, messages, counted);
            }
            NextAction::Nothing => self.make_available(io, token),
        }
    }

    /// Returns the deadline of requests issued at `issued_at`.
    fn reply_deadline(&self, issued_at: Time) -> Time {
        (issued_at + self.timeout).min(self.cut_at)
    }

    /// Returns the deadline of a request whose reply has not begun. The server has been able to
    /// reply to it since `since`.
    fn first_byte_deadline(&self, issued_at: Time, since: Time) -> Time {
        let whole = self.reply_deadline(issued_at);
        self.first_byte_timeout.map_or(whole, |first| whole.min(since + first))
    }

    /// Sends a request and returns the time at which it was sent. `issued_at` is the start of its
    /// timeout, if it was issued before.
    fn send_request(
        &mut self,
        io: &mut impl Io,
        token: Token,
        scheduled: ScheduledTime,
        issued_at: Option<Time>,
        message: u32,
    ) -> Time {
        if self.http2.is_some() {
            return self.send_on_stream(io, token, scheduled, issued_at, message);
        }
        // The only clock reading per request: the turn may have begun some time ago.
        let sent = io.clock();
        let (scheduled, issued_at) = (scheduled.unwrap_or(sent), issued_at.unwrap_or(sent));
        // The deadline stays armed after the reply, because moving it to a later time is cheap.
        io.set_deadline(token, Some(self.first_byte_deadline(issued_at, sent)));
        let connection = &mut self.connections[token.slot() as usize];
        connection.issued_at = issued_at;
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
        let opened_at = connection.opened_at;
        let issued_at = counted.then_some(opened_at);
        let Some(mut script) = connection.script else { return };
        if self.http2.is_some() {
            let sent = io.clock();
            let (scheduled, issued_at) = (scheduled.unwrap_or(sent), issued_at.unwrap_or(sent));
            let requests: Vec<_> = (0..messages)
                .map(|_| {
                    let message = self.cursor.next_message(&mut script);
                    let request = Request { scheduled, sent, message };
                    WaitingRequest::new(request, issued_at)
                })
                .collect();
            connection.script = Some(script);
            return self.send_together(io, token, requests.into_iter());
        }
        if messages == 1 && connection.cookies.is_none() {
            let message = self.cursor.next_message(&mut script);
            connection.script = Some(script);
            self.send_request(io, token, scheduled, issued_at, message);
            return;
        }
        let sent = io.clock();
        let (scheduled, issued_at) = (scheduled.unwrap_or(sent), issued_at.unwrap_or(sent));
        io.set_deadline(token, Some(self.first_byte_deadline(issued_at, sent)));
        let connection = &mut self.connections[token.slot() as usize];
        connection.issued_at = issued_at;
        self.burst_buffer.clear();
        for _ in 0..messages {
            let message = self.cursor.next_message(&mut script);
            connection.in_flight.push(Request { scheduled, sent, message });
            let bytes = &self.workload.message(message).bytes;
            match &connection.cookies {
                None => self.burst_buffer.extend_from_slice(bytes),
                Some(cookies) => cookies.write_request(bytes, sent, &mut self.burst_buffer),
            }
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
        if self.http2.is_some() {
            self.connections[token.slot() as usize].stage = Stage::AwaitingReply;
            return self.use_streams(io, token);
        }
        if self.model == Model::Closed && self.started {
            return self.restart_session(io, token);
        }
        self.drop_expired(io.now());
        // Sessions wait for a connection of their own.
        let next = if self.model == Model::Requests { self.queue.pop() } else { None };
        match next {
            Some(Waiting { scheduled, work: Work::Message(message) }) => {
                self.send_request(io, token, Some(scheduled), None, message);
            }
            _ => {
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
