//! The first line of a request.

use crate::block::Block;
use crate::error::Reject;
use crate::limits::Limits;
use crate::line::bad_control;
use crate::method::Method;
use crate::scan;
use crate::target::Target;
use crate::version::Version;

/// Longest method read; a longer one is a 501 (RFC 9112 section 3).
const METHOD_BYTES: usize = 32;

/// A request line whose target has a form that fits the method.
pub(crate) struct RequestLine<'b> {
    pub(crate) raw_target: &'b [u8],
    /// Where in the target the query starts.
    pub(crate) path_len: usize,
    pub(crate) version: Version,
    /// What follows the line.
    pub(crate) rest: &'b [u8],
}

/// Reads `method SP request-target SP HTTP-version CRLF`, RFC 9112 section 3, after one empty line
/// or none. `method` is GET, or is changed.
#[inline(always)]
pub(crate) fn request_line<'b>(
    bytes: &'b [u8],
    limits: &Limits,
    method: &mut Method<'b>,
) -> Result<Option<RequestLine<'b>>, Reject> {
    // By far the most common method needs no search for its end.
    let after_method = match bytes.strip_prefix(b"GET ") {
        Some(after) => after,
        None => match other_start(bytes, method)? {
            Some(after) => after,
            None => return Ok(None),
        },
    };
    // Most targets are short and have no query.
    let in_block = Block::new(after_method).path();
    let (path_len, target_len) = match after_method.get(in_block) {
        Some(b' ') => (in_block, in_block),
        _ => long_target(after_method, in_block),
    };
    if target_len > limits.target_bytes {
        return Err(Reject::new(414, "request target is too long"));
    }
    let (raw_target, version) = match after_method.split_at_checked(target_len) {
        Some((target, [b' ', version @ ..])) if target_len > 0 => (target, version),
        Some((_, [_, ..])) => return Err(Reject::bad("forbidden byte in the request target")),
        _ => return Ok(None),
    };
    if raw_target.first() != Some(&b'/') || matches!(method, Method::Connect) {
        Target::parse(method, raw_target, path_len)?;
    }
    if let Some(rest) = version.strip_prefix(b"HTTP/1.1\r\n") {
        let version = Version::Http11;
        return Ok(Some(RequestLine { raw_target, path_len, version, rest }));
    }
    Ok(other_version(version)?.map(|(version, rest)| RequestLine {
        raw_target,
        path_len,
        version,
        rest,
    }))
}

/// The lengths of a path and of its target, whose first `at` bytes belong to both.
#[inline(never)]
fn long_target(bytes: &[u8], at: usize) -> (usize, usize) {
    let path_len = scan::path_from(bytes, at);
    match bytes.get(path_len) {
        Some(b'?') => (path_len, scan::target_from(bytes, path_len + 1)),
        _ => (path_len, path_len),
    }
}

/// Reads an empty line, if there is one, a method, and the space after it; returns what follows.
#[cold]
#[inline(never)]
fn other_start<'b>(bytes: &'b [u8], method: &mut Method<'b>) -> Result<Option<&'b [u8]>, Reject> {
    let line = match bytes {
        [b'\r', b'\n', line @ ..] => line,
        [b'\r'] => return Ok(None),
        _ => bytes,
    };
    let most = line.get(..METHOD_BYTES + 1).unwrap_or(line);
    let (token, rest) = line.split_at(scan::token(most));
    if token.len() > METHOD_BYTES {
        return Err(Reject::new(501, "method is too long"));
    }
    *method = Method::from_token(token);
    match rest {
        [b' ', after @ ..] if !token.is_empty() => Ok(Some(after)),
        [] => Ok(None),
        [b'\r' | b'\n', ..] if token.is_empty() => Err(Reject::bad("empty request line")),
        _ => Err(Reject::bad("method is not a token and one space")),
    }
}

/// Reads a version and the end of its line; returns what follows them too.
#[cold]
#[inline(never)]
fn other_version(bytes: &[u8]) -> Result<Option<(Version, &[u8])>, Reject> {
    let Some(digits) = Version::digits(bytes)? else {
        return Ok(None);
    };
    match bytes.get(8..).unwrap_or_default() {
        [b'\r', b'\n', rest @ ..] => Ok(Some((Version::from_digits(digits)?, rest))),
        [] | [b'\r'] => Ok(None),
        [stop @ (b'\r' | b'\n'), ..] => Err(bad_control(*stop)),
        _ => Err(Reject::bad("malformed HTTP version")),
    }
}
