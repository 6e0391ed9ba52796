//! The interface between the front and handlers: requests in, responses out.

use hearken::Token;
use hearken::io::{Body, Completion};
use hearken::timer::Time;
use hearken_http::{DateCache, Request};

use super::Front;
use super::request::RequestId;
use super::transport::Transport;
use crate::runtime::access_log::Outcome;

/// Something that answers requests.
///
/// A handler never sees a client's connection. It answers [`request`](Handler::request) at once
/// with [`Incoming::respond`], or keeps the request's [`RequestId`] with [`Incoming::defer`] and
/// answers later through [`Context::front`], in full or as a stream. A request that a handler
/// deferred ends by [`Front::finish`], [`Front::refuse`] or [`Front::cut`], or by
/// [`cancelled`](Handler::cancelled).
pub(crate) trait Handler<T: Transport> {
    /// Whether the handler makes connections of its own.
    const CONNECTS: bool = false;

    /// Answers or defers a request, of which the head was received.
    fn on_request(&mut self, incoming: Incoming<'_, T>, request: &Request<'_>) -> Handled;

    /// Takes the next bytes of a body, framed as the request's head says, or of a tunnel.
    fn on_body(&mut self, cx: &mut Context<'_, T>, request: Deferred, bytes: &[u8]) -> Flow {
        let _ = (cx, request, bytes);
        Flow::Continue
    }

    /// The transport moves the rest of a body or of what follows in a tunnel.
    fn on_relay_started(&mut self, cx: &mut Context<'_, T>, request: Deferred) {
        let _ = (cx, request);
    }

    /// The relay of a body ended because its destination failed.
    fn on_relay_failed(&mut self, cx: &mut Context<'_, T>, request: Deferred) {
        let _ = (cx, request);
    }

    /// The client ended its side of a tunnel.
    fn on_tunnel_ended(&mut self, cx: &mut Context<'_, T>, request: Deferred) {
        let _ = (cx, request);
    }

    /// The client has taken all that was written.
    fn on_drained(&mut self, cx: &mut Context<'_, T>, request: Deferred) {
        let _ = (cx, request);
    }

    /// The timer that the handler set for the request has expired.
    fn on_timer(&mut self, cx: &mut Context<'_, T>, request: Deferred) {
        let _ = (cx, request);
    }

    /// The request is given up: the client disconnected, was too slow, or sent a malformed body,
    /// or a timeout expired. The front ends the request.
    fn on_cancelled(&mut self, cx: &mut Context<'_, T>, request: Deferred) {
        let _ = (cx, request);
    }

    /// Takes bytes that a connection received which the handler made.
    fn on_own_received(&mut self, cx: &mut Context<'_, T>, owner: (u32, u32), bytes: &[u8]) {
        let _ = (cx, owner, bytes);
    }

    /// Takes another completion of a connection that the handler made.
    fn on_own_completion(
        &mut self,
        cx: &mut Context<'_, T>,
        owner: (u32, u32),
        completion: Completion,
    ) {
        let _ = (cx, owner, completion);
    }

    /// Another thread woke the event loop.
    fn on_woken(&mut self, cx: &mut Context<'_, T>) {
        let _ = cx;
    }

    /// A turn of the event loop begins.
    fn begin_turn(&mut self, now: Time) {
        let _ = now;
    }

    /// A turn of the event loop ends. Returns when the next must begin at the latest.
    fn end_turn(&mut self, now: Time) -> Option<Time> {
        let _ = now;
        None
    }

    /// Updates what is counted and retries what waits, a few times a second while anything happens.
    /// Returns whether it is to be called again although nothing happens.
    fn tick(&mut self, cx: &mut Context<'_, T>) -> bool {
        let _ = cx;
        false
    }

    /// Closes idle connections, because the server is stopping.
    fn close_idle(&mut self, cx: &mut Context<'_, T>) {
        let _ = cx;
    }
}

/// The front and the transport, as a handler needs them to answer later.
pub(crate) struct Context<'a, T> {
    /// The client side of all connections.
    pub(crate) front: &'a mut Front,
    /// The transport.
    pub(crate) io: &'a mut T,
}

