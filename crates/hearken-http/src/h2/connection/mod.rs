//! The state of a connection.

mod control;
mod data;
mod headers;
mod receive;
mod send;

use std::sync::Arc;

use super::budget::Budgets;
use super::error::{ConnectionError, ErrorCode};
use super::event::Event;
use super::frame::{self, DEFAULT_WINDOW, PREFACE};
use super::hpack::{Decoder, Encoder};
use super::limits::Config;
use super::priority::Priority;
use super::settings::{self, PeerSettings};
use super::stream::{StreamId, Streams};
use send::MAX_STREAM;
pub use send::Unavailable;

use headers::Block;
use receive::Inbound;

/// Maximum number of streams that were reset here whose late frames are recognised.
const MAX_RECENT_RESETS: usize = 32;

/// One endpoint of an HTTP/2 connection, without I/O.
///
/// [`receive`](Self::receive) converts bytes to [events](Event). Commands and events append frames to an
/// output buffer, which the caller sends. A connection stores neither requests nor content: its memory
/// consists of its open streams, compression tables, and a frame or field block that is incomplete.
#[derive(Debug)]
pub struct Connection {
    config: Arc<Config>,
    is_server: bool,
    inbound: Inbound,
    /// The start of an incomplete frame.
    partial: Vec<u8>,
    /// Number of incomplete frames and field blocks so far.
    incomplete: u32,
    /// An incomplete field block.
    block: Option<Box<Block>>,
    decoder: Decoder,
    encoder: Encoder,
    streams: Streams,
    peer: PeerSettings,
    /// Whether the peer has acknowledged our settings.
    is_acknowledged: bool,
    /// Window for sending, and for receiving.
    send_window: i64,
    receive_window: i64,
    /// Number of bytes that were released but not yet announced to the peer.
    released: u32,
    budgets: Budgets,
    /// The largest identifier of a stream that the client has opened.
    last_stream: u32,
    /// The largest identifier of a stream that the peer, or that this endpoint, still processes.
    last_accepted: u32,
    is_shutting_down: bool,
    /// Whether streams after `last_accepted` remain to be reported as refused.
    refuses: bool,
    recent_resets: Vec<u32>,
    /// The largest identifier of a stream that this client has reset. It may reset all streams together,
    /// so it recognises late frames by this number.
    last_client_reset: u32,
    early_priorities: Vec<(u32, Priority)>,
    error: Option<ConnectionError>,
}

impl Connection {
    /// Creates the server's side of a connection and appends its settings to `out`.
    pub fn server(config: Arc<Config>, out: &mut Vec<u8>) -> Self {
        Self::new(config, true, out)
    }

    /// Creates the client's side of a connection and appends the preface and its settings to `out`.
    pub fn client(config: Arc<Config>, out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(PREFACE);
        Self::new(config, false, out)
    }

    fn new(config: Arc<Config>, is_server: bool, out: &mut Vec<u8>) -> Self {
        let limits = &config.limits;
        frame::write_settings(out, &settings::announced(&config, is_server));
        let window = limits.connection_window.clamp(DEFAULT_WINDOW, i32::MAX as u32);
        if window > DEFAULT_WINDOW {
            frame::write_window_update(out, 0, window - DEFAULT_WINDOW);
        }
        Self {
            inbound: if is_server { Inbound::Preface(0) } else { Inbound::FirstFrame },
            is_server,
            partial: Vec::new(),
            incomplete: 0,
            block: None,
            decoder: Decoder::new(),
            encoder: Encoder::new(limits.encoder_table_bytes),
            streams: Streams::default(),
            peer: PeerSettings::new(),
            is_acknowledged: false,
            send_window: DEFAULT_WINDOW.into(),
            receive_window: window.into(),
            released: 0,
            budgets: Budgets::new(limits),
            last_stream: 0,
            last_accepted: u32::MAX,
            is_shutting_down: false,
            refuses: false,
            recent_resets: Vec::new(),
            last_client_reset: 0,
            early_priorities: Vec::new(),
            error: None,
            config,
        }
    }

    /// Returns the number of open streams.
    pub fn active_streams(&self) -> usize {
        self.streams.len()
    }

