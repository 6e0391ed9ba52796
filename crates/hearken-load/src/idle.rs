//! Connections that are held and do nothing, as most of a server's do; or that ask for something now
//! and then, so that which of them are active changes.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hearken::Token;
use hearken::io::{Completion, CompletionKind, Io};
use hearken::timer::Time;

use crate::channel::{Channel, Handshake, Scratch};
use crate::config::Config;
use crate::misses::Misses;
use crate::reply::Reply;
use crate::report::{self, Bytes, Handshakes};
use crate::share::Share;
use crate::target::Target;
use crate::tls::State;
use crate::workload::{Distribution, Workload};
use crate::{MOST_CONNECTING, PER_TURN};

/// How long it is until a server that refuses is asked again.
const RETRY: Duration = Duration::from_millis(100);

/// The connections that are held idle.
#[derive(Debug)]
pub(crate) struct Idlers {
    pub(crate) counts: report::Idle,
    pub(crate) bytes: Bytes,
    pub(crate) handshakes: Handshakes,
    pub(crate) misses: Misses,
    target: Target,
    workload: Arc<Workload>,
    /// Whether each makes a request first.
    asks: bool,
    /// How long it is until a request of each.
    think: Option<Distribution>,
    random: fastrand::Rng,
    /// By slot of the token.
    connections: Vec<Connection>,
    connecting: usize,
    /// How many are to be opened now, and when those are that failed.
    to_open: u64,
    retries: VecDeque<Time>,
    /// The least time from one to the next, and when the next may be begun.
    gap: Duration,
    next: Time,
    scratch: Scratch,
}

#[derive(Debug, Default)]
struct Connection {
    /// `None` if the slot is not ours.
    token: Option<Token>,
    /// Since when it is held.
    held: Option<Time>,
    /// What it waits for, if it asked.
    reply: Option<Box<Reply>>,
    channel: Channel,
}