/// A deferred request, and the key that its handler gave it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deferred {
    /// The request.
    pub(crate) id: RequestId,
    /// The handler's key.
    pub(crate) key: u32,
    /// The route by which the handler was found.
    pub(crate) route: u32,
}

/// The result of handing a request to a handler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Handled {
    /// The response is sent, or gathered with others: the next request can be answered.
    Answered,
    /// No further request of the connection is looked at now.
    Stop,
    /// The client has yet to take the response; requests that follow wait.
    Sending,
    /// The handler answers later, or has done so through the front.
    Deferred,
    /// The handler is to be asked again once the body, of at most so many bytes, was discarded.
    AfterBody(u64),
}

/// The treatment of the bytes that follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Flow {
    /// The handler takes more.
    Continue,
    /// The handler takes no more until [`Front::resume_body`].
    Pause,
    /// The transport moves a long rest to this connection, if it can; otherwise as `Continue` if
    /// the flag is set, else as `Pause`.
    Relay(Token, bool),
}

/// A response that is ready, or of which the head was appended to the buffer of
/// `Incoming::parts`.
#[derive(Debug)]
pub struct Answer<'s> {
    /// The whole response, if it was ready; else the response is what was appended, then `body`.
    pub ready: &'s [u8],
    /// The part of the response that follows the head; none if the head has the body with it.
    pub body: Body,
    /// Status code.
    pub status: u16,
    /// Length of the body in bytes, wherever it is; 0 if there is none.
    pub length: u64,
}

impl Answer<'_> {
    /// Appends what is ready to `out`, to have the response there in any case.
    pub fn append_to(self, out: &mut Vec<u8>) -> Answer<'static> {
        let Answer { ready, body, status, length } = self;
        out.extend_from_slice(ready);
        Answer { ready: &[], body, status, length }
    }
}

/// A request that a handler has yet to answer.
pub(crate) struct Incoming<'a, T> {
    pub(super) front: &'a mut Front,
    pub(super) io: &'a mut T,
    pub(super) token: Token,
    /// The request in progress, if its body had to be read first.
    pub(super) index: Option<u32>,
    /// The head as it came.
    pub(super) head: &'a [u8],
    /// Whether the connection is kept open after the response.
    pub(super) keep_alive: bool,
    /// Bytes received behind the head.
    pub(super) rest: &'a [u8],
    /// The route by which the handler was found; 0 if there are no routes.
    pub(crate) route: u32,
}

impl<'a, T: Transport> Incoming<'a, T> {
    /// Returns whether the body was read, and discarded.
    #[inline]
    pub(crate) fn is_body_read(&self) -> bool {
        self.index.is_some()
    }

    /// Returns the date, whether the connection is kept open, and the buffer to which the head of
    /// a response is appended before [`respond`](Incoming::respond).
    #[inline(always)]
    pub(crate) fn parts(&mut self) -> (&DateCache, bool, &mut Vec<u8>) {
        (&self.front.date, self.keep_alive, &mut self.front.out)
    }

    /// Answers the request.
    #[inline(always)]
    pub(crate) fn respond(self, request: &Request<'_>, answer: Answer<'_>) -> Handled {
        self.front.respond_at_once(self.io, self.token, self.index, self.head, request, answer, {
            (self.keep_alive, !self.rest.is_empty())
        })
    }

    /// Keeps the request to answer it later. Its body may have at most `body_limit` bytes. The
    /// error is what [`Handler::request`] has to return: the body is too long.
    pub(crate) fn defer(
        self,
        request: &Request<'_>,
        key: u32,
        body_limit: u64,
    ) -> Result<(Context<'a, T>, RequestId), Handled> {
        let Incoming { front, io, token, head, rest, route, .. } = self;
        match front.defer(io, token, (head, rest), request, (route, key), body_limit) {
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
        why: &'static str,
    ) -> Handled {
        match self.defer(request, 0, u64::MAX) {
            Ok((cx, id)) => {
                cx.front.respond_error(cx.io, id, status, why, Outcome::Rejected);
                Handled::Deferred
            }
            Err(handled) => handled,
        }
    }
}
