//! Responses as frames.

use std::io;

use hearken::Token;
use hearken::io::Body;
use hearken_http::h2::{self, ErrorCode, StreamId};
use hearken_http::{BodyReader, Fields, Limits, Method, Request, ResponseBody, ResponseParser};

use super::connection::{ClientConnection, ResponseState, Stream};
use super::{Http2, MAX_OUT};
use crate::front::Front;
use crate::front::connection::Flags;
use crate::front::handler::{Answer, Handled};
use crate::front::request::{Facts, Stage};
use crate::front::transport::Transport;
use crate::runtime::access_log::Outcome;

/// Maximum number of content bytes of a stream that are sent before other streams continue.
pub(super) const MAX_PIECE: usize = 16 * 1024;
/// The reason why a handler rejects extended CONNECT.
const NO_TUNNEL: &str = "the resource is not a tunnel";
/// Limits on the heads that handlers write.
const HEAD_LIMITS: Limits =
    Limits { max_head_bytes: 1 << 30, max_fields: usize::MAX, max_target_bytes: 0 };

impl Front {
    /// Answers a request whose stream is not in the table of requests.
    #[inline]
    pub(in crate::front) fn respond_stream<T: Transport>(
        &mut self,
        io: &mut T,
        token: Token,
        (id, is_received): (StreamId, bool),
        request: &Request<'_>,
        answer: Answer<'_>,
    ) -> Handled {
        if request.upgrade().is_some() && (200..300).contains(&answer.status) {
            self.out.clear();
            let index = self.begin_stream(io, token, id, is_received);
            self.requests[index].store(request, request.head());
            self.respond_error_at(io, index, 501, NO_TUNNEL, Outcome::Rejected);
            return Handled::Deferred;
        }
        let Answer { ready, body, status, length } = answer;
        self.answered[usize::from(status / 100).min(5)] += 1;
        let written = std::mem::take(&mut self.out);
        let bytes = if ready.is_empty() { &written } else { ready };
        let Some(connection) = self.http2.get(token) else { return Handled::Stop };
        let mut fields = Fields::of_message(bytes);
        let is_last = matches!(body, Body::None);
        let ClientConnection { frames, out, .. } = connection;
        frames.respond(id, status, fields.by_ref(), length == 0, out);
        let content = fields.content();
        let mut sent = 0;
        if !content.is_empty() && out.len() < MAX_OUT {
            sent = frames.send_data(id, content, is_last, out);
            connection.content_bytes += sent as u64;
        }
        connection.idle_deadline = self.idle_until;
        self.connections.get(token).flags.insert(Flags::SERVED);
        if sent == content.len() && is_last {
            if !is_received {
                self.http2.reset(token, id, ErrorCode::NO_ERROR);
            }
            if self.log.is_some() {
                self.log_now(io, token, request, status, length);
            }
        } else {
            let index = self.begin_stream(io, token, id, is_received);
            let active = &mut self.requests[index];
            active.facts.insert(Facts::RESPONDING | Facts::COUNTED);
            (active.status, active.sent) = (status, length);
            active.stage = Stage::Sending;
            if self.log.is_some() {
                active.store(request, request.head());
            }
            let stream = self.http2.stream(index);
            stream.append(content.get(sent..).unwrap_or_default());
            (stream.body, stream.ends) = (body, true);
            stream.response = ResponseState::Done;
            if let Some(connection) = self.http2.get(token) {
                connection.frames.wait_for_turn(id);
            }
        }
        self.out = written;
        self.out.clear();
        Handled::Answered
    }

    /// Writes a part of a response, in the form of HTTP/1.1: heads, or the following part of the body.
    /// Returns whether no content waits.
    pub(in crate::front) fn write_stream(&mut self, index: u32, bytes: &[u8]) -> bool {
        let request = &self.requests[index];
        let (token, facts) = (request.token, request.facts);
        let kind = match request.request() {
            Some(request) if request.method == Method::Connect => RequestKind::Connect,
            Some(request) if request.upgrade().is_some() => RequestKind::Upgrade,
            _ if facts.contains(Facts::HEAD) => RequestKind::Head,
            _ => RequestKind::Other,
        };
        self.http2.lend_buffer(token);
        let Some((connection, stream)) = self.http2.pair(token, index) else { return true };
        let Some(id) = stream.id() else { return true };
        if write(connection, stream, kind, bytes).is_none() {
            // No handler writes a malformed response.
            connection.frames.reset(id, ErrorCode::INTERNAL_ERROR, &mut connection.out);
        }
        let is_taken = !stream.has_pending();
        self.http2.has_stored |= !is_taken;
        self.http2.mark_pending(token);
        is_taken
    }

