//! A parsed request head as offsets.

use crate::framing::Body;
use crate::hop_span::HopSpan;
use crate::known::Known;
use crate::method::Method;
use crate::request::Request;
use crate::version::Version;

/// A parsed request head that borrows nothing: offsets into the bytes of the head.
///
/// A server that keeps a copy of the head can use the request again later without parsing the copy.
///
/// ```
/// use hearken_http::{Limits, RequestParser};
///
/// let bytes = b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n".to_vec();
/// let request = RequestParser::new().parse(&bytes, &Limits::default())?.unwrap();
/// let parts = request.parts();
/// let copy = bytes[..parts.head_len()].to_vec();
/// drop(bytes);
/// assert_eq!(parts.request(&copy).raw_target, b"/x");
/// # Ok::<(), hearken_http::Reject>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct RequestParts {
    body: Body,
    head_len: u32,
    /// The method ends one byte before the target.
    target: Span,
    path_len: u32,
    host: Option<Span>,
    fields_at: u32,
    /// Counted from the end of the head.
    hop_span: HopSpan,
    known: Known,
    version: Version,
    keep_alive: bool,
    expect_continue: bool,
}

impl RequestParts {
    /// Returns the offsets of `request`.
    #[inline]
    pub(crate) fn of(request: &Request<'_>) -> Self {
        let bytes = request.bytes;
        Self {
            body: request.body,
            head_len: request.head_len as u32,
            target: Span::of(request.raw_target, bytes),
            path_len: request.path_len,
            host: request.host.map(|host| Span::of(host, bytes)),
            fields_at: request.fields_at,
            hop_span: request.hop_span.before(bytes.len().saturating_sub(request.head_len)),
            known: request.known,
            version: request.version,
            keep_alive: request.keep_alive,
            expect_continue: request.expect_continue,
        }
    }

    /// Returns the length of the head, including its blank line.
    #[inline]
    pub fn head_len(&self) -> usize {
        self.head_len as usize
    }

    /// Returns the request again, borrowing from `head`, which holds the bytes that were parsed. Bytes
    /// after the head are ignored.
    ///
    /// Takes constant time. With other bytes the request is unspecified, but no function panics on it.
    #[inline]
    pub fn request<'b>(&self, head: &'b [u8]) -> Request<'b> {
        let head = head.get(..self.head_len()).unwrap_or(head);
        let method_end = (self.target.start as usize).saturating_sub(1);
        let method = head.get(..method_end).unwrap_or_default();
        Request {
            // A head may start with one empty line.
            method: Method::from_token(method.strip_prefix(b"\r\n").unwrap_or(method)),
            raw_target: self.target.within(head),
            version: self.version,
            host: self.host.map(|host| host.within(head)),
            body: self.body,
            keep_alive: self.keep_alive,
            expect_continue: self.expect_continue,
            head_len: head.len(),
            path_len: self.path_len,
            known: self.known,
            hop_span: self.hop_span,
            bytes: head,
            fields_at: self.fields_at,
        }
    }
}

/// A part of a head.
#[derive(Debug, Clone, Copy)]
struct Span {
    start: u32,
    len: u32,
}

impl Span {
    /// Returns the position of `part`, a subslice of `bytes` or empty.
    #[inline]
    fn of(part: &[u8], bytes: &[u8]) -> Self {
        // An empty part may be at any address.
        if part.is_empty() {
            return Self { start: 0, len: 0 };
        }
        let start = part.as_ptr().addr().wrapping_sub(bytes.as_ptr().addr());
        Self { start: start as u32, len: part.len() as u32 }
    }

    #[inline]
    fn within(self, head: &[u8]) -> &[u8] {
        let start = self.start as usize;
        head.get(start..start.saturating_add(self.len as usize)).unwrap_or_default()
    }
}
