//! The protocol version of a message.

use crate::error::Reject;

/// The version of HTTP a message is in, RFC 9112 section 2.3.
///
/// A minor version above 1 is read as 1.1 (RFC 9110 section 2.5); any major version but 1 is
/// refused with 505.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
}

impl Version {
    /// Checks the `HTTP/d.d` that `bytes` starts with and returns its two digits; `None` when
    /// the bytes end too early.
    pub(crate) fn digits(bytes: &[u8]) -> Result<Option<(u8, u8)>, Reject> {
        let fits = bytes.iter().zip(b"HTTP/d.d").all(|(&byte, &shape)| match shape {
            b'd' => byte.is_ascii_digit(),
            _ => byte == shape,
        });
        if !fits {
            return Err(Reject::bad("malformed HTTP version"));
        }
        match bytes {
            [_, _, _, _, _, major, _, minor, ..] => Ok(Some((*major, *minor))),
            _ => Ok(None),
        }
    }

    /// The version of these two digits; 505 for a major version other than 1.
    pub(crate) fn from_digits((major, minor): (u8, u8)) -> Result<Self, Reject> {
        match (major, minor) {
            (b'1', b'0') => Ok(Self::Http10),
            (b'1', _) => Ok(Self::Http11),
            _ => Err(Reject::new(505, "HTTP version is not 1.x")),
        }
    }
}
