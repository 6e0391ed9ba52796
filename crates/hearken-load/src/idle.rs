//! Connections that are held and do nothing, as most of a server's do.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use hearken::Token;
use hearken::io::{Completion, Io, What};
use hearken::timer::Time;

use crate::PER_TURN;
use crate::misses::Misses;
use crate::reply::Reply;
use crate::report::{self, Bytes};
use crate::target::Target;

/// How long it is until a server that refuses is asked again.
const RETRY: Duration = Duration::from_millis(100);

/// The connections that are held idle.
#[derive(Debug)]
pub(crate) struct Idlers {
    pub(crate) counts: report::Idle,
    pub(crate) bytes: Bytes,
    pub(crate) misses: Misses,
    /// Whether each makes a request first.
    asks: bool,
    /// By slot of the token.
    connections: Vec<Connection>,
    connecting: usize,
    most_connecting: usize,
    /// How many are to be opened now, and when those are that failed.
    to_open: u64,
    retries: VecDeque<Time>,
}

#[derive(Debug, Default)]
struct Connection {
    /// `None` if the slot is not ours.
    token: Option<Token>,
    /// Since when it is held.
    held: Option<Time>,
    /// What it waits for first, if it asked.
    reply: Option<Box<Reply>>,
}

/// Why a connection is lost.
#[derive(Clone, Copy)]
enum Why<'a> {
    Error(&'a io::Error),
    Text(&'a str),
}

impl Idlers {
    /// Of which `most_connecting` are under way at a time.
    pub(crate) fn new(asked: usize, asks: bool, most_connecting: usize) -> Idlers {
        let asked = asked as u64;
        Idlers {
            counts: report::Idle { asked, ..report::Idle::default() },
            bytes: Bytes::default(),
            misses: Misses::default(),
            asks,
            connections: Vec::new(),
            connecting: 0,
            most_connecting,
            to_open: asked,
            retries: VecDeque::new(),
        }
    }

    /// Opens some of those that are to be opened. A server's queue of connections to accept is
    /// short, so few are under way at a time. True if there is more to open at once.
    pub(crate) fn prepare(&mut self, io: &mut impl Io, target: &mut Target) -> bool {
        while self.until().is_some_and(|until| until <= io.now()) {
            self.retries.pop_front();
            self.to_open += 1;
        }
        let room = self.most_connecting.saturating_sub(self.connecting).min(PER_TURN) as u64;
        for _ in 0..room.min(self.to_open) {
            self.to_open -= 1;
            self.connect(io, target);
        }
        self.to_open > 0 && self.connecting < self.most_connecting
    }

    /// True once all are held.
    pub(crate) fn is_prepared(&self) -> bool {
        self.counts.held == self.counts.asked
    }

    /// When the next attempt is to be made.
    pub(crate) fn until(&self) -> Option<Time> {
        self.retries.front().copied()
    }

    /// Whether the connection is one of these.
    pub(crate) fn owns(&self, on: Token) -> bool {
        self.connections.get(on.slot() as usize).is_some_and(|of| of.token == Some(on))
    }

    /// Something has happened to one of the connections.
    pub(crate) fn complete(&mut self, io: &mut impl Io, target: &Target, what: Completion) {
        let Completion { on, what } = what;
        let connection = &mut self.connections[on.slot() as usize];
        match what {
            What::Connected(Ok(())) => {
                io.start(on);
                if self.asks {
                    connection.reply = Some(Box::default());
                    target.ask(io, on);
                } else {
                    self.hold(io, on);
                }
            }
            What::Received(bytes) => {
                self.bytes.received += bytes.len() as u64;
                // What comes unasked, such as a farewell, changes nothing: it is still held.
                if let Some(reply) = &mut connection.reply {
                    match reply.feed(&bytes, target.method, |_| ()) {
                        Ok(None) => {}
                        Ok(Some(done)) if done.keep_alive => self.hold(io, on),
                        Ok(Some(_)) => self.lose(io, on, Why::Text("the server does not keep it")),
                        Err(malformed) => self.lose(io, on, Why::Text(&malformed.to_string())),
                    }
                }
            }
            What::Sent(Ok(())) => self.bytes.sent += target.request_len(),
            What::Connected(Err(error)) | What::Sent(Err(error)) | What::ReceiveFailed(error) => {
                self.lose(io, on, Why::Error(&error));
            }
            What::End => self.lose(io, on, Why::Text("the server closes it")),
            What::Deadline => self.lose(io, on, Why::Text("it took too long")),
            What::Accepted(_) | What::AcceptFailed(_) | What::Woken => {}
        }
    }

    fn connect(&mut self, io: &mut impl Io, target: &mut Target) {
        let token = match target.connect(io) {
            Ok(token) => token,
            Err(error) => {
                // Out of descriptors or ports, which may pass.
                self.misses.note(&error);
                self.retries.push_back(io.now() + RETRY);
                return;
            }
        };
        let slot = token.slot() as usize;
        if slot >= self.connections.len() {
            self.connections.resize_with(slot + 1, Connection::default);
        }
        self.connections[slot] = Connection { token: Some(token), ..Connection::default() };
        self.connecting += 1;
        io.set_deadline(token, Some(io.now() + target.timeout));
    }

    fn hold(&mut self, io: &mut impl Io, on: Token) {
        io.set_deadline(on, None);
        let connection = &mut self.connections[on.slot() as usize];
        connection.reply = None;
        connection.held = Some(io.now());
        self.connecting -= 1;
        self.counts.held += 1;
        if self.counts.re_established < self.counts.lost {
            self.counts.re_established += 1;
        }
    }

    /// The connection is lost, or could not be had. It is made again: at once if it was held for
    /// some time, else after a while.
    fn lose(&mut self, io: &mut impl Io, on: Token, why: Why<'_>) {
        io.close(on);
        let now = io.now();
        let connection = std::mem::take(&mut self.connections[on.slot() as usize]);
        match connection.held {
            Some(since) => {
                self.counts.held -= 1;
                self.counts.lost += 1;
                if now.since(since) >= RETRY {
                    self.to_open += 1;
                    return;
                }
            }
            None => {
                self.connecting -= 1;
                match why {
                    Why::Error(error) => self.misses.note(error),
                    Why::Text(text) => self.misses.note_other(text),
                }
            }
        }
        self.retries.push_back(now + RETRY);
    }
}
