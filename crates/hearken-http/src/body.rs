//! Reading of message bodies.

use std::ops::Range;

use crate::class::{self, TEXT, TOKEN};
use crate::error::Reject;
use crate::framing::ResponseBody;
use crate::limits::Limits;

/// Maximum number of hexadecimal digits of a chunk size, enough for a `u64`.
const MAX_SIZE_DIGITS: u8 = 16;
/// Maximum number of digits of the chunk sizes that the fast path parses.
const MAX_COMMON_SIZE_DIGITS: usize = 8;
/// Maximum size of the extensions of one chunk in bytes.
const MAX_CHUNK_EXTENSION_BYTES: u16 = 4 * 1024;
/// Maximum size of the extensions of a body in bytes.
const MAX_EXTENSION_BYTES: u16 = 16 * 1024;

/// The result of one call of [`BodyReader::read`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BodySegment {
    /// Number of bytes consumed. Unless the body is complete, the caller passes the other bytes again.
    pub consumed: usize,
    /// Position of the content in the bytes, possibly empty.
    pub data: Range<usize>,
    /// Whether the body is complete. The bytes after `consumed` belong to the next message.
    pub done: bool,
}

/// An incremental reader that separates the content of a body from its framing.
///
/// The reader buffers nothing. It validates chunk extensions and trailer fields, limits their size and
/// discards them.
///
/// ```
/// use hearken_http::{Body, BodyReader, Limits};
///
/// let bytes = b"5\r\nhello\r\n0\r\n\r\nGET / ...";
/// let mut reader = BodyReader::new(Body::Chunked, 1 << 20, &Limits::default())?;
/// let (mut content, mut at) = (Vec::new(), 0);
/// while !reader.is_done() {
///     let segment = reader.read(&bytes[at..])?;
///     content.extend_from_slice(&bytes[at..][segment.data]);
///     at += segment.consumed;
/// }
/// assert_eq!(content, b"hello");
/// assert!(bytes[at..].starts_with(b"GET"));
/// # Ok::<(), hearken_http::Reject>(())
/// ```
#[derive(Debug, Clone)]
pub struct BodyReader {
    state: State,
    /// Number of digits of the current chunk size so far.
    size_digits: u8,
    /// Remaining content bytes of the body or of the chunk, or until the size limit if the body ends at
    /// close.
    remaining: u64,
    /// Remaining content bytes that later chunks may contain.
    max_remaining: u64,
    /// Number of extension bytes of the current chunk.
    chunk_extension_bytes: u16,
    /// Number of extension bytes of all chunks.
    extension_bytes: u16,
    /// Remaining bytes that the trailer section may contain.
    trailer_bytes: u32,
    /// Remaining fields that the trailer section may contain.
    trailer_fields: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Done,
    Length,
    UntilClose,
    SizeStart,
    Size,
    BeforeExtension,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    EndLf,
}

impl BodyReader {
    /// Creates a reader for a body with at most `max_bytes` bytes of content.
    ///
    /// `body` is the [`Body`](crate::Body) of a request or the [`ResponseBody`] of a response. The trailer
    /// section is subject to `max_head_bytes` and `max_fields` of `limits`.
    ///
    /// # Errors
    ///
    /// 413 if the length of the body is known and exceeds `max_bytes`.
    pub fn new(
        body: impl Into<ResponseBody>,
        max_bytes: u64,
        limits: &Limits,
    ) -> Result<Self, Reject> {
        let (state, remaining) = match body.into() {
            ResponseBody::None | ResponseBody::Length(0) => (State::Done, 0),
            ResponseBody::Length(length) if length > max_bytes => return Err(TOO_LONG),
            ResponseBody::Length(length) => (State::Length, length),
            ResponseBody::Chunked => (State::SizeStart, 0),
            ResponseBody::UntilClose => (State::UntilClose, max_bytes),
        };
        Ok(Self {
            state,
            size_digits: 0,
            remaining,
            max_remaining: max_bytes,
            chunk_extension_bytes: 0,
            extension_bytes: 0,
            trailer_bytes: limits.max_head_bytes.try_into().unwrap_or(u32::MAX),
            trailer_fields: limits.max_fields.try_into().unwrap_or(u32::MAX),
        })
    }

    /// Returns whether the body is complete.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Returns whether the body is complete if the peer closes the connection now.
    pub fn is_complete_at_close(&self) -> bool {
        matches!(self.state, State::Done | State::UntilClose)
    }

