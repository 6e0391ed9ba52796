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
    pub(crate) began: Time,
    pub(crate) until: Time,
    /// Replies so far, and how many more it may carry.
    pub(crate) served: u32,
    pub(crate) left: u32,
    /// What is to be asked on it, if that is one thing after another.
    pub(crate) script: Option<Script>,
    /// What is asked next, once it can be.
    pub(crate) next: Next,
    pub(crate) asked: Asked,
    /// The reply to the oldest request has not begun.
    pub(crate) silent: bool,
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
    Free,
    /// It waits for replies.
    Busy,
    /// It waits until the next request is due.
    Thinking,
    /// It has nothing more to ask, and is held.
    Resting,
}

/// What is asked next.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Next {
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

impl Next {
    /// How many requests of it count as intended.
    pub(crate) fn counted(&self) -> u64 {
        match *self {
            Next::Message(..) => 1,
            Next::Burst { messages, counted: true, .. } => messages.into(),
            Next::Nothing | Next::Burst { .. } => 0,
        }
    }

    /// How many do not yet count as intended.
    pub(crate) fn uncounted(&self) -> u64 {
        match *self {
            Next::Burst { messages, counted: false, .. } => messages.into(),
            Next::Nothing | Next::Message(..) | Next::Burst { .. } => 0,
        }
    }

    /// When it was intended, if it counts.
    pub(crate) fn intended(&self) -> Option<Time> {
        match *self {
            Next::Message(intended, _) => Some(intended),
            Next::Burst { due, counted: true, .. } => Some(due),
            Next::Nothing | Next::Burst { .. } => None,
        }
    }
}

/// A request under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) intended: Time,
    pub(crate) sent: Time,
    pub(crate) message: u32,
}

/// The requests under way, oldest first. Most often there is one.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    first: Option<Request>,
    behind: VecDeque<Request>,
}

impl Asked {
    pub(crate) fn first(&self) -> Option<&Request> {
        self.first.as_ref()
    }

    pub(crate) fn push(&mut self, request: Request) {
        match self.first {
            None => self.first = Some(request),
            Some(_) => self.behind.push_back(request),
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Request> {
        std::mem::replace(&mut self.first, self.behind.pop_front())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(crate) fn len(&self) -> u64 {
        u64::from(self.first.is_some()) + self.behind.len() as u64
    }

    pub(crate) fn clear(&mut self) {
        self.first = None;
        self.behind.clear();
    }
}

impl Connection {
    /// One that is nobody's yet.
    pub(crate) fn none() -> Connection {
        Connection {
            token: None,
            stage: Stage::Connecting,
            began: Time::from_nanos(0),
            until: Time::from_nanos(0),
            served: 0,
            left: 0,
            script: None,
            next: Next::Nothing,
            asked: Asked::default(),
            silent: false,
            reply: Reply::default(),
            check: None,
            channel: Channel::default(),
        }
    }

    /// Requests that count as intended, and have no reply.
    pub(crate) fn outstanding(&self) -> u64 {
        self.asked.len() + self.next.counted()
    }
}
