//! The request-target and its four forms.

use crate::authority;
use crate::error::Reject;
use crate::method::Method;

const BAD: Reject = Reject::bad("malformed request target");

/// A request-target, RFC 9112 section 3.2. Nothing is percent-decoded.
///
/// Every byte is visible ASCII other than `#`. Bytes that a URI should percent-encode but that
/// browsers send as they are (`|`, `"`, `{`, `\` and so on) are let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target<'b> {
    /// `/path?query`: the usual form. `path` starts with `/`, and `//x` is a path too.
    Origin {
        /// From the first `/` up to the `?`.
        path: &'b [u8],
        /// After the `?`; may be empty.
        query: Option<&'b [u8]>,
    },
    /// `http://authority/path?query`: a request to a proxy.
    Absolute {
        /// `http` or `https`, in any case.
        scheme: &'b [u8],
        /// `host` or `host:port`, valid and without userinfo.
        authority: &'b [u8],
        /// Empty, or starts with `/`.
        path: &'b [u8],
        /// After the `?`; may be empty.
        query: Option<&'b [u8]>,
    },
    /// `host:port`: the form of CONNECT, and only of it. The port is never empty.
    Authority(&'b [u8]),
    /// `*`: the server as a whole, for OPTIONS only.
    Asterisk,
}

impl<'b> Target<'b> {
    /// Finds the form of `raw`, whose bytes have been checked, with its first `?` at `path_len`.
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

    /// Finds a form other than the usual one.
    #[cold]
    #[inline(never)]
    fn parse_other(method: &Method<'_>, raw: &'b [u8], path_len: usize) -> Result<Self, Reject> {
        let (head, tail) = raw.split_at_checked(path_len).ok_or(BAD)?;
        match (raw, method) {
            (_, Method::Connect) => match authority::split(raw) {
                Some((_, Some([_, ..]))) => Ok(Self::Authority(raw)),
                _ => Err(Reject::bad("CONNECT target is not host:port")),
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

    /// The host and the port of a form that names a server: `("[::1]", Some("80"))`. The port is `None`
    /// where there is no colon, and may be empty in an absolute form.
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

    /// The path and query of a form that has them: `("/p", Some("q"))`.
    ///
    /// The empty path of an absolute form is given as `/` (RFC 9110 section 4.2.3).
    pub fn path_and_query(&self) -> Option<(&'b [u8], Option<&'b [u8]>)> {
        match *self {
            Self::Origin { path, query } => Some((path, query)),
            Self::Absolute { path: [], query, .. } => Some((b"/", query)),
            Self::Absolute { path, query, .. } => Some((path, query)),
            Self::Authority(_) | Self::Asterisk => None,
        }
    }
}
