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

/// Most options of the Connection lines of a head; more is a 400.
pub(crate) const MOST_OPTIONS: usize = 32;

/// The options of the Connection lines of a head that matter here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    said: u8,
    /// How many there are of any kind.
    count: u16,
}

impl Options {
    const CLOSE: u8 = 1;
    const KEEP_ALIVE: u8 = 2;
    const UPGRADE: u8 = 4;
    /// One that says nothing to us: the name of a field, RFC 9110 section 7.6.1.
    const OTHER: u8 = 8;

    /// The options of a head that has no Connection line.
    #[inline]
    pub(crate) fn new(version: Version) -> Self {
        let said = match version {
            Version::Http10 => 0,
            Version::Http11 => Self::KEEP_ALIVE,
        };
        Self { said, count: 0 }
    }

    /// Takes in one Connection line: a list of options, RFC 9110 section 7.6.1. Whether it names
    /// fields that are not always of the connection only.
    #[inline(always)]
    pub(crate) fn add(&mut self, line: &[u8]) -> bool {
        let said = match line {
            b" keep-alive" => Self::KEEP_ALIVE,
            b" close" => Self::CLOSE,
            _ => self.of(line),
        };
        self.count = self.count.saturating_add(1);
        self.said |= said;
        said & Self::OTHER != 0
    }

    /// What the options of a line say; counts them but for one.
    #[inline(never)]
    fn of(&mut self, line: &[u8]) -> u8 {
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

    /// Whether the connection is meant to outlive the message, RFC 9112 section 9.3.
    #[inline]
    pub(crate) fn is_persistent(self) -> bool {
        self.said & (Self::CLOSE | Self::KEEP_ALIVE) == Self::KEEP_ALIVE
    }

    /// Whether a Connection line named `upgrade`.
    #[inline]
    pub(crate) fn names_upgrade(self) -> bool {
        self.said & Self::UPGRADE != 0
    }

    /// Whether there are more than a message needs. What is done for each field that it has is then
    /// bounded.
    #[inline]
    pub(crate) fn are_too_many(self) -> bool {
        usize::from(self.count) > MOST_OPTIONS
    }
}

/// Whether a Content-Length line is as it would be written here: one space, then digits without a zero
/// before them; where the value is a number.
#[inline]
pub(crate) fn is_canonical_length(line: &[u8]) -> bool {
    match line.get("Content-Length:".len()..) {
        Some([b' ', b'0']) => true,
        Some([b' ', b'1'..=b'9', ..]) => line.last().is_some_and(u8::is_ascii_digit),
        _ => false,
    }
}

/// The number in `digits`: one or more ASCII digits and nothing else, at most [`u64::MAX`].
pub(crate) fn decimal(digits: &[u8]) -> Option<u64> {
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
