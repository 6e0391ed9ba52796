//! Parsing of response heads.

use std::time::Duration;

use crate::class::{eq_ignore_case, trim};
use crate::error::{Malformed, Reject};
use crate::field_line::{Field, Line, Progress, parse_field_line};
use crate::fields::{FieldValues, Fields};
use crate::framing::{Body, ConnectionOptions, Framing, ResponseBody, is_canonical_length};
use crate::limits::Limits;
use crate::method::Method;
use crate::name_filter::NameFilter;
use crate::rewrite_span::RewriteSpan;
use crate::status_line::{StatusLine, parse_status_line};
use crate::upgrade_protocols;
use crate::version::Version;

/// A parsed response head, borrowed from the bytes that it was parsed from.
///
/// ```
/// use hearken_http::{Limits, Method, ResponseBody, ResponseParser};
///
/// let bytes = b"HTTP/1.1 404 Not Found\r\nServer: x\r\nTransfer-Encoding: chunked\r\n\r\n";
/// let response = ResponseParser::new().parse(bytes, Method::Get, &Limits::default())?.unwrap();
/// assert_eq!(response.status, 404);
/// assert_eq!(response.body, ResponseBody::Chunked);
/// assert!(response.field_values("Server").eq([b"x"]));
/// # Ok::<(), hearken_http::Malformed>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Response<'b> {
    /// HTTP version of the server.
    pub version: Version,
    /// Status code in `100..=999`. Below 200, the response is interim and the final response follows,
    /// except for 101, after which the connection uses another protocol.
    pub status: u16,
    /// Reason phrase, often empty. It has no meaning.
    pub reason: &'b [u8],
    /// Framing of the body after the head.
    pub body: ResponseBody,
    /// Whether the connection persists after the body (RFC 9112 section 9.3).
    pub keep_alive: bool,
    /// Length of the head in bytes, including its blank line.
    pub head_len: usize,
    /// Span of the lines that are not forwarded unchanged. `bytes` starts with the head.
    pub(crate) rewrite_span: RewriteSpan,
    pub(crate) bytes: &'b [u8],
    /// Position of the first field line.
    pub(crate) fields_at: u32,
    /// Whether Connection options name fields that are not hop-by-hop fields in every message.
    pub(crate) nominates: bool,
    /// Whether a Date field is present.
    pub(crate) is_dated: bool,
    /// Whether a Keep-Alive field is present.
    pub(crate) has_keep_alive: bool,
}

impl<'b> Response<'b> {
    /// Returns the idle timeout of the connection that the server announced: the `timeout` parameter of
    /// Keep-Alive (RFC 2068 section 19.7.1), in seconds.
    #[inline]
    pub fn keep_alive_timeout(&self) -> Option<Duration> {
        if self.has_keep_alive { self.announced_timeout() } else { None }
    }

    #[cold]
    fn announced_timeout(&self) -> Option<Duration> {
        self.field_values("Keep-Alive")
            .flat_map(|value| value.split(|&byte| byte == b','))
            .find_map(|parameter| {
                let (name, value) =
                    parameter.split_at_checked(parameter.iter().position(|&byte| byte == b'=')?)?;
                let value = std::str::from_utf8(trim(value.get(1..)?)).ok()?;
                let is_timeout = trim(name).eq_ignore_ascii_case(b"timeout");
                is_timeout.then(|| value.parse().ok().map(Duration::from_secs)).flatten()
            })
    }

    /// Returns all fields in their original order.
    pub fn fields(&self) -> Fields<'b> {
        Fields::new(self.bytes.get(self.fields_at as usize..).unwrap_or_default())
    }

    /// Returns the values of all fields with this name, ignoring case.
    pub fn field_values<'n>(&self, name: &'n str) -> FieldValues<'b, 'n> {
        FieldValues::new(self.fields(), name)
    }

    /// Returns the protocols of the Upgrade fields, `name` or `name/version`. In a 101, the connection
    /// switches to these.
    pub fn upgrade_protocols(&self) -> impl Iterator<Item = &'b [u8]> + use<'b> {
        upgrade_protocols::parse(Some(self.field_values("Upgrade")))
    }
}

/// An incremental parser of response heads.
///
/// ```
/// use hearken_http::{Limits, Method, ResponseBody, ResponseParser};
///
/// let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
/// let mut parser = ResponseParser::new();
/// let response = parser.parse(bytes, Method::Get, &Limits::default())?.unwrap();
/// assert_eq!(response.status, 200);
/// assert_eq!(response.body, ResponseBody::Length(2));
/// assert!(response.keep_alive);
/// assert_eq!(&bytes[response.head_len..], b"hi");
/// # Ok::<(), hearken_http::Malformed>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct ResponseParser {
    progress: Progress,
}

impl ResponseParser {
    /// Creates a parser at the start of a response.
    pub fn new() -> Self {
        Self::default()
    }

