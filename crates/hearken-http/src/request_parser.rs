//! Parsing of request heads.

use crate::authority::parse_common_host_line;
use crate::error::Reject;
use crate::field_line::{Line, Progress, parse_field_line};
use crate::limits::Limits;
use crate::method::Method;
use crate::request::Request;
use crate::request_fields::{self, RequestFields, ValidFields};
use crate::request_line::{RequestLine, parse_request_line};
use crate::target::Target;

/// An incremental parser of request heads.
///
/// The parser reads a head that is complete on the first call in one pass. For an incomplete head, it
/// stores its position, so that each byte is scanned once. The result depends only on the bytes and not
/// on how they are split into calls.
///
/// ```
/// use hearken_http::{Body, Limits, RequestParser};
///
/// let bytes = b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhiGET ...";
/// let mut parser = RequestParser::new();
/// let request = parser.parse(bytes, &Limits::default())?.unwrap();
/// assert_eq!(request.body, Body::Length(2));
/// assert!(bytes[request.head_len..].starts_with(b"hi"));
/// # Ok::<(), hearken_http::Reject>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct RequestParser {
    progress: Progress,
}

impl RequestParser {
    /// Creates a parser at the start of a request.
    pub fn new() -> Self {
        Self::default()
    }

    /// Discards an incomplete request. Not needed after a request was returned.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// Parses the head of the request that `bytes` starts with.
    ///
    /// Returns `Ok(None)` for an incomplete head. The caller then calls again with the same bytes followed by
    /// more. The parser skips one empty line before the request line (RFC 9112 section 2.2).
    ///
    /// # Errors
    ///
    /// The caller responds with the status of the [`Reject`] and closes the connection:
    ///
    /// - 414 or 431: the head exceeds its [`Limits`].
    /// - 417: the expectation is not `100-continue`.
    /// - 501: the transfer coding is not `chunked`, or the method is longer than 32 bytes.
    /// - 505: the major version is not 1.
    /// - 400: the head has more than 32 Connection options or violates RFC 9112 in another way.
    ///
    /// The parser reports a syntax error when the line is complete at the latest. It reports invalid
    /// combinations of fields, such as two lengths, when the head is complete.
    #[inline]
    pub fn parse<'b>(
        &mut self,
        bytes: &'b [u8],
        limits: &Limits,
    ) -> Result<Option<Request<'b>>, Reject> {
        if !self.progress.is_start() {
            if !self.needs_parsing(bytes, limits) {
                return Ok(None);
            }
            self.reset();
        }
        self.parse_head(bytes, limits)
    }

    /// Returns whether the head may be complete, invalid or too long.
    #[cold]
    fn needs_parsing(&mut self, bytes: &[u8], limits: &Limits) -> bool {
        let window = limits.window(bytes);
        let may_be_414 = self.progress.is_in_first_line() && window.len() > limits.max_target_bytes;
        self.progress.needs_parsing(window) || may_be_414 || window.len() < bytes.len()
    }

    /// Parses a head from its first byte.
    ///
    /// Parses from left to right and validates the fields only at the end, so that more bytes never change
    /// a result once returned.
    fn parse_head<'b>(
        &mut self,
        all: &'b [u8],
        limits: &Limits,
    ) -> Result<Option<Request<'b>>, Reject> {
        let bytes = limits.window(all);
        let mut method = Method::Get;
        let Some(RequestLine { raw_target, path_len, version, rest: first }) =
            parse_request_line(bytes, limits, &mut method)?
        else {
            return self.progress.incomplete(bytes, bytes, all);
        };

        let mut remaining = limits.max_fields;
        let (host, mut rest) = match parse_common_host_line(first) {
            Some((host, rest)) if remaining > 0 => {
                remaining -= 1;
                (Some(host), rest)
            }
            _ => (None, first),
        };
        let mut fields = RequestFields::new(version, host);
        let body_bytes = loop {
            match parse_field_line(rest)? {
                Line::Field { field, rest: next } => {
                    rest = next;
                    remaining = remaining
                        .checked_sub(1)
                        .ok_or(Reject::new(431, "too many fields in the message head"))?;
                    if request_fields::NAMES.may_contain(field.line, field.name_len) {
                        fields.add(field.line, field.name_len, next.len());
                    }
                }
                Line::Blank { rest } => break rest,
                Line::Partial => return self.progress.incomplete(rest, bytes, all),
            }
        };
        let ValidFields { mut host, body, expect_continue } = fields.validate(version)?;
        if !matches!(raw_target, [b'/', ..]) {
            // The authority of an absolute target takes precedence over the Host field.
            host = authority_of(&method, raw_target, path_len).or(host);
        }
        Ok(Some(Request {
            method,
            raw_target,
            version,
            host,
            body,
            keep_alive: fields.options.is_persistent(),
            expect_continue,
            head_len: bytes.len() - body_bytes.len(),
            path_len: path_len as u32,
            present: fields.present,
            rewrite_span: fields.rewrite_span,
            fields_at: (bytes.len() - first.len()) as u32,
            bytes,
        }))
    }
}

/// Returns the authority of a target in absolute form.
#[cold]
#[inline(never)]
fn authority_of<'b>(method: &Method<'b>, raw: &'b [u8], path_len: usize) -> Option<&'b [u8]> {
    match Target::parse(method, raw, path_len) {
        Ok(Target::Absolute { authority, .. }) => Some(authority),
        _ => None,
    }
}
