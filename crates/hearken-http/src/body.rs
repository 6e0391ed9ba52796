//! Reading bodies.

use std::ops::Range;

use crate::class::{self, TEXT, TOKEN};
use crate::error::Reject;
use crate::framing::ResponseBody;
use crate::limits::Limits;

/// Most hexadecimal digits of a chunk size: as many as a `u64` holds.
const SIZE_DIGITS: u8 = 16;
/// Most that nearly all have.
const USUAL_SIZE_DIGITS: usize = 8;
/// Most bytes of the extensions of one chunk, and of those of a whole body.
const EXTENSION_LINE_BYTES: u16 = 4 * 1024;
const EXTENSION_BYTES: u16 = 16 * 1024;

/// What [`BodyReader::next`] found in the bytes it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// How many of the bytes were read. The rest is to be given again, unless the body is done.
    pub consumed: usize,
    /// Where among the bytes the content is; may be empty.
    pub data: Range<usize>,
    /// Whether the body ends after `consumed`: what follows is another message.
    pub done: bool,
}

/// Takes the content of a body out of its framing, in whatever pieces the bytes arrive.
///
/// Keeps no bytes. Chunk extensions and trailer fields are checked, bounded and dropped.
///
/// ```
/// use hearken_http::{Body, BodyReader, Limits};
///
/// let bytes = b"5\r\nhello\r\n0\r\n\r\nGET / ...";
/// let mut reader = BodyReader::new(Body::Chunked, 1 << 20, &Limits::default())?;
/// let (mut content, mut at) = (Vec::new(), 0);
/// while !reader.is_done() {
///     let piece = reader.next(&bytes[at..])?;
///     content.extend_from_slice(&bytes[at..][piece.data]);
///     at += piece.consumed;
/// }
/// assert_eq!(content, b"hello");
/// assert!(bytes[at..].starts_with(b"GET"));
/// # Ok::<(), hearken_http::Reject>(())
/// ```
#[derive(Debug, Clone)]
pub struct BodyReader {
    state: State,
    /// Digits of the current chunk size so far.
    size_digits: u8,
    /// Content bytes left of the body, of the chunk, or of the allowance until close.
    left: u64,
    /// Content bytes the chunks to come may hold.
    allowance: u64,
    /// Bytes of extensions of the current chunk, and of all chunks.
    extension_line: u16,
    extensions: u16,
    /// Bytes and fields left to the trailer section.
    trailer_bytes: u32,
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
    /// A reader at the start of a body of at most `most` bytes of content, delimited as the
    /// [`Body`](crate::Body) of a request or the [`ResponseBody`] of a response says.
    /// `head_bytes` and `fields` of `limits` bound the trailer section.
    ///
    /// # Errors
    ///
    /// 413 when the body is known to be longer than `most`.
    pub fn new(body: impl Into<ResponseBody>, most: u64, limits: &Limits) -> Result<Self, Reject> {
        let (state, left) = match body.into() {
            ResponseBody::None | ResponseBody::Length(0) => (State::Done, 0),
            ResponseBody::Length(length) if length > most => return Err(TOO_LONG),
            ResponseBody::Length(length) => (State::Length, length),
            ResponseBody::Chunked => (State::SizeStart, 0),
            ResponseBody::UntilClose => (State::UntilClose, most),
        };
        Ok(Self {
            state,
            size_digits: 0,
            left,
            allowance: most,
            extension_line: 0,
            extensions: 0,
            trailer_bytes: limits.head_bytes.try_into().unwrap_or(u32::MAX),
            trailer_fields: limits.fields.try_into().unwrap_or(u32::MAX),
        })
    }

    /// Whether the whole body has been read.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Whether the peer may close the connection here; if not, the body was cut short.
    pub fn may_close(&self) -> bool {
        matches!(self.state, State::Done | State::UntilClose)
    }

    /// How many of the next bytes are content, without framing among them, for certain or as long as the
    /// peer does not close.
    #[inline]
    pub(crate) fn plain(&self) -> u64 {
        match self.state {
            State::UntilClose if self.allowance == u64::MAX => u64::MAX,
            State::Length | State::UntilClose => self.left,
            _ => 0,
        }
    }

    /// So many of the [`plain`](Self::plain) bytes were read otherwise.
    #[inline]
    pub(crate) fn skip(&mut self, count: u64) {
        self.left = self.left.saturating_sub(count);
        if self.left == 0 && self.state == State::Length {
            self.state = State::Done;
        }
    }

    /// The peer has closed, where it [may](Self::may_close).
    pub(crate) fn close(&mut self) {
        self.state = State::Done;
    }

    /// Reads on in `bytes`, up to the end of the next run of content or of the body.
    ///
    /// Reads at least one byte, unless there are none or the body is done.
    ///
    /// # Errors
    ///
    /// 413 for more content than allowed, 431 for too long a trailer section, 400 for chunks
    /// that RFC 9112 section 7.1 does not allow or whose extensions are too long. After an
    /// error the reader is of no more use and the connection is to be closed.
    pub fn next(&mut self, bytes: &[u8]) -> Result<Piece, Reject> {
        self.read(bytes, |_| ())
    }

