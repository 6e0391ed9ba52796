//! Fields that determine the framing of a message and the persistence of its connection.

use crate::class::trim;
use crate::error::Reject;
use crate::scan;
use crate::version::Version;

/// The framing of a request body, RFC 9112 section 6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// No body, or a body of length 0.
    None,
    /// Length of the body in bytes; never 0.
    Length(u64),
    /// Chunked transfer coding.
    Chunked,
}

/// The framing of a response body, RFC 9112 section 6.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseBody {
    /// No body, or a body of length 0.
    None,
    /// Length of the body in bytes; never 0.
    Length(u64),
    /// Chunked transfer coding.
    Chunked,
    /// All bytes until the server closes the connection.
    UntilClose,
}

impl From<Body> for ResponseBody {
    fn from(body: Body) -> Self {
        match body {
            Body::None => Self::None,
            Body::Length(length) => Self::Length(length),
            Body::Chunked => Self::Chunked,
        }
    }
}

/// The framing fields of a head before validation.
#[derive(Debug, Default)]
pub(crate) struct Framing<'b> {
    content_length: Option<&'b [u8]>,
    transfer_encoding: Option<&'b [u8]>,
    repeated: bool,
}

impl<'b> Framing<'b> {
    #[inline]
    pub(crate) fn set_content_length(&mut self, value: &'b [u8]) {
        self.repeated |= self.content_length.replace(trim(value)).is_some();
    }

    #[inline]
    pub(crate) fn set_transfer_encoding(&mut self, value: &'b [u8]) {
        self.repeated |= self.transfer_encoding.replace(trim(value)).is_some();
    }

    /// Validates the fields and returns the framing, or `None` without framing fields.
    #[inline]
    pub(crate) fn body(&self, version: Version) -> Result<Option<Body>, Reject> {
        match (self.transfer_encoding, self.content_length) {
            (None, None) => Ok(None),
            _ if self.repeated => {
                Err(Reject::bad("repeated Content-Length or Transfer-Encoding field"))
            }
            (Some(_), Some(_)) => {
                Err(Reject::bad("both Content-Length and Transfer-Encoding in one message"))
            }
            (None, Some(length)) => match parse_decimal(length) {
                Some(0) => Ok(Some(Body::None)),
                Some(length) => Ok(Some(Body::Length(length))),
                None => Err(Reject::bad("invalid Content-Length: expected a decimal number")),
            },
            (Some(_), None) if version == Version::Http10 => {
                Err(Reject::bad("Transfer-Encoding in an HTTP/1.0 message"))
            }
            (Some(coding), None) => check_chunked(coding).map(|()| Some(Body::Chunked)),
        }
    }
}

/// Maximum number of Connection options in a head. More options result in 400.
pub(crate) const MAX_CONNECTION_OPTIONS: usize = 32;

/// The relevant options of the Connection fields of a head.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionOptions {
    flags: u8,
    /// Number of options of any kind.
    count: u16,
}

impl ConnectionOptions {
    const CLOSE: u8 = 1;
    const KEEP_ALIVE: u8 = 2;
    const UPGRADE: u8 = 4;
    /// An unknown option: the name of a field, RFC 9110 section 7.6.1.
    const OTHER: u8 = 8;

    /// Creates the options of a head without a Connection field.
    #[inline]
    pub(crate) fn new(version: Version) -> Self {
        let flags = match version {
            Version::Http10 => 0,
            Version::Http11 | Version::Http2 => Self::KEEP_ALIVE,
        };
        Self { flags, count: 0 }
    }

    /// Adds the options of one Connection field (RFC 9110 section 7.6.1). Returns whether it names fields
    /// that are not hop-by-hop fields in every message.
    #[inline(always)]
    pub(crate) fn add(&mut self, line: &[u8]) -> bool {
        let flags = match line {
            b" keep-alive" => Self::KEEP_ALIVE,
            b" close" => Self::CLOSE,
            _ => self.parse_list(line),
        };
        self.count = self.count.saturating_add(1);
        self.flags |= flags;
        flags & Self::OTHER != 0
    }

    /// Returns the flags of the options in a line, and counts all options but one.
    #[inline(never)]
    fn parse_list(&mut self, line: &[u8]) -> u8 {
        let commas = memchr::memchr_iter(b',', line).count();
        self.count = self.count.saturating_add(u16::try_from(commas).unwrap_or(u16::MAX));
        let options = line.split(|&byte| byte == b',').map(|option| {
            let option = trim(option);
            match option.len() {
                0 => 0,
                2 if option.eq_ignore_ascii_case(b"te") => 0,
                5 if option.eq_ignore_ascii_case(b"close") => Self::CLOSE,
                7 if option.eq_ignore_ascii_case(b"upgrade") => Self::UPGRADE,
                10 if option.eq_ignore_ascii_case(b"keep-alive") => Self::KEEP_ALIVE,
                14 if option.eq_ignore_ascii_case(b"http2-settings") => 0,
                _ => Self::OTHER,
            }
        });
        options.fold(0, |all, option| all | option)
    }

    /// Returns whether the connection persists after the message, RFC 9112 section 9.3.
    #[inline]
    pub(crate) fn is_persistent(self) -> bool {
        self.flags & (Self::CLOSE | Self::KEEP_ALIVE) == Self::KEEP_ALIVE
    }

    /// Returns whether a Connection field contains `upgrade`.
    #[inline]
    pub(crate) fn contains_upgrade(self) -> bool {
        self.flags & Self::UPGRADE != 0
    }

    /// Returns whether there are too many options. The limit bounds the work per field of the head.
    #[inline]
    pub(crate) fn exceeds_limit(self) -> bool {
        usize::from(self.count) > MAX_CONNECTION_OPTIONS
    }
}

/// Returns whether a Content-Length line with a valid number has canonical form: one space, then digits
/// without leading zeros.
#[inline]
pub(crate) fn is_canonical_length(line: &[u8]) -> bool {
    match line.get("Content-Length:".len()..) {
        Some([b' ', b'0']) => true,
        Some([b' ', b'1'..=b'9', ..]) => line.last().is_some_and(u8::is_ascii_digit),
        _ => false,
    }
}

/// Parses decimal digits. Returns `None` for an empty slice, other bytes, or a number over [`u64::MAX`].
pub(crate) fn parse_decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, &digit| {
        let digit = digit.checked_sub(b'0').filter(|&digit| digit <= 9)?;
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// Accepts exactly `chunked`. Fails with 501 if other codings precede a final `chunked`, so that the end
/// of the body is known, and with 400 otherwise.
fn check_chunked(value: &[u8]) -> Result<(), Reject> {
    if value.eq_ignore_ascii_case(b"chunked") {
        return Ok(());
    }
    let mut codings = value.rsplit(|&byte| byte == b',').map(trim);
    let last_is_chunked = codings.next().is_some_and(|last| last.eq_ignore_ascii_case(b"chunked"));
    let others_are_valid = codings.all(|coding| {
        !coding.is_empty()
            && scan::token_len(coding) == coding.len()
            && !coding.eq_ignore_ascii_case(b"chunked")
    });
    if last_is_chunked && others_are_valid {
        Err(Reject::new(501, "unsupported transfer coding: expected only 'chunked'"))
    } else {
        Err(Reject::bad("invalid Transfer-Encoding: expected 'chunked'"))
    }
}
