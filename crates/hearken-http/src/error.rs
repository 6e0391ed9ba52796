//! Why a message is refused.

use std::fmt;

/// A request that must be refused: answer with `status`, then close the connection.
///
/// The position in the byte stream is lost after a reject, so nothing that follows may be read
/// as another request (RFC 9112 section 11.2).
///
/// ```
/// use hearken_http::{Limits, RequestParser};
///
/// let reject = RequestParser::new().parse(b"GET / HTTP/2.0\r\n", &Limits::default()).unwrap_err();
/// assert_eq!(reject.status, 505);
/// assert_eq!(reject.to_string(), "505: HTTP version is not 1.x");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reject {
    /// The status code to answer with: 400, 413, 414, 417, 431, 501 or 505.
    pub status: u16,
    /// What was wrong, for a log; never quotes what the peer sent.
    pub reason: &'static str,
}

impl Reject {
    /// A reject with this status code and reason.
    pub const fn new(status: u16, reason: &'static str) -> Self {
        Self { status, reason }
    }

    pub(crate) const fn bad(reason: &'static str) -> Self {
        Self::new(400, reason)
    }
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.status, self.reason)
    }
}

impl std::error::Error for Reject {}

/// A response that cannot be trusted: close the connection. Holds what was wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed response: {}", self.0)
    }
}

impl std::error::Error for Malformed {}

impl From<Reject> for Malformed {
    fn from(reject: Reject) -> Self {
        Self(reject.reason)
    }
}
