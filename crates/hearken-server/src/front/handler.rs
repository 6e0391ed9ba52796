//! The interface between the front and handlers: requests in, responses out.

use std::io;
use std::net::SocketAddr;

use hearken::Token;
use hearken::io::{Body, Completion, Io};
use hearken::timer::Time;
use hearken_http::h2::StreamId;
use hearken_http::{DateCache, Request};

use super::Front;
use super::request::RequestId;
use super::transport::Transport;
use crate::runtime::access_log::Outcome;

/// A handler of requests.
///
/// A handler never sees a client connection. In [`on_request`](Handler::on_request), it responds
/// immediately with [`Incoming::respond`], or stores the [`RequestId`] with [`Incoming::defer`] and
/// responds later through [`Context::front`], at once or as a stream. A deferred request ends with
/// [`Front::finish`], [`Front::respond_error`] or [`Front::abort`], or with
/// [`on_cancelled`](Handler::on_cancelled).
pub(crate) trait Handler<T: Transport> {
    /// Whether the handler opens connections.
    const CONNECTS: bool = false;

    /// Whether the oldest connection is closed for a new one at the connection limit if no
    /// connection is idle. Otherwise new connections wait.
    const CLOSES_OLDEST: bool = false;

    /// Answers or defers a request whose head was received.
    fn on_request(&mut self, incoming: Incoming<'_, T>, request: &Request<'_>) -> Handled;

    /// Handles received bytes of a tunnel or of a body, in the framing of the request head.
    fn on_body(&mut self, cx: &mut Context<'_, T>, request: Deferred, bytes: &[u8]) -> Flow {
        let _ = (cx, request, bytes);
        Flow::Continue
    }

    /// Handles the start of a relay: the transport moves further bytes of a body or tunnel.
    fn on_relay_started(&mut self, cx: &mut Context<'_, T>, request: Deferred) {
        let _ = (cx, request);
    }

    /// Handles the end of a relay whose destination failed.
    fn on_relay_failed(&mut self, cx: &mut Context<'_, T>, request: Deferred) {
        let _ = (cx, request);
    }

    /// Handles a client that closed its sending side of a tunnel.
    fn on_tunnel_ended(&mut self, cx: &mut Context<'_, T>, request: Deferred) {
        let _ = (cx, request);
    }

    /// Handles the completion of all sends to the client.
    fn on_drained(&mut self, cx: &mut Context<'_, T>, request: Deferred) {
        let _ = (cx, request);
    }

    /// Handles the expiry of the timer that the handler set for the request.
    fn on_timer(&mut self, cx: &mut Context<'_, T>, request: Deferred) {
        let _ = (cx, request);
    }

    /// Handles the cancellation of a request: the client disconnected, was too slow, or sent a
    /// malformed body, or a timeout expired. The front ends the request.
    fn on_cancelled(&mut self, cx: &mut Context<'_, T>, request: Deferred) {
        let _ = (cx, request);
    }

    /// Handles bytes received on a connection that the handler opened.
    fn on_own_received(&mut self, cx: &mut Context<'_, T>, owner: (u32, u32), bytes: &[u8]) {
        let _ = (cx, owner, bytes);
    }

    /// Handles another completion of a connection that the handler opened.
    fn on_own_completion(
        &mut self,
        cx: &mut Context<'_, T>,
        owner: (u32, u32),
        completion: Completion,
    ) {
        let _ = (cx, owner, completion);
    }

    /// Handles a wake-up of the event loop by another thread.
    fn on_woken(&mut self, cx: &mut Context<'_, T>) {
        let _ = cx;
    }

    /// Returns whether connections that the handler opened have something to send at the end of the turn.
    fn has_pending(&self) -> bool {
        false
    }

    /// Sends what connections that the handler opened have to send at the end of the turn.
    fn flush(&mut self, cx: &mut Context<'_, T>) {
        let _ = cx;
    }

    /// Begins a turn of the event loop.
    fn begin_turn(&mut self, now: Time) {
        let _ = now;
    }

    /// Ends a turn of the event loop. Returns the time by which the next turn must begin.
    fn end_turn(&mut self, now: Time) -> Option<Time> {
        let _ = now;
        None
    }

    /// Updates counters and retries queued requests. Called a few times per second while the worker
    /// is active. Returns whether to call it again even without activity.
    fn tick(&mut self, cx: &mut Context<'_, T>) -> bool {
        let _ = cx;
        false
    }

    /// Closes idle connections, because the server is stopping.
    fn close_idle(&mut self, cx: &mut Context<'_, T>) {
        let _ = cx;
    }
}

/// The front and the transport, with which a handler responds later.
pub(crate) struct Context<'a, T> {
    /// The client side of all connections.
    pub(crate) front: &'a mut Front,
    /// The transport.
    pub(crate) io: &'a mut T,
}