    /// [`next`](Self::next), with the bytes of the lines of the trailer section given to `trailer`.
    #[inline(always)]
    pub(crate) fn read(
        &mut self,
        bytes: &[u8],
        mut trailer: impl FnMut(u8),
    ) -> Result<Piece, Reject> {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            let after = match self.state {
                State::Done => break,
                State::Length => State::Done,
                State::Data => State::DataCr,
                State::UntilClose if self.left == 0 => return Err(TOO_LONG),
                State::UntilClose => State::UntilClose,
                _ => {
                    at += match self.usual_frame(bytes.get(at..).unwrap_or_default())? {
                        0 => {
                            self.state = self.frame(byte, &mut trailer)?;
                            1
                        }
                        taken => taken,
                    };
                    continue;
                }
            };
            let here = bytes.len() - at;
            let taken = usize::try_from(self.left).map_or(here, |left| left.min(here));
            self.left -= taken as u64;
            if self.left == 0 {
                self.state = after;
            }
            let end = at + taken;
            return Ok(Piece { consumed: end, data: at..end, done: self.is_done() });
        }
        Ok(Piece { consumed: at, data: at..at, done: self.is_done() })
    }

    /// Takes a whole line of chunked framing that is as nearly all are, if that is next; returns how long
    /// it is, or 0. It answers as [`frame`](Self::frame) does, byte by byte.
    #[inline]
    fn usual_frame(&mut self, bytes: &[u8]) -> Result<usize, Reject> {
        match (self.state, bytes) {
            (State::DataCr, [b'\r', b'\n', ..]) => self.state = State::SizeStart,
            (State::TrailerStart, [b'\r', b'\n', ..]) if self.trailer_bytes > 0 => {
                self.state = State::Done;
            }
            (State::SizeStart, _) => {
                let mut size = 0;
                for (at, &byte) in bytes.iter().take(USUAL_SIZE_DIGITS + 1).enumerate() {
                    match hex(byte) {
                        Some(digit) => size = size << 4 | digit,
                        None if at > 0 && bytes.get(at..at + 2) == Some(b"\r\n") => {
                            self.left = size;
                            self.extension_line = 0;
                            self.state = self.size_end()?;
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

    /// The state after the line with the size of a chunk.
    #[inline]
    fn size_end(&mut self) -> Result<State, Reject> {
        if self.left == 0 {
            return Ok(State::TrailerStart);
        }
        self.allowance = self.allowance.checked_sub(self.left).ok_or(TOO_LONG)?;
        Ok(State::Data)
    }

    /// Takes one byte of chunked framing; returns the state after it.
    #[inline]
    fn frame(&mut self, byte: u8, trailer: &mut impl FnMut(u8)) -> Result<State, Reject> {
        match (self.state, byte) {
            (State::SizeStart, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                self.left = hex(byte).unwrap_or_default();
                (self.size_digits, self.extension_line) = (1, 0);
                Ok(State::Size)
            }
            (State::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                if self.size_digits == SIZE_DIGITS {
                    return Err(Reject::bad("chunk size has too many digits"));
                }
                self.size_digits += 1;
                self.left = self.left << 4 | hex(byte).unwrap_or_default();
                Ok(State::Size)
            }
            (State::SizeStart, _) => Err(Reject::bad("chunk size is not hexadecimal")),
            (State::Size | State::Extension, b'\r') => Ok(State::SizeLf),
            (State::Size | State::BeforeExtension, b' ' | b'\t') => {
                self.extend().map(|()| State::BeforeExtension)
            }
            (State::Size | State::BeforeExtension, b';') => {
                self.extend().map(|()| State::Extension)
            }
            (State::Size | State::BeforeExtension, _) => {
                Err(Reject::bad("chunk size is followed by neither CRLF nor an extension"))
            }
            (State::Extension, _) if class::is(byte, TEXT) => {
                self.extend().map(|()| State::Extension)
            }
            (State::Extension, _) => Err(Reject::bad("control character in a chunk extension")),
            (State::SizeLf, b'\n') => self.size_end(),
            (State::DataCr, b'\r') => Ok(State::DataLf),
            (State::DataLf, b'\n') => Ok(State::SizeStart),
            (State::DataCr | State::DataLf, _) => Err(Reject::bad("chunk is not followed by CRLF")),
            (State::EndLf, b'\n') => Ok(State::Done),
            (State::SizeLf | State::TrailerLf | State::EndLf, _) if byte != b'\n' => {
                Err(Reject::bad("CR without LF"))
            }
            _ => {
                let state = self.trailer(byte)?;
                if state != State::EndLf {
                    trailer(byte);
                }
                Ok(state)
            }
        }
    }

    /// Counts a byte of chunk extension.
    fn extend(&mut self) -> Result<(), Reject> {
        self.extension_line += 1;
        self.extensions += 1;
        if self.extension_line > EXTENSION_LINE_BYTES || self.extensions > EXTENSION_BYTES {
            return Err(Reject::bad("chunk extensions are too long"));
        }
        Ok(())
    }

    /// Takes one byte of the trailer section, RFC 9112 section 7.1.2.
    fn trailer(&mut self, byte: u8) -> Result<State, Reject> {
        const TOO_LARGE: Reject = Reject::new(431, "trailer section is too long");
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
            _ => Err(Reject::bad("malformed trailer field")),
        }
    }
}

const TOO_LONG: Reject = Reject::new(413, "body is too long");

/// The value of a hexadecimal digit.
#[inline]
fn hex(digit: u8) -> Option<u64> {
    match digit {
        b'0'..=b'9' => Some(u64::from(digit - b'0')),
        b'a'..=b'f' => Some(u64::from(digit - b'a' + 10)),
        b'A'..=b'F' => Some(u64::from(digit - b'A' + 10)),
        _ => None,
    }
}
