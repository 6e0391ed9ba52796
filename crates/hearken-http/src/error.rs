//! Parse errors.

use std::fmt;

/// An invalid request. The server responds with `status` and closes the connection.
///
/// The end of an invalid request is unknown, so the server cannot read another request from the
/// connection (RFC 9112 section 11.2).
///
/// ```
/// use hearken_http::{Limits, RequestParser};
///
/// let reject = RequestParser::new().parse(b"GET / HTTP/2.0\r\n", &Limits::default()).unwrap_err();
/// assert_eq!(reject.status, 505);
/// assert_eq!(reject.to_string(), "505: unsupported HTTP version: expected 1.0 or 1.1");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reject {
    /// Status code of the response: 400, 413, 414, 417, 431, 501 or 505.
    pub status: u16,
    /// Description of the error for logs. It never contains data from the peer.
    pub reason: &'static str,
}

impl Reject {
    /// Creates an error with this status code and reason.
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

/// An invalid response, with the reason. The client closes the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid response: {}", self.0)
    }
}

impl std::error::Error for Malformed {}

impl From<Reject> for Malformed {
    fn from(reject: Reject) -> Self {
        Self(reject.reason)
    }
}