/// Why a connection is lost.
#[derive(Clone, Copy)]
enum Why<'a> {
    Error(&'a io::Error),
    Text(&'a str),
}

impl Idlers {
    /// So many, by one of `holding` who have a share of them all.
    pub(crate) fn new(
        config: &Config,
        target: Target,
        workload: &Arc<Workload>,
        asked: usize,
        holding: u64,
        share: Share,
        seed: u64,
    ) -> Idlers {
        let asked = asked as u64;
        let gap = config.idle_rate.map_or(Duration::ZERO, |rate| {
            Duration::try_from_secs_f64(holding as f64 / rate).unwrap_or(Duration::MAX)
        });
        Idlers {
            counts: report::Idle { asked, ..report::Idle::default() },
            bytes: Bytes::default(),
            handshakes: Handshakes::default(),
            misses: Misses::default(),
            target,
            workload: workload.clone(),
            asks: config.idle_request,
            think: config.idle_think,
            random: fastrand::Rng::with_seed(share.seed(seed.rotate_left(32))),
            connections: Vec::new(),
            connecting: 0,
            to_open: asked,
            retries: VecDeque::new(),
            gap,
            next: Time::now(),
            scratch: Scratch::default(),
        }
    }

    /// Opens some of those that are to be opened. A server's queue of connections to accept is
    /// short, so few are under way at a time. True if there is more to open at once.
    pub(crate) fn prepare(&mut self, io: &mut impl Io) -> bool {
        let now = io.now();
        while self.retries.front().is_some_and(|&at| at <= now) {
            self.retries.pop_front();
            self.to_open += 1;
        }
        for _ in 0..PER_TURN {
            if self.to_open == 0 || self.connecting >= MOST_CONNECTING || self.next > now {
                break;
            }
            self.to_open -= 1;
            // Where it fell behind, it does not catch up in a burst.
            self.next = (self.next + self.gap).max(now);
            self.connect(io);
        }
        self.to_open > 0 && self.connecting < MOST_CONNECTING && self.next <= now
    }

    /// True once all are held.
    pub(crate) fn is_prepared(&self) -> bool {
        self.counts.held == self.counts.asked
    }

    /// When the next attempt is to be made.
    pub(crate) fn until(&self) -> Option<Time> {
        let paced = self.to_open > 0 && self.connecting < MOST_CONNECTING;
        let next = paced.then_some(self.next);
        [next, self.retries.front().copied()].into_iter().flatten().min()
    }

    /// Whether the connection is one of these.
    pub(crate) fn owns(&self, on: Token) -> bool {
        self.connections.get(on.slot() as usize).is_some_and(|of| of.token == Some(on))
    }

    /// Something has happened to one of the connections.
    pub(crate) fn complete(&mut self, io: &mut impl Io, completion: Completion) {
        let Completion { token: on, kind } = completion;
        let connection = &mut self.connections[on.slot() as usize];
        match kind {
            CompletionKind::Connected(Ok(())) if self.target.is_itself(io, on) => {
                self.lose(io, on, Why::Text("nobody listens at its port"));
            }
            CompletionKind::Connected(Ok(())) => {
                io.start(on);
                if connection.channel.is_tls() {
                    connection.channel.flush(io, on, &mut self.scratch);
                } else {
                    self.is_made(io, on);
                }
            }
            CompletionKind::Received(bytes) => {
                self.bytes.received += bytes.len() as u64;
                if connection.channel.is_tls() {
                    self.under_tls(io, on, &bytes);
                } else {
                    self.hear(io, on, &bytes);
                }
            }
            CompletionKind::Connected(Err(error)) => self.lose(io, on, Why::Error(&error)),
            CompletionKind::Sent(Err(error)) | CompletionKind::ReceiveFailed(error) => {
                self.handshakes.failed += u64::from(connection.channel.is_handshaking());
                self.lose(io, on, Why::Error(&error));
            }
            CompletionKind::End => {
                self.handshakes.failed += u64::from(connection.channel.is_handshaking());
                self.lose(io, on, Why::Text("the server closes it"));
            }
            CompletionKind::Deadline if connection.held.is_some() && connection.reply.is_none() => {
                self.ask(io, on);
            }
            CompletionKind::Deadline => self.lose(io, on, Why::Text("it took too long")),
            _ => {}
        }
    }

    fn connect(&mut self, io: &mut impl Io) {
        let (token, channel) = match self.target.connect(io) {
            Ok(opened) => opened,
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
        self.connections[slot] =
            Connection { token: Some(token), channel, ..Connection::default() };
        self.connecting += 1;
        io.set_deadline(token, Some(io.now() + self.target.timeout));
    }

    /// The connection is made, with TLS to the end of the handshake.
    fn is_made(&mut self, io: &mut impl Io, on: Token) {
        if self.asks {
            self.ask(io, on);
        } else {
            self.hold(io, on);
        }
    }

    fn ask(&mut self, io: &mut impl Io, on: Token) {
        let connection = &mut self.connections[on.slot() as usize];
        connection.reply = Some(Box::default());
        let bytes = &self.workload.message(0).bytes;
        self.counts.requests += 1;
        self.bytes.sent += bytes.len() as u64;
        io.set_deadline(on, Some(io.now() + self.target.timeout));
        connection.channel.send(io, on, bytes, &mut self.scratch);
    }

    fn under_tls(&mut self, io: &mut impl Io, on: Token, bytes: &[u8]) {
        let mut scratch = std::mem::take(&mut self.scratch);
        let connection = &mut self.connections[on.slot() as usize];
        let handshaking = connection.channel.is_handshaking();
        match connection.channel.receive(io, on, bytes, &mut scratch) {
            Ok((handshake, state)) => {
                if let Handshake::Over { resumed } = handshake {
                    self.handshakes.count(resumed);
                    self.is_made(io, on);
                }
                if !scratch.plain.is_empty() && self.owns(on) {
                    self.hear(io, on, &scratch.plain);
                }
                if state == State::Closed && self.owns(on) {
                    self.lose(io, on, Why::Text("the server closes it"));
                }
            }
            Err(error) => {
                self.handshakes.failed += u64::from(handshaking);
                self.lose(io, on, Why::Text(&error.to_string()));
            }
        }
        self.scratch = scratch;
    }

    fn hear(&mut self, io: &mut impl Io, on: Token, bytes: &[u8]) {
        let connection = &mut self.connections[on.slot() as usize];
        // What comes unasked, such as a farewell, changes nothing: it is still held.
        let Some(reply) = &mut connection.reply else { return };
        match reply.feed(bytes, self.workload.message(0).method, |_| ()) {
            Ok(None) => {}
            Ok(Some(done)) => {
                self.counts.replies += 1;
                if done.keep_alive {
                    self.hold(io, on);
                } else {
                    self.lose(io, on, Why::Text("the server does not keep it"));
                }
            }
            Err(malformed) => self.lose(io, on, Why::Text(&malformed.to_string())),
        }
    }

    fn hold(&mut self, io: &mut impl Io, on: Token) {
        let random = &mut self.random;
        let next = self.think.as_ref().map(|think| io.now() + think.sample(random));
        io.set_deadline(on, next);
        let connection = &mut self.connections[on.slot() as usize];
        connection.reply = None;
        if connection.held.is_some() {
            return;
        }
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
