//! A parsed request head stored as offsets.

use crate::framing::Body;
use crate::method::Method;
use crate::request::Request;
use crate::request_fields::FieldSet;
use crate::rewrite_span::RewriteSpan;
use crate::version::Version;

/// A parsed request head that stores offsets instead of borrowing the bytes.
///
/// A server that keeps a copy of the head can restore the request from the copy without parsing again.
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
    /// Position of the target. The method ends one byte before it.
    target: Span,
    path_len: u32,
    host: Option<Span>,
    fields_at: u32,
    /// Span whose positions are counted from the end of the head.
    rewrite_span: RewriteSpan,
    present: FieldSet,
    version: Version,
    keep_alive: bool,
    expect_continue: bool,
}

impl RequestParts {
    /// Returns the offsets of `request`.
    #[inline]
    pub(crate) fn from_request(request: &Request<'_>) -> Self {
        let bytes = request.bytes;
        Self {
            body: request.body,
            head_len: request.head_len as u32,
            target: Span::from_slice(request.raw_target, bytes),
            path_len: request.path_len,
            host: request.host.map(|host| Span::from_slice(host, bytes)),
            fields_at: request.fields_at,
            rewrite_span: request
                .rewrite_span
                .without_tail(bytes.len().saturating_sub(request.head_len)),
            present: request.present,
            version: request.version,
            keep_alive: request.keep_alive,
            expect_continue: request.expect_continue,
        }
    }

    /// Returns the length of the head in bytes, including its blank line.
    #[inline]
    pub fn head_len(&self) -> usize {
        self.head_len as usize
    }

    /// Restores the request from `head`, a copy of the bytes that were parsed. Bytes after the head are
    /// ignored.
    ///
    /// Takes constant time. With other bytes the content of the request is unspecified, but its methods do
    /// not panic.
    #[inline]
    pub fn request<'b>(&self, head: &'b [u8]) -> Request<'b> {
        let head = head.get(..self.head_len()).unwrap_or(head);
        let method_end = (self.target.start as usize).saturating_sub(1);
        let method = head.get(..method_end).unwrap_or_default();
        Request {
            // An empty line may precede the request line.
            method: Method::from_token(method.strip_prefix(b"\r\n").unwrap_or(method)),
            raw_target: self.target.slice(head),
            version: self.version,
            host: self.host.map(|host| host.slice(head)),
            body: self.body,
            keep_alive: self.keep_alive,
            expect_continue: self.expect_continue,
            head_len: head.len(),
            path_len: self.path_len,
            present: self.present,
            rewrite_span: self.rewrite_span,
            bytes: head,
            fields_at: self.fields_at,
        }
    }
}

/// Position of a part of a head.
#[derive(Debug, Clone, Copy)]
struct Span {
    start: u32,
    len: u32,
}

impl Span {
    /// Returns the position of `part`, a subslice of `bytes` or empty.
    #[inline]
    fn from_slice(part: &[u8], bytes: &[u8]) -> Self {
        // The address of an empty slice is arbitrary.
        if part.is_empty() {
            return Self { start: 0, len: 0 };
        }
        let start = part.as_ptr().addr().wrapping_sub(bytes.as_ptr().addr());
        Self { start: start as u32, len: part.len() as u32 }
    }

    #[inline]
    fn slice(self, head: &[u8]) -> &[u8] {
        let start = self.start as usize;
        head.get(start..start.saturating_add(self.len as usize)).unwrap_or_default()
    }
}
