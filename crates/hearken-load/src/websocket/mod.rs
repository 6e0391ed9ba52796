//! WebSocket connections at the side of the load (RFC 6455). The crate `tungstenite` implements the
//! protocol; this module connects it to the event loop.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use hearken::Token;
use hearken::io::{Completion, Io};
use hearken::timer::Time;
use tungstenite::protocol::{Role, WebSocketConfig, WebSocketContext};
use tungstenite::{Bytes, Error, Message};

use crate::population::{Loss, Population};
use crate::shard::Shard;
use crate::target::Target;

mod handshake;
mod mask;
mod options;
mod report;
mod stamp;

pub(crate) use handshake::HandshakeRequest;
pub use options::{WebSocketMode, WebSocketOptions};
pub use report::WebSockets;

use handshake::Handshake;
use stamp::{STAMP_SIZE, Tag};

/// Maximum size of a message in bytes, in both directions.
const MAX_MESSAGE_SIZE: usize = 1 << 20;

/// Size in bytes of the read buffer of each connection, which it holds while it is idle.
const READ_BUFFER_SIZE: usize = 128;

/// The settings that all WebSocket connections of a run share.
#[derive(Debug)]
pub(crate) struct WebSocketPlan {
    pub(crate) options: WebSocketOptions,
    pub(crate) request: HandshakeRequest,
    /// A number that identifies the messages of this process.
    pub(crate) tag: u64,
}

/// The WebSocket connections of a thread.
#[derive(Debug)]
pub(crate) struct WebSocketConnections {
    pub(crate) population: Population<Stage>,
    results: WebSockets,
    plan: Arc<WebSocketPlan>,
    tag: Tag,
    /// The rest of a message after its stamp.
    padding: String,
    /// Whether a connection of this thread sends the broadcasts.
    broadcasts: bool,
    /// The connection that sends the broadcasts.
    sender: Option<Token>,
    random: fastrand::Rng,
    received: Vec<u8>,
    outgoing: Vec<u8>,
}

/// The stage of a connection.
#[derive(Debug, Default)]
pub(crate) enum Stage {
    #[default]
    Connecting,
    Handshake(Box<Handshake>),
    Open(Box<OpenConnection>),
}

/// A connection after its handshake.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    context: WebSocketContext,
    /// Time of the next ping or message, if there is one.
    next_message: Option<Time>,
    /// Whether that message waits for the transport.
    blocked: bool,
    /// Number of pings or messages without an answer.
    unanswered: u32,
    /// Time since which an answer is overdue: of the oldest message without an answer, or of the last
    /// answer.
    waiting_since: Time,
}

/// Received bytes, and the bytes to send.
struct Memory<'a> {
    input: &'a [u8],
    output: &'a mut Vec<u8>,
}

impl Read for Memory<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.input.is_empty() {
            true => Err(io::ErrorKind::WouldBlock.into()),
            false => self.input.read(buffer),
        }
    }
}

impl Write for Memory<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.output.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl WebSocketConnections {
    /// Creates the set of `count` connections of a thread. One of them sends broadcasts if
    /// `broadcasts` is set.
    pub(crate) fn new(
        target: Target,
        plan: &Arc<WebSocketPlan>,
        count: usize,
        broadcasts: bool,
        share: Shard,
        seed: u64,
    ) -> WebSocketConnections {
        let options = &plan.options;
        WebSocketConnections {
            population: Population::new(target, count, Duration::ZERO),
            results: WebSockets { mode: options.mode, ..WebSockets::default() },
            plan: plan.clone(),
            tag: Tag::new(plan.tag),
            padding: ".".repeat(options.size.saturating_sub(STAMP_SIZE)),
            broadcasts: broadcasts && options.mode == WebSocketMode::Broadcast,
            sender: None,
            random: fastrand::Rng::with_seed(share.derive_seed(seed.rotate_left(16))),
            received: Vec::new(),
            outgoing: Vec::new(),
        }
    }

    /// Opens some of the remaining connections. Returns true if more can be opened immediately.
    pub(crate) fn open_some(&mut self, io: &mut impl Io) -> bool {
        let failures = &mut self.results.handshake_failures;
        self.population.open_some(io, |error| failures.record(&error.to_string()))
    }

    /// Returns the results so far.
    pub(crate) fn results(&self) -> WebSockets {
        let counts = self.population.counts;
        WebSockets {
            requested: counts.requested,
            open: counts.open,
            lost: counts.lost,
            reestablished: counts.reestablished,
            latency_ns: self.results.latency.quantiles(),
            ..self.results.clone()
        }
    }

