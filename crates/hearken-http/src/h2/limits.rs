//! Configuration of a connection, with the limits that protect against abuse.

use super::frame::MIN_MAX_FRAME_BYTES;
use crate::limits::Limits as HeadLimits;

/// The configuration of connections. Connections share it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Config {
    /// Limits on the peer.
    pub limits: Limits,
    /// Whether a server accepts extended CONNECT, RFC 8441 [default: false].
    pub extended_connect: bool,
    /// Whether the requests of a client have the scheme `https` instead of `http` [default: false].
    pub is_https: bool,
    /// Seed of the keys of WebSocket requests [default: 0]. The keys are not secret.
    pub seed: u64,
}

/// Limits on the peer of a connection.
///
/// If the peer exceeds a limit, the connection ends with `ENHANCE_YOUR_CALM`, unless the field names
/// another consequence. Only servers apply [`max_resets`](Self::max_resets).
///
/// Overhead is the size of frames that transfer neither fields nor content: PING, SETTINGS, PRIORITY,
/// PRIORITY_UPDATE, WINDOW_UPDATE, RST_STREAM, GOAWAY, empty DATA, padding and unknown types. A budget of
/// bytes bounds it. Each byte of a field block or of content, in either direction, returns one byte to the
/// budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Limits on heads and trailer sections after decompression. Larger heads result in
    /// [`Event::Rejected`](super::Event::Rejected).
    pub head: HeadLimits,
    /// Maximum number of streams at a time [default: 100]. More result in `REFUSED_STREAM`.
    pub max_streams: u32,
    /// Maximum number of streams that end by a reset, from the client or provoked by it, in excess of
    /// streams that end normally [default: 100]. Prevents rapid resets (CVE-2023-44487, CVE-2025-8671).
    pub max_resets: u32,
    /// Maximum number of CONTINUATION frames of a field block [default: 8].
    pub max_continuations: u32,
    /// Maximum size of a compressed field block in bytes [default: 32 KiB].
    pub max_block_bytes: usize,
    /// Budget of overhead in bytes [default: 64 KiB].
    pub max_overhead_bytes: u32,
    /// Number of bytes that each second returns to the budget of overhead [default: 256]. See
    /// [`Connection::elapse`](super::Connection::elapse).
    pub overhead_bytes_per_second: u32,
    /// Maximum number of acknowledgements of SETTINGS and PING that wait to be sent [default: 32]. See
    /// [`Connection::output_sent`](super::Connection::output_sent).
    pub max_acknowledgements: u32,
    /// Maximum number of stored PRIORITY_UPDATE frames for future streams [default: 16]. More are ignored.
    pub max_early_priorities: usize,
    /// Maximum number of received bytes of a stream that the caller has not released [default: 64 KiB - 1].
    /// More result in `FLOW_CONTROL_ERROR`.
    pub stream_window: u32,
    /// Maximum number of received bytes of all streams that the caller has not released, at least 65,535
    /// [default: 1 MiB]. More result in `FLOW_CONTROL_ERROR`.
    pub connection_window: u32,
    /// Maximum payload of a frame in bytes, at least 16 KiB [default: 16 KiB]. More result in
    /// `FRAME_SIZE_ERROR`.
    pub max_frame_bytes: u32,
    /// Maximum size of the dynamic table for received fields in bytes, at most 60,000 [default: 4 KiB].
    /// A larger table results in `COMPRESSION_ERROR`.
    pub decoder_table_bytes: usize,
    /// Maximum size of the dynamic table for sent fields in bytes, at most 60,000 [default: 4 KiB]. The
    /// peer may reduce it.
    pub encoder_table_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head: HeadLimits::default(),
            max_streams: 100,
            max_resets: 100,
            max_continuations: 8,
            max_block_bytes: 32 * 1024,
            max_overhead_bytes: 64 * 1024,
            overhead_bytes_per_second: 256,
            max_acknowledgements: 32,
            max_early_priorities: 16,
            stream_window: 65_535,
            connection_window: 1024 * 1024,
            max_frame_bytes: MIN_MAX_FRAME_BYTES as u32,
            decoder_table_bytes: 4096,
            encoder_table_bytes: 4096,
        }
    }
}
