//! Reading requests.

use crate::authority;
use crate::class::same_name;
use crate::error::Reject;
use crate::fields::{FieldValues, Fields};
use crate::framing::{Body, Framing};
use crate::limits::Limits;
use crate::line::{Line, Progress, bad_control, field_line};
use crate::method::Method;
use crate::scan;
use crate::target::Target;
use crate::version::Version;

/// Longest method read; a longer one is a 501 (RFC 9112 section 3).
const METHOD_BYTES: usize = 32;

/// A parsed request head. Borrows everything from the bytes it was parsed from.
///
/// Of a field that is kept as an `Option` the first line counts; [`Request::field_values`]
/// gives them all.
#[derive(Debug, Clone, Copy)]
pub struct Request<'b> {
    /// What to do.
    pub method: Method<'b>,
    /// What to do it to.
    pub target: Target<'b>,
    /// The request-target as it was sent, for logs and for forwarding.
    pub raw_target: &'b [u8],
    /// The version the client speaks.
    pub version: Version,
    /// The authority of an absolute target, else the Host field; valid, or empty when the Host
    /// field was. `None` only in HTTP/1.0.
    pub host: Option<&'b [u8]>,
    /// How the body that follows the head is delimited.
    pub body: Body,
    /// Whether the client wants the connection kept open (RFC 9112 section 9.3).
    pub keep_alive: bool,
    /// Whether the client waits for `100 Continue` before it sends its body (RFC 9110 section
    /// 10.1.1). Never true in HTTP/1.0 or without a body.
    pub expect_continue: bool,
    /// The Upgrade field, when the Connection field names it and the version is 1.1.
    pub upgrade: Option<&'b [u8]>,
    /// Accept-Encoding
    pub accept_encoding: Option<&'b [u8]>,
    /// If-Match
    pub if_match: Option<&'b [u8]>,
    /// If-Modified-Since
    pub if_modified_since: Option<&'b [u8]>,
    /// If-None-Match
    pub if_none_match: Option<&'b [u8]>,
    /// If-Range
    pub if_range: Option<&'b [u8]>,
    /// If-Unmodified-Since
    pub if_unmodified_since: Option<&'b [u8]>,
    /// Range
    pub range: Option<&'b [u8]>,
    /// Referer
    pub referer: Option<&'b [u8]>,
    /// User-Agent
    pub user_agent: Option<&'b [u8]>,
    /// Bytes of the head, its blank line included: the body starts here.
    pub head_len: usize,
    fields: Fields<'b>,
}

