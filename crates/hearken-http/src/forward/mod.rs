//! Forwarding of messages: conversion of received heads and bodies to those that an intermediary sends
//! (RFC 9110 section 7.6, RFC 9112 section 6, RFC 7239).
//!
//! Lines of a received head are copied unchanged, except for hop-by-hop fields, framing fields and fields
//! about the client. These are removed and written again where needed. The parser records the span of
//! such lines, so that the others are copied together without a second look.
//!
//! Names with `_` in place of `-` that match such a field are removed too, because CGI maps both to the
//! same variable.
//!
//! ```
//! use hearken_http::forward::{self, HeaderPolicy, RequestOptions, Rules};
//! use hearken_http::{Limits, RequestParser};
//!
//! let rules = Rules::new("hearken", HeaderPolicy::Replace, HeaderPolicy::Remove, true);
//! let bytes = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: x\r\nX: y\r\nX-Forwarded-For: me\r\n\r\n";
//! let request = RequestParser::new().parse(bytes, &Limits::default())?.unwrap();
//! let client = Some([10, 0, 0, 1].into());
//! let to = RequestOptions { authority: b"", client, is_secure: false, keep_alive: true, subject: None };
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
mod client_fields;
mod field_kind;
mod hops;
mod lines;
mod relay;
mod request;
mod response;
mod trailer;
mod upgrade;

pub use hops::{MAX_HOPS, count_hops, is_loop, names_this_proxy};
pub use relay::Relay;
pub use request::{RequestOptions, max_forwards, request};
pub use response::{ResponseOptions, interim, needs_date, response, switching_protocols};
pub use upgrade::{forwards_upgrade, may_switch};

use std::sync::Arc;

use crate::class::{self, TOKEN};
use crate::version::Version;

/// The treatment of received fields about the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderPolicy {
    /// Remove received fields and set new ones. Received values are not trusted.
    Replace,
    /// Append the client to received fields.
    Append,
    /// Forward received fields unchanged and add none.
    Keep,
    /// Remove received fields and add none.
    Remove,
}

/// The rules for rewriting heads.
///
/// ```
/// use hearken_http::forward::{HeaderPolicy, Rules, is_loop};
/// use hearken_http::{Limits, RequestParser};
///
/// let rules = Rules::new("proxy:8080", HeaderPolicy::Append, HeaderPolicy::Remove, true);
/// let bytes = b"GET / HTTP/1.1\r\nHost: a\r\nVia: 1.1 proxy:8080\r\n\r\n";
/// let request = RequestParser::new().parse(bytes, &Limits::default())?.unwrap();
/// assert!(is_loop(&rules, &request));
/// # Ok::<(), hearken_http::Reject>(())
/// ```
#[derive(Debug, Clone)]
pub struct Rules {
    x_forwarded: HeaderPolicy,
    forwarded: HeaderPolicy,
    preserve_host: bool,
    /// Name in Via, or empty without Via.
    received_by: Box<[u8]>,
    /// Whether requests get an additional field that only serves to count hops.
    adds_cdn_loop: bool,
    /// Name of the field with the subject of the client's certificate, or empty without one.
    client_subject: Arc<[u8]>,
    /// Line of Strict-Transport-Security after a CRLF, or empty.
    hsts: Box<[u8]>,
    /// End of a head received in HTTP/1.1: CRLF, Via line and blank line.
    end_11: Box<[u8]>,
    /// End of a head received in HTTP/1.0.
    end_10: Box<[u8]>,
    /// End of a head received in HTTP/2.
    end_2: Box<[u8]>,
}

impl Rules {
    /// Creates rules.
    ///
    /// `via` is the name in Via with an optional port. Invalid characters become `_`, and an empty name
    /// disables Via. With `preserve_host`, the Host field contains the host that the client requested,
    /// otherwise the authority of the server.
    pub fn new(
        via: &str,
        x_forwarded: HeaderPolicy,
        forwarded: HeaderPolicy,
        preserve_host: bool,
    ) -> Rules {
        let received_by = received_by(via.as_bytes());
        let end = |version: &[u8]| -> Box<[u8]> {
            match &*received_by {
                [] => (*b"\r\n\r\n").into(),
                name => [b"\r\nVia: ", version, b" ", name, b"\r\n\r\n"].concat().into(),
            }
        };
        let (end_11, end_10, end_2) = (end(b"1.1"), end(b"1.0"), end(b"2.0"));
        Rules {
            x_forwarded,
            forwarded,
            preserve_host,
            received_by,
            adds_cdn_loop: false,
            client_subject: Arc::default(),
            hsts: Box::default(),
            end_11,
            end_10,
            end_2,
        }
    }

    /// Makes each forwarded request have more [hops](count_hops) than it had when received.
    ///
    /// Adds `CDN-Loop: hearken` (RFC 8586) unless Via or Forwarded is appended to.
    pub fn with_hop_count(self) -> Rules {
        let grows = !self.received_by.is_empty() || self.forwarded == HeaderPolicy::Append;
        Rules { adds_cdn_loop: !grows, ..self }
    }

    /// Sends the subject of the client's certificate in a field with this name, a token. Received
    /// fields with the name are removed, also with `_` in place of `-`.
    pub fn with_client_subject(self, name: &str) -> Rules {
        Rules { client_subject: name.as_bytes().into(), ..self }
    }

    /// Adds Strict-Transport-Security with this time in seconds, if any, to responses without it.
    pub fn with_hsts(self, seconds: Option<u64>) -> Rules {
        let line = seconds.map(|time| format!("\r\nStrict-Transport-Security: max-age={time}"));
        let line = line.unwrap_or_default();
        Rules { hsts: line.into_bytes().into(), ..self }
    }

    /// Returns whether a received field could be read as the one with the client's subject.
    fn is_client_subject(&self, name: &[u8]) -> bool {
        is_similar(name, &self.client_subject)
    }

    /// Returns the end of a head that was received in this version.
    #[inline(always)]
    fn end(&self, version: Version) -> &[u8] {
        match version {
            Version::Http11 => &self.end_11,
            Version::Http10 => &self.end_10,
            Version::Http2 => &self.end_2,
        }
    }
}

/// Compares names without case and with `_` equal to `-`, because CGI maps both to the same variable.
fn is_similar(name: &[u8], other: &[u8]) -> bool {
    let normal = |byte: &u8| if *byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    name.len() == other.len() && name.iter().map(normal).eq(other.iter().map(normal))
}

/// Converts a name to `pseudonym [":" port]`, RFC 9110 section 7.6.3.
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

/// Returns whether a request field may be removed or rewritten without being a Connection option.
pub(crate) fn is_rewritten(name: &[u8]) -> bool {
    field_kind::classify(name) != field_kind::FieldKind::Other
}