    /// Adds the rest of a response, which follows its head.
    pub(in crate::front) fn write_stream_body(&mut self, index: u32, body: Body) {
        let token = self.requests[index].token;
        if let Some((connection, stream)) = self.http2.pair(token, index)
            && let Some(id) = stream.id()
        {
            (stream.body, stream.ends) = (body, true);
            stream.response = ResponseState::Done;
            connection.frames.wait_for_turn(id);
            self.http2.mark_pending(token);
        }
    }

    /// Ends the sending side of a stream after its content.
    pub(in crate::front) fn shut_down_stream(&mut self, index: u32) {
        let token = self.requests[index].token;
        if let Some((connection, stream)) = self.http2.pair(token, index)
            && !matches!(stream.response, ResponseState::Done | ResponseState::Refused)
        {
            stream.response = ResponseState::Done;
            queue(connection, stream, &[], true);
            self.http2.mark_pending(token);
        }
    }

    /// Ends a request after its complete response was written.
    pub(in crate::front) fn finish_stream<T: Transport>(&mut self, io: &mut T, index: u32) {
        self.shut_down_stream(index);
        if self.http2.stream(index).has_pending() {
            let request = &mut self.requests[index];
            request.stage = Stage::Sending;
            request.timer = None;
            request.body_deadline = None;
            request.wait_deadline = None;
            return;
        }
        self.complete_stream(io, index);
    }

    /// Completes a request whose response is in frames.
    pub(super) fn complete_stream<T: Transport>(&mut self, io: &mut T, index: u32) {
        let token = self.requests[index].token;
        self.connections.get(token).flags.insert(Flags::SERVED);
        if let Some(connection) = self.http2.get(token) {
            connection.idle_deadline = self.idle_until;
        }
        // The client need not send the rest of its body.
        self.end_stream(io, index, ErrorCode::NO_ERROR);
    }

    /// Ends a request, and its stream if that has not ended.
    pub(in crate::front) fn end_stream<T: Transport>(
        &mut self,
        io: &mut T,
        index: u32,
        code: ErrorCode,
    ) {
        self.record_end(io, index);
        self.release_stream(index, code);
    }

    /// Releases the state of a request, and ends its stream if that has not ended.
    pub(in crate::front) fn release_stream(&mut self, index: u32, code: ErrorCode) {
        self.release_content(index);
        let token = self.requests[index].token;
        let id = self.http2.stream(index).end();
        self.requests.end(index);
        if let Some(id) = id
            && let Some(connection) = self.http2.get(token)
        {
            connection.forget(id);
            connection.frames.reset(id, code, &mut connection.out);
            self.http2.mark_pending(token);
        }
    }
}

impl Http2 {
    fn reset(&mut self, token: Token, id: StreamId, code: ErrorCode) {
        if let Some(connection) = self.get(token) {
            connection.frames.reset(id, code, &mut connection.out);
        }
    }

    /// Continues the content of a stream with one piece, as its window permits.
    ///
    /// # Errors
    /// A file cannot be read, or is shorter than announced.
    pub(super) fn continue_content<T: Transport>(
        &mut self,
        io: &mut T,
        token: Token,
        index: u32,
    ) -> io::Result<()> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let result = match self.pair(token, index) {
            Some((connection, stream)) => continue_content(io, connection, stream, &mut scratch),
            None => Ok(()),
        };
        self.scratch = scratch;
        result
    }
}

fn continue_content<T: Transport>(
    io: &mut T,
    connection: &mut ClientConnection,
    stream: &mut Stream,
    scratch: &mut Vec<u8>,
) -> io::Result<()> {
    let Some(id) = stream.id() else { return Ok(()) };
    let ClientConnection { frames, out, .. } = connection;
    let pending = stream.pending();
    let sent = if !pending.is_empty() || matches!(stream.body, Body::None) {
        let piece = pending.get(..MAX_PIECE).unwrap_or(pending);
        let is_last = piece.len() == pending.len() && matches!(stream.body, Body::None);
        let ends = is_last && stream.ends && stream.trailers.is_empty();
        let sent = frames.send_data(id, piece, ends, out);
        stream.consume(sent);
        if stream.ends && !stream.has_pending() {
            send_trailers(frames, stream, id, out);
        }
        sent
    } else {
        let ends = stream.ends;
        let sent = match &mut stream.body {
            Body::None => 0,
            Body::Bytes(bytes) => {
                let piece = bytes.get(..MAX_PIECE).unwrap_or(bytes);
                let is_last = piece.len() == bytes.len();
                let sent = frames.send_data(id, piece, is_last && ends, out);
                drop(bytes.split_to(sent));
                sent
            }
            Body::File(part) => {
                let piece = usize::try_from(part.length).unwrap_or(usize::MAX);
                let piece = piece.min(MAX_PIECE).min(frames.window(id));
                scratch.resize(piece, 0);
                io.read_file(part, scratch)?;
                let sent = frames.send_data(id, scratch, ends && part.length == piece as u64, out);
                part.offset += sent as u64;
                part.length -= sent as u64;
                sent
            }
        };
        if remaining(&stream.body) == 0 {
            stream.body = Body::None;
        }
        sent
    };
    connection.content_bytes += sent as u64;
    if stream.has_pending() {
        connection.frames.wait_for_turn(id);
    }
    Ok(())
}

