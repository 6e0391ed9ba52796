//! HTTP/2 connections of clients.
//!
//! A connection is recognised by its first bytes, over TLS and without. Each of its streams is a request of
//! the front. Handlers see no difference: requests have the form of HTTP/1.1, bodies are framed as in
//! HTTP/1.1, and the responses that handlers write are translated to frames.
//!
//! | part | contents |
//! |---|---|
//! | `connection` | the state of a connection and of its streams |
//! | `receive` | frames of the client: requests, bodies, the end of the connection |
//! | `respond` | responses as frames |
//! | `backpressure` | bounds the content that waits for a client |
//! | `flush` | sends the frames of a turn at once; timeouts; the end of a connection |

mod backpressure;
mod connection;
mod flush;
mod receive;
mod respond;

use std::collections::VecDeque;
use std::sync::Arc;

use hearken::Token;
use hearken_http::h2::{self, HeadBuffer, StreamId};

use connection::{ClientConnection, Stream};

/// Maximum capacity in bytes of a buffer that is retained for other connections.
const MAX_RETAINED_BYTES: usize = 128 * 1024;
/// Size in bytes of the frames of a connection at which they are sent before the turn ends.
const MAX_OUT: usize = 64 * 1024;
/// Maximum number of buffers that are retained.
const MAX_SPARE_BUFFERS: usize = 16;

/// The HTTP/2 connections of a front.
pub(super) struct Http2 {
    /// Settings, if clients may use HTTP/2.
    config: Option<Arc<h2::Config>>,
    /// Connections by the slots of their tokens.
    connections: Vec<Option<Box<ClientConnection>>>,
    /// Streams by the indices of their requests.
    streams: Vec<Stream>,
    /// Memory for the heads of requests, except while one is processed.
    head: Option<Box<HeadBuffer>>,
    /// Content of a request as chunks, or of a file.
    scratch: Vec<u8>,
    /// Empty buffers for output.
    spare: Vec<Vec<u8>>,
    /// Connections that continue at the end of the turn.
    pending: VecDeque<Token>,
    /// Whether a stream has stored content that its window does not permit.
    has_stored: bool,
}

impl Http2 {
    pub(super) fn new(config: Option<h2::Config>) -> Http2 {
        Http2 {
            config: config.map(Arc::new),
            connections: Vec::new(),
            streams: Vec::new(),
            head: None,
            scratch: Vec::new(),
            spare: Vec::new(),
            pending: VecDeque::new(),
            has_stored: false,
        }
    }

    /// Returns the number of connections that continue at the end of the turn.
    #[inline]
    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }

    #[inline]
    fn get(&mut self, token: Token) -> Option<&mut ClientConnection> {
        let connection = self.connections.get_mut(token.slot() as usize)?.as_deref_mut()?;
        (connection.token == token).then_some(connection)
    }

    fn insert(&mut self, connection: ClientConnection) {
        let slot = connection.token.slot() as usize;
        if slot >= self.connections.len() {
            self.connections.resize_with(slot + 1, || None);
        }
        self.connections[slot] = Some(Box::new(connection));
    }

    /// Removes a connection, whose requests have ended.
    #[cold]
    pub(super) fn remove(&mut self, token: Token) {
        if self.get(token).is_some() {
            self.connections[token.slot() as usize] = None;
        }
    }

    /// Makes a connection continue at the end of the turn.
    #[inline]
    fn mark_pending(&mut self, token: Token) {
        if let Some(connection) = self.get(token)
            && !std::mem::replace(&mut connection.is_pending, true)
        {
            self.pending.push_back(token);
        }
    }

    /// Returns the stream of a request.
    #[inline]
    pub(super) fn stream(&mut self, index: u32) -> &mut Stream {
        let index = index as usize;
        if index >= self.streams.len() {
            self.streams.resize_with(index + 1, Stream::default);
        }
        &mut self.streams[index]
    }

    /// Returns the connection and the stream of a request.
    #[inline]
    fn pair(&mut self, token: Token, index: u32) -> Option<(&mut ClientConnection, &mut Stream)> {
        let connection = self.connections.get_mut(token.slot() as usize)?.as_deref_mut()?;
        let stream = self.streams.get_mut(index as usize)?;
        (connection.token == token).then_some((connection, stream))
    }

    /// Begins the stream of a request.
    fn begin_stream(&mut self, token: Token, index: u32, id: StreamId, is_received: bool) {
        self.stream(index).begin(id, is_received);
        if let Some(connection) = self.get(token) {
            connection.streams.push((id, index));
            connection.last_begun = Some(id);
        }
        self.lend_buffer(token);
    }

    /// Gives a connection a buffer for output.
    #[inline]
    fn lend_buffer(&mut self, token: Token) {
        if let Some(connection) = self.connections.get_mut(token.slot() as usize)
            && let Some(connection) = connection
            && connection.out.capacity() == 0
            && let Some(buffer) = self.spare.pop()
        {
            connection.out = buffer;
        }
    }

    /// Retains an empty buffer for other connections.
    #[inline]
    fn keep_buffer(&mut self, mut buffer: Vec<u8>) {
        buffer.clear();
        if self.spare.len() < MAX_SPARE_BUFFERS
            && (1..=MAX_RETAINED_BYTES).contains(&buffer.capacity())
        {
            self.spare.push(buffer);
        }
    }

    /// Returns the number of buffered bytes of all connections.
    #[cfg(feature = "simulation")]
    pub(super) fn buffered_bytes(&self) -> usize {
        let connections = self.connections.iter().flatten();
        let streams = self.streams.iter().map(Stream::pending_bytes);
        connections.map(|connection| connection.buffered_bytes()).chain(streams).sum()
    }
}