    /// Returns the number of the next bytes that consist of content only. For a body that ends when the
    /// connection closes, this is the number that the size limit permits.
    #[inline]
    pub(crate) fn passthrough_len(&self) -> u64 {
        match self.state {
            State::UntilClose if self.max_remaining == u64::MAX => u64::MAX,
            State::Length | State::UntilClose => self.remaining,
            _ => 0,
        }
    }

    /// Skips `count` of the [`passthrough_len`](Self::passthrough_len) bytes, which the caller has processed.
    #[inline]
    pub(crate) fn skip(&mut self, count: u64) {
        self.remaining = self.remaining.saturating_sub(count);
        if self.remaining == 0 && self.state == State::Length {
            self.state = State::Done;
        }
    }

    /// Completes the body after the peer closed the connection. Requires [`is_complete_at_close`](Self::is_complete_at_close).
    pub(crate) fn close(&mut self) {
        self.state = State::Done;
    }

    /// Reads `bytes` up to the end of the next run of content or of the body.
    ///
    /// Consumes at least one byte unless `bytes` is empty or the body is complete.
    ///
    /// # Errors
    ///
    /// - 413: the content exceeds the limit.
    /// - 431: the trailer section is too large.
    /// - 400: the chunks violate RFC 9112 section 7.1 or have overlong extensions.
    ///
    /// After an error, the caller discards the reader and closes the connection.
    pub fn read(&mut self, bytes: &[u8]) -> Result<BodySegment, Reject> {
        self.read_with_trailer(bytes, |_| ())
    }