/// Returns the number of bytes of a body.
fn remaining(body: &Body) -> u64 {
    match body {
        Body::None => 0,
        Body::Bytes(bytes) => bytes.len() as u64,
        Body::File(part) => part.length,
    }
}

/// The kind of a request, on which the meaning of its response depends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RequestKind {
    Connect,
    Head,
    /// Extended CONNECT.
    Upgrade,
    Other,
}

/// Translates a part of a response. Returns `None` if it is malformed.
fn write(
    connection: &mut ClientConnection,
    stream: &mut Stream,
    kind: RequestKind,
    bytes: &[u8],
) -> Option<()> {
    let id = stream.id()?;
    let method = match kind {
        RequestKind::Connect => Method::Connect,
        RequestKind::Head => Method::Head,
        RequestKind::Upgrade | RequestKind::Other => Method::Get,
    };
    let mut rest = bytes;
    while !rest.is_empty() {
        match &mut stream.response {
            ResponseState::Head => {
                let response = ResponseParser::new().parse(rest, method, &HEAD_LIMITS).ok()??;
                rest = rest.get(response.head_len..)?;
                let status = response.status;
                let is_success = (200..300).contains(&status);
                if is_success && kind == RequestKind::Upgrade {
                    // The client would take the response for a tunnel.
                    let ClientConnection { frames, out, .. } = &mut *connection;
                    frames.respond(id, 501, [("content-length", "0")], true, out);
                    stream.response = ResponseState::Refused;
                    return Some(());
                }
                let is_tunnel = status == 101 || kind == RequestKind::Connect && is_success;
                let ends = !is_tunnel && status >= 200 && response.body == ResponseBody::None;
                let ClientConnection { frames, out, .. } = &mut *connection;
                frames.respond(id, status, response.fields(), ends, out);
                stream.response = match () {
                    () if is_tunnel => ResponseState::Tunnel,
                    () if ends => ResponseState::Done,
                    () if status < 200 => ResponseState::Head,
                    () => {
                        let reader = BodyReader::new(response.body, u64::MAX, &HEAD_LIMITS);
                        ResponseState::Body(reader.ok()?)
                    }
                };
            }
            ResponseState::Body(reader) => {
                let segment = reader.read_with_trailers(rest, &mut stream.trailers).ok()?;
                let content = rest.get(segment.data)?;
                rest = rest.get(segment.consumed..)?;
                if segment.done {
                    stream.response = ResponseState::Done;
                }
                queue(connection, stream, content, segment.done);
            }
            ResponseState::Tunnel => {
                queue(connection, stream, rest, false);
                rest = &[];
            }
            ResponseState::Refused => return Some(()),
            ResponseState::Done => return None,
        }
    }
    Some(())
}

/// Sends content as far as the windows permit, and stores the rest.
fn queue(connection: &mut ClientConnection, stream: &mut Stream, content: &[u8], ends: bool) {
    let Some(id) = stream.id() else { return };
    let ClientConnection { frames, out, .. } = connection;
    let ends_content = ends && stream.trailers.is_empty();
    let mut sent = 0;
    if !stream.has_pending() && out.len() < MAX_OUT {
        sent = frames.send_data(id, content, ends_content, out);
        connection.content_bytes += sent as u64;
        if sent == content.len() {
            if ends {
                send_trailers(frames, stream, id, out);
            }
            return;
        }
    }
    stream.append(content.get(sent..).unwrap_or_default());
    stream.ends = ends;
    if stream.has_pending() {
        frames.wait_for_turn(id);
    } else if ends {
        // Only the end waits for the output to be sent, which is larger than usual.
        frames.send_data(id, &[], ends_content, out);
        send_trailers(frames, stream, id, out);
    }
}

/// Sends the trailer section after the content, if there is one.
fn send_trailers(frames: &mut h2::Connection, stream: &Stream, id: StreamId, out: &mut Vec<u8>) {
    if !stream.trailers.is_empty() {
        frames.send_trailers(id, Fields::of_lines(&stream.trailers), out);
    }
}
