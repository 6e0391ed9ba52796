//! Frames of clients: requests, bodies, and the end of the connection.

use hearken::Token;
use hearken_http::h2::{self, Event, StreamId};
use hearken_http::{Body, BodyReader, Fields, Request};

use super::MAX_OUT;
use super::connection::ClientConnection;
use crate::front::Front;
use crate::front::connection::{Flags, Phase};
use crate::front::handler::{Context, Handled, Handler, Incoming, Origin};
use crate::front::receive::{CONTINUE, handle};
use crate::front::request::{Facts, RequestId, Stage, Upload, Wait};
use crate::front::transport::Transport;
use crate::runtime::access_log::Outcome;
use crate::runtime::metrics::Error;

impl Front {
    /// Begins an HTTP/2 connection with its first bytes. They are processed at the end of the turn.
    #[cold]
    pub(in crate::front) fn begin_http2<T: Transport>(
        &mut self,
        io: &mut T,
        token: Token,
        bytes: &[u8],
    ) {
        let Some(config) = self.http2.config.clone() else { return };
        let now = io.turn_time();
        let mut out = self.http2.spare.pop().unwrap_or_default();
        let mut frames = h2::Connection::server(config, &mut out);
        if self.closing {
            frames.shut_down(&mut out);
        } else if self.stopping {
            frames.announce_shut_down(&mut out);
        }
        let idle_deadline = now + self.settings.timeouts.header;
        let mut connection = ClientConnection::new(token, frames, out, now, idle_deadline);
        connection.received.extend_from_slice(bytes);
        self.http2.insert(connection);
        self.connections.get(token).flags.insert(Flags::HTTP2);
        self.connections.set_streams(token);
        self.http2.mark_pending(token);
    }

    /// Handles received bytes of an HTTP/2 connection.
    pub(in crate::front) fn received_http2<T: Transport, H: Handler<T>>(
        &mut self,
        io: &mut T,
        handler: &mut H,
        token: Token,
        bytes: &[u8],
    ) {
        if self.connections.get(token).phase == Phase::Idle {
            self.connections.set_streams(token);
        }
        let Some(connection) = self.http2.get(token) else { return };
        if connection.is_closing {
            return;
        }
        if !connection.received.is_empty() {
            return connection.received.extend_from_slice(bytes);
        }
        let seconds = io.turn_time().duration_since(connection.elapsed_at).as_secs();
        if seconds > 0 {
            connection.elapsed_at = io.turn_time();
            connection.frames.elapse(u32::try_from(seconds).unwrap_or(u32::MAX));
        }
        self.process_frames(io, handler, token, bytes);
        self.flush_http2(io, handler, token);
    }

    /// Processes received frames. Stores the rest if the client does not take the output.
    pub(super) fn process_frames<T: Transport, H: Handler<T>>(
        &mut self,
        io: &mut T,
        handler: &mut H,
        token: Token,
        bytes: &[u8],
    ) {
        let mut head = self.http2.head.take().unwrap_or_default();
        let mut input = bytes;
        loop {
            self.http2.lend_buffer(token);
            let Some(connection) = self.http2.get(token) else { break };
            if connection.out.len() >= MAX_OUT && !self.send_output(io, token) {
                break;
            }
            let Some(connection) = self.http2.get(token) else { break };
            match connection.frames.receive(&mut input, &mut head, &mut connection.out) {
                Ok(Some(event)) => self.on_event(io, handler, token, &event),
                Ok(None) => break,
                Err(_) => {
                    self.record_error(Error::BadRequest);
                    self.cancel_streams(io, handler, token, Outcome::BadRequest);
                    if let Some(connection) = self.http2.get(token) {
                        connection.is_closing = true;
                    }
                    break;
                }
            }
        }
        self.http2.head = Some(head);
        if !input.is_empty()
            && let Some(connection) = self.http2.get(token)
        {
            connection.received.extend_from_slice(input);
        }
    }

    #[inline]
    fn on_event<T: Transport, H: Handler<T>>(
        &mut self,
        io: &mut T,
        handler: &mut H,
        token: Token,
        event: &Event<'_>,
    ) {
        match *event {
            Event::Request { stream, ref request, end } => {
                self.metrics.http2_requests.add(1);
                let incoming = Incoming {
                    io,
                    token,
                    origin: Origin::Stream { id: stream, is_received: end },
                    head: request.head(),
                    keep_alive: true,
                    rest: &[],
                    route: 0,
                    front: self,
                };
                if let Handled::AfterBody(limit) = handle(handler, incoming, request) {
                    self.discard_stream_body(io, token, (stream, end), request, limit);
                }
            }
            Event::Data { stream, data, end } => {
                self.on_content(io, handler, token, stream, (data, end, None));
            }
            Event::Trailers { stream, fields } => {
                self.on_content(io, handler, token, stream, (&[], true, Some(fields)));
            }
            Event::Rejected { stream, reject } => {
                let index = self.begin_stream(io, token, stream, true);
                self.reject(io, index, reject);
            }
            Event::Reset { stream, reason, .. } => {
                self.on_reset(io, handler, token, stream, reason);
            }
            _ => {}
        }
    }

    /// Begins a request on a stream.
    pub(super) fn begin_stream<T: Transport>(
        &mut self,
        io: &T,
        token: Token,
        id: StreamId,
        is_received: bool,
    ) -> u32 {
        let index = self.requests.begin(token, io.turn_time());
        let active = &mut self.requests[index];
        active.facts.insert(Facts::STREAM);
        active.stage = Stage::Handler;
        self.http2.begin_stream(token, index, id, is_received);
        index
    }

