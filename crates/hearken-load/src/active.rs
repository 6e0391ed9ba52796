//! Requests over connections.
//!
//! A request that is due takes a free connection; or opens one, if it may; or waits its turn. From
//! there it ends exactly once: by its reply, or by one failure.

use std::collections::VecDeque;
use std::time::Duration;

use hearken::Token;
use hearken::io::{Completion, Io, What};
use hearken::timer::Time;

use crate::config::Config;
use crate::failure::Failure;
use crate::reply::{Done, Reply};
use crate::tally::Tally;
use crate::target::Target;
use crate::{MOST_CONNECTING, PER_TURN};

/// The connections that carry requests.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) tally: Tally,
    /// Connections at a time, and requests on each.
    limit: usize,
    per_connection: u32,
    timeout: Duration,
    /// By slot of the token.
    connections: Vec<Connection>,
    open: usize,
    connecting: usize,
    /// Connections that are still to be opened before the first request.
    to_open: usize,
    /// Connections that can carry a request; those that were lost meanwhile are passed over.
    free: VecDeque<Token>,
    /// Intended times of requests that wait for a connection, oldest first.
    waiting: VecDeque<Time>,
}

#[derive(Debug, Default)]
struct Connection {
    /// `None` if the slot is not ours.
    token: Option<Token>,
    connected: bool,
    /// Replies so far.
    served: u32,
    request: Option<Request>,
    reply: Reply,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    intended: Time,
    /// When it was; what is intended, until then.
    sent: Time,
}

impl Active {
    pub(crate) fn new(config: &Config) -> Active {
        let connections = config.connections.get();
        let keep_alive = config.per_connection.is_none();
        Active {
            tally: Tally::new(),
            limit: if keep_alive { connections } else { usize::MAX },
            per_connection: config.per_connection.map_or(u32::MAX, Into::into),
            timeout: config.timeout,
            connections: Vec::new(),
            open: 0,
            connecting: 0,
            to_open: if keep_alive && config.rate > 0.0 { connections } else { 0 },
            free: VecDeque::new(),
            waiting: VecDeque::new(),
        }
    }

    /// Opens connections ahead of the requests, some in each turn. True if there is more to open at
    /// once.
    pub(crate) fn prepare(&mut self, io: &mut impl Io, target: &mut Target) -> bool {
        let room = MOST_CONNECTING.saturating_sub(self.connecting);
        for _ in 0..room.min(PER_TURN).min(self.to_open) {
            self.to_open -= 1;
            self.connect(io, target, None);
        }
        self.to_open > 0 && self.connecting < MOST_CONNECTING
    }

    /// True once there is nothing left to be opened before the first request.
    pub(crate) fn is_prepared(&self) -> bool {
        self.to_open == 0 && self.connecting == 0
    }

    /// When the oldest waiting request is to be given up.
    pub(crate) fn until(&self) -> Option<Time> {
        self.waiting.front().map(|&intended| intended + self.timeout)
    }

    /// Gives up requests that have waited too long.
    pub(crate) fn expire(&mut self, now: Time) {
        while self.until().is_some_and(|until| until <= now) {
            self.waiting.pop_front();
            self.tally.fail(Failure::ClientTimo);
        }
    }

    /// A request is due.
    pub(crate) fn request(&mut self, io: &mut impl Io, target: &mut Target, intended: Time) {
        self.tally.intended += 1;
        let free = loop {
            match self.free.pop_front() {
                Some(token) if !self.is_free(token) => {}
                other => break other,
            }
        };
        let acted = if let Some(on) = free {
            self.ask(io, target, on, intended)
        } else if self.open < self.limit {
            let now = Time::now();
            self.connect(io, target, Some(intended));
            now
        } else {
            self.tally.waited += 1;
            self.waiting.push_back(intended);
            io.now()
        };
        // What a request then waits for is the server's doing.
        self.tally.lateness.record(acted.since(intended));
    }

    /// Whether the connection is one of these.
    pub(crate) fn owns(&self, on: Token) -> bool {
        self.connections.get(on.slot() as usize).is_some_and(|of| of.token == Some(on))
    }

