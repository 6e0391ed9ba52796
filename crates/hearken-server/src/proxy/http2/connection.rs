//! The state of a connection and of its streams.

use hearken::timer::Time;
use hearken_http::BodyReader;
use hearken_http::h2::{self, StreamId};

use super::MAX_WAITING;

/// Maximum capacity in bytes of a buffer that is retained.
const MAX_RETAINED_BYTES: usize = 16 * 1024;

/// An HTTP/2 connection to a server.
pub(super) struct ServerConnection {
    pub(super) frames: h2::Connection,
    /// Streams in the order of their identifiers, with the keys of their entries.
    pub(super) streams: Vec<(StreamId, u32)>,
    /// Keys of the streams whose requests wait until the connection is established, and until the
    /// server's settings were received, except for the first.
    pub(super) waiting: Vec<u32>,
    /// Keys of streams that have stored content and are no longer paused.
    pub(super) resumed: Vec<u32>,
    /// Frames to send.
    pub(super) out: Vec<u8>,
    pub(super) is_connected: bool,
    /// Whether the server's settings were received.
    pub(super) has_settings: bool,
    /// Whether a request was sent.
    pub(super) is_used: bool,
    /// Whether no further requests may be sent.
    pub(super) is_draining: bool,
    /// Whether the transport has taken bytes that it has not sent, or sending has failed.
    pub(super) is_blocked: bool,
    /// Whether receiving is paused.
    pub(super) is_paused: bool,
    /// Whether the connection continues at the end of the turn.
    pub(super) is_pending: bool,
    /// Time at which something was last received.
    pub(super) received_at: Time,
    /// Time up to which the budget of overhead was restored.
    pub(super) elapsed_at: Time,
    /// Deadline of the requests that wait.
    pub(super) waiting_deadline: Option<Time>,
    /// Deadline of a connection without streams.
    pub(super) idle_deadline: Option<Time>,
    /// The deadline that was set: a lower bound of all deadlines.
    pub(super) deadline: Option<Time>,
}

impl ServerConnection {
    pub(super) fn new(frames: h2::Connection, out: Vec<u8>, now: Time) -> ServerConnection {
        ServerConnection {
            frames,
            streams: Vec::new(),
            waiting: Vec::new(),
            resumed: Vec::new(),
            out,
            is_connected: false,
            has_settings: false,
            is_used: false,
            is_draining: false,
            is_blocked: false,
            is_paused: false,
            is_pending: false,
            received_at: now,
            elapsed_at: now,
            waiting_deadline: None,
            idle_deadline: None,
            deadline: None,
        }
    }

    /// Returns the key of a stream's entry.
    pub(super) fn find(&self, id: StreamId) -> Option<u32> {
        let at = self.streams.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        self.streams.get(at).map(|(_, key)| *key)
    }

    /// Removes a stream.
    pub(super) fn forget(&mut self, id: Option<StreamId>, key: u32) {
        match id {
            Some(id) => self.streams.retain(|(stream, _)| *stream != id),
            None => self.waiting.retain(|&waiting| waiting != key),
        }
    }

    /// Returns whether another request can be sent or wait.
    pub(super) fn has_capacity(&self) -> bool {
        let max = if self.has_settings { self.frames.free_streams() } else { MAX_WAITING };
        !self.is_draining && self.waiting.len() < max
    }

    /// Returns whether a request that waits can be sent. Until the settings of the server are known,
    /// there is one stream.
    pub(super) fn can_send(&self) -> bool {
        self.is_connected
            && match self.has_settings {
                true => self.frames.free_streams() > 0,
                false => self.streams.is_empty(),
            }
    }

    /// Returns whether there are no requests.
    pub(super) fn is_idle(&self) -> bool {
        self.streams.is_empty() && self.waiting.is_empty()
    }

    #[cfg(feature = "simulation")]
    pub(super) fn buffered_bytes(&self) -> usize {
        self.out.len() + self.frames.buffered_bytes()
    }
}

/// A stream. Its memory is reused.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// Key of the connection.
    pub(super) connection: u32,
    /// The identifier, after the request was sent and until the stream ends.
    pub(super) id: Option<StreamId>,
    /// Whether the request is for a WebSocket.
    pub(super) is_upgrade: bool,
    pub(super) content: Content,
    /// Content that waits for a window or the transport, from `sent` on.
    pending: Vec<u8>,
    sent: usize,
    /// Whether the request ends after this content.
    pub(super) ends: bool,
    /// Trailer section of the request, as lines with an empty one before and after them.
    pub(super) trailers: Vec<u8>,
    /// Content that was received while the stream was paused.
    pub(super) received: Vec<u8>,
    /// Number of received bytes that were not released to the server's window.
    pub(super) unreleased: usize,
    pub(super) deadline: Option<Time>,
}

/// The content that follows the head of a request.
#[derive(Debug, Default)]
pub(super) enum Content {
    /// The head was not sent.
    #[default]
    Head,
    Body(BodyReader),
    /// The bytes of a tunnel.
    Tunnel,
    /// All content was written.
    Done,
}

impl Stream {
    /// Begins a new stream.
    pub(super) fn begin(&mut self, connection: u32, is_upgrade: bool) {
        self.end();
        (self.connection, self.is_upgrade) = (connection, is_upgrade);
    }

    /// Ends the stream and discards its content. Returns its identifier and the number of bytes that were
    /// not released.
    pub(super) fn end(&mut self) -> (Option<StreamId>, usize) {
        for buffer in [&mut self.pending, &mut self.trailers, &mut self.received] {
            buffer.clear();
            if buffer.capacity() > MAX_RETAINED_BYTES {
                *buffer = Vec::new();
            }
        }
        (self.sent, self.ends, self.deadline) = (0, false, None);
        self.content = Content::Head;
        (self.id.take(), std::mem::take(&mut self.unreleased))
    }

    /// Returns whether content waits to be sent.
    pub(super) fn has_pending(&self) -> bool {
        self.sent < self.pending.len()
    }

    /// Returns the content that waits.
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
}
