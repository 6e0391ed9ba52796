//! Bounds the content of responses that waits in memory for a client.
//!
//! A handler pauses a response when its stream stores content, so each stream stores one piece. When the
//! streams of a connection together store too much, handlers also pause the responses that no window
//! permits at present, before they have produced anything.

use hearken::Token;

use super::connection::Stream;
use super::respond::MAX_PIECE;
use super::{Http2, MAX_OUT, StreamId};
use crate::front::Front;
use crate::front::handler::{Context, Deferred, Handler};
use crate::front::request::{RequestId, Stage};
use crate::front::transport::Transport;

/// Number of stored bytes of a connection above which further responses are paused.
const MAX_STORED: usize = 256 * 1024;

impl Front {
    /// Returns whether a stream has stored content since the last call of [`Front::hold_back`].
    #[inline]
    pub(crate) fn has_stored_content(&self) -> bool {
        self.http2.has_stored
    }

    /// Returns the requests of the same client and route whose responses the handler must pause until
    /// [`Handler::on_drained`]. `id` is a request whose stream has stored content.
    #[cold]
    pub(crate) fn hold_back(&mut self, id: RequestId) -> Vec<Deferred> {
        self.http2.has_stored = false;
        let index = self.requests.find(id).filter(|index| self.requests[*index].is_stream());
        let Some(index) = index else { return Vec::new() };
        let (token, route) = (self.requests[index].token, self.requests[index].route);
        if !self.http2.is_congested(token) {
            return Vec::new();
        }
        let streams = self.http2.get(token).map(|connection| connection.streams.clone());
        let streams = streams.unwrap_or_default().into_iter().filter(|(id, index)| {
            let request = &self.requests[*index];
            let is_handled = matches!(request.stage, Stage::Handler | Stage::Tunnel);
            is_handled && request.route == route && self.http2.hold(token, *id, *index)
        });
        let held: Vec<_> = streams.collect();
        held.into_iter().map(|(_, index)| self.deferred(index)).collect()
    }

    /// Returns whether the handler must pause the response to a new request until
    /// [`Handler::on_drained`].
    #[inline]
    pub(crate) fn must_pause(&mut self, id: RequestId) -> bool {
        let index = self.requests.find(id).filter(|index| self.requests[*index].is_stream());
        index.is_some_and(|index| {
            let token = self.requests[index].token;
            if self.http2.get(token).is_some_and(|connection| connection.is_congested)
                && let Some(id) = self.http2.stream(index).id()
            {
                self.http2.hold(token, id, index);
            }
            self.http2.stream(index).is_held
        })
    }

    /// Continues responses that were held back, if the client has taken enough content or permits theirs.
    #[cold]
    pub(super) fn release_held<T: Transport, H: Handler<T>>(
        &mut self,
        io: &mut T,
        handler: &mut H,
        token: Token,
    ) {
        let is_relieved = self.http2.stored_bytes(token) <= MAX_STORED / 2;
        let Some(connection) = self.http2.get(token) else { return };
        connection.is_congested = !is_relieved;
        for (id, index) in connection.streams.clone() {
            // The handler may have ended this request, and begun no other one.
            if self.http2.stream(index).id() == Some(id)
                && self.http2.stream(index).is_held
                && (is_relieved || self.http2.is_permitted(token, id))
            {
                self.http2.stream(index).is_held = false;
                let deferred = self.deferred(index);
                handler.on_drained(&mut Context { front: self, io }, deferred);
            }
        }
    }
}

impl Http2 {
    /// Returns whether a connection stores too much content.
    fn is_congested(&mut self, token: Token) -> bool {
        let exceeds = self.stored_bytes(token) > MAX_STORED;
        self.get(token).is_some_and(|connection| {
            connection.is_congested |= exceeds;
            connection.is_congested
        })
    }

    fn stored_bytes(&mut self, token: Token) -> usize {
        let Http2 { connections, streams, .. } = self;
        let connection = connections.get(token.slot() as usize).and_then(Option::as_deref);
        let indices = connection.into_iter().flat_map(|connection| &connection.streams);
        let stored = indices.filter_map(|(_, index)| streams.get(*index as usize));
        stored.map(|stream| stream.pending().len()).sum()
    }

    /// Holds a stream back, unless it stores content or its window permits some. Returns whether it did.
    fn hold(&mut self, token: Token, id: StreamId, index: u32) -> bool {
        let is_permitted = self.is_permitted(token, id);
        let stream: &mut Stream = self.stream(index);
        let holds = !is_permitted && !stream.is_held && !stream.has_pending();
        stream.is_held |= holds;
        holds
    }

    /// Returns whether content of a stream can be sent at present.
    fn is_permitted(&mut self, token: Token, id: StreamId) -> bool {
        self.get(token).is_some_and(|connection| {
            let has_space = !connection.is_blocked && connection.out.len() < MAX_OUT;
            has_space && connection.frames.window(id) >= MAX_PIECE
        })
    }
}
