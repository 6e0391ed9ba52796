//! Requests as frames.

use hearken::io::Relay;
use hearken_http::h2::{ErrorCode, StreamId};
use hearken_http::{Body, BodyReader, Fields, Limits, RequestParser};

use super::MAX_OUT;
use super::connection::{Content, ServerConnection, Stream};
use crate::proxy::handler::{Cx, Proxy};

/// Maximum number of content bytes of a stream that are sent before other streams continue.
const MAX_PIECE: usize = 16 * 1024;
/// Size in bytes below which content waits for the end of the turn, so that it shares a frame with more.
const MIN_PIECE: usize = 1024;
/// Limits on the heads that the proxy writes.
const HEAD_LIMITS: Limits =
    Limits { max_head_bytes: usize::MAX, max_fields: usize::MAX, max_target_bytes: usize::MAX };

impl Proxy {
    /// Writes a part of a request in the form of HTTP/1.1: the head, or the following part of the body.
    /// Returns whether no content waits for a window or the transport.
    pub(in crate::proxy) fn write_stream(&mut self, key: u32, bytes: &[u8]) -> bool {
        let Some((connection, stream)) = self.http2.pair(key) else { return true };
        if write(connection, stream, key, bytes).is_none() {
            // The head was checked before, and the front has framed the body.
            connection.is_draining = true;
            if let Some(id) = stream.id {
                connection.frames.reset(id, ErrorCode::INTERNAL_ERROR, &mut connection.out);
            }
        }
        let pending = stream.pending().len();
        let is_taken = pending < MIN_PIECE && is_permitted(connection, stream, pending);
        let connection = stream.connection;
        self.upstreams[key].sends = u8::from(!is_taken);
        self.http2.mark_pending(connection);
        is_taken
    }

    /// Ends the sending side of a tunnel after its content.
    pub(in crate::proxy) fn shut_down_stream(&mut self, key: u32) {
        let Some((connection, stream)) = self.http2.pair(key) else { return };
        stream.content = Content::Done;
        queue(connection, stream, &[], true);
        let connection = stream.connection;
        self.http2.mark_pending(connection);
    }

    /// Continues content that waits, in the order in which the streams take turns.
    pub(super) fn continue_content<I: Relay>(&mut self, cx: &mut Cx<'_, I>, connection: u32) {
        while let Some(state) = self.http2.get(connection)
            && !state.is_blocked
            && state.out.len() < MAX_OUT
            && let Some(id) = state.frames.next_writable()
        {
            let Some(key) = state.find(id) else {
                state.frames.reset(id, ErrorCode::INTERNAL_ERROR, &mut state.out);
                continue;
            };
            let Some((state, stream)) = self.http2.pair(key) else { return };
            send_pending(state, stream, id);
            if !stream.has_pending() && self.upstreams[key].sends > 0 {
                self.on_sent(cx, key);
            }
        }
    }
}

/// Sends a piece of the content that waits.
fn send_pending(connection: &mut ServerConnection, stream: &mut Stream, id: StreamId) {
    let pending = stream.pending();
    let piece = pending.get(..MAX_PIECE).unwrap_or(pending);
    let is_last = piece.len() == pending.len();
    let ends = is_last && stream.ends && stream.trailers.is_empty();
    let sent = connection.frames.send_data(id, piece, ends, &mut connection.out);
    let is_sent = sent == piece.len();
    stream.consume(sent);
    match is_last && is_sent {
        true if stream.ends => send_trailers(connection, stream, id),
        true => {}
        false => connection.frames.wait_for_turn(id),
    }
}

/// Sends the trailer section, if there is one.
fn send_trailers(connection: &mut ServerConnection, stream: &mut Stream, id: StreamId) {
    if !stream.trailers.is_empty() {
        let fields = Fields::of_lines(&stream.trailers);
        connection.frames.send_trailers(id, fields, &mut connection.out);
    }
}

/// Translates a part of a request. Returns `None` if it cannot be sent.
fn write(
    connection: &mut ServerConnection,
    stream: &mut Stream,
    key: u32,
    bytes: &[u8],
) -> Option<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        match &mut stream.content {
            Content::Head => {
                let request = RequestParser::new().parse(rest, &HEAD_LIMITS).ok()??;
                let end = request.body == Body::None;
                let ServerConnection { frames, out, .. } = &mut *connection;
                let id = frames.send_request(&request, end, out).ok()?;
                connection.streams.push((id, key));
                stream.id = Some(id);
                stream.content = match stream.is_upgrade {
                    true => Content::Tunnel,
                    false if end => Content::Done,
                    false => {
                        let reader = BodyReader::new(request.body, u64::MAX, &HEAD_LIMITS);
                        Content::Body(reader.ok()?)
                    }
                };
                rest = rest.get(request.head_len..)?;
            }
            Content::Body(reader) => {
                let segment = reader.read_with_trailers(rest, &mut stream.trailers).ok()?;
                let content = rest.get(segment.data)?;
                rest = rest.get(segment.consumed..)?;
                if segment.done {
                    stream.content = Content::Done;
                }
                queue(connection, stream, content, segment.done);
            }
            Content::Tunnel => {
                queue(connection, stream, rest, false);
                rest = &[];
            }
            Content::Done => return None,
        }
    }
    Some(())
}

/// Returns whether this many bytes of content can be sent at present.
fn is_permitted(connection: &mut ServerConnection, stream: &Stream, count: usize) -> bool {
    let has_space = !connection.is_blocked && connection.out.len() < MAX_OUT;
    count == 0 || has_space && stream.id.is_some_and(|id| connection.frames.window(id) >= count)
}

/// Sends content as far as the windows permit, and stores the rest.
fn queue(connection: &mut ServerConnection, stream: &mut Stream, content: &[u8], ends: bool) {
    let Some(id) = stream.id else { return };
    stream.ends |= ends;
    let must_wait = connection.is_blocked || connection.out.len() >= MAX_OUT;
    if must_wait || stream.has_pending() || content.len() < MIN_PIECE {
        stream.append(content);
        if stream.has_pending() {
            return connection.frames.wait_for_turn(id);
        }
    }
    let ends = stream.ends && stream.trailers.is_empty();
    let content = if stream.has_pending() { &[] } else { content };
    let sent = connection.frames.send_data(id, content, ends, &mut connection.out);
    match content.get(sent..) {
        Some(rest @ [_, ..]) => stream.append(rest),
        _ if stream.ends => send_trailers(connection, stream, id),
        _ => {}
    }
}
