//! Forwarding of message bodies.

use std::sync::Arc;

use super::{Rules, is_similar, trailer};
use crate::body::BodyReader;
use crate::error::{Malformed, Reject};
use crate::fields::Fields;
use crate::framing::ResponseBody;
use crate::head;
use crate::limits::Limits;

/// A converter from one body framing to another, which validates the body.
///
/// Chunked bodies are chunked again without extensions, one chunk per run of content. Trailer fields are
/// buffered until the body is complete. Those that could change the interpretation of the head are removed.
///
/// ```
/// use hearken_http::forward::Relay;
/// use hearken_http::{Limits, ResponseBody};
///
/// let (from, to) = (ResponseBody::UntilClose, ResponseBody::Chunked);
/// let mut relay = Relay::new(from, to, u64::MAX, &Limits::default())?;
/// let mut out = Vec::new();
/// assert_eq!(relay.forward(b"hello", &mut out)?, 5);
/// relay.finish(&mut out).unwrap();
/// assert_eq!(out, b"5\r\nhello\r\n0\r\n\r\n");
/// # Ok::<(), hearken_http::Reject>(())
/// ```
#[derive(Debug, Clone)]
pub struct Relay {
    reader: BodyReader,
    /// Trailer section so far. Boxed because nearly all bodies have none.
    trailer: Option<Box<Trailer>>,
    is_chunked: bool,
}

impl Relay {
    /// Creates a relay for a body of at most `max_bytes` bytes of content, received with framing `from` and
    /// sent with framing `to`.
    ///
    /// Nothing is written if there is no body. The caller guarantees that a length in `to` is correct. The
    /// trailer section is subject to the limits on head size and fields in `limits`.
    ///
    /// # Errors
    ///
    /// 413 if the length of the body is known and exceeds `max_bytes`.
    pub fn new(
        from: impl Into<ResponseBody>,
        to: impl Into<ResponseBody>,
        max_bytes: u64,
        limits: &Limits,
    ) -> Result<Relay, Reject> {
        let reader = BodyReader::new(from, max_bytes, limits)?;
        Ok(Relay { reader, trailer: None, is_chunked: to.into() == ResponseBody::Chunked })
    }

    /// Removes the field with the client's subject from the trailer section too, if the rules have one.
    pub fn protect(&mut self, rules: &Rules) {
        if self.is_chunked && !rules.client_subject.is_empty() {
            let trailer = self.trailer.get_or_insert_default();
            trailer.client_subject = rules.client_subject.clone();
        }
    }

