//! Reading responses.

use std::time::Duration;

use crate::class::{same_name, trim};
use crate::error::{Malformed, Reject};
use crate::fields::{FieldValues, Fields};
use crate::framing::{Body, Framing, Options, ResponseBody, is_canonical_length};
use crate::hop_span::HopSpan;
use crate::lengths::Lengths;
use crate::limits::Limits;
use crate::line::{Field, Line, Progress, field_line};
use crate::method::Method;
use crate::status_line::{StatusLine, status_line};
use crate::upgrade;
use crate::version::Version;

/// A parsed response head. Borrows everything from the bytes it was parsed from.
#[derive(Debug, Clone, Copy)]
pub struct Response<'b> {
    /// The version the server speaks.
    pub version: Version,
    /// The status code, `100..=999`. Below 200 the response is interim: the final one follows
    /// it, but for a 101, after which the connection speaks another protocol.
    pub status: u16,
    /// The reason phrase, often empty; of no meaning.
    pub reason: &'b [u8],
    /// How the body that follows the head is delimited.
    pub body: ResponseBody,
    /// Whether another request may follow once the body is read (RFC 9112 section 9.3).
    pub keep_alive: bool,
    /// Bytes of the head, its blank line included: the body starts here.
    pub head_len: usize,
    /// The lines that are not passed on as they are; `bytes` starts with the head.
    pub(crate) hop_span: HopSpan,
    pub(crate) bytes: &'b [u8],
    /// Where the first field line starts.
    pub(crate) fields_at: u32,
    /// Whether the Connection field names others than those that are always of the connection only.
    pub(crate) nominates: bool,
    /// Whether there is a Date field.
    pub(crate) is_dated: bool,
    /// Whether there is a Keep-Alive field.
    pub(crate) has_keep_alive: bool,
}

impl<'b> Response<'b> {
    /// Returns how long the server keeps the connection open without a request, if it announces
    /// that: the `timeout` parameter of Keep-Alive (RFC 2068 section 19.7.1), in seconds.
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

    /// Every field in the order they came.
    pub fn fields(&self) -> Fields<'b> {
        Fields::new(self.bytes.get(self.fields_at as usize..).unwrap_or_default())
    }

    /// The value of every field of this name, in any case.
    pub fn field_values<'n>(&self, name: &'n str) -> FieldValues<'b, 'n> {
        FieldValues::new(self.fields(), name)
    }

    /// Returns the protocols of the Upgrade fields, `name` or `name/version`: in a 101, those that the
    /// connection switches to.
    pub fn upgrade_protocols(&self) -> impl Iterator<Item = &'b [u8]> + use<'b> {
        upgrade::protocols(Some(self.field_values("Upgrade")))
    }
}

