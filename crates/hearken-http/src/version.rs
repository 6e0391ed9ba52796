//! The protocol version of a message.

use crate::error::Reject;

/// The HTTP version in which a message was received, RFC 9112 section 2.3.
///
/// The parsers treat a minor version above 1 as HTTP/1.1 (RFC 9110 section 2.5). They reject major
/// versions other than 1 with status 505.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
    /// HTTP/2. The message was translated to the form of HTTP/1.1.
    Http2,
}

impl Version {
    /// Checks that `bytes` starts with `HTTP/d.d` and returns the two digits. Returns `None` if `bytes` is
    /// too short.
    pub(crate) fn digits(bytes: &[u8]) -> Result<Option<(u8, u8)>, Reject> {
        let fits = bytes.iter().zip(b"HTTP/d.d").all(|(&byte, &shape)| match shape {
            b'd' => byte.is_ascii_digit(),
            _ => byte == shape,
        });
        if !fits {
            return Err(Reject::bad("invalid HTTP version: expected 'HTTP/1.0' or 'HTTP/1.1'"));
        }
        match bytes {
            [_, _, _, _, _, major, _, minor, ..] => Ok(Some((*major, *minor))),
            _ => Ok(None),
        }
    }

    /// Returns the version with these two digits. Fails with 505 for a major version other than 1.
    pub(crate) fn from_digits((major, minor): (u8, u8)) -> Result<Self, Reject> {
        match (major, minor) {
            (b'1', b'0') => Ok(Self::Http10),
            (b'1', _) => Ok(Self::Http11),
            _ => Err(Reject::new(505, "unsupported HTTP version: expected 1.0 or 1.1")),
        }
    }
}
