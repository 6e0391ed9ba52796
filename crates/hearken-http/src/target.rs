//! Parsing of request-targets.

use crate::authority;
use crate::error::Reject;
use crate::method::Method;

const BAD: Reject = Reject::bad(
    "invalid request target: expected '/path' or 'http://host/path', or '*' for OPTIONS",
);

/// A request-target, RFC 9112 section 3.2, without percent-decoding.
///
/// Every byte is visible ASCII other than `#`. The parser accepts bytes that a URI should percent-encode
/// but that browsers send unencoded, such as `|`, `"`, `{` and `\`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target<'b> {
    /// Origin form `/path?query`, the most common form. The path may start with `//`.
    Origin {
        /// Path from the first `/` to the `?`.
        path: &'b [u8],
        /// Query after the `?`, possibly empty.
        query: Option<&'b [u8]>,
    },
    /// Absolute form `http://authority/path?query`, sent to proxies.
    Absolute {
        /// Scheme: `http` or `https`, in any case.
        scheme: &'b [u8],
        /// Authority `host` or `host:port`, valid and without userinfo.
        authority: &'b [u8],
        /// Path, either empty or starting with `/`.
        path: &'b [u8],
        /// Query after the `?`, possibly empty.
        query: Option<&'b [u8]>,
    },
    /// Authority form `host:port`, used only by CONNECT. The port is not empty.
    Authority(&'b [u8]),
    /// Asterisk form `*`: the server itself, for OPTIONS only.
    Asterisk,
}

impl<'b> Target<'b> {
    /// Determines the form of `raw`, whose bytes are valid and whose query starts at `path_len`.
    #[inline(always)]
    pub(crate) fn parse(
        method: &Method<'_>,
        raw: &'b [u8],
        path_len: usize,
    ) -> Result<Self, Reject> {
        match raw.split_at_checked(path_len) {
            Some((path @ [b'/', ..], tail)) if !matches!(method, Method::Connect) => {
                Ok(Self::Origin { path, query: tail.get(1..) })
            }
            _ => Self::parse_other(method, raw, path_len),
        }
    }

    /// Parses a form other than the origin form.
    #[cold]
    #[inline(never)]
    fn parse_other(method: &Method<'_>, raw: &'b [u8], path_len: usize) -> Result<Self, Reject> {
        let (head, tail) = raw.split_at_checked(path_len).ok_or(BAD)?;
        match (raw, method) {
            (_, Method::Connect) => match authority::split(raw) {
                Some((_, Some([_, ..]))) => Ok(Self::Authority(raw)),
                _ => Err(Reject::bad("invalid CONNECT target: expected 'host:port'")),
            },
            (b"*", Method::Options) => Ok(Self::Asterisk),
            _ => Self::parse_absolute(head, tail.get(1..)),
        }
    }

    fn parse_absolute(head: &'b [u8], query: Option<&'b [u8]>) -> Result<Self, Reject> {
        let colon = memchr::memchr(b':', head).ok_or(BAD)?;
        let (scheme, rest) = head.split_at(colon);
        if !scheme.eq_ignore_ascii_case(b"http") && !scheme.eq_ignore_ascii_case(b"https") {
            return Err(BAD);
        }
        let rest = rest.strip_prefix(b"://").ok_or(BAD)?;
        let (authority, path) = rest.split_at(memchr::memchr(b'/', rest).unwrap_or(rest.len()));
        authority::split(authority).ok_or(BAD)?;
        Ok(Self::Absolute { scheme, authority, path, query })
    }

    /// Returns the host and port of the absolute or authority form: `("[::1]", Some("80"))`.
    ///
    /// The port is `None` without a colon. It may be empty in the absolute form.
    ///
    /// ```
    /// use hearken_http::Target;
    ///
    /// let target = Target::Authority(b"example.org:443");
    /// assert_eq!(target.host_and_port(), Some((&b"example.org"[..], Some(&b"443"[..]))));
    /// ```
    pub fn host_and_port(&self) -> Option<(&'b [u8], Option<&'b [u8]>)> {
        match *self {
            Self::Absolute { authority, .. } | Self::Authority(authority) => {
                authority::split(authority)
            }
            Self::Origin { .. } | Self::Asterisk => None,
        }
    }

    /// Returns the path and query of the origin or absolute form: `("/p", Some("q"))`.
    ///
    /// The empty path of an absolute form is returned as `/` (RFC 9110 section 4.2.3).
    pub fn path_and_query(&self) -> Option<(&'b [u8], Option<&'b [u8]>)> {
        match *self {
            Self::Origin { path, query } => Some((path, query)),
            Self::Absolute { path: [], query, .. } => Some((b"/", query)),
            Self::Absolute { path, query, .. } => Some((path, query)),
            Self::Authority(_) | Self::Asterisk => None,
        }
    }
}
