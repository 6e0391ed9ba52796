//! Parsing of request lines.

use crate::block::Block;
use crate::error::Reject;
use crate::field_line::invalid_control;
use crate::limits::Limits;
use crate::method::Method;
use crate::scan;
use crate::target::Target;
use crate::version::Version;

/// Maximum length of a method in bytes. A longer method results in 501 (RFC 9112 section 3).
pub(crate) const MAX_METHOD_BYTES: usize = 32;

/// A request line whose target form matches the method.
pub(crate) struct RequestLine<'b> {
    pub(crate) raw_target: &'b [u8],
    /// Length of the target before its query.
    pub(crate) path_len: usize,
    pub(crate) version: Version,
    /// Bytes after the line.
    pub(crate) rest: &'b [u8],
}

/// Parses `method SP request-target SP HTTP-version CRLF` (RFC 9112 section 3) after an optional empty
/// line. Stores the method in `method`, which is GET initially.
#[inline(always)]
pub(crate) fn parse_request_line<'b>(
    bytes: &'b [u8],
    limits: &Limits,
    method: &mut Method<'b>,
) -> Result<Option<RequestLine<'b>>, Reject> {
    // GET is by far the most frequent method and needs no search for its end.
    let after_method = match bytes.strip_prefix(b"GET ") {
        Some(after) => after,
        None => match parse_other_method(bytes, method)? {
            Some(after) => after,
            None => return Ok(None),
        },
    };
    // Most targets fit into one block and have no query.
    let in_block = Block::new(after_method).path_prefix();
    let (path_len, target_len) = match after_method.get(in_block) {
        Some(b' ') => (in_block, in_block),
        _ => measure_long_target(after_method, in_block),
    };
    if target_len > limits.max_target_bytes {
        return Err(Reject::new(414, "request target exceeds the maximum length"));
    }
    let (raw_target, version) = match after_method.split_at_checked(target_len) {
        Some((target, [b' ', version @ ..])) if target_len > 0 => (target, version),
        Some((_, [_, ..])) => {
            return Err(Reject::bad("invalid byte in the request target: expected visible ASCII"));
        }
        _ => return Ok(None),
    };
    if raw_target.first() != Some(&b'/') || matches!(method, Method::Connect) {
        Target::parse(method, raw_target, path_len)?;
    }
    if let Some(rest) = version.strip_prefix(b"HTTP/1.1\r\n") {
        let version = Version::Http11;
        return Ok(Some(RequestLine { raw_target, path_len, version, rest }));
    }
    Ok(parse_other_version(version)?.map(|(version, rest)| RequestLine {
        raw_target,
        path_len,
        version,
        rest,
    }))
}

/// Returns the lengths of the path and of the target. The first `at` bytes belong to both.
#[inline(never)]
fn measure_long_target(bytes: &[u8], at: usize) -> (usize, usize) {
    let path_len = scan::path_end(bytes, at);
    match bytes.get(path_len) {
        Some(b'?') => (path_len, scan::target_end(bytes, path_len + 1)),
        _ => (path_len, path_len),
    }
}

/// Parses an optional empty line, a method and a space. Returns the bytes after the space.
#[cold]
#[inline(never)]
fn parse_other_method<'b>(
    bytes: &'b [u8],
    method: &mut Method<'b>,
) -> Result<Option<&'b [u8]>, Reject> {
    let line = match bytes {
        [b'\r', b'\n', line @ ..] => line,
        [b'\r'] => return Ok(None),
        _ => bytes,
    };
    let start = line.get(..MAX_METHOD_BYTES + 1).unwrap_or(line);
    let (token, rest) = line.split_at(scan::token_len(start));
    if token.len() > MAX_METHOD_BYTES {
        return Err(Reject::new(501, "method is longer than 32 bytes"));
    }
    *method = Method::from_token(token);
    match rest {
        [b' ', after @ ..] if !token.is_empty() => Ok(Some(after)),
        [] => Ok(None),
        [b'\r' | b'\n', ..] if token.is_empty() => {
            Err(Reject::bad("empty request line: expected a method"))
        }
        _ => Err(Reject::bad("invalid method: expected a token followed by one space")),
    }
}

/// Parses a version and the end of its line. Returns the version and the bytes after the line.
#[cold]
#[inline(never)]
fn parse_other_version(bytes: &[u8]) -> Result<Option<(Version, &[u8])>, Reject> {
    let Some(digits) = Version::digits(bytes)? else {
        return Ok(None);
    };
    match bytes.get(8..).unwrap_or_default() {
        [b'\r', b'\n', rest @ ..] => Ok(Some((Version::from_digits(digits)?, rest))),
        [] | [b'\r'] => Ok(None),
        [stop @ (b'\r' | b'\n'), ..] => Err(invalid_control(*stop)),
        _ => Err(Reject::bad("invalid HTTP version: expected CRLF after 'HTTP/1.0' or 'HTTP/1.1'")),
    }
}