    /// Reads like [`read`](Self::read), and appends the lines of the trailer section to `lines`.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn read_with_trailers(
        &mut self,
        bytes: &[u8],
        lines: &mut Vec<u8>,
    ) -> Result<BodySegment, Reject> {
        self.read_with_trailer(bytes, |byte| lines.push(byte))
    }

    /// Reads like [`read`](Self::read), and passes each byte of the trailer lines to `trailer`.
    #[inline(always)]
    pub(crate) fn read_with_trailer(
        &mut self,
        bytes: &[u8],
        mut trailer: impl FnMut(u8),
    ) -> Result<BodySegment, Reject> {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            let after = match self.state {
                State::Done => break,
                State::Length => State::Done,
                State::Data => State::DataCr,
                State::UntilClose if self.remaining == 0 => return Err(TOO_LONG),
                State::UntilClose => State::UntilClose,
                _ => {
                    at += match self.parse_common_framing(bytes.get(at..).unwrap_or_default())? {
                        0 => {
                            self.state = self.parse_framing_byte(byte, &mut trailer)?;
                            1
                        }
                        count => count,
                    };
                    continue;
                }
            };
            let available = bytes.len() - at;
            let count = usize::try_from(self.remaining)
                .map_or(available, |remaining| remaining.min(available));
            self.remaining -= count as u64;
            if self.remaining == 0 {
                self.state = after;
            }
            let end = at + count;
            return Ok(BodySegment { consumed: end, data: at..end, done: self.is_done() });
        }
        Ok(BodySegment { consumed: at, data: at..at, done: self.is_done() })
    }

    /// Parses a complete line of chunked framing in its common form. Returns its length, or 0 if the line is
    /// incomplete or uncommon.
    ///
    /// Repeated calls of [`parse_framing_byte`](Self::parse_framing_byte) have the same result.
    #[inline]
    fn parse_common_framing(&mut self, bytes: &[u8]) -> Result<usize, Reject> {
        match (self.state, bytes) {
            (State::DataCr, [b'\r', b'\n', ..]) => self.state = State::SizeStart,
            (State::TrailerStart, [b'\r', b'\n', ..]) if self.trailer_bytes > 0 => {
                self.state = State::Done;
            }
            (State::SizeStart, _) => {
                let mut size = 0;
                for (at, &byte) in bytes.iter().take(MAX_COMMON_SIZE_DIGITS + 1).enumerate() {
                    match hex_value(byte) {
                        Some(digit) => size = size << 4 | digit,
                        None if at > 0 && bytes.get(at..at + 2) == Some(b"\r\n") => {
                            self.remaining = size;
                            self.chunk_extension_bytes = 0;
                            self.state = self.finish_size_line()?;
                            return Ok(at + 2);
                        }
                        None => break,
                    }
                }
                return Ok(0);
            }
            _ => return Ok(0),
        }
        Ok(2)
    }

    /// Validates the size of a chunk and returns the state after the size line.
    #[inline]
    fn finish_size_line(&mut self) -> Result<State, Reject> {
        if self.remaining == 0 {
            return Ok(State::TrailerStart);
        }
        self.max_remaining = self.max_remaining.checked_sub(self.remaining).ok_or(TOO_LONG)?;
        Ok(State::Data)
    }

    /// Parses one byte of chunked framing and returns the next state.
    #[inline]
    fn parse_framing_byte(
        &mut self,
        byte: u8,
        trailer: &mut impl FnMut(u8),
    ) -> Result<State, Reject> {
        match (self.state, byte) {
            (State::SizeStart, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                self.remaining = hex_value(byte).unwrap_or_default();
                (self.size_digits, self.chunk_extension_bytes) = (1, 0);
                Ok(State::Size)
            }
            (State::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                if self.size_digits == MAX_SIZE_DIGITS {
                    return Err(Reject::bad("chunk size has more than 16 digits"));
                }
                self.size_digits += 1;
                self.remaining = self.remaining << 4 | hex_value(byte).unwrap_or_default();
                Ok(State::Size)
            }
            (State::SizeStart, _) => {
                Err(Reject::bad("invalid chunk size: expected a hexadecimal digit"))
            }
            (State::Size | State::Extension, b'\r') => Ok(State::SizeLf),
            (State::Size | State::BeforeExtension, b' ' | b'\t') => {
                self.count_extension_byte().map(|()| State::BeforeExtension)
            }
            (State::Size | State::BeforeExtension, b';') => {
                self.count_extension_byte().map(|()| State::Extension)
            }
            (State::Size | State::BeforeExtension, _) => {
                Err(Reject::bad("invalid byte after a chunk size: expected ';' or CRLF"))
            }
            (State::Extension, _) if class::is(byte, TEXT) => {
                self.count_extension_byte().map(|()| State::Extension)
            }
            (State::Extension, _) => Err(Reject::bad("control character in a chunk extension")),
            (State::SizeLf, b'\n') => self.finish_size_line(),
            (State::DataCr, b'\r') => Ok(State::DataLf),
            (State::DataLf, b'\n') => Ok(State::SizeStart),
            (State::DataCr | State::DataLf, _) => Err(Reject::bad("missing CRLF after a chunk")),
            (State::EndLf, b'\n') => Ok(State::Done),
            (State::SizeLf | State::TrailerLf | State::EndLf, _) if byte != b'\n' => {
                Err(Reject::bad("CR without LF in chunked framing: expected CRLF"))
            }
            _ => {
                let state = self.parse_trailer_byte(byte)?;
                if state != State::EndLf {
                    trailer(byte);
                }
                Ok(state)
            }
        }
    }

    /// Counts one byte of a chunk extension.
    fn count_extension_byte(&mut self) -> Result<(), Reject> {
        self.chunk_extension_bytes += 1;
        self.extension_bytes += 1;
        if self.chunk_extension_bytes > MAX_CHUNK_EXTENSION_BYTES
            || self.extension_bytes > MAX_EXTENSION_BYTES
        {
            return Err(Reject::bad("chunk extensions exceed the maximum size"));
        }
        Ok(())
    }

    /// Parses one byte of the trailer section (RFC 9112 section 7.1.2) and returns the next state.
    fn parse_trailer_byte(&mut self, byte: u8) -> Result<State, Reject> {
        const TOO_LARGE: Reject =
            Reject::new(431, "trailer section exceeds the limits of message heads");
        self.trailer_bytes = self.trailer_bytes.checked_sub(1).ok_or(TOO_LARGE)?;
        match (self.state, byte) {
            (State::TrailerStart, b'\r') => Ok(State::EndLf),
            (State::TrailerStart, _) if class::is(byte, TOKEN) => {
                self.trailer_fields = self.trailer_fields.checked_sub(1).ok_or(TOO_LARGE)?;
                Ok(State::TrailerName)
            }
            (State::TrailerName, b':') => Ok(State::TrailerValue),
            (State::TrailerName, _) if class::is(byte, TOKEN) => Ok(State::TrailerName),
            (State::TrailerValue, b'\r') => Ok(State::TrailerLf),
            (State::TrailerValue, _) if class::is(byte, TEXT) => Ok(State::TrailerValue),
            (State::TrailerLf, b'\n') => Ok(State::TrailerStart),
            _ => Err(Reject::bad("invalid trailer field: expected 'name: value' and CRLF")),
        }
    }
}

const TOO_LONG: Reject = Reject::new(413, "body exceeds the maximum size");

/// Returns the value of a hexadecimal digit.
#[inline]
fn hex_value(digit: u8) -> Option<u64> {
    match digit {
        b'0'..=b'9' => Some(u64::from(digit - b'0')),
        b'a'..=b'f' => Some(u64::from(digit - b'a' + 10)),
        b'A'..=b'F' => Some(u64::from(digit - b'A' + 10)),
        _ => None,
    }
}