    /// Returns the number of requests that can be sent now, for a client.
    pub fn free_streams(&self) -> usize {
        match self.is_shutting_down || self.last_stream >= MAX_STREAM {
            true => 0,
            false => (self.peer.max_streams as usize).saturating_sub(self.streams.len()),
        }
    }

    /// Returns whether all streams have ended and no new ones will begin, so that the caller closes the
    /// connection.
    pub fn is_finished(&self) -> bool {
        self.is_shutting_down && self.streams.len() == 0
    }

    /// Returns whether no new streams are accepted.
    pub fn is_shutting_down(&self) -> bool {
        self.is_shutting_down
    }

    /// Returns whether content of any stream waits for a window. The caller limits the time.
    pub fn is_waiting(&self) -> bool {
        self.streams.waiting() > 0
    }

    /// Returns the number of bytes stored for incomplete frames and field blocks.
    pub fn buffered_bytes(&self) -> usize {
        self.partial.len() + self.block.as_ref().map_or(0, |block| block.len())
    }

    /// Returns the number of the frame or field block that is incomplete, if there is one.
    pub fn incomplete(&self) -> Option<u32> {
        (self.buffered_bytes() > 0).then_some(self.incomplete)
    }

    /// Notes that the caller has sent all output.
    #[inline]
    pub fn output_sent(&mut self) {
        self.budgets.acknowledgements_sent();
    }

    /// Notes that time has passed, which restores a part of the budget of overhead.
    pub fn elapse(&mut self, seconds: u32) {
        let limits = &self.config.limits;
        let bytes = limits.overhead_bytes_per_second.saturating_mul(seconds);
        self.budgets.earn(bytes as usize, limits);
    }

    /// Ends a stream after an error of the peer and appends RST_STREAM. Returns the event for the caller.
    #[cold]
    fn stream_error(
        &mut self,
        id: u32,
        code: ErrorCode,
        reason: &'static str,
        out: &mut Vec<u8>,
    ) -> Result<Event<'static>, ConnectionError> {
        self.drop_stream(id, code, out);
        if self.is_server {
            self.budgets.count_reset()?;
        }
        Ok(Event::Reset { stream: StreamId(id), code, reason })
    }

    /// Removes a stream and appends RST_STREAM.
    fn drop_stream(&mut self, id: u32, code: ErrorCode, out: &mut Vec<u8>) {
        self.streams.remove(id);
        frame::write_reset(out, id, code);
        if !self.is_server {
            self.last_client_reset = self.last_client_reset.max(id);
            return;
        }
        if self.recent_resets.len() == MAX_RECENT_RESETS {
            self.recent_resets.remove(0);
        }
        self.recent_resets.push(id);
    }

    /// Removes the stream if both sides have ended it.
    #[inline(always)]
    fn remove_if_finished(&mut self, id: u32) {
        if self.streams.get(id).is_some_and(|stream| stream.is_finished()) {
            self.streams.remove(id);
            self.budgets.count_finished(&self.config.limits);
        }
    }

    /// Returns whether frames on a stream that does not exist are ignored: the peer may have sent them
    /// before it received a reset or GOAWAY.
    fn ignores(&self, id: u32) -> bool {
        id > self.last_accepted || id <= self.last_client_reset || self.recent_resets.contains(&id)
    }

    /// Returns whether a stream was never used.
    fn is_unused(&self, id: u32) -> bool {
        id > self.last_stream || id.is_multiple_of(2)
    }
}

/// Returns whether `bytes` starts with the preface of HTTP/2. Returns `None` if more bytes are needed.
///
/// A server without ALPN distinguishes HTTP/2 with prior knowledge from HTTP/1.1 by the first bytes.
///
/// ```
/// use hearken_http::h2::is_preface;
///
/// assert_eq!(is_preface(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), Some(true));
/// assert_eq!(is_preface(b"PUT"), Some(false));
/// assert_eq!(is_preface(b"P"), None);
/// ```
pub fn is_preface(bytes: &[u8]) -> Option<bool> {
    if bytes.len() >= PREFACE.len() {
        return Some(bytes.starts_with(PREFACE));
    }
    if PREFACE.starts_with(bytes) { None } else { Some(false) }
}
