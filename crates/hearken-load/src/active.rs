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
use crate::connection::{Connection, Next, Request, Stage};
use crate::failure::{Failure, Limit};
use crate::reply::Seen;
use crate::report::Model;
use crate::share::Share;
use crate::tally::Tally;
use crate::target::Target;
use crate::workload::{Count, Cursor, Distribution, Script, Workload};
use crate::{MOST_CONNECTING, PER_TURN};

mod ending;
mod hearing;

/// How long it is until a server that refuses is asked again, in a closed loop.
const RETRY: Duration = Duration::from_millis(100);
/// Later than all there is.
const NEVER: Time = Time::from_nanos(u64::MAX);

/// When a request was intended; where one follows the reply to another at once, when it is sent.
type Intended = Option<Time>;

/// The connections that carry requests.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) tally: Tally,
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
    open: usize,
    connecting: usize,
    /// Connections that are still to be opened before the first request.
    to_open: usize,
    /// The clock of the requests runs.
    started: bool,
    /// Connections that can carry a request; those that were lost meanwhile are passed over.
    free: VecDeque<Token>,
    /// Requests that wait for a connection, oldest first.
    waiting: VecDeque<(Time, u32)>,
    /// When connections of a closed loop that could not be had are tried again.
    retries: VecDeque<Time>,
    random: fastrand::Rng,
    seen: Seen,
    scratch: Scratch,
    /// Where the requests of a burst are put together.
    burst: Vec<u8>,
}

impl Active {
    /// That share of what `config` describes.
    pub(crate) fn new(
        config: &Config,
        model: Model,
        target: Target,
        workload: &Arc<Workload>,
        share: Share,
        seed: u64,
        makes_requests: bool,
    ) -> Active {
        let connections = share.part(config.connections.get());
        let opens_ahead = match model {
            _ if !makes_requests => false,
            Model::Requests => config.per_connection.is_none() && !config.is_silent(),
            Model::Closed => true,
            Model::Connections | Model::Sessions => false,
        };
        Active {
            tally: Tally::new(),
            model,
            target,
            workload: workload.clone(),
            cursor: workload.cursor(share.index as u32, share.of as u32, seed),
            limit: if opens_ahead { connections } else { usize::MAX },
            per_connection: config.per_connection,
            connection_time: config.connection_time,
            timeout: config.timeout,
            connect_timeout: config.connect_timeout,
            first_byte_timeout: config.first_byte_timeout,
            connections: Vec::new(),
            open: 0,
            connecting: 0,
            to_open: if opens_ahead { connections } else { 0 },
            started: false,
            free: VecDeque::new(),
            waiting: VecDeque::new(),
            retries: VecDeque::new(),
            random: fastrand::Rng::with_seed(share.seed(!seed)),
            seen: Seen::default(),
            scratch: Scratch::default(),
            burst: Vec::new(),
        }
    }

    /// Opens connections ahead of the requests, some in each turn. True if there is more to open at
    /// once.
    pub(crate) fn prepare(&mut self, io: &mut impl Io) -> bool {
        let room = MOST_CONNECTING.saturating_sub(self.connecting);
        for _ in 0..room.min(PER_TURN).min(self.to_open) {
            self.to_open -= 1;
            self.connect(io, None, Next::Nothing);
        }
        self.to_open > 0 && self.connecting < MOST_CONNECTING
    }

    /// True once there is nothing left to be opened before the first request.
    pub(crate) fn is_prepared(&self) -> bool {
        self.to_open == 0 && self.connecting == 0
    }

    /// How many connections there are.
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// The clock of the requests has started, and goes on until `end`.
    pub(crate) fn start(&mut self, io: &mut impl Io, end: Time) {
        self.started = true;
        self.tally.end = end;
        if self.model == Model::Closed {
            while let Some(on) = self.next_free(io) {
                self.ask_again(io, on);
            }
        }
    }

    /// When there is something to do that no connection tells of.
    pub(crate) fn until(&self) -> Option<Time> {
        let gives_up = self.waiting.front().map(|&(intended, _)| intended + self.timeout);
        let again = self.retries.front().copied().filter(|_| self.started);
        [gives_up, again].into_iter().flatten().min()
    }

