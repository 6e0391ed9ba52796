//! Commands: sending heads, content and control frames.

use std::fmt;

use super::Connection;
use crate::h2::error::ErrorCode;
use crate::h2::frame::{self, DEFAULT_WINDOW, HEADER_BYTES, flag, kind};
use crate::h2::priority::Priority;
use crate::h2::stream::{Stream, StreamId};
use crate::method::Method;
use crate::name_filter::NameFilter;
use crate::request::Request;
use crate::target::Target;

/// A reason why a request cannot be sent on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unavailable {
    /// The peer permits no more streams at present.
    Busy,
    /// The connection accepts no new requests. Another connection is needed.
    Closed,
    /// The server does not support upgrades to a WebSocket, or the upgrade is to another protocol.
    Upgrade,
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Busy => "the server permits no more streams at present",
            Self::Closed => "the connection accepts no new requests",
            Self::Upgrade => "the server does not support this upgrade",
        })
    }
}

impl std::error::Error for Unavailable {}

impl Connection {
    /// Appends the head of a response, final or interim. `end` ends the stream. Returns false if the stream
    /// does not exist or has already been answered.
    ///
    /// Fields of a connection are omitted, so that `fields` may be those of an HTTP/1.1 response. Names
    /// must be tokens and values valid. Status 101 becomes the 200 that answers extended CONNECT. On other
    /// streams, 101 is invalid and nothing is sent.
    #[inline]
    pub fn respond<N: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        stream: StreamId,
        status: u16,
        fields: impl IntoIterator<Item = (N, V)>,
        end: bool,
        out: &mut Vec<u8>,
    ) -> bool {
        let Some(state) = self.streams.get(stream.0) else { return false };
        let switches = status == 101;
        if state.is(Stream::RESPONDED | Stream::SEND_ENDED)
            || switches && !state.is(Stream::UPGRADE)
        {
            return false;
        }
        let is_interim = status < 200 && !switches;
        let end = end && !is_interim;
        if !is_interim {
            state.set(Stream::RESPONDED);
        }
        if end {
            state.set(Stream::SEND_ENDED);
        }
        let start = self.begin_headers(out);
        self.encoder.status(out, if switches { 200 } else { status });
        for (name, value) in fields {
            self.add_field(out, name.as_ref(), value.as_ref(), switches);
        }
        self.finish_headers(out, start, stream.0, end);
        true
    }

    /// Appends a request, given in the form of HTTP/1.1, and returns its new stream. `end` means that no
    /// body follows.
    ///
    /// A request for an upgrade to a WebSocket becomes an extended CONNECT, which 101 answers.
    ///
    /// # Errors
    ///
    /// The request cannot be sent on this connection, or not yet.
    pub fn send_request(
        &mut self,
        request: &Request<'_>,
        end: bool,
        out: &mut Vec<u8>,
    ) -> Result<StreamId, Unavailable> {
        let id = if self.last_stream == 0 { 1 } else { self.last_stream + 2 };
        if self.is_server || self.is_shutting_down || id > MAX_STREAM {
            return Err(Unavailable::Closed);
        }
        if self.streams.len() >= self.peer.max_streams as usize {
            return Err(Unavailable::Busy);
        }
        let is_upgrade = request.upgrade().is_some();
        if is_upgrade {
            let is_websocket =
                request.upgrade_protocols().all(|name| name.eq_ignore_ascii_case(b"websocket"));
            if !is_websocket || !self.peer.extended_connect {
                return Err(Unavailable::Upgrade);
            }
        }
        let limits = &self.config.limits;
        let mut flags = match request.method {
            _ if is_upgrade => Stream::UPGRADE,
            Method::Head => Stream::HEAD,
            Method::Connect => Stream::CONNECT,
            _ => 0,
        };
        if end && !is_upgrade {
            flags |= Stream::SEND_ENDED;
        }
        self.last_stream = id;
        let window = match self.is_acknowledged {
            true => limits.stream_window,
            false => limits.stream_window.max(DEFAULT_WINDOW),
        };
        self.streams.push(Stream::new(id, self.peer.stream_window, window, flags));

        let start = self.begin_headers(out);
        self.write_pseudo_fields(request, is_upgrade, out);
        for (name, value) in request.fields() {
            if !name.eq_ignore_ascii_case(b"host") {
                self.add_field(out, name, value, is_upgrade);
            }
        }
        self.finish_headers(out, start, id, flags & Stream::SEND_ENDED != 0);
        Ok(StreamId(id))
    }

    fn write_pseudo_fields(&mut self, request: &Request<'_>, is_upgrade: bool, out: &mut Vec<u8>) {
        let is_https = self.config.is_https;
        let (encoder, target) = (&mut self.encoder, request.target());
        match is_upgrade {
            true => {
                encoder.method(out, b"CONNECT");
                encoder.protocol(out, b"websocket");
            }
            false => encoder.method(out, request.method.as_bytes()),
        }
        if let Target::Authority(authority) = target {
            return encoder.authority(out, authority);
        }
        encoder.scheme(out, is_https);
        match request.host {
            None | Some([]) => {}
            Some(host) => encoder.authority(out, host),
        }
        match target {
            // The path includes the query.
            Target::Absolute { scheme, authority, .. } => {
                let start = scheme.len() + b"://".len() + authority.len();
                match request.raw_target.get(start..).unwrap_or_default() {
                    [] if request.method == Method::Options => encoder.path(out, b"*"),
                    path @ [b'/', ..] => encoder.path(out, path),
                    query => encoder.path(out, &[b"/", query].concat()),
                }
            }
            _ => encoder.path(out, request.raw_target),
        }
    }

    /// Appends content, which follows the head, and returns how many bytes of it the windows permitted,
    /// which may be 0. `end` ends the stream if all bytes were accepted.
    ///
    /// If fewer were accepted, the stream waits: [`next_writable`](Self::next_writable) returns it when it
    /// can continue. If the stream does not exist, all bytes are discarded.
    #[inline]
    pub fn send_data(
        &mut self,
        stream: StreamId,
        data: &[u8],
        end: bool,
        out: &mut Vec<u8>,
    ) -> usize {
        let mut rest = data;
        loop {
            let Some(len) = self.data_header(stream, rest.len(), end, out) else {
                return data.len();
            };
            let (content, after) = rest.split_at(len.min(rest.len()));
            out.extend_from_slice(content);
            rest = after;
            if rest.is_empty() || content.is_empty() {
                return data.len() - rest.len();
            }
        }
    }

    /// Appends the header of one DATA frame for up to `len` bytes of content and returns the number of
    /// bytes, which the caller sends directly after the header. Returns 0 if nothing can be sent now.
    ///
    /// Returns `None` if the stream does not exist or was ended. Otherwise like
    /// [`send_data`](Self::send_data).
    #[inline]
    pub fn data_header(
        &mut self,
        stream: StreamId,
        len: usize,
        end: bool,
        out: &mut Vec<u8>,
    ) -> Option<usize> {
        let id = stream.0;
        let state = self.streams.get(id).filter(|state| !state.is(Stream::SEND_ENDED))?;
        let window = self.send_window.min(state.send_window).max(0) as usize;
        let count = len.min(window).min(self.peer.max_frame_bytes as usize);
        if count < len {
            self.streams.wait(id);
            if count == 0 {
                return Some(0);
            }
        } else {
            self.streams.stop_waiting(id);
            if count == 0 && !end {
                return Some(0);
            }
        }
        let is_last = end && count == len;
        let flags = if is_last { flag::END_STREAM } else { 0 };
        frame::write_header(out, count, kind::DATA, flags, id);
        self.budgets.earn(count, &self.config.limits);
        self.send_window -= count as i64;
        if let Some(state) = self.streams.get(id) {
            state.send_window -= count as i64;
            state.flags |= if is_last { Stream::SEND_ENDED } else { 0 };
        }
        if is_last {
            self.remove_if_finished(id);
        }
        Some(count)
    }

    /// Returns the number of content bytes that the windows permit at present.
    pub fn window(&mut self, stream: StreamId) -> usize {
        let connection = self.send_window;
        let window = self.streams.get(stream.0).map(|state| state.send_window.min(connection));
        window.map_or(0, |window| window.max(0) as usize)
    }

    /// Makes the stream wait for its turn, because it has more content than was passed to
    /// [`send_data`](Self::send_data).
    pub fn wait_for_turn(&mut self, stream: StreamId) {
        self.streams.wait(stream.0);
    }

    /// Returns the waiting stream whose content is sent next by priority, if its window permits any.
    ///
    /// The stream waits until [`send_data`](Self::send_data) accepts all bytes of a call. Incremental
    /// streams of the same urgency take turns.
    #[inline]
    pub fn next_writable(&self) -> Option<StreamId> {
        if self.send_window <= 0 {
            return None;
        }
        self.streams.next_waiting().map(StreamId)
    }

    /// Appends a trailer section, which ends the stream. Returns false if the stream does not exist or was
    /// ended.
    pub fn send_trailers<N: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        stream: StreamId,
        fields: impl IntoIterator<Item = (N, V)>,
        out: &mut Vec<u8>,
    ) -> bool {
        match self.streams.get(stream.0) {
            Some(state) if !state.is(Stream::SEND_ENDED) => state.set(Stream::SEND_ENDED),
            _ => return false,
        }
        self.streams.stop_waiting(stream.0);
        let start = self.begin_headers(out);
        for (name, value) in fields {
            self.add_field(out, name.as_ref(), value.as_ref(), false);
        }
        self.finish_headers(out, start, stream.0, true);
        true
    }

    /// Ends a stream at once and appends RST_STREAM. Does nothing if the stream does not exist.
    pub fn reset(&mut self, stream: StreamId, code: ErrorCode, out: &mut Vec<u8>) {
        if self.streams.get(stream.0).is_some() {
            self.drop_stream(stream.0, code, out);
        }
    }

    /// Ends the use of a stream whose response was processed. Resets the stream unless it only lacks the
    /// announcement of the peer's end, which is then ignored.
    pub fn close_stream(&mut self, stream: StreamId, code: ErrorCode, out: &mut Vec<u8>) {
        let Some(state) = self.streams.get(stream.0) else { return };
        if !state.is(Stream::SEND_ENDED) || state.content_left != Some(0) {
            self.drop_stream(stream.0, code, out);
        }
    }

    /// Appends a PING frame, which [`Event::Pong`](crate::h2::Event::Pong) answers.
    pub fn ping(&mut self, payload: [u8; 8], out: &mut Vec<u8>) {
        frame::write_ping(out, 0, payload);
    }

    /// Appends a PRIORITY_UPDATE frame of a client.
    pub fn prioritize(&mut self, stream: StreamId, priority: Priority, out: &mut Vec<u8>) {
        let mut value = *b"u=0, i";
        value[2] = b'0' + priority.urgency.min(7);
        let value = value.get(..if priority.incremental { 6 } else { 3 }).unwrap_or_default();
        frame::write_header(out, 4 + value.len(), kind::PRIORITY_UPDATE, 0, 0);
        out.extend_from_slice(&stream.0.to_be_bytes());
        out.extend_from_slice(value);
    }

    /// Announces that the endpoint will shut down, and appends GOAWAY. New streams are still accepted.
    /// Does nothing after [`shut_down`](Self::shut_down), because a GOAWAY frame must not name a higher
    /// stream than the one before.
    pub fn announce_shut_down(&mut self, out: &mut Vec<u8>) {
        if !self.is_shutting_down {
            frame::write_goaway(out, MAX_STREAM, ErrorCode::NO_ERROR, "");
        }
    }

    /// Accepts no new streams and appends GOAWAY with the last one that is processed. Open streams
    /// continue.
    ///
    /// The requests of a client that were sent before it knew are ignored, and the client repeats them. A
    /// caller that waits for one round trip after [`announce_shut_down`](Self::announce_shut_down) avoids
    /// that.
    pub fn shut_down(&mut self, out: &mut Vec<u8>) {
        // Streams that were ignored after a shutdown raise `last_stream`.
        let last = if self.is_server { self.last_stream.min(self.last_accepted) } else { 0 };
        if self.is_server {
            self.last_accepted = last;
        }
        self.is_shutting_down = true;
        frame::write_goaway(out, last, ErrorCode::NO_ERROR, "");
    }

    /// Returns whether the server supports requests for a WebSocket.
    pub fn supports_websocket(&self) -> bool {
        self.peer.extended_connect
    }

    /// Reserves a frame header and begins a field block. Returns the position of the header.
    #[inline(always)]
    fn begin_headers(&mut self, out: &mut Vec<u8>) -> usize {
        let start = out.len();
        out.extend_from_slice(&[0; HEADER_BYTES]);
        self.encoder.begin(out);
        start
    }

    /// Appends a field unless it belongs to the connection.
    #[inline(always)]
    fn add_field(&mut self, out: &mut Vec<u8>, name: &[u8], value: &[u8], is_upgrade: bool) {
        if OMITTED.may_contain(name, name.len()) && is_omitted(name, value, is_upgrade) {
            return;
        }
        self.encoder.field(out, name, value);
    }

    #[inline(always)]
    fn finish_headers(&mut self, out: &mut Vec<u8>, start: usize, id: u32, end: bool) {
        self.budgets.earn(out.len() - start, &self.config.limits);
        frame::finish_headers(out, start, id, end, self.peer.max_frame_bytes as usize);
        if end {
            self.remove_if_finished(id);
        }
    }
}

/// The largest identifier of a stream.
pub(super) const MAX_STREAM: u32 = (1 << 31) - 1;

/// Names of fields that may be omitted.
static OMITTED: NameFilter = NameFilter::new(&[
    "te",
    "upgrade",
    "connection",
    "keep-alive",
    "http2-settings",
    "proxy-connection",
    "transfer-encoding",
    "sec-websocket-key",
    "sec-websocket-accept",
]);

/// Returns whether a field is specific to the connection or to upgrades of HTTP/1.1.
#[cold]
#[inline(never)]
fn is_omitted(name: &[u8], value: &[u8], is_upgrade: bool) -> bool {
    let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
    let always: [&[u8]; 6] = [
        b"upgrade",
        b"connection",
        b"keep-alive",
        b"http2-settings",
        b"proxy-connection",
        b"transfer-encoding",
    ];
    always.into_iter().any(is)
        || is(b"te") && !value.eq_ignore_ascii_case(b"trailers")
        || is_upgrade && (is(b"sec-websocket-key") || is(b"sec-websocket-accept"))
}
