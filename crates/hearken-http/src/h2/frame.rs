//! Frames: their header, and writing them.

use super::error::ErrorCode;

/// Bytes that a client sends first, RFC 9113 section 3.4.
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Size of a frame header in bytes.
pub(super) const HEADER_BYTES: usize = 9;
/// The smallest maximum of a frame's payload that an endpoint may announce.
pub(super) const MIN_MAX_FRAME_BYTES: usize = 16 * 1024;
/// The largest flow-control window.
pub(super) const MAX_WINDOW: i64 = (1 << 31) - 1;
/// The window of connections and streams until the peer announces another.
pub(super) const DEFAULT_WINDOW: u32 = 65_535;

/// Frame types.
pub(super) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const PRIORITY: u8 = 2;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PUSH_PROMISE: u8 = 5;
    pub(crate) const PING: u8 = 6;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
    pub(crate) const CONTINUATION: u8 = 9;
    /// RFC 9218 section 7.1.
    pub(crate) const PRIORITY_UPDATE: u8 = 16;
}

/// Flags of frames.
pub(super) mod flag {
    pub(crate) const ACK: u8 = 1;
    pub(crate) const END_STREAM: u8 = 1;
    pub(crate) const END_HEADERS: u8 = 4;
    pub(crate) const PADDED: u8 = 8;
    pub(crate) const PRIORITY: u8 = 32;
}

/// A frame header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub(super) len: usize,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl FrameHeader {
    #[inline(always)]
    pub(super) fn parse(bytes: &[u8; HEADER_BYTES]) -> Self {
        let [a, b, c, kind, flags, stream @ ..] = *bytes;
        Self {
            len: u32::from_be_bytes([0, a, b, c]) as usize,
            kind,
            flags,
            stream: u32::from_be_bytes(stream) & 0x7fff_ffff,
        }
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    #[inline(always)]
    fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let [_, a, b, c] = (self.len as u32).to_be_bytes();
        let [d, e, f, g] = self.stream.to_be_bytes();
        [a, b, c, self.kind, self.flags, d, e, f, g]
    }
}

/// Appends a frame header.
#[inline(always)]
pub(super) fn write_header(out: &mut Vec<u8>, len: usize, kind: u8, flags: u8, stream: u32) {
    out.extend_from_slice(&FrameHeader { len, kind, flags, stream }.to_bytes());
}

/// Completes the frames of a field block that was appended from `start` on, after space for a frame header.
#[inline]
pub(super) fn finish_headers(
    out: &mut Vec<u8>,
    start: usize,
    stream: u32,
    end_stream: bool,
    max_frame: usize,
) {
    let len = out.len() - start - HEADER_BYTES;
    let flags = if end_stream { flag::END_STREAM } else { 0 };
    if len > max_frame {
        return split_headers(out, start, stream, flags, max_frame);
    }
    let header = FrameHeader { len, kind: kind::HEADERS, flags: flags | flag::END_HEADERS, stream };
    if let Some(place) = out.get_mut(start..start + HEADER_BYTES) {
        place.copy_from_slice(&header.to_bytes());
    }
}

/// Splits a field block into HEADERS and CONTINUATION frames.
#[cold]
fn split_headers(out: &mut Vec<u8>, start: usize, stream: u32, flags: u8, max_frame: usize) {
    let block = out.split_off(start + HEADER_BYTES);
    out.truncate(start);
    let mut rest = block.as_slice();
    let (mut kind, mut flags) = (kind::HEADERS, flags);
    while !rest.is_empty() {
        let (fragment, after) = rest.split_at(rest.len().min(max_frame));
        if after.is_empty() {
            flags |= flag::END_HEADERS;
        }
        write_header(out, fragment.len(), kind, flags, stream);
        out.extend_from_slice(fragment);
        (rest, kind, flags) = (after, kind::CONTINUATION, 0);
    }
}

/// Appends a SETTINGS frame.
pub(super) fn write_settings(out: &mut Vec<u8>, settings: &[(u16, u32)]) {
    write_header(out, 6 * settings.len(), kind::SETTINGS, 0, 0);
    for (id, value) in settings {
        out.extend_from_slice(&id.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

/// Appends a PING frame.
pub(super) fn write_ping(out: &mut Vec<u8>, flags: u8, payload: [u8; 8]) {
    write_header(out, 8, kind::PING, flags, 0);
    out.extend_from_slice(&payload);
}

/// Appends a WINDOW_UPDATE frame.
pub(super) fn write_window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    write_header(out, 4, kind::WINDOW_UPDATE, 0, stream);
    out.extend_from_slice(&increment.to_be_bytes());
}

/// Appends an RST_STREAM frame.
pub(super) fn write_reset(out: &mut Vec<u8>, stream: u32, code: ErrorCode) {
    write_header(out, 4, kind::RST_STREAM, 0, stream);
    out.extend_from_slice(&code.0.to_be_bytes());
}

/// Appends a GOAWAY frame.
pub(super) fn write_goaway(out: &mut Vec<u8>, last_stream: u32, code: ErrorCode, reason: &str) {
    write_header(out, 8 + reason.len(), kind::GOAWAY, 0, 0);
    out.extend_from_slice(&last_stream.to_be_bytes());
    out.extend_from_slice(&code.0.to_be_bytes());
    out.extend_from_slice(reason.as_bytes());
}