    /// Gives up requests that have waited too long, and tries again what is to be tried.
    pub(crate) fn expire(&mut self, io: &mut impl Io, now: Time) {
        while self.waiting.front().is_some_and(|&(intended, _)| intended + self.timeout <= now) {
            self.waiting.pop_front();
            self.tally.time_out(1, Limit::Reply);
        }
        while self.started && self.retries.front().is_some_and(|&at| at <= now) {
            self.retries.pop_front();
            if now < self.tally.end {
                self.begin(io, now);
            }
        }
    }

    /// Something is due. False if there is nothing left to ask.
    pub(crate) fn arrive(&mut self, io: &mut impl Io, intended: Time) -> bool {
        if self.model != Model::Requests {
            return self.begin(io, intended);
        }
        let Some(message) = self.cursor.next_request() else { return false };
        self.tally.counts.intended += 1;
        let acted = if let Some(on) = self.next_free(io) {
            self.ask(io, on, Some(intended), message)
        } else if self.open < self.limit {
            let now = Time::now();
            self.connect(io, None, Next::Message(intended, message));
            now
        } else {
            self.tally.counts.waited += 1;
            self.waiting.push_back((intended, message));
            io.now()
        };
        // What a request then waits for is the server's doing.
        self.tally.lateness.record(acted.since(intended));
        true
    }

    /// A connection that can carry a request.
    fn next_free(&mut self, io: &mut impl Io) -> Option<Token> {
        loop {
            let on = self.free.pop_front()?;
            let connection = &self.connections[on.slot() as usize];
            if !self.owns(on) || connection.stage != Stage::Free {
                continue;
            }
            if connection.until == NEVER || connection.until > io.now() {
                return Some(on);
            }
            self.close(io, on);
        }
    }

    /// Whether the connection is one of these.
    pub(crate) fn owns(&self, on: Token) -> bool {
        self.connections.get(on.slot() as usize).is_some_and(|of| of.token == Some(on))
    }

    /// Opens a connection that asks one thing after another. False if there is nothing left to ask.
    fn begin(&mut self, io: &mut impl Io, intended: Time) -> bool {
        let Some(mut script) = self.cursor.begin() else { return false };
        let Some(burst) = self.cursor.next_burst(&mut script) else { return true };
        let messages = burst.messages;
        self.tally.counts.sessions.begun += 1;
        self.tally.counts.intended += u64::from(messages);
        self.tally.lateness.record(Time::now().since(intended));
        self.connect(io, Some(script), Next::Burst { due: intended, messages, counted: true });
        true
    }

    /// As [`begin`](Active::begin), on a connection that is open.
    fn ask_again(&mut self, io: &mut impl Io, on: Token) {
        let now = io.now();
        let script = if now < self.tally.end { self.cursor.begin() } else { None };
        let Some(mut script) = script else {
            return self.close(io, on);
        };
        if let Some(burst) = self.cursor.next_burst(&mut script) {
            self.tally.counts.sessions.begun += 1;
            self.connections[on.slot() as usize].script = Some(script);
            self.ask_burst(io, on, now, burst.messages, false);
        }
    }

