//! What is known of a connection that carries requests.

use std::collections::VecDeque;

use hearken::Token;
use hearken::timer::Time;

use crate::channel::Channel;
use crate::reply::Reply;
use crate::workload::{Check, Script};

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    /// `None` if the slot is not ours.
    pub(crate) token: Option<Token>,
    pub(crate) stage: Stage,
    /// When it was begun, and until when it may be used.
    pub(crate) opened_at: Time,
    pub(crate) expires_at: Time,
    /// Replies so far, and how many more it may carry.
    pub(crate) reply_count: u32,
    pub(crate) remaining_requests: u32,
    /// What is to be asked on it, if that is one thing after another.
    pub(crate) script: Option<Script>,
    /// What is asked next, once it can be.
    pub(crate) next: NextAction,
    pub(crate) in_flight: InFlight,
    /// The reply to the oldest request has not begun.
    pub(crate) awaits_first_byte: bool,
    pub(crate) reply: Reply,
    pub(crate) check: Option<Check>,
    pub(crate) channel: Channel,
}

/// How far a connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Stage {
    /// It is being made, with TLS to the end of the handshake.
    #[default]
    Connecting,
    /// It waits for something to be asked.
    Available,
    /// It waits for replies.
    AwaitingReply,
    /// It waits until the next request is due.
    Thinking,
    /// It has nothing more to ask, and is held.
    Holding,
}

/// What is asked next.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum NextAction {
    #[default]
    Nothing,
    /// This message, intended then.
    Message(Time, u32),
    /// So many of the script's.
    Burst {
        due: Time,
        messages: u32,
        /// They count as intended already.
        counted: bool,
    },
}

impl NextAction {
    /// How many requests of it count as intended.
    pub(crate) fn counted(&self) -> u64 {
        match *self {
            NextAction::Message(..) => 1,
            NextAction::Burst { messages, counted: true, .. } => messages.into(),
            NextAction::Nothing | NextAction::Burst { .. } => 0,
        }
    }

    /// How many do not yet count as intended.
    pub(crate) fn uncounted(&self) -> u64 {
        match *self {
            NextAction::Burst { messages, counted: false, .. } => messages.into(),
            NextAction::Nothing | NextAction::Message(..) | NextAction::Burst { .. } => 0,
        }
    }

    /// When it was intended, if it counts.
    pub(crate) fn scheduled(&self) -> Option<Time> {
        match *self {
            NextAction::Message(scheduled, _) => Some(scheduled),
            NextAction::Burst { due, counted: true, .. } => Some(due),
            NextAction::Nothing | NextAction::Burst { .. } => None,
        }
    }
}

/// A request under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) scheduled: Time,
    pub(crate) sent: Time,
    pub(crate) message: u32,
}

/// The requests under way, oldest first. Most often there is one.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    first: Option<Request>,
    rest: VecDeque<Request>,
}

impl InFlight {
    pub(crate) fn first(&self) -> Option<&Request> {
        self.first.as_ref()
    }

    pub(crate) fn push(&mut self, request: Request) {
        match self.first {
            None => self.first = Some(request),
            Some(_) => self.rest.push_back(request),
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Request> {
        std::mem::replace(&mut self.first, self.rest.pop_front())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(crate) fn len(&self) -> u64 {
        u64::from(self.first.is_some()) + self.rest.len() as u64
    }

    pub(crate) fn clear(&mut self) {
        self.first = None;
        self.rest.clear();
    }
}

impl Connection {
    /// One that is nobody's yet.
    pub(crate) fn unused() -> Connection {
        Connection {
            token: None,
            stage: Stage::Connecting,
            opened_at: Time::from_nanos(0),
            expires_at: Time::from_nanos(0),
            reply_count: 0,
            remaining_requests: 0,
            script: None,
            next: NextAction::Nothing,
            in_flight: InFlight::default(),
            awaits_first_byte: false,
            reply: Reply::default(),
            check: None,
            channel: Channel::default(),
        }
    }

    /// Requests that count as intended, and have no reply.
    pub(crate) fn outstanding(&self) -> u64 {
        self.in_flight.len() + self.next.counted()
    }
}