    /// Begins a request on a stream that a handler answers later. Returns `None` if the request was
    /// rejected.
    pub(in crate::front) fn defer_stream<T: Transport>(
        &mut self,
        io: &mut T,
        token: Token,
        (id, is_received): (StreamId, bool),
        request: &Request<'_>,
        (route, key): (u32, u32),
        body_limit: u64,
    ) -> Option<RequestId> {
        let index = self.begin_stream(io, token, id, is_received);
        let active = &mut self.requests[index];
        active.store(request, request.head());
        (active.route, active.key) = (route, key);
        if request.body != Body::None && !self.expect_upload(io, index, request, body_limit) {
            return None;
        }
        Some(self.requests.id(index))
    }

    /// Starts to discard a request body. The handler gets the request again afterwards.
    #[cold]
    fn discard_stream_body<T: Transport>(
        &mut self,
        io: &mut T,
        token: Token,
        (id, is_received): (StreamId, bool),
        request: &Request<'_>,
        limit: u64,
    ) {
        let index = self.begin_stream(io, token, id, is_received);
        let reader = BodyReader::new(request.body, limit, &self.settings.limits);
        let active = &mut self.requests[index];
        active.store(request, request.head());
        active.body_deadline = Some(io.turn_time() + self.settings.timeouts.upload);
        match reader {
            Ok(reader) => active.discard = Some(reader),
            Err(reject) => {
                active.upload = Upload::Dropped;
                return self.reject(io, index, reject);
            }
        }
        active.stage = Stage::Body;
        if request.expect_continue {
            self.write_stream(index, CONTINUE);
        }
        self.wait_for(io, index, Wait::Body);
    }

    /// Handles content of a request, and its end with an optional trailer section.
    fn on_content<T: Transport, H: Handler<T>>(
        &mut self,
        io: &mut T,
        handler: &mut H,
        token: Token,
        id: StreamId,
        (data, end, trailers): (&[u8], bool, Option<Fields<'_>>),
    ) {
        let Some(connection) = self.http2.get(token) else { return };
        let Some(index) = connection.find(id) else {
            return connection.frames.release(id, data.len(), &mut connection.out);
        };
        let stream = self.http2.stream(index);
        stream.unreleased += data.len();
        stream.is_received |= end;
        let request = &mut self.requests[index];
        let is_used = match request.stage {
            Stage::Handler => !matches!(request.upload, Upload::Dropped),
            Stage::Body | Stage::Tunnel => true,
            _ => false,
        };
        if !is_used {
            return self.release_content(index);
        }
        let is_chunked = request.request().is_some_and(|it| it.body == Body::Chunked);
        if request.stage == Stage::Tunnel || !is_chunked {
            if !data.is_empty() {
                self.receive_body(io, handler, token, index, data);
            }
        } else {
            let mut framed = std::mem::take(&mut self.http2.scratch);
            framed.clear();
            frame_chunk(&mut framed, data, end, trailers);
            self.receive_body(io, handler, token, index, &framed);
            self.http2.scratch = framed;
        }
        // The handler may have ended this request, but no other one has begun.
        if end && self.requests[index].stage == Stage::Tunnel {
            let deferred = self.deferred(index);
            handler.on_tunnel_ended(&mut Context { front: self, io }, deferred);
        }
    }

    /// Returns processed content to the window of the client.
    pub(in crate::front) fn release_content(&mut self, index: u32) {
        let token = self.requests[index].token;
        if let Some((connection, stream)) = self.http2.pair(token, index)
            && let Some(id) = stream.id()
        {
            let count = std::mem::take(&mut stream.unreleased);
            if count > 0 {
                connection.frames.release(id, count, &mut connection.out);
                self.http2.mark_pending(token);
            }
        }
    }

    /// Handles a stream that the client has reset, or a malformed one.
    #[cold]
    fn on_reset<T: Transport, H: Handler<T>>(
        &mut self,
        io: &mut T,
        handler: &mut H,
        token: Token,
        id: StreamId,
        reason: &'static str,
    ) {
        let Some(connection) = self.http2.get(token) else { return };
        if let Some(index) = connection.find(id) {
            if reason.is_empty() {
                return self.on_disconnected(io, handler, index);
            }
            self.record_error(Error::BadRequest);
            return self.cancel(io, handler, index, Outcome::BadRequest);
        }
        // Invalid frames may follow a request that has ended.
        let has_ended = Some(id) <= connection.last_begun;
        self.record_error(Error::BadRequest);
        if has_ended {
            return;
        }
        // A malformed request.
        let index = self.begin_stream(io, token, id, true);
        let request = &mut self.requests[index];
        request.stage = Stage::Sending;
        (request.reason, request.outcome) = (Some(reason), Outcome::BadRequest);
        self.end_stream(io, index, h2::ErrorCode::PROTOCOL_ERROR);
    }
}

/// Appends content as a chunk, and the end of the body.
fn frame_chunk(out: &mut Vec<u8>, data: &[u8], end: bool, trailers: Option<Fields<'_>>) {
    if !data.is_empty() {
        // Writing to a vector does not fail.
        let _ = std::io::Write::write_fmt(out, format_args!("{:x}\r\n", data.len()));
        out.extend_from_slice(data);
        out.extend_from_slice(b"\r\n");
    }
    if end {
        out.extend_from_slice(b"0\r\n");
        for (name, value) in trailers.into_iter().flatten() {
            for part in [name, b": ", value, b"\r\n"] {
                out.extend_from_slice(part);
            }
        }
        out.extend_from_slice(b"\r\n");
    }
}
