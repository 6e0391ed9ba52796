//! Passing messages on: what an intermediary writes of the heads and bodies that it reads
//! (RFC 9110 section 7.6, RFC 9112 section 6, RFC 7239).
//!
//! Heads are written from what was parsed, whose lines are copied as they came but for those that are
//! of one connection only, that frame the message, or that tell who sent it: these are dropped, and
//! written anew where they are needed. A parser notes between which lines such ones are, so that the
//! others are neither looked at again nor copied one by one. A name with `_` for `-` that would be one
//! of theirs is dropped too, as origins that hand fields on as variables (CGI) read both as one.
//!
//! ```
//! use hearken_http::forward::{self, Given, RequestTo, Rules};
//! use hearken_http::{Limits, RequestParser};
//!
//! let rules = Rules::new("hearken", Given::Replace, Given::Remove, true);
//! let bytes = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: x\r\nX: y\r\nX-Forwarded-For: me\r\n\r\n";
//! let request = RequestParser::new().parse(bytes, &Limits::default())?.unwrap();
//! let to = RequestTo { authority: b"", client: Some([10, 0, 0, 1].into()), keep_alive: true };
//! let mut out = Vec::new();
//! forward::request(&rules, &mut out, &request, &to);
//! assert_eq!(
//!     String::from_utf8(out).unwrap(),
//!     "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 10.0.0.1\r\nX-Forwarded-Proto: http\r\n\
//!      X-Forwarded-Host: a\r\nVia: 1.1 hearken\r\n\r\n"
//! );
//! # Ok::<(), hearken_http::Reject>(())
//! ```

mod address;
mod given;
mod hops;
mod lines;
mod name;
mod relay;
mod request;
mod response;
mod trailer;
mod upgrade;

pub use hops::{MOST_HOPS, hops, is_loop, names_this_proxy};
pub use relay::Relay;
pub use request::{RequestTo, max_forwards, request};
pub use response::{ResponseTo, interim, needs_date, response, switching};
pub use upgrade::{may_switch, passes_upgrade};

use crate::class::{self, TOKEN};
use crate::version::Version;

/// What becomes of fields about the client that a request came with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Given {
    /// They are taken off, and ours are set: who sent them is not believed.
    Replace,
    /// What we know is added behind them.
    Append,
    /// They are passed on as they came, and none is added.
    Keep,
    /// They are taken off, and none is added.
    Remove,
}

/// How heads are rewritten.
#[derive(Debug, Clone)]
pub struct Rules {
    x_forwarded: Given,
    forwarded: Given,
    keep_host: bool,
    /// The name in Via; empty if there is none.
    received_by: Box<[u8]>,
    /// Whether a request gets a field that only serves to count hops.
    counts_hops: bool,
    /// The end of the line before, the Via line for a message that came in HTTP/1.1, and in 1.0, and the
    /// blank line.
    end_11: Box<[u8]>,
    end_10: Box<[u8]>,
}

impl Rules {
    /// `via` is the name in `Via`, with a port or without one; none is added if it is empty, and what
    /// cannot stand in a name is written as `_`. `keep_host` says whether a server is told the host
    /// that the client named, or its own.
    pub fn new(via: &str, x_forwarded: Given, forwarded: Given, keep_host: bool) -> Rules {
        let received_by = received_by(via.as_bytes());
        let end = |version: &[u8]| -> Box<[u8]> {
            match &*received_by {
                [] => (*b"\r\n\r\n").into(),
                name => [b"\r\nVia: ", version, b" ", name, b"\r\n\r\n"].concat().into(),
            }
        };
        let (end_11, end_10) = (end(b"1.1"), end(b"1.0"));
        let counts_hops = false;
        Rules { x_forwarded, forwarded, keep_host, received_by, counts_hops, end_11, end_10 }
    }

    /// Returns the same rules, by which each request that is passed on has more [`hops`] than it came with.
    ///
    /// Adds `CDN-Loop: hearken` (RFC 8586) if neither Via nor Forwarded grows.
    pub fn counting_hops(self) -> Rules {
        let grows = !self.received_by.is_empty() || self.forwarded == Given::Append;
        Rules { counts_hops: !grows, ..self }
    }

    /// What ends a head that came in this version.
    #[inline(always)]
    fn end(&self, version: Version) -> &[u8] {
        match version {
            Version::Http11 => &self.end_11,
            Version::Http10 => &self.end_10,
        }
    }
}

/// Returns `pseudonym [":" port]`, RFC 9110 section 7.6.3.
fn received_by(via: &[u8]) -> Box<[u8]> {
    let colon = via.iter().rposition(|&byte| byte == b':').filter(|&colon| {
        let port = via.get(colon + 1..).unwrap_or_default();
        colon > 0 && !port.is_empty() && port.iter().all(u8::is_ascii_digit)
    });
    let bytes = via
        .iter()
        .enumerate()
        .map(|(at, &byte)| if class::is(byte, TOKEN) || Some(at) == colon { byte } else { b'_' });
    bytes.collect()
}

/// Whether a field of a request may be other than passed on as it is, even if the Connection field does
/// not name it.
pub(crate) fn is_looked_at(name: &[u8]) -> bool {
    name::name(name) != name::Name::Other
}