    /// Opens a connection, for something or ahead of it.
    fn connect(&mut self, io: &mut impl Io, script: Option<Script>, next: Next) {
        let opened = self.target.connect(io);
        let now = io.now();
        let (token, channel) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.tally.counts.intended += next.uncounted();
                let requests = next.counted() + next.uncounted();
                self.tally.fail_by(requests, Failure::of(&error), &error);
                self.tally.counts.sessions.failed += u64::from(script.is_some());
                if self.model == Model::Closed {
                    self.retries.push_back(now + RETRY);
                }
                return;
            }
        };
        let slot = token.slot() as usize;
        if slot >= self.connections.len() {
            self.connections.resize_with(slot + 1, Connection::none);
        }
        let random = &mut self.random;
        let lasts = self.connection_time.as_ref().map(|time| time.sample(random));
        let connection = &mut self.connections[slot];
        connection.token = Some(token);
        connection.stage = Stage::Connecting;
        connection.began = now;
        connection.until = lasts.map_or(NEVER, |lasts| now + lasts);
        connection.served = 0;
        connection.left =
            self.per_connection.as_ref().map_or(u32::MAX, |count| count.sample(random).get());
        connection.script = script;
        connection.next = next;
        connection.reply.reset();
        connection.check = None;
        connection.channel = channel;
        self.open += 1;
        self.connecting += 1;
        let patience = next.intended().unwrap_or(now) + self.timeout;
        let limit = self.connect_timeout.map_or(patience, |limit| patience.min(now + limit));
        io.set_deadline(token, Some(limit));
    }

    /// The connection is made, with TLS to the end of the handshake.
    fn is_made(&mut self, io: &mut impl Io, on: Token) {
        let connection = &mut self.connections[on.slot() as usize];
        connection.stage = Stage::Free;
        self.connecting -= 1;
        self.tally.counts.opened += 1;
        self.tally.connect.record(io.now().since(connection.began));
        match std::mem::take(&mut connection.next) {
            Next::Message(intended, message) => {
                self.ask(io, on, Some(intended), message);
            }
            Next::Burst { due, messages, counted } => {
                self.ask_burst(io, on, due, messages, counted);
            }
            Next::Nothing => self.reuse(io, on),
        }
    }

    /// When a request is given up whose reply has not begun, and which the server may answer since then.
    fn reply_due(&self, intended: Time, since: Time) -> Time {
        let whole = intended + self.timeout;
        self.first_byte_timeout.map_or(whole, |first| whole.min(since + first))
    }

    /// Sends a request, and tells when.
    fn ask(&mut self, io: &mut impl Io, on: Token, intended: Intended, message: u32) -> Time {
        // The one reading of the clock for a request: the turn may have begun some time ago.
        let sent = Time::now();
        let intended = intended.unwrap_or(sent);
        // Left armed after the reply: to move it to a later time costs next to nothing.
        io.set_deadline(on, Some(self.reply_due(intended, sent)));
        let connection = &mut self.connections[on.slot() as usize];
        connection.stage = Stage::Busy;
        connection.silent = true;
        connection.asked.push(Request { intended, sent, message });
        let bytes = &self.workload.message(message).bytes;
        self.tally.counts.sent += 1;
        self.tally.counts.bytes.sent += bytes.len() as u64;
        connection.channel.send(io, on, bytes, &mut self.scratch);
        sent
    }

    /// Sends so many requests of the script at once, when they are due.
    fn ask_burst(&mut self, io: &mut impl Io, on: Token, due: Time, messages: u32, counted: bool) {
        let connection = &mut self.connections[on.slot() as usize];
        if due > io.now() {
            connection.stage = Stage::Thinking;
            connection.next = Next::Burst { due, messages, counted };
            return io.set_deadline(on, Some(due));
        }
        if !counted {
            self.tally.counts.intended += u64::from(messages);
        }
        let intended = (counted || due < io.now()).then_some(due);
        let Some(mut script) = connection.script else { return };
        if messages == 1 {
            let message = self.cursor.next_in_burst(&mut script);
            connection.script = Some(script);
            self.ask(io, on, intended, message);
            return;
        }
        let sent = Time::now();
        let intended = intended.unwrap_or(sent);
        io.set_deadline(on, Some(self.reply_due(intended, sent)));
        let connection = &mut self.connections[on.slot() as usize];
        self.burst.clear();
        for _ in 0..messages {
            let message = self.cursor.next_in_burst(&mut script);
            connection.asked.push(Request { intended, sent, message });
            self.burst.extend_from_slice(&self.workload.message(message).bytes);
        }
        connection.script = Some(script);
        connection.stage = Stage::Busy;
        connection.silent = true;
        self.tally.counts.sent += u64::from(messages);
        self.tally.counts.bytes.sent += self.burst.len() as u64;
        connection.channel.send(io, on, &self.burst, &mut self.scratch);
    }

    /// The connection can carry another request.
    fn reuse(&mut self, io: &mut impl Io, on: Token) {
        if self.model == Model::Closed && self.started {
            return self.ask_again(io, on);
        }
        match self.waiting.pop_front() {
            Some((intended, message)) => {
                self.ask(io, on, Some(intended), message);
            }
            None => {
                let connection = &mut self.connections[on.slot() as usize];
                connection.stage = Stage::Free;
                if connection.until < NEVER {
                    io.set_deadline(on, Some(connection.until));
                }
                self.free.push_back(on);
            }
        }
    }
}