impl<'b> Request<'b> {
    /// Every field in the order they came.
    pub fn fields(&self) -> Fields<'b> {
        self.fields
    }

    /// The value of every field of this name, in any case.
    ///
    /// ```
    /// use hearken_http::{Limits, RequestParser};
    ///
    /// let bytes = b"GET / HTTP/1.1\r\nHost: a\r\nCookie: x=1\r\ncookie: y=2\r\n\r\n";
    /// let request = RequestParser::new().parse(bytes, &Limits::default())?.unwrap();
    /// assert!(request.field_values("Cookie").eq([b"x=1", b"y=2"]));
    /// # Ok::<(), hearken_http::Reject>(())
    /// ```
    pub fn field_values<'n>(&self, name: &'n str) -> FieldValues<'b, 'n> {
        FieldValues::new(self.fields, name)
    }
}

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
    /// bytes, 505 for a major version other than 1, and 400 for everything that RFC 9112 does
    /// not allow. An error of syntax comes at the latest when its line is whole, an error of
    /// meaning (such as two lengths) or too many fields when the head is.
    #[inline]
    pub fn parse<'b>(
        &mut self,
        bytes: &'b [u8],
        limits: &Limits,
    ) -> Result<Option<Request<'b>>, Reject> {
        let window = limits.window(bytes);
        let is_too_long = window.len() < bytes.len();
        let may_be_414 = self.progress.is_in_first_line() && window.len() > limits.target_bytes;
        if !self.progress.is_worth_parsing(window) && !may_be_414 && !is_too_long {
            return Ok(None);
        }
        self.reset();
        self.parse_head(window, limits, is_too_long)
    }

    /// Reads a head from its first byte.
    ///
    /// Goes strictly left to right and judges what the fields mean only at the end, so that more
    /// bytes never change a verdict once given.
    fn parse_head<'b>(
        &mut self,
        bytes: &'b [u8],
        limits: &Limits,
        is_too_long: bool,
    ) -> Result<Option<Request<'b>>, Reject> {
        let start = match bytes {
            [b'\r', b'\n', ..] => 2,
            [b'\r'] => return self.progress.incomplete(0, bytes, is_too_long),
            _ => 0,
        };
        let Some(RequestLine { method, raw_target, target, version, next }) =
            request_line(bytes, start, limits)?
        else {
            return self.progress.incomplete(start, bytes, is_too_long);
        };

        let mut known = Known::default();
        let mut framing = Framing::default();
        let mut several_hosts = false;
        let mut expects_continue = false;
        let mut unknown_expectation = false;
        let mut at = next;
        let mut left = limits.fields;
        let head_len = loop {
            let (name, value) = match field_line(bytes, at)? {
                Line::Field { name, value, next } => {
                    at = next;
                    (name, value)
                }
                Line::Blank { next } => break next,
                Line::Partial => return self.progress.incomplete(at, bytes, is_too_long),
            };
            left = left.checked_sub(1).ok_or(Reject::new(431, "too many fields"))?;
            // The length alone rules out most names.
            let slot = match name.len() {
                4 if same_name(name, b"host") => {
                    several_hosts |= known.host.replace(value).is_some();
                    continue;
                }
                5 if same_name(name, b"range") => &mut known.range,
                6 if same_name(name, b"expect") => {
                    let expected = value.eq_ignore_ascii_case(b"100-continue");
                    expects_continue |= expected;
                    unknown_expectation |= !expected;
                    continue;
                }
                7 if same_name(name, b"referer") => &mut known.referer,
                7 if same_name(name, b"upgrade") => &mut known.upgrade,
                8 if same_name(name, b"if-match") => &mut known.if_match,
                8 if same_name(name, b"if-range") => &mut known.if_range,
                10 if same_name(name, b"connection") => {
                    framing.connection(value);
                    continue;
                }
                10 if same_name(name, b"user-agent") => &mut known.user_agent,
                13 if same_name(name, b"if-none-match") => &mut known.if_none_match,
                14 if same_name(name, b"content-length") => {
                    framing.content_length(value);
                    continue;
                }
                15 if same_name(name, b"accept-encoding") => &mut known.accept_encoding,
                17 if same_name(name, b"transfer-encoding") => {
                    framing.transfer_encoding(value);
                    continue;
                }
                17 if same_name(name, b"if-modified-since") => &mut known.if_modified_since,
                19 if same_name(name, b"if-unmodified-since") => &mut known.if_unmodified_since,
                _ => continue,
            };
            slot.get_or_insert(value);
        };

        if several_hosts {
            return Err(Reject::bad("several Host fields"));
        }
        match known.host {
            Some(host) if !host.is_empty() && authority::split(host).is_none() => {
                return Err(Reject::bad("malformed Host field"));
            }
            None if version == Version::Http11 => return Err(Reject::bad("no Host field")),
            _ => {}
        }
        let body = framing.body(version)?.unwrap_or(Body::None);
        // HTTP/1.0 knows neither Expect nor Upgrade: RFC 9110 sections 7.8 and 10.1.1.
        let is_11 = version == Version::Http11;
        if is_11 && unknown_expectation {
            return Err(Reject::new(417, "expectation other than 100-continue"));
        }
        Ok(Some(Request {
            method,
            target,
            raw_target,
            version,
            host: match target {
                Target::Absolute { authority, .. } => Some(authority),
                _ => known.host,
            },
            body,
            keep_alive: framing.is_persistent(version),
            expect_continue: is_11 && expects_continue && body != Body::None,
            upgrade: known.upgrade.filter(|_| is_11 && framing.names_upgrade()),
            accept_encoding: known.accept_encoding,
            if_match: known.if_match,
            if_modified_since: known.if_modified_since,
            if_none_match: known.if_none_match,
            if_range: known.if_range,
            if_unmodified_since: known.if_unmodified_since,
            range: known.range,
            referer: known.referer,
            user_agent: known.user_agent,
            head_len,
            fields: Fields::new(bytes, next),
        }))
    }
}