    /// Returns whether the complete body has been read and written.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.reader.is_done()
    }

    /// Returns the number of the next bytes that are forwarded unchanged.
    ///
    /// If the body ends when the connection closes, this is the number that the size limit permits.
    #[inline]
    pub fn passthrough_len(&self) -> u64 {
        if self.is_chunked { 0 } else { self.reader.passthrough_len() }
    }

    /// Skips `count` of the [`passthrough_len`](Relay::passthrough_len) bytes, which the caller has forwarded itself.
    #[inline]
    pub fn skip(&mut self, count: u64) {
        self.reader.skip(count.min(self.passthrough_len()));
    }

    /// Reads `bytes` and appends the forwarded form to `out`. Returns the number of bytes consumed, which is
    /// less than all only if the body is complete.
    ///
    /// # Errors
    ///
    /// The errors of [`BodyReader::read`]. The caller then discards the appended bytes or closes the
    /// connection without completing the body.
    #[inline]
    pub fn forward(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, Reject> {
        self.forward_counted(bytes, out).map(|(consumed, _)| consumed)
    }

    /// Forwards bytes like [`forward`](Relay::forward). Returns the number of bytes consumed and how many of
    /// them were content.
    ///
    /// # Errors
    ///
    /// As [`forward`](Relay::forward).
    #[inline]
    pub fn forward_counted(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(usize, u64), Reject> {
        let (mut at, mut count) = (0, 0);
        while !self.is_done() {
            let Some(rest @ [_, ..]) = bytes.get(at..) else {
                break;
            };
            let trailer = &mut self.trailer;
            let segment =
                self.reader.read_with_trailer(rest, |byte| add_trailer_byte(trailer, byte))?;
            let content = rest.get(segment.data).unwrap_or_default();
            count += content.len() as u64;
            if !self.is_chunked {
                out.extend_from_slice(content);
            } else if !content.is_empty() {
                write_chunk(out, content);
            }
            at += segment.consumed;
            if segment.done {
                self.write_body_end(out);
            }
        }
        Ok((at, count))
    }

    /// Adds a trailer section that was received separately, before the body [ends](Relay::finish). Fields
    /// that must not be forwarded are left out.
    pub fn add_trailers(&mut self, fields: Fields<'_>) {
        let Trailer { lines, .. } = &mut **self.trailer.get_or_insert_default();
        for (name, value) in fields.filter(|(name, _)| trailer::is_forwardable(name)) {
            for part in [name, b": ", value, b"\r\n"] {
                lines.extend_from_slice(part);
            }
        }
    }

    /// Completes the body after the sender closed the connection.
    ///
    /// # Errors
    ///
    /// The body is incomplete.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), Malformed> {
        if !self.reader.is_complete_at_close() {
            return Err(Malformed("connection closed before the end of the body"));
        }
        if !self.is_done() {
            self.reader.close();
            self.write_body_end(out);
        }
        Ok(())
    }

    /// Writes the end of a chunked body.
    fn write_body_end(&mut self, out: &mut Vec<u8>) {
        if !self.is_chunked {
            return;
        }
        match self.trailer.take() {
            None => out.extend_from_slice(b"0\r\n\r\n"),
            Some(trailer) => {
                out.extend_from_slice(b"0\r\n");
                trailer.lines().for_each(|line| out.extend_from_slice(line));
                out.extend_from_slice(b"\r\n");
            }
        }
    }
}

/// A trailer section.
#[derive(Debug, Clone, Default)]
struct Trailer {
    lines: Vec<u8>,
    /// Name of the field with the client's subject, which is removed, or empty.
    client_subject: Arc<[u8]>,
}

impl Trailer {
    /// Returns the lines to forward.
    fn lines(&self) -> impl Iterator<Item = &[u8]> {
        self.lines.split_inclusive(|&byte| byte == b'\n').filter(|line| {
            let name = line.split(|&byte| byte == b':').next().unwrap_or_default();
            !is_similar(name, &self.client_subject)
        })
    }
}

/// Appends a byte of a trailer section. Removes a complete line that must not be forwarded.
#[cold]
fn add_trailer_byte(trailer: &mut Option<Box<Trailer>>, byte: u8) {
    let Trailer { lines: trailer, .. } = &mut **trailer.get_or_insert_default();
    trailer.push(byte);
    if byte != b'\n' {
        return;
    }
    let before = trailer.get(..trailer.len() - 1).unwrap_or_default();
    let start = memchr::memrchr(b'\n', before).map_or(0, |end| end + 1);
    let line = before.get(start..).unwrap_or_default();
    let name_len = memchr::memchr(b':', line).unwrap_or(0);
    if !trailer::is_forwardable(line.get(..name_len).unwrap_or_default()) {
        trailer.truncate(start);
    }
}

/// Maximum number of bytes that frame a chunk.
const MAX_CHUNK_FRAMING_BYTES: usize = 16 + 4;

/// Appends one chunk.
fn write_chunk(out: &mut Vec<u8>, content: &[u8]) {
    out.reserve(MAX_CHUNK_FRAMING_BYTES + content.len());
    head::write_hex(out, content.len() as u64);
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(content);
    out.extend_from_slice(b"\r\n");
}

// A server stores one relay for each body in flight.
const _: () = assert!(size_of::<Relay>() <= 48);
