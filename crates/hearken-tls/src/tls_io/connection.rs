//! The state of a connection under TLS.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

use hearken::Token;
use hearken::io::{Body, Buffer, CompletionKind, Outgoing};
use hearken::timer::Time;

use crate::session::Session;

/// A connection under TLS. An idle one holds no buffers.
pub(super) struct Connection {
    pub(super) token: Token,
    pub(super) session: Session,
    pub(super) phase: Phase,
    /// Received bytes of an incomplete message.
    pub(super) incoming: Vec<u8>,
    /// Decrypted content that is not reported yet.
    pub(super) received: VecDeque<Buffer>,
    pub(super) receiving: Receiving,
    /// Whether the caller has started it.
    pub(super) is_started: bool,
    /// Whether the transport receives.
    pub(super) is_receiving: bool,
    pub(super) sends: Sends,
    pub(super) closing: Closing,
    /// The result of the connect and the handshake, until it is reported.
    pub(super) connected: Option<io::Result<()>>,
    /// State of the handshake, until it is complete.
    pub(super) handshake: Option<Box<Handshake>>,
    /// The queues that contain the connection.
    pub(super) queued: Queued,
}

/// The stage of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// The transport is not connected yet.
    Connecting,
    /// The handshake is in progress.
    Handshake,
    /// The handshake is complete.
    Open,
    /// The connect or the session failed.
    Failed,
}

/// The state of the peer's sending side.
#[derive(Debug)]
pub(super) enum Receiving {
    Open,
    /// An end that is not reported yet, with an error or by `close_notify`.
    Ended(Result<(), io::Error>),
    /// The end is reported.
    Over,
}

/// The state of this sending side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Closing {
    Open,
    /// `close_notify` follows when the handshake is complete.
    Requested,
    /// The transport has not taken all of `close_notify` yet, and is shut down afterwards.
    Notifying,
    /// `close_notify` is sent, or cannot be sent.
    Done,
    /// The caller has closed the connection, and the transport is closed when it has taken
    /// `close_notify`.
    Lingering,
}

/// The state of a handshake.
#[derive(Debug)]
pub(super) struct Handshake {
    /// The time at which it fails.
    pub(super) ends: Time,
    /// The deadline that the caller has set.
    pub(super) deadline: Option<Time>,
    /// Counts the handshake while it exists, if it is one of a server.
    pub(super) _open: Option<Rc<()>>,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Queued {
    pub(super) ready: bool,
    pub(super) transfers: bool,
    pub(super) handshakes: bool,
}

/// Sends of a connection.
#[derive(Default)]
pub(super) struct Sends {
    /// Sends that are not completely encrypted.
    pub(super) queue: VecDeque<Outgoing>,
    /// Number of operations that the transport has not completed.
    pub(super) in_flight: u32,
    /// Number of sends that are encrypted and end with an operation in flight.
    pub(super) encrypted: u32,
    /// Number of completed sends that are not reported.
    pub(super) completed: u32,
    /// The error that failed the connection's sending side.
    pub(super) error: Option<io::Error>,
    /// Whether the error must be reported.
    pub(super) is_failing: bool,
    pub(super) has_failed: bool,
    /// Whether the transport closes the connection after the operation in flight.
    pub(super) closes: bool,
    /// Number of bytes of content that were encrypted.
    pub(super) content_bytes: u64,
    /// Number of bytes that were passed to the transport.
    pub(super) wire_bytes: u64,
    /// The last reported number of delivered bytes.
    pub(super) delivered: Cell<u64>,
}

impl Sends {
    /// Returns whether sends are incomplete.
    pub(super) fn has_incomplete(&self) -> bool {
        self.encrypted > 0 || !self.queue.is_empty()
    }

    /// Fails the incomplete sends and all later ones.
    pub(super) fn fail(&mut self, error: io::Error) {
        if !self.has_failed {
            self.has_failed = true;
            self.is_failing = self.has_incomplete();
            self.error = Some(error);
        }
        self.encrypted = 0;
        self.queue = VecDeque::new();
    }

    /// Fails the sends that are not completely encrypted, and all later ones.
    pub(super) fn fail_queued(&mut self, error: io::Error) {
        let encrypted = std::mem::take(&mut self.encrypted);
        self.fail(error);
        self.encrypted = encrypted;
    }

    /// Fails a new send because an earlier one failed. Returns whether that must be reported.
    pub(super) fn fail_new(&mut self) -> bool {
        let is_first = self.error.is_some() && !self.is_failing;
        self.is_failing |= is_first;
        is_first
    }

    /// Returns whether the failure is the next to be reported.
    fn reports_failure(&self) -> bool {
        self.is_failing && self.encrypted == 0
    }

    /// Returns the number of bytes of a send at the front of the queue.
    pub(super) fn next_length(&self) -> u64 {
        self.queue.front().map_or(0, remaining)
    }
}

/// Returns the number of bytes that a send still has.
pub(super) fn remaining(outgoing: &Outgoing) -> u64 {
    let body = match &outgoing.body {
        Body::None => 0,
        Body::Bytes(bytes) => bytes.len() as u64,
        Body::File(part) => part.length,
    };
    outgoing.head.len() as u64 + body
}

impl Connection {
    pub(super) fn new(token: Token, session: Session, phase: Phase) -> Box<Connection> {
        Box::new(Connection {
            token,
            session,
            phase,
            incoming: Vec::new(),
            received: VecDeque::new(),
            receiving: Receiving::Open,
            is_started: false,
            is_receiving: false,
            sends: Sends::default(),
            closing: Closing::Open,
            connected: None,
            handshake: None,
            queued: Queued::default(),
        })
    }

    /// Returns whether nothing is reported because the connection is not established yet.
    fn is_connecting(&self) -> bool {
        self.session.is_client() && matches!(self.phase, Phase::Connecting | Phase::Handshake)
    }

    /// Takes the next completion that can be reported.
    pub(super) fn take_completion(&mut self) -> Option<CompletionKind> {
        if self.closing == Closing::Lingering {
            return None;
        }
        if let Some(result) = self.connected.take() {
            return Some(CompletionKind::Connected(result));
        }
        if self.is_connecting() {
            return None;
        }
        if self.sends.completed > 0 {
            self.sends.completed -= 1;
            return Some(CompletionKind::Sent(Ok(())));
        }
        if self.sends.reports_failure() {
            self.sends.is_failing = false;
            let error = self.sends.error.take();
            let error = error.unwrap_or_else(|| io::ErrorKind::BrokenPipe.into());
            return Some(CompletionKind::Sent(Err(error)));
        }
        if !self.is_started {
            return None;
        }
        if let Some(buffer) = self.received.pop_front() {
            if self.received.is_empty() {
                self.received = VecDeque::new();
            }
            return Some(CompletionKind::Received(buffer));
        }
        match std::mem::replace(&mut self.receiving, Receiving::Over) {
            Receiving::Ended(Ok(())) => Some(CompletionKind::End),
            Receiving::Ended(Err(error)) => Some(CompletionKind::ReceiveFailed(error)),
            Receiving::Open => {
                self.receiving = Receiving::Open;
                None
            }
            Receiving::Over => None,
        }
    }

    /// Returns whether [`take_completion`](Connection::take_completion) returns one.
    pub(super) fn has_completion(&self) -> bool {
        if self.closing == Closing::Lingering {
            return false;
        }
        if self.connected.is_some() {
            return true;
        }
        if self.is_connecting() {
            return false;
        }
        self.sends.completed > 0
            || self.sends.reports_failure()
            || self.is_started
                && (!self.received.is_empty() || matches!(self.receiving, Receiving::Ended(_)))
    }
}