/// Reads response heads, one after another, from bytes that arrive in any pieces.
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
    /// A parser at the start of a response.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets an incomplete response. Not needed after a response was returned.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// Reads the head of the response that `bytes` starts with, the answer to a request of
    /// `method`.
    ///
    /// `Ok(None)` asks for more: call again with the same bytes and those that followed them.
    /// [`Limits::target_bytes`] plays no part. The space after the status code may be missing
    /// when there is no reason phrase, as many servers leave it out.
    ///
    /// # Errors
    ///
    /// [`Malformed`] for a head over its limits, for anything RFC 9112 does not allow, for a transfer
    /// coding other than `chunked`, for more than 32 Connection options, and for fields that frame a body
    /// in a doubtful way or in an interim response, even where there is none. The connection is of no
    /// more use.
    #[inline]
    pub fn parse<'b>(
        &mut self,
        bytes: &'b [u8],
        method: Method<'_>,
        limits: &Limits,
    ) -> Result<Option<Response<'b>>, Malformed> {
        let window = limits.window(bytes);
        let is_too_long = window.len() < bytes.len();
        if !self.progress.is_worth_parsing(window) && !is_too_long {
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

/// Reads a head from its first byte. Leaves what it saw of the last line in `line`.
#[inline]
fn parse_head<'b>(
    bytes: &'b [u8],
    method: Method<'_>,
    limits: &Limits,
    line: &mut &'b [u8],
) -> Result<Option<Response<'b>>, Reject> {
    let Some(StatusLine { version, status, reason, rest: first }) = status_line(bytes)? else {
        return Ok(None);
    };
    let mut gathered = Gathered {
        options: Options::new(version),
        framing: Framing::default(),
        hop_span: HopSpan::default(),
        nominates: false,
        is_dated: false,
        has_keep_alive: false,
    };
    let mut left = limits.fields;
    let mut rest = first;
    let body_bytes = loop {
        let field = match field_line(rest)? {
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
        left = left.checked_sub(1).ok_or(Reject::new(431, "too many fields"))?;
        if NAMES.may_have(field.line, field.name_len) {
            gathered.take(&field, rest.len());
        }
    };
    let Gathered { options, framing, hop_span, nominates, is_dated, has_keep_alive } = gathered;
    if options.are_too_many() {
        return Err(Reject::bad("too many Connection options"));
    }

    // What tells of a body is to be clear also where there is none, as others may look at it.
    let told = match method {
        Method::Connect if matches!(status, 200..=299) => None,
        _ => framing.body(version)?,
    };
    let contradicts =
        matches!(status, 100..=199 | 204) && told.is_some_and(|told| told != Body::None);
    if contradicts && status < 200 {
        return Err(Reject::bad("interim response with a body"));
    }
    let body = if has_no_body(method, status) {
        ResponseBody::None
    } else {
        told.map_or(ResponseBody::UntilClose, Body::into)
    };
    Ok(Some(Response {
        version,
        status,
        reason,
        body,
        keep_alive: options.is_persistent() && body != ResponseBody::UntilClose && !contradicts,
        head_len: bytes.len() - body_bytes.len(),
        hop_span,
        bytes,
        fields_at: (bytes.len() - first.len()) as u32,
        nominates,
        is_dated,
        has_keep_alive,
    }))
}

/// What is gathered from the fields of a response before any of it is judged.
struct Gathered<'b> {
    options: Options,
    framing: Framing<'b>,
    hop_span: HopSpan,
    nominates: bool,
    is_dated: bool,
    has_keep_alive: bool,
}

impl<'b> Gathered<'b> {
    /// Takes in a field that matters; so many bytes follow it.
    #[inline(never)]
    fn take(&mut self, field: &Field<'b>, after: usize) {
        let name = field.name();
        match name.len() {
            4 if same_name(name, b"date") => {
                self.is_dated = true;
                return;
            }
            10 if same_name(name, b"connection") => {
                self.nominates |= self.options.add(field.value());
                return self.hop_span.add_dropped(field.line.len(), after);
            }
            10 if same_name(name, b"keep-alive") => {
                self.has_keep_alive = true;
                return self.hop_span.add_dropped(field.line.len(), after);
            }
            14 if same_name(name, b"content-length") => {
                self.framing.content_length(field.value());
                if is_canonical_length(field.line) {
                    return;
                }
            }
            17 if same_name(name, b"transfer-encoding") => {
                self.framing.transfer_encoding(field.value());
                return self.hop_span.add_dropped(field.line.len(), after);
            }
            _ => {}
        }
        self.hop_span.add(field.line.len(), after);
    }
}

/// The names that [`Gathered::take`] knows, and those it takes in for an intermediary.
static NAMES: Lengths = Lengths::of(&[
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

/// The cases in which the fields do not matter, RFC 9112 section 6.3 items 1 and 2.
#[inline]
fn has_no_body(method: Method<'_>, status: u16) -> bool {
    matches!(status, 100..=199 | 204 | 304)
        || method == Method::Head
        || (method == Method::Connect && matches!(status, 200..=299))
}
