//! The state of an HTTP/2 connection and of its streams.

use hearken::Token;
use hearken::io::Body;
use hearken::timer::Time;
use hearken_http::BodyReader;
use hearken_http::h2::{self, StreamId};

/// Maximum capacity in bytes of a stream's buffer that is retained for the next stream.
const MAX_RETAINED_BYTES: usize = 16 * 1024;

/// An HTTP/2 connection of a client.
pub(super) struct ClientConnection {
    pub(super) token: Token,
    pub(super) frames: h2::Connection,
    /// Streams in the order of their identifiers, with the indices of their requests.
    pub(super) streams: Vec<(StreamId, u32)>,
    /// The last stream on which a request has begun.
    pub(super) last_begun: Option<StreamId>,
    /// Frames to send.
    pub(super) out: Vec<u8>,
    /// Received bytes that are processed after `out` was sent.
    pub(super) received: Vec<u8>,
    /// Whether the connection continues at the end of the turn.
    pub(super) is_pending: bool,
    /// Whether the connection is closed after `out` was sent.
    pub(super) is_closing: bool,
    /// Whether the transport has taken bytes that it has not sent.
    pub(super) is_blocked: bool,
    /// Whether the streams store so much content that other responses are held back.
    pub(super) is_congested: bool,
    /// Time up to which the budget of overhead was restored.
    pub(super) elapsed_at: Time,
    /// Deadline while there are no streams.
    pub(super) idle_deadline: Time,
    /// Number of the frame or field block that is incomplete.
    pub(super) incomplete: Option<u32>,
    /// Its deadline.
    pub(super) head_deadline: Option<Time>,
    /// End of the period over which the rate of the responses is measured, while they wait for the client.
    pub(super) send_deadline: Option<Time>,
    /// Number of bytes that the client must have taken at the next rate check.
    pub(super) min_taken: Option<u64>,
    /// Whether `min_taken` counts content in frames, because the windows are closed, instead of bytes that
    /// the client has acknowledged.
    pub(super) measures_content: bool,
    /// Lower bound of the deadlines of all requests.
    pub(super) request_deadline: Option<Time>,
    /// Number of content bytes in frames so far.
    pub(super) content_bytes: u64,
}

impl ClientConnection {
    /// Creates the state of a connection whose preface has begun. `idle_deadline` is the deadline of its
    /// first request.
    pub(super) fn new(
        token: Token,
        frames: h2::Connection,
        out: Vec<u8>,
        now: Time,
        idle_deadline: Time,
    ) -> ClientConnection {
        ClientConnection {
            token,
            frames,
            streams: Vec::new(),
            last_begun: None,
            out,
            received: Vec::new(),
            is_pending: false,
            is_closing: false,
            is_blocked: false,
            is_congested: false,
            elapsed_at: now,
            idle_deadline,
            incomplete: None,
            head_deadline: None,
            send_deadline: None,
            min_taken: None,
            measures_content: false,
            request_deadline: None,
            content_bytes: 0,
        }
    }

    /// Returns the index of the request of a stream.
    #[inline]
    pub(super) fn find(&self, id: StreamId) -> Option<u32> {
        let at = self.streams.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        Some(self.streams[at].1)
    }

    /// Removes a stream from the list of those with a request.
    pub(super) fn forget(&mut self, id: StreamId) {
        if let Ok(at) = self.streams.binary_search_by_key(&id, |(id, _)| *id) {
            self.streams.remove(at);
        }
        if self.streams.is_empty() {
            self.request_deadline = None;
            if self.streams.capacity() > 4 {
                self.streams = Vec::new();
            }
        }
    }

    /// Returns whether nothing is in progress.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.streams.is_empty()
            && self.out.is_empty()
            && self.received.is_empty()
            && !self.is_blocked
            && !self.is_closing
            && self.head_deadline.is_none()
    }

    /// Returns whether responses wait for the client.
    #[inline]
    pub(super) fn waits_for_client(&self) -> bool {
        self.is_blocked || self.frames.is_waiting()
    }

    #[cfg(feature = "simulation")]
    pub(super) fn buffered_bytes(&self) -> usize {
        self.out.len() + self.received.len() + self.frames.buffered_bytes()
    }
}

/// The stream of a request. Its memory is reused.
#[derive(Debug, Default)]
pub(in crate::front) struct Stream {
    id: Option<StreamId>,
    /// Content that waits for a window, from `sent` on.
    pending: Vec<u8>,
    sent: usize,
    /// Content after `pending`.
    pub(super) body: Body,
    /// Whether the stream ends after this content.
    pub(super) ends: bool,
    /// Whether the handler has paused the response although no content of it is stored.
    pub(in crate::front) is_held: bool,
    /// Lines of the trailer section that follows the content.
    pub(super) trailers: Vec<u8>,
    pub(super) response: ResponseState,
    /// Whether the client has ended its side.
    pub(super) is_received: bool,
    /// Number of received bytes that were not released to the client's window.
    pub(super) unreleased: usize,
}

/// The part of a response that is written next.
#[derive(Debug, Default)]
pub(super) enum ResponseState {
    #[default]
    Head,
    Body(BodyReader),
    /// The bytes of a tunnel.
    Tunnel,
    /// All content was written.
    Done,
    /// An upgrade was refused. The content of the handler's response is discarded.
    Refused,
}

impl Stream {
    /// Begins a new stream.
    pub(super) fn begin(&mut self, id: StreamId, is_received: bool) {
        self.id = Some(id);
        (self.ends, self.is_received, self.unreleased) = (false, is_received, 0);
        self.is_held = false;
        self.response = ResponseState::Head;
    }

    /// Ends the stream and discards content that waits. Returns its identifier.
    pub(super) fn end(&mut self) -> Option<StreamId> {
        self.pending.clear();
        if self.pending.capacity() > MAX_RETAINED_BYTES {
            self.pending = Vec::new();
        }
        self.trailers.clear();
        (self.sent, self.body) = (0, Body::None);
        self.id.take()
    }

    /// Returns the identifier, unless the stream has ended.
    #[inline]
    pub(super) fn id(&self) -> Option<StreamId> {
        self.id
    }

    /// Returns whether content waits to be sent.
    #[inline]
    pub(in crate::front) fn has_pending(&self) -> bool {
        self.sent < self.pending.len() || !matches!(self.body, Body::None)
    }

    /// Returns whether the client has ended its side.
    pub(in crate::front) fn is_received(&self) -> bool {
        self.is_received
    }

    /// Returns the content that waits, without the body.
    pub(super) fn pending(&self) -> &[u8] {
        self.pending.get(self.sent..).unwrap_or_default()
    }

    /// Appends content that waits.
    pub(super) fn append(&mut self, content: &[u8]) {
        self.pending.extend_from_slice(content);
    }

    /// Removes content that was sent.
    pub(super) fn consume(&mut self, count: usize) {
        self.sent += count;
        if self.sent >= self.pending.len() {
            self.pending.clear();
            self.sent = 0;
        }
    }

    /// Returns the number of bytes in memory that wait to be sent.
    #[cfg(feature = "simulation")]
    pub(super) fn pending_bytes(&self) -> usize {
        self.pending().len()
    }
}
