//! The state of a connection that carries requests.

use std::collections::VecDeque;

use hearken::Token;
use hearken::timer::Time;

use crate::channel::Channel;
use crate::cookies::CookieJar;
use crate::http2::Streams;
use crate::reply::Reply;
use crate::workload::{ReplyCheck, SessionState};

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    /// The token, or `None` if the slot is unused.
    pub(crate) token: Option<Token>,
    pub(crate) stage: Stage,
    /// Time at which the connection attempt began.
    pub(crate) opened_at: Time,
    /// Time from which the timeout of the requests in flight runs: when they were sent, or when the
    /// connection attempt for them began.
    pub(crate) issued_at: Time,
    /// Time after which no further request is sent.
    pub(crate) expires_at: Time,
    /// Number of replies so far.
    pub(crate) reply_count: u32,
    /// Number of requests that the connection may still carry.
    pub(crate) remaining_requests: u32,
    /// The session, if requests follow one another.
    pub(crate) script: Option<SessionState>,
    /// Cookies of the session, if it sends any.
    pub(crate) cookies: Option<Box<CookieJar>>,
    /// The next action, once the connection is ready for it.
    pub(crate) next: NextAction,
    pub(crate) in_flight: InFlight,
    /// Whether the reply to the oldest request has not begun.
    pub(crate) awaits_first_byte: bool,
    pub(crate) reply: Reply,
    pub(crate) check: Option<ReplyCheck>,
    pub(crate) channel: Channel,
    /// The requests in flight over HTTP/2, in place of `in_flight`, `reply` and `check`.
    pub(crate) streams: Option<Box<Streams>>,
}

/// The stage of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Stage {
    /// The connection is being opened, including its TLS handshake.
    #[default]
    Connecting,
    /// The connection waits for a request.
    Available,
    /// The connection waits for replies.
    AwaitingReply,
    /// The connection waits until its next request is due.
    Thinking,
    /// The session is complete and the connection stays open until its lifetime expires.
    Holding,
}

/// The next action of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum NextAction {
    #[default]
    Nothing,
    /// Send this message, scheduled at this time.
    Message(Time, u32),
    /// Send this number of requests of the script.
    Burst {
        due: Time,
        messages: u32,
        /// Whether the requests are already counted as scheduled.
        counted: bool,
    },
}

impl NextAction {
    /// Returns the number of requests that are counted as scheduled.
    pub(crate) fn counted(&self) -> u64 {
        match *self {
            NextAction::Message(..) => 1,
            NextAction::Burst { messages, counted: true, .. } => messages.into(),
            NextAction::Nothing | NextAction::Burst { .. } => 0,
        }
    }

    /// Returns the number of requests that are not yet counted as scheduled.
    pub(crate) fn uncounted(&self) -> u64 {
        match *self {
            NextAction::Burst { messages, counted: false, .. } => messages.into(),
            NextAction::Nothing | NextAction::Message(..) | NextAction::Burst { .. } => 0,
        }
    }

    /// Returns the scheduled time, if the requests are counted.
    pub(crate) fn scheduled(&self) -> Option<Time> {
        match *self {
            NextAction::Message(scheduled, _) => Some(scheduled),
            NextAction::Burst { due, counted: true, .. } => Some(due),
            NextAction::Nothing | NextAction::Burst { .. } => None,
        }
    }
}

/// A request in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) scheduled: Time,
    pub(crate) sent: Time,
    pub(crate) message: u32,
}

/// The requests in flight, oldest first. Usually there is one.
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

    /// Returns an iterator over the requests, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Request> {
        self.first.iter().chain(&self.rest)
    }

    pub(crate) fn clear(&mut self) {
        self.first = None;
        self.rest.clear();
    }
}

impl Connection {
    /// Creates the connection of an unused slot.
    pub(crate) fn unused() -> Connection {
        Connection {
            token: None,
            stage: Stage::Connecting,
            opened_at: Time::from_nanos(0),
            issued_at: Time::from_nanos(0),
            expires_at: Time::from_nanos(0),
            reply_count: 0,
            remaining_requests: 0,
            script: None,
            cookies: None,
            next: NextAction::Nothing,
            in_flight: InFlight::default(),
            awaits_first_byte: false,
            reply: Reply::default(),
            check: None,
            channel: Channel::default(),
            streams: None,
        }
    }

    /// Returns the number of requests that are counted as scheduled and have no reply.
    pub(crate) fn outstanding(&self) -> u64 {
        let streams = self.streams.as_ref().map_or(0, |streams| streams.outstanding());
        self.in_flight.len() + streams + self.next.counted()
    }

    /// Returns an iterator over the requests without an outcome, except those of the next action.
    pub(crate) fn requests(&self) -> impl Iterator<Item = &Request> {
        self.in_flight.iter().chain(self.streams.iter().flat_map(|streams| streams.requests()))
    }

    /// Removes all requests without an outcome and returns their number. With `keeps_refused`, requests
    /// that the server refused without processing them remain in `streams` to be sent again.
    pub(crate) fn remove_failed(&mut self, keeps_refused: bool) -> u64 {
        let before = self.outstanding();
        if let Some(streams) = &mut self.streams {
            streams.remove_failed(keeps_refused);
        }
        self.in_flight.clear();
        self.next = NextAction::Nothing;
        before - self.outstanding()
    }
}