    /// Handles a completion on one of the connections.
    pub(crate) fn on_completion(&mut self, io: &mut impl Io, completion: Completion) {
        let token = completion.token;
        let mut received = std::mem::take(&mut self.received);
        let events = self.population.on_completion(io, completion, &mut received);
        if events.connected {
            let (handshake, request) = self.plan.request.begin(&mut self.random);
            *self.population.state(token) = Stage::Handshake(Box::new(handshake));
            self.population.send(io, token, &request);
        }
        let mut result = match self.population.state(token) {
            _ if received.is_empty() => Ok(()),
            Stage::Connecting => Ok(()),
            Stage::Handshake(_) => self.receive_handshake(io, token, &received),
            Stage::Open(_) => self.receive(io, token, &received),
        };
        if result.is_ok() && events.sent {
            self.resume(io, token);
        }
        if result.is_ok() && events.deadline {
            result = self.on_deadline(io, token);
        }
        if let Err(loss) = result.and(events.end.map_or(Ok(()), Err)) {
            self.lose(io, token, &loss);
        }
        self.received = received;
    }

    fn receive_handshake(
        &mut self,
        io: &mut impl Io,
        token: Token,
        bytes: &[u8],
    ) -> Result<(), Loss> {
        let Stage::Handshake(handshake) = self.population.state(token) else { return Ok(()) };
        let rest = handshake.receive(bytes).map_err(|reason| Loss::Other(reason.into()))?;
        let Some(rest) = rest else { return Ok(()) };
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER_SIZE)
            .write_buffer_size(0)
            .max_message_size(Some(MAX_MESSAGE_SIZE))
            .max_frame_size(Some(MAX_MESSAGE_SIZE));
        self.population.establish(io, token);
        let next_message = self.first_message(io.now(), token);
        *self.population.state(token) = Stage::Open(Box::new(OpenConnection {
            context: WebSocketContext::new(Role::Client, Some(config)),
            next_message,
            blocked: false,
            unanswered: 0,
            waiting_since: io.now(),
        }));
        io.set_deadline(token, next_message);
        self.receive(io, token, &rest)
    }

    /// Returns the time of the first message of a connection. Random times distribute the messages of
    /// all connections evenly.
    fn first_message(&mut self, now: Time, token: Token) -> Option<Time> {
        let every = self.plan.options.every?;
        if self.plan.options.mode == WebSocketMode::Broadcast {
            // A lost sender is replaced by the next connection that is established.
            if !self.broadcasts || self.sender.is_some() {
                return None;
            }
            self.sender = Some(token);
        }
        Some(now + every.mul_f64(self.random.f64()))
    }

    /// Handles received frames, and sends the answers to pings and to a close frame.
    fn receive(&mut self, io: &mut impl Io, token: Token, bytes: &[u8]) -> Result<(), Loss> {
        let Stage::Open(connection) = self.population.state(token) else { return Ok(()) };
        let mut memory = Memory { input: bytes, output: &mut self.outgoing };
        let mut closed = false;
        let result = loop {
            match connection.context.read(&mut memory) {
                Ok(Message::Ping(_)) => self.results.pings_received += 1,
                Ok(Message::Pong(payload)) => {
                    self.results.pongs_received += 1;
                    connection.on_answer(io, self.tag, &payload, &mut self.results);
                }
                Ok(Message::Close(_)) => closed = true,
                Ok(message) => {
                    self.results.messages_received += 1;
                    let payload = message.into_data();
                    match self.results.mode {
                        WebSocketMode::Echo => {
                            connection.on_answer(io, self.tag, &payload, &mut self.results);
                        }
                        WebSocketMode::Broadcast if self.sender != Some(token) => {
                            record(io, self.tag, &payload, &mut self.results);
                        }
                        WebSocketMode::Idle | WebSocketMode::Broadcast => {}
                    }
                }
                Err(Error::Io(_)) => break connection.context.flush(&mut memory),
                Err(error) => break Err(error),
            }
        };
        self.flush(io, token);
        match result {
            _ if closed => Err(Loss::Closed),
            Ok(()) => Ok(()),
            Err(error) => Err(Loss::Other(error.to_string().into())),
        }
    }

    /// Sends the bytes that the protocol has produced.
    fn flush(&mut self, io: &mut impl Io, token: Token) {
        if !self.outgoing.is_empty() {
            mask::replace_masks(&mut self.outgoing, &mut self.random);
            self.population.send(io, token, &self.outgoing);
            self.outgoing.clear();
        }
    }

    /// Sends the message that waited for the transport, if there is one.
    fn resume(&mut self, io: &mut impl Io, token: Token) {
        if let Stage::Open(connection) = self.population.state(token)
            && connection.blocked
        {
            // Its time includes the wait, because the server caused it.
            let scheduled = connection.next_message;
            let stamped = scheduled.unwrap_or_else(|| io.clock());
            self.send_message(io, token, stamped);
        }
    }

    /// Sends the message that is due, or ends a connection without an answer.
    fn on_deadline(&mut self, io: &mut impl Io, token: Token) -> Result<(), Loss> {
        let (timeout, sending) = (self.population.timeout(), self.population.is_sending(token));
        let Stage::Open(connection) = self.population.state(token) else { return Ok(()) };
        let now = io.now();
        if connection.unanswered > 0 && now >= connection.waiting_since + timeout {
            return Err(Loss::TimedOut);
        }
        if connection.next_message.is_some_and(|at| at <= now) {
            if sending {
                connection.blocked = true;
            } else {
                self.send_message(io, token, io.clock());
                return Ok(());
            }
        }
        self.set_deadline(io, token);
        Ok(())
    }

    /// Sends a ping or a message with the time `stamped`, and schedules the next one.
    fn send_message(&mut self, io: &mut impl Io, token: Token, stamped: Time) {
        let Stage::Open(connection) = self.population.state(token) else { return };
        let stamp = self.tag.stamp(stamped);
        let options = &self.plan.options;
        let message = match options.mode {
            WebSocketMode::Idle => {
                self.results.pings_sent += 1;
                Message::Ping(stamp.into())
            }
            WebSocketMode::Echo | WebSocketMode::Broadcast => {
                self.results.messages_sent += 1;
                let text = stamp + &self.padding;
                if options.binary { Message::Binary(text.into()) } else { Message::text(text) }
            }
        };
        if options.mode != WebSocketMode::Broadcast {
            if connection.unanswered == 0 {
                connection.waiting_since = stamped;
            }
            connection.unanswered = connection.unanswered.saturating_add(1);
        }
        connection.blocked = false;
        // After a delay, do not catch up in a burst.
        let next = connection.next_message.zip(options.every).map(|(at, gap)| at + gap);
        connection.next_message = next.map(|next| next.max(io.now()));
        let mut memory = Memory { input: &[], output: &mut self.outgoing };
        // Writing to memory fails only after a close frame. The connection is then about to end.
        let _ = connection.context.write(&mut memory, message);
        self.flush(io, token);
        self.set_deadline(io, token);
    }

    fn set_deadline(&mut self, io: &mut impl Io, token: Token) {
        let timeout = self.population.timeout();
        let Stage::Open(connection) = self.population.state(token) else { return };
        let next = connection.next_message.filter(|_| !connection.blocked);
        let overdue = (connection.unanswered > 0).then(|| connection.waiting_since + timeout);
        io.set_deadline(token, [next, overdue].into_iter().flatten().min());
    }

    /// Closes a connection. It will be replaced.
    fn lose(&mut self, io: &mut impl Io, token: Token, loss: &Loss) {
        let established = self.population.is_established(token);
        if self.sender == Some(token) {
            self.sender = None;
        }
        let reasons = match established {
            true => &mut self.results.loss_reasons,
            false => &mut self.results.handshake_failures,
        };
        reasons.record(&loss.reason());
        self.population.close(io, token, true);
    }

    /// Starts the close handshake of all connections, which are no longer replaced.
    pub(crate) fn close(&mut self, io: &mut impl Io) {
        self.population.stop();
        for token in self.population.tokens() {
            let mut memory = Memory { input: &[], output: &mut self.outgoing };
            if let Stage::Open(connection) = self.population.state(token) {
                connection.next_message = None;
                let _ = connection.context.close(&mut memory, None);
                self.flush(io, token);
                io.set_deadline(token, None);
            } else {
                self.population.close(io, token, false);
            }
        }
    }
}

impl OpenConnection {
    /// Records an answer to one of the messages.
    fn on_answer(&mut self, io: &impl Io, tag: Tag, payload: &Bytes, results: &mut WebSockets) {
        if let Some(now) = record(io, tag, payload, results) {
            self.unanswered = self.unanswered.saturating_sub(1);
            self.waiting_since = now;
        }
    }
}

/// Records the time since a message was sent. Returns the current time, or `None` for a message of
/// another origin.
fn record(io: &impl Io, tag: Tag, payload: &Bytes, results: &mut WebSockets) -> Option<Time> {
    let sent = tag.time_in(payload)?;
    let now = io.clock();
    results.latency.record(now.duration_since(sent));
    Some(now)
}
