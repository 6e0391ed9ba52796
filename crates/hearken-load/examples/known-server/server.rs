//! A single-threaded server on `Io` that answers requests as the [model](Model) says.
//!
//! An empty line ends a request. Request bodies are not supported.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fmt, io};

use hearken::Token;
use hearken::io::readiness::{Policy, ReadinessIo};
use hearken::io::{Address, CompletionKind, Io, ListenOptions};
use hearken::mechanism::{self, Open, SelectError, Visitor};
use hearken::timer::Time;
use serde_json::{Value, json};

use crate::behaviour::{Behaviour, Model, Outcome};

const END: &[u8] = b"\r\n\r\n";
/// Interval at which the server checks whether to stop.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Time without accepting after an error such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// Counts of connections and requests.
#[derive(Debug, Default)]
struct Counts {
    accepted: u64,
    accept_failed: u64,
    received: u64,
    answered: u64,
    failed_status: u64,
    dropped: u64,
    closed: u64,
    /// Requests of which the server had too many.
    rejected: u64,
}

/// A connection by the slot of its token.
#[derive(Clone, Copy, Debug, Default)]
struct Connection {
    token: Option<Token>,
    /// Number of bytes of the empty line received so far.
    matched: usize,
}

/// The connections by the slots of their tokens.
#[derive(Debug, Default)]
struct Connections {
    slots: Vec<Connection>,
    open: usize,
    most_open: usize,
}

impl Connections {
    fn add(&mut self, token: Token) {
        let slot = token.slot() as usize;
        if slot >= self.slots.len() {
            self.slots.resize(slot + 1, Connection::default());
        }
        self.slots[slot] = Connection { token: Some(token), matched: 0 };
        self.open += 1;
        self.most_open = self.most_open.max(self.open);
    }

    fn remove(&mut self, token: Token) {
        if self.contains(token) {
            self.slots[token.slot() as usize].token = None;
            self.open -= 1;
        }
    }

    fn contains(&self, token: Token) -> bool {
        self.slots.get(token.slot() as usize).is_some_and(|slot| slot.token == Some(token))
    }

    /// Returns the number of requests that end in `bytes`.
    fn requests(&mut self, token: Token, bytes: &[u8]) -> usize {
        let matched = &mut self.slots[token.slot() as usize].matched;
        let mut requests = 0;
        for &byte in bytes {
            *matched = match byte {
                byte if byte == END[*matched] => *matched + 1,
                b'\r' => 1,
                _ => 0,
            };
            if *matched == END.len() {
                *matched = 0;
                requests += 1;
            }
        }
        requests
    }
}

struct Server<I> {
    io: I,
    listener: Token,
    model: Model,
    connections: Connections,
    counts: Counts,
    accept_again_at: Option<Time>,
}

impl<I: Io> Server<I> {
    /// Serves until `stop` is set. Returns the counts.
    fn run(mut self, stop: &AtomicBool) -> io::Result<Value> {
        self.io.start(self.listener);
        while !stop.load(Ordering::Relaxed) {
            let next = self.model.next_time(|token| self.connections.contains(token));
            let limit = Time::now() + STOP_CHECK_INTERVAL;
            let until = [next, self.accept_again_at].into_iter().flatten().fold(limit, Time::min);
            self.io.wait(Some(until))?;
            while let Some(completion) = self.io.next() {
                self.handle(completion.token, completion.kind);
            }
            self.answer(Time::now());
        }
        let Counts {
            accepted,
            accept_failed,
            received,
            answered,
            failed_status,
            dropped,
            closed,
            rejected,
        } = self.counts;
        Ok(json!({
            "connections": accepted, "most_connections": self.connections.most_open,
            "accept_failed": accept_failed, "received": received, "answered": answered,
            "failed_status": failed_status, "dropped": dropped, "closed": closed,
            "rejected": rejected, "discarded": self.model.discarded,
            "waiting": self.model.in_server(),
        }))
    }

    fn handle(&mut self, token: Token, kind: CompletionKind) {
        match kind {
            CompletionKind::Accepted { token, .. } => {
                self.counts.accepted += 1;
                self.connections.add(token);
                self.io.start(token);
            }
            CompletionKind::AcceptFailed(_) => {
                self.counts.accept_failed += 1;
                self.accept_again_at = Some(Time::now() + ACCEPT_PAUSE);
            }
            CompletionKind::Received(bytes) => {
                let now = Time::now();
                for _ in 0..self.connections.requests(token, &bytes) {
                    self.counts.received += 1;
                    if !self.model.add(token, now) {
                        self.counts.rejected += 1;
                        return self.close(token);
                    }
                }
            }
            CompletionKind::End
            | CompletionKind::ReceiveFailed(_)
            | CompletionKind::Sent(Err(_)) => self.close(token),
            _ => {}
        }
    }

    fn close(&mut self, token: Token) {
        self.connections.remove(token);
        self.io.close(token);
    }

    /// Answers the requests that are due.
    fn answer(&mut self, now: Time) {
        if self.accept_again_at.is_some_and(|time| time <= now) {
            self.accept_again_at = None;
            self.io.start(self.listener);
        }
        while let Some((token, outcome)) =
            self.model.next(now, |token| self.connections.contains(token))
        {
            match outcome {
                Outcome::Reply => {
                    self.counts.answered += 1;
                    self.io.send_now(token, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
                }
                Outcome::Status(status) => {
                    self.counts.failed_status += 1;
                    let reply = format!("HTTP/1.1 {status} Known\r\nContent-Length: 2\r\n\r\nno");
                    self.io.send_now(token, reply.as_bytes());
                }
                Outcome::Drop => self.counts.dropped += 1,
                Outcome::Close => {
                    self.counts.closed += 1;
                    self.close(token);
                }
            }
        }
    }
}

/// A server to start with the mechanism that `visit` selects.
struct Start<'a, F> {
    address: Address,
    behaviour: Behaviour,
    stop: &'a AtomicBool,
    ready: F,
}

impl<F: FnOnce(std::net::SocketAddr) -> io::Result<()>> Visitor for Start<'_, F> {
    type Output = io::Result<Value>;

    fn visit<M: Open>(self, mechanism: M) -> io::Result<Value> {
        let mut io = ReadinessIo::new(mechanism, Policy::default())?;
        let listener = io.listen(&self.address, &ListenOptions::default())?;
        (self.ready)(io.local_addr(listener)?)?;
        let (connections, counts) = (Connections::default(), Counts::default());
        let model = Model::new(self.behaviour);
        Server { io, listener, model, connections, counts, accept_again_at: None }.run(self.stop)
    }
}

/// The reason why the server ended.
#[derive(Debug)]
pub(crate) enum Failure {
    Mechanism(SelectError),
    Io(io::Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Mechanism(error) => error.fmt(f),
            Failure::Io(error) => error.fmt(f),
        }
    }
}

/// Listens on `address`, calls `ready` with the bound address, and serves until `stop` is set. Returns
/// the counts.
pub(crate) fn run(
    address: Address,
    behaviour: Behaviour,
    stop: &AtomicBool,
    ready: impl FnOnce(std::net::SocketAddr) -> io::Result<()>,
) -> Result<Value, Failure> {
    mechanism::visit("epoll-edge", Start { address, behaviour, stop, ready })
        .map_err(Failure::Mechanism)?
        .map_err(Failure::Io)
}
