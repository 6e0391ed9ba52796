//! Bodies, out of one framing and into another.

use super::trailer;
use crate::body::BodyReader;
use crate::error::{Malformed, Reject};
use crate::framing::ResponseBody;
use crate::head;
use crate::limits::Limits;

/// Takes a body out of one framing and puts it into another, validating all of it.
///
/// Chunks are written anew, without extensions, one for each run of content as it comes. Trailer fields
/// are kept until the body is whole; those that could change what the head said are dropped.
///
/// ```
/// use hearken_http::forward::Relay;
/// use hearken_http::{Limits, ResponseBody};
///
/// let (from, to) = (ResponseBody::UntilClose, ResponseBody::Chunked);
/// let mut relay = Relay::new(from, to, u64::MAX, &Limits::default())?;
/// let mut out = Vec::new();
/// assert_eq!(relay.pass(b"hello", &mut out)?, 5);
/// relay.end(&mut out).unwrap();
/// assert_eq!(out, b"5\r\nhello\r\n0\r\n\r\n");
/// # Ok::<(), hearken_http::Reject>(())
/// ```
#[derive(Debug, Clone)]
pub struct Relay {
    reader: BodyReader,
    /// The trailer section so far, of which only whole lines are certain to be passed on. Boxed, as
    /// nearly all bodies have none.
    trailer: Option<Box<Trailer>>,
    is_chunked: bool,
}

impl Relay {
    /// A relay at the start of a body of at most `most` bytes of content, which comes delimited as `from`
    /// says and is sent on as `to` says. Where there is no body, nothing is written. A length in `to` is
    /// the caller's promise. `head_bytes` and `fields` of `limits` bound the trailer section.
    ///
    /// # Errors
    ///
    /// 413 when the body is known to be longer than `most`.
    pub fn new(
        from: impl Into<ResponseBody>,
        to: impl Into<ResponseBody>,
        most: u64,
        limits: &Limits,
    ) -> Result<Relay, Reject> {
        let reader = BodyReader::new(from, most, limits)?;
        Ok(Relay { reader, trailer: None, is_chunked: to.into() == ResponseBody::Chunked })
    }

    /// Whether the whole body has been read, and written.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.reader.is_done()
    }

    /// How many of the next bytes are content that is passed on exactly as it comes; what may come until
    /// a close counts as if it did, up to the bound that was set.
    #[inline]
    pub fn plain(&self) -> u64 {
        if self.is_chunked { 0 } else { self.reader.plain() }
    }

    /// So many of the [`plain`](Relay::plain) bytes were passed on without this relay.
    #[inline]
    pub fn skip(&mut self, count: u64) {
        self.reader.skip(count.min(self.plain()));
    }

    /// Reads on in `bytes`, and appends to `out` what is to be sent; returns how many of the bytes were of
    /// this body: all, unless it is done.
    ///
    /// # Errors
    ///
    /// Those of [`BodyReader::next`]. What was appended then is not to be sent, or not to be ended.
    #[inline]
    pub fn pass(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, Reject> {
        let mut at = 0;
        while !self.is_done() {
            let Some(rest @ [_, ..]) = bytes.get(at..) else {
                break;
            };
            let trailer = &mut self.trailer;
            let piece = self.reader.read(rest, |byte| take_trailer(trailer, byte))?;
            let content = rest.get(piece.data).unwrap_or_default();
            if !self.is_chunked {
                out.extend_from_slice(content);
            } else if !content.is_empty() {
                chunk(out, content);
            }
            at += piece.consumed;
            if piece.done {
                self.finish(out);
            }
        }
        Ok(at)
    }

    /// The sender has closed: ends a body that ends so.
    ///
    /// # Errors
    ///
    /// The body was cut short.
    pub fn end(&mut self, out: &mut Vec<u8>) -> Result<(), Malformed> {
        if !self.reader.may_close() {
            return Err(Malformed("body was cut short"));
        }
        if !self.is_done() {
            self.reader.close();
            self.finish(out);
        }
        Ok(())
    }

    /// Writes what follows the last content.
    fn finish(&mut self, out: &mut Vec<u8>) {
        if !self.is_chunked {
            return;
        }
        match self.trailer.take() {
            None => out.extend_from_slice(b"0\r\n\r\n"),
            Some(trailer) => {
                out.extend_from_slice(b"0\r\n");
                out.extend_from_slice(&trailer.0);
                out.extend_from_slice(b"\r\n");
            }
        }
    }
}

/// Lines of a trailer section.
#[derive(Debug, Clone, Default)]
struct Trailer(Vec<u8>);

/// Takes in a byte of the lines of a trailer section; drops a line that is not to be passed on once it is
/// whole.
#[cold]
fn take_trailer(trailer: &mut Option<Box<Trailer>>, byte: u8) {
    let Trailer(trailer) = &mut **trailer.get_or_insert_default();
    trailer.push(byte);
    if byte != b'\n' {
        return;
    }
    let before = trailer.get(..trailer.len() - 1).unwrap_or_default();
    let start = memchr::memrchr(b'\n', before).map_or(0, |end| end + 1);
    let line = before.get(start..).unwrap_or_default();
    let name_len = memchr::memchr(b':', line).unwrap_or(0);
    if !trailer::may_pass(line.get(..name_len).unwrap_or_default()) {
        trailer.truncate(start);
    }
}

/// Most bytes that frame a chunk.
const FRAME: usize = 16 + 4;

/// Appends a chunk.
fn chunk(out: &mut Vec<u8>, content: &[u8]) {
    out.reserve(FRAME + content.len());
    head::hex(out, content.len() as u64);
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(content);
    out.extend_from_slice(b"\r\n");
}

/// There is one for each body in flight.
const _: () = assert!(size_of::<Relay>() <= 48);
