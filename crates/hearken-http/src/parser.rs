//! Reading request heads.

use crate::authority::usual_host_line;
use crate::error::Reject;
use crate::known::{self, Gathered, Meaning};
use crate::limits::Limits;
use crate::line::{Line, Progress, field_line};
use crate::method::Method;
use crate::request::Request;
use crate::request_line::{RequestLine, request_line};
use crate::target::Target;

/// Reads request heads, one after another, from bytes that arrive in any pieces.
///
/// A head that is whole on the first call is read in one pass. For one that is not, the parser
/// remembers how far it looked, so that a head trickling in costs one look at each byte. What
/// it answers depends on the bytes alone, never on the pieces they came in.
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
    /// A parser at the start of a request.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets an incomplete request. Not needed after a request was returned.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// Reads the head of the request that `bytes` starts with.
    ///
    /// `Ok(None)` asks for more: call again with the same bytes and those that followed them.
    /// One empty line before the request line is skipped (RFC 9112 section 2.2).
    ///
    /// # Errors
    ///
    /// The request is to be refused with the status of the [`Reject`] and the connection closed:
    /// 414 and 431 for a head over its [`Limits`], 417 for an expectation other than
    /// `100-continue`, 501 for a transfer coding other than chunked or a method of more than 32
    /// bytes, 505 for a major version other than 1, and 400 for more than 32 Connection options and for
    /// everything that RFC 9112 does not allow. An error of syntax comes at the latest when its line is whole, an error of
    /// meaning (such as two lengths) or too many fields when the head is.
    #[inline]
    pub fn parse<'b>(
        &mut self,
        bytes: &'b [u8],
        limits: &Limits,
    ) -> Result<Option<Request<'b>>, Reject> {
        if !self.progress.is_start() {
            if !self.is_worth_parsing(bytes, limits) {
                return Ok(None);
            }
            self.reset();
        }
        self.parse_head(bytes, limits)
    }

    /// Whether there is more to say than that the head is still incomplete.
    #[cold]
    fn is_worth_parsing(&mut self, bytes: &[u8], limits: &Limits) -> bool {
        let window = limits.window(bytes);
        let may_be_414 = self.progress.is_in_first_line() && window.len() > limits.target_bytes;
        self.progress.is_worth_parsing(window) || may_be_414 || window.len() < bytes.len()
    }

    /// Reads a head from its first byte.
    ///
    /// Goes strictly left to right and judges what the fields mean only at the end, so that more
    /// bytes never change a verdict once given.
    fn parse_head<'b>(
        &mut self,
        all: &'b [u8],
        limits: &Limits,
    ) -> Result<Option<Request<'b>>, Reject> {
        let bytes = limits.window(all);
        let mut method = Method::Get;
        let Some(RequestLine { raw_target, path_len, version, rest: first }) =
            request_line(bytes, limits, &mut method)?
        else {
            return self.progress.incomplete(bytes, bytes, all);
        };

        let mut left = limits.fields;
        let (host, mut rest) = match usual_host_line(first) {
            Some((host, rest)) if left > 0 => {
                left -= 1;
                (Some(host), rest)
            }
            _ => (None, first),
        };
        let mut gathered = Gathered::new(version, host);
        let body_bytes = loop {
            match field_line(rest)? {
                Line::Field { field, rest: next } => {
                    rest = next;
                    left = left.checked_sub(1).ok_or(Reject::new(431, "too many fields"))?;
                    if known::NAMES.may_have(field.line, field.name_len) {
                        gathered.take(field.line, field.name_len, next.len());
                    }
                }
                Line::Blank { rest } => break rest,
                Line::Partial => return self.progress.incomplete(rest, bytes, all),
            }
        };
        let Meaning { mut host, body, expect_continue } = gathered.judge(version)?;
        if !matches!(raw_target, [b'/', ..]) {
            // The authority of an absolute target overrules the Host field.
            host = authority_of(&method, raw_target, path_len).or(host);
        }
        Ok(Some(Request {
            method,
            raw_target,
            version,
            host,
            body,
            keep_alive: gathered.options.is_persistent(),
            expect_continue,
            head_len: bytes.len() - body_bytes.len(),
            path_len: path_len as u32,
            known: gathered.known,
            hop_span: gathered.hop_span,
            fields_at: (bytes.len() - first.len()) as u32,
            bytes,
        }))
    }
}

/// The authority of a target in absolute form.
#[cold]
#[inline(never)]
fn authority_of<'b>(method: &Method<'b>, raw: &'b [u8], path_len: usize) -> Option<&'b [u8]> {
    match Target::parse(method, raw, path_len) {
        Ok(Target::Absolute { authority, .. }) => Some(authority),
        _ => None,
    }
}
