//! The fields that decide where a message ends and whether another may follow it.

use crate::class::trim;
use crate::error::Reject;
use crate::scan;
use crate::version::Version;

/// How the body of a request is delimited, RFC 9112 section 6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// There is none, or its length is 0.
    None,
    /// This many bytes; never 0.
    Length(u64),
    /// In the chunked coding.
    Chunked,
}

/// How the body of a response is delimited, RFC 9112 section 6.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseBody {
    /// There is none, or its length is 0.
    None,
    /// This many bytes; never 0.
    Length(u64),
    /// In the chunked coding.
    Chunked,
    /// All bytes until the peer closes the connection.
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

/// What the framing fields of one head said, gathered before any of it is judged.
#[derive(Debug, Default)]
pub(crate) struct Framing<'b> {
    content_length: Option<&'b [u8]>,
    transfer_encoding: Option<&'b [u8]>,
    repeated: bool,
}

impl<'b> Framing<'b> {
    #[inline]
    pub(crate) fn content_length(&mut self, value: &'b [u8]) {
        self.repeated |= self.content_length.replace(trim(value)).is_some();
    }

    #[inline]
    pub(crate) fn transfer_encoding(&mut self, value: &'b [u8]) {
        self.repeated |= self.transfer_encoding.replace(trim(value)).is_some();
    }

    /// How the body is delimited; `None` when no field says. Doubt is an error.
    #[inline]
    pub(crate) fn body(&self, version: Version) -> Result<Option<Body>, Reject> {
        match (self.transfer_encoding, self.content_length) {
            (None, None) => Ok(None),
            _ if self.repeated => {
                Err(Reject::bad("several Content-Length or Transfer-Encoding fields"))
            }
            (Some(_), Some(_)) => {
                Err(Reject::bad("Content-Length together with Transfer-Encoding"))
            }
            (None, Some(length)) => match decimal(length) {
                Some(0) => Ok(Some(Body::None)),
                Some(length) => Ok(Some(Body::Length(length))),
                None => Err(Reject::bad("Content-Length is not a number")),
            },
            (Some(_), None) if version == Version::Http10 => {
                Err(Reject::bad("Transfer-Encoding in HTTP/1.0"))
            }
            (Some(coding), None) => chunked(coding).map(|()| Some(Body::Chunked)),
        }
    }
}

/// The options of the Connection lines of a head that matter here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options(u8);

impl Options {
    const CLOSE: u8 = 1;
    const KEEP_ALIVE: u8 = 2;
    const UPGRADE: u8 = 4;

    /// The options of a head that has no Connection line.
    #[inline]
    pub(crate) fn new(version: Version) -> Self {
        Self(match version {
            Version::Http10 => 0,
            Version::Http11 => Self::KEEP_ALIVE,
        })
    }

    /// Takes in one Connection line: a list of options, RFC 9110 section 7.6.1.
    #[inline(always)]
    pub(crate) fn add(&mut self, line: &[u8]) {
        self.0 |= match line {
            b" keep-alive" => Self::KEEP_ALIVE,
            b" close" => Self::CLOSE,
            _ => Self::of(line),
        };
    }

    #[inline(never)]
    fn of(line: &[u8]) -> u8 {
        let options = line.split(|&byte| byte == b',').map(|option| {
            let option = trim(option);
            match option.len() {
                5 if option.eq_ignore_ascii_case(b"close") => Self::CLOSE,
                7 if option.eq_ignore_ascii_case(b"upgrade") => Self::UPGRADE,
                10 if option.eq_ignore_ascii_case(b"keep-alive") => Self::KEEP_ALIVE,
                _ => 0,
            }
        });
        options.fold(0, |all, option| all | option)
    }

    /// Whether the connection is meant to outlive the message, RFC 9112 section 9.3.
    #[inline]
    pub(crate) fn is_persistent(self) -> bool {
        self.0 & (Self::CLOSE | Self::KEEP_ALIVE) == Self::KEEP_ALIVE
    }

    /// Whether a Connection line named `upgrade`.
    #[inline]
    pub(crate) fn names_upgrade(self) -> bool {
        self.0 & Self::UPGRADE != 0
    }
}

/// The number in `digits`: one or more ASCII digits and nothing else, at most [`u64::MAX`].
fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, &digit| {
        let digit = digit.checked_sub(b'0').filter(|&digit| digit <= 9)?;
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// Accepts exactly `chunked`. 501 when other codings stand before a final `chunked`, so that
/// the end of the body is not in doubt; else 400.
fn chunked(value: &[u8]) -> Result<(), Reject> {
    if value.eq_ignore_ascii_case(b"chunked") {
        return Ok(());
    }
    let mut codings = value.rsplit(|&byte| byte == b',').map(trim);
    let last_is_chunked = codings.next().is_some_and(|last| last.eq_ignore_ascii_case(b"chunked"));
    let others_are_known_not_to_be = codings.all(|coding| {
        !coding.is_empty()
            && scan::token(coding) == coding.len()
            && !coding.eq_ignore_ascii_case(b"chunked")
    });
    if last_is_chunked && others_are_known_not_to_be {
        Err(Reject::new(501, "transfer coding other than chunked"))
    } else {
        Err(Reject::bad("Transfer-Encoding does not end in one chunked"))
    }
}