/// The first value of each field that a request keeps, gathered before any of it is judged.
#[derive(Default)]
struct Known<'b> {
    host: Option<&'b [u8]>,
    upgrade: Option<&'b [u8]>,
    accept_encoding: Option<&'b [u8]>,
    if_match: Option<&'b [u8]>,
    if_modified_since: Option<&'b [u8]>,
    if_none_match: Option<&'b [u8]>,
    if_range: Option<&'b [u8]>,
    if_unmodified_since: Option<&'b [u8]>,
    range: Option<&'b [u8]>,
    referer: Option<&'b [u8]>,
    user_agent: Option<&'b [u8]>,
}

struct RequestLine<'b> {
    method: Method<'b>,
    raw_target: &'b [u8],
    target: Target<'b>,
    version: Version,
    next: usize,
}

/// Reads `method SP request-target SP HTTP-version CRLF`, RFC 9112 section 3.
#[inline]
fn request_line<'b>(
    bytes: &'b [u8],
    start: usize,
    limits: &Limits,
) -> Result<Option<RequestLine<'b>>, Reject> {
    let line = bytes.get(start..).unwrap_or_default();
    let (method, after_method) = match line {
        // By far the most common method needs no search for its end.
        [b'G', b'E', b'T', b' ', after @ ..] => (Method::Get, after),
        _ => match method(line)? {
            Some(found) => found,
            None => return Ok(None),
        },
    };

    let path_len = scan::path(after_method);
    let target_len = match after_method.get(path_len..) {
        Some([b'?', query @ ..]) => path_len + 1 + scan::target(query),
        _ => path_len,
    };
    if target_len > limits.target_bytes {
        return Err(Reject::new(414, "request target is too long"));
    }
    let (raw_target, rest) = after_method.split_at(target_len);
    let version = match rest {
        [b' ', version @ ..] if !raw_target.is_empty() => version,
        [] => return Ok(None),
        _ => return Err(Reject::bad("forbidden byte in the request target")),
    };
    let target = Target::parse(method, raw_target, path_len)?;

    let next = bytes.len() - version.len() + b"HTTP/1.1\r\n".len();
    if version.starts_with(b"HTTP/1.1\r\n") {
        let version = Version::Http11;
        return Ok(Some(RequestLine { method, raw_target, target, version, next }));
    }
    let Some(digits) = Version::digits(version)? else {
        return Ok(None);
    };
    match version.get(8..).unwrap_or_default() {
        [b'\r', b'\n', ..] => {
            let version = Version::from_digits(digits)?;
            Ok(Some(RequestLine { method, raw_target, target, version, next }))
        }
        [] | [b'\r'] => Ok(None),
        [stop @ (b'\r' | b'\n'), ..] => Err(bad_control(*stop)),
        _ => Err(Reject::bad("malformed HTTP version")),
    }
}

/// Reads a method and the space after it; returns what follows them too.
fn method(line: &[u8]) -> Result<Option<(Method<'_>, &[u8])>, Reject> {
    let most = line.get(..METHOD_BYTES + 1).unwrap_or(line);
    let (token, rest) = line.split_at(scan::token(most));
    if token.len() > METHOD_BYTES {
        return Err(Reject::new(501, "method is too long"));
    }
    match rest {
        [b' ', after @ ..] if !token.is_empty() => Ok(Some((Method::from_token(token), after))),
        [] => Ok(None),
        [b'\r' | b'\n', ..] if token.is_empty() => Err(Reject::bad("empty request line")),
        _ => Err(Reject::bad("method is not a token and one space")),
    }
}