    /// Something has happened to one of the connections.
    pub(crate) fn complete(&mut self, io: &mut impl Io, target: &mut Target, what: Completion) {
        let Completion { on, what } = what;
        let connection = &mut self.connections[on.slot() as usize];
        let busy = connection.request.is_some();
        match what {
            What::Connected(Ok(())) => {
                connection.connected = true;
                self.connecting -= 1;
                self.tally.opened += 1;
                io.start(on);
                match connection.request {
                    Some(request) => {
                        self.ask(io, target, on, request.intended);
                    }
                    None => self.reuse(io, target, on),
                }
            }
            What::Received(bytes) => {
                self.tally.bytes.received += bytes.len() as u64;
                if !busy {
                    return self.close(io, target, on);
                }
                let status = &mut self.tally.status;
                match connection.reply.feed(&bytes, target.method, |interim| status.count(interim))
                {
                    Ok(None) => {}
                    Ok(Some(done)) => self.replied(io, target, on, done),
                    Err(malformed) => self.fail(io, target, on, Failure::Other, &malformed),
                }
            }
            What::End => match connection.reply.end() {
                Some(done) if busy => self.replied(io, target, on, done),
                _ if busy => self.fail(io, target, on, Failure::ConnReset, &""),
                _ => self.close(io, target, on),
            },
            What::Connected(Err(error)) | What::ReceiveFailed(error) | What::Sent(Err(error)) => {
                if busy {
                    self.fail(io, target, on, Failure::of(&error), &error);
                } else {
                    self.close(io, target, on);
                }
            }
            What::Sent(Ok(())) => self.tally.bytes.sent += target.request_len(),
            What::Deadline => {
                // A free connection's is a past request's.
                let due = |request: Request| request.intended + self.timeout <= io.now();
                if connection.request.is_some_and(due) {
                    self.fail(io, target, on, Failure::ClientTimo, &"");
                } else if !busy && !connection.connected {
                    self.close(io, target, on);
                }
            }
            What::Accepted(_) | What::AcceptFailed(_) | What::Woken => {}
        }
    }

    fn is_free(&self, on: Token) -> bool {
        self.owns(on) && self.connections[on.slot() as usize].request.is_none()
    }

    /// Opens a connection, for a request or ahead of one.
    fn connect(&mut self, io: &mut impl Io, target: &mut Target, intended: Option<Time>) {
        let token = match target.connect(io) {
            Ok(token) => token,
            Err(error) => {
                if intended.is_some() {
                    self.tally.fail_by(Failure::of(&error), &error);
                }
                return;
            }
        };
        let slot = token.slot() as usize;
        if slot >= self.connections.len() {
            self.connections.resize_with(slot + 1, Connection::default);
        }
        let connection = &mut self.connections[slot];
        connection.token = Some(token);
        connection.connected = false;
        connection.served = 0;
        connection.request = intended.map(|intended| Request { intended, sent: intended });
        connection.reply.reset();
        self.open += 1;
        self.connecting += 1;
        io.set_deadline(token, Some(intended.unwrap_or(io.now()) + self.timeout));
    }

    /// Sends a request on a free connection, and tells when.
    fn ask(&mut self, io: &mut impl Io, target: &Target, on: Token, intended: Time) -> Time {
        // The one reading of the clock for a request: the turn may have begun some time ago.
        let sent = Time::now();
        self.connections[on.slot() as usize].request = Some(Request { intended, sent });
        self.tally.sent += 1;
        // Left armed after the reply: to move it to a later time costs next to nothing.
        io.set_deadline(on, Some(intended + self.timeout));
        target.ask(io, on);
        sent
    }

    /// A reply is complete.
    fn replied(&mut self, io: &mut impl Io, target: &mut Target, on: Token, done: Done) {
        let connection = &mut self.connections[on.slot() as usize];
        if let Some(Request { intended, sent }) = connection.request.take() {
            self.tally.reply(intended, sent, io.now(), done.status);
        }
        connection.served += 1;
        if done.keep_alive && connection.served < self.per_connection {
            self.reuse(io, target, on);
        } else {
            self.close(io, target, on);
        }
    }

    /// The connection can carry another request.
    fn reuse(&mut self, io: &mut impl Io, target: &Target, on: Token) {
        match self.waiting.pop_front() {
            Some(intended) => {
                self.ask(io, target, on, intended);
            }
            None => self.free.push_back(on),
        }
    }

    /// The connection's request has failed.
    fn fail(
        &mut self,
        io: &mut impl Io,
        target: &mut Target,
        on: Token,
        failure: Failure,
        why: &dyn ToString,
    ) {
        self.connections[on.slot() as usize].request = None;
        self.tally.fail_by(failure, why);
        self.close(io, target, on);
    }

    /// Closes the connection, and opens others for those who wait for one.
    fn close(&mut self, io: &mut impl Io, target: &mut Target, on: Token) {
        io.close(on);
        let connection = &mut self.connections[on.slot() as usize];
        connection.token = None;
        self.open -= 1;
        self.connecting -= usize::from(!connection.connected);
        // One that was of use is replaced ahead of the next request. One that was not would be
        // replaced again and again: that is left to the requests.
        let replace = connection.served > 0 && self.per_connection == u32::MAX;
        while self.open < self.limit
            && let Some(intended) = self.waiting.pop_front()
        {
            self.connect(io, target, Some(intended));
        }
        if replace && self.open < self.limit {
            self.connect(io, target, None);
        }
    }
}