    /// Discards an incomplete response. Not needed after a response was returned.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// Parses the head of the response that `bytes` starts with, to a request with this method.
    ///
    /// Returns `Ok(None)` for an incomplete head. The caller then calls again with the same bytes followed by
    /// more. [`Limits::max_target_bytes`] has no effect. The parser accepts a status line without a space after
    /// the status code, because many servers omit the space with the reason phrase.
    ///
    /// # Errors
    ///
    /// [`Malformed`] if the head violates RFC 9112 or exceeds its limits, for a transfer coding other than
    /// `chunked`, and for more than 32 Connection options. Ambiguous framing fields are errors even in a
    /// response without a body. Interim responses with a body are errors. After an error, the caller closes
    /// the connection.
    #[inline]
    pub fn parse<'b>(
        &mut self,
        bytes: &'b [u8],
        method: Method<'_>,
        limits: &Limits,
    ) -> Result<Option<Response<'b>>, Malformed> {
        let window = limits.window(bytes);
        let is_too_long = window.len() < bytes.len();
        if !self.progress.needs_parsing(window) && !is_too_long {
            return Ok(None);
        }
        let mut line = window;
        let result = parse_head(window, method, limits, &mut line);
        match result {
            Ok(None) => Ok(self.progress.incomplete(line, window, bytes)?),
            _ => {
                self.reset();
                Ok(result?)
            }
        }
    }
}

/// Parses a head from its first byte. Stores the beginning of an incomplete last line in `line`.
#[inline]
fn parse_head<'b>(
    bytes: &'b [u8],
    method: Method<'_>,
    limits: &Limits,
    line: &mut &'b [u8],
) -> Result<Option<Response<'b>>, Reject> {
    let Some(StatusLine { version, status, reason, rest: first }) = parse_status_line(bytes)?
    else {
        return Ok(None);
    };
    let mut fields = ResponseFields {
        options: ConnectionOptions::new(version),
        framing: Framing::default(),
        rewrite_span: RewriteSpan::default(),
        nominates: false,
        is_dated: false,
        has_keep_alive: false,
    };
    let mut remaining = limits.max_fields;
    let mut rest = first;
    let body_bytes = loop {
        let field = match parse_field_line(rest)? {
            Line::Field { field, rest: next } => {
                rest = next;
                field
            }
            Line::Blank { rest } => break rest,
            Line::Partial => {
                *line = rest;
                return Ok(None);
            }
        };
        remaining = remaining
            .checked_sub(1)
            .ok_or(Reject::new(431, "too many fields in the message head"))?;
        if NAMES.may_contain(field.line, field.name_len) {
            fields.add(&field, rest.len());
        }
    };
    let ResponseFields { options, framing, rewrite_span, nominates, is_dated, has_keep_alive } =
        fields;
    if options.exceeds_limit() {
        return Err(Reject::bad("more than 32 options in the Connection fields"));
    }

    // Framing fields must be valid even without a body, because other recipients may interpret them.
    let framing_body = match method {
        Method::Connect if matches!(status, 200..=299) => None,
        _ => framing.body(version)?,
    };
    let contradicts = matches!(status, 100..=199 | 204)
        && framing_body.is_some_and(|framing_body| framing_body != Body::None);
    if contradicts && status < 200 {
        return Err(Reject::bad("interim response with a body"));
    }
    let body = if has_no_body(method, status) {
        ResponseBody::None
    } else {
        framing_body.map_or(ResponseBody::UntilClose, Body::into)
    };
    Ok(Some(Response {
        version,
        status,
        reason,
        body,
        keep_alive: options.is_persistent() && body != ResponseBody::UntilClose && !contradicts,
        head_len: bytes.len() - body_bytes.len(),
        rewrite_span,
        bytes,
        fields_at: (bytes.len() - first.len()) as u32,
        nominates,
        is_dated,
        has_keep_alive,
    }))
}

/// The fields of a response before validation.
struct ResponseFields<'b> {
    options: ConnectionOptions,
    framing: Framing<'b>,
    rewrite_span: RewriteSpan,
    nominates: bool,
    is_dated: bool,
    has_keep_alive: bool,
}

impl<'b> ResponseFields<'b> {
    /// Adds a relevant field. `after` bytes follow its line.
    #[inline(never)]
    fn add(&mut self, field: &Field<'b>, after: usize) {
        let name = field.name();
        match name.len() {
            4 if eq_ignore_case(name, b"date") => {
                self.is_dated = true;
                return;
            }
            10 if eq_ignore_case(name, b"connection") => {
                self.nominates |= self.options.add(field.value());
                return self.rewrite_span.add_removed(field.line.len(), after);
            }
            10 if eq_ignore_case(name, b"keep-alive") => {
                self.has_keep_alive = true;
                return self.rewrite_span.add_removed(field.line.len(), after);
            }
            14 if eq_ignore_case(name, b"content-length") => {
                self.framing.set_content_length(field.value());
                if is_canonical_length(field.line) {
                    return;
                }
            }
            17 if eq_ignore_case(name, b"transfer-encoding") => {
                self.framing.set_transfer_encoding(field.value());
                return self.rewrite_span.add_removed(field.line.len(), after);
            }
            _ => {}
        }
        self.rewrite_span.add(field.line.len(), after);
    }
}

/// Names of the fields that are relevant to [`ResponseFields::add`] or to intermediaries.
static NAMES: NameFilter = NameFilter::new(&[
    "date",
    "connection",
    "content-length",
    "transfer-encoding",
    "te",
    "upgrade",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-authentication-info",
    "http2-settings",
]);

/// Returns whether the response has no body regardless of its fields, RFC 9112 section 6.3 items 1 and 2.
#[inline]
fn has_no_body(method: Method<'_>, status: u16) -> bool {
    matches!(status, 100..=199 | 204 | 304)
        || method == Method::Head
        || (method == Method::Connect && matches!(status, 200..=299))
}