/// A deferred request and its handler's key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deferred {
    /// The request.
    pub(crate) id: RequestId,
    /// The handler's key.
    pub(crate) key: u32,
    /// The route that selected the handler.
    pub(crate) route: u32,
}

/// The result of [`Handler::on_request`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Handled {
    /// The response was sent or gathered, so the next request can be processed.
    Answered,
    /// No further request of the connection may be processed now.
    Stop,
    /// The response is being sent. Further requests wait.
    Sending,
    /// The handler responds later, or has responded through the front.
    Deferred,
    /// The front discards the body of at most this number of bytes, and passes the request again.
    AfterBody(u64),
}

/// The treatment of further bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Flow {
    /// The handler accepts more bytes.
    Continue,
    /// The handler accepts no bytes until [`Front::resume_body`].
    Pause,
    /// The transport relays many further bytes to this connection, if possible. Otherwise this is
    /// `Continue` if the flag is set, or else `Pause`.
    Relay(Token, bool),
}

/// A response: either complete in `ready`, or with its head in the buffer that was passed along.
#[derive(Debug)]
pub struct Answer<'s> {
    /// The complete prepared response. If empty, the response is the content of the buffer followed
    /// by `body`.
    pub ready: &'s [u8],
    /// The part of the response that follows the buffer.
    pub body: Body,
    /// Status code.
    pub status: u16,
    /// Total length of the body in bytes, including a part in the buffer; 0 if there is no body.
    pub length: u64,
}

impl Answer<'_> {
    /// Appends a prepared response to `out`.
    pub fn append_to(self, out: &mut Vec<u8>) -> Answer<'static> {
        let Answer { ready, body, status, length } = self;
        out.extend_from_slice(ready);
        Answer { ready: &[], body, status, length }
    }
}

/// A request that a handler must answer or defer.
pub(crate) struct Incoming<'a, T> {
    pub(super) front: &'a mut Front,
    pub(super) io: &'a mut T,
    pub(super) token: Token,
    pub(super) origin: Origin,
    /// The head as received.
    pub(super) head: &'a [u8],
    /// Whether the connection is kept open after the response.
    pub(super) keep_alive: bool,
    /// Bytes received after the head.
    pub(super) rest: &'a [u8],
    /// The route that selected the handler; 0 without routes.
    pub(crate) route: u32,
}

/// The place where the front got a request from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Origin {
    /// Received bytes of an idle connection.
    Connection,
    /// The table of requests, because the body was read first.
    Stored { index: u32 },
    /// A stream of an HTTP/2 connection, which the client may have ended.
    Stream { id: StreamId, is_received: bool },
}

impl<I: Io> Incoming<'_, I> {
    /// Returns the local address of the connection.
    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.local_addr(self.token)
    }
}

impl<'a, T: Transport> Incoming<'a, T> {
    /// Returns the start time of the turn.
    pub(crate) fn now(&self) -> Time {
        self.io.turn_time()
    }

    /// Returns whether the body was read and discarded.
    #[inline]
    pub(crate) fn is_body_read(&self) -> bool {
        matches!(self.origin, Origin::Stored { .. })
    }

    /// Returns the date, whether the connection is kept open, and the buffer for the head of the
    /// response.
    #[inline(always)]
    pub(crate) fn parts(&mut self) -> (&DateCache, bool, &mut Vec<u8>) {
        (&self.front.date, self.keep_alive, &mut self.front.out)
    }

    /// Answers the request.
    #[inline(always)]
    pub(crate) fn respond(self, request: &Request<'_>, answer: Answer<'_>) -> Handled {
        self.front.respond_at_once(self.io, self.token, self.origin, self.head, request, answer, {
            (self.keep_alive, !self.rest.is_empty())
        })
    }

    /// Stores the request to answer it later. `body_limit` is the maximum size of its body in bytes.
    ///
    /// # Errors
    /// The body is too long. [`Handler::on_request`] must return the error.
    pub(crate) fn defer(
        self,
        request: &Request<'_>,
        key: u32,
        body_limit: u64,
    ) -> Result<(Context<'a, T>, RequestId), Handled> {
        let Incoming { front, io, token, origin, head, rest, route, .. } = self;
        let deferred = match origin {
            Origin::Stream { id, is_received } => {
                let stream = (id, is_received);
                front.defer_stream(io, token, stream, request, (route, key), body_limit)
            }
            _ => front.defer(io, token, (head, rest), request, (route, key), body_limit),
        };
        match deferred {
            Some(id) => Ok((Context { front, io }, id)),
            None => Err(Handled::Deferred),
        }
    }

    /// Answers the request with an error.
    #[cold]
    pub(crate) fn respond_error(
        self,
        request: &Request<'_>,
        status: u16,
        message: &'static str,
    ) -> Handled {
        match self.defer(request, 0, u64::MAX) {
            Ok((cx, id)) => {
                cx.front.respond_error(cx.io, id, status, message, Outcome::Rejected);
                Handled::Deferred
            }
            Err(handled) => handled,
        }
    }
}
