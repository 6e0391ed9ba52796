//! The heads of responses.

use super::Rules;
use super::lines::{self, Nominated};
use super::name::{Name, name};
use super::request::{CHUNKED, CLOSE, content_length};
use crate::class::trim;
use crate::date::DateCache;
use crate::framing::{ResponseBody, is_canonical_length};
use crate::head;
use crate::response::Response;
use crate::version::Version;

/// Whom a response goes to.
#[derive(Debug, Clone, Copy)]
pub struct ResponseTo<'a> {
    /// The version that the client speaks.
    pub version: Version,
    /// Whether the connection to the client is to be kept open.
    pub keep_alive: bool,
    /// When the response came, if it [needs a Date field](needs_date).
    pub date: Option<&'a DateCache>,
}

/// Whether a final response has no Date field to be passed on: an intermediary with a clock gives it one
/// (RFC 9110 section 6.6.1).
#[inline]
pub fn needs_date(response: &Response<'_>) -> bool {
    !response.is_dated || response.nominates && Nominated::of(response.fields()).has(b"date")
}

/// Appends the head of a final response as it is passed on; returns how its body is to be delimited.
///
/// A length stays as it came. A body that is chunked, or goes on until the server closes, is chunked for
/// a client of HTTP/1.1, and goes on until the close for one of 1.0, which is then told of it whatever
/// `to` says.
pub fn response(
    rules: &Rules,
    out: &mut Vec<u8>,
    response: &Response<'_>,
    to: &ResponseTo<'_>,
) -> ResponseBody {
    let body = match (response.body, to.version) {
        (ResponseBody::Chunked | ResponseBody::UntilClose, Version::Http11) => {
            ResponseBody::Chunked
        }
        (ResponseBody::Chunked | ResponseBody::UntilClose, Version::Http10) => {
            ResponseBody::UntilClose
        }
        (body, _) => body,
    };
    let head = response.bytes.get(..response.head_len).unwrap_or_default();
    let span = &response.hop_span;
    // Most have nothing to be dropped but their Connection field.
    let is_simple = span.is_dropped()
        && !response.nominates
        && response.status >= 200
        && response.status != 204
        && has_usual_line(head);
    if !is_simple {
        copy(out, response, head, false);
    } else if span.is_empty() {
        lines::copy_rest(out, head, 0);
    } else {
        lines::copy_around(out, head, 0, span.within(response.bytes.len()));
    }
    if let Some(date) = to.date {
        out.extend_from_slice(b"\r\nDate: ");
        out.extend_from_slice(date.as_bytes());
    }
    if body == ResponseBody::Chunked {
        out.extend_from_slice(CHUNKED);
    }
    if !to.keep_alive || body == ResponseBody::UntilClose {
        out.extend_from_slice(CLOSE);
    } else if to.version == Version::Http10 {
        out.extend_from_slice(b"\r\nConnection: keep-alive");
    }
    out.extend_from_slice(rules.end(response.version));
    body
}

/// Appends the head of an interim response, 1xx but 101.
pub fn interim(rules: &Rules, out: &mut Vec<u8>, response: &Response<'_>) {
    let head = response.bytes.get(..response.head_len).unwrap_or_default();
    copy(out, response, head, false);
    out.extend_from_slice(rules.end(response.version));
}

/// Appends the head of a 101, with its Upgrade field.
pub fn switching(rules: &Rules, out: &mut Vec<u8>, response: &Response<'_>) {
    let head = response.bytes.get(..response.head_len).unwrap_or_default();
    copy(out, response, head, true);
    out.extend_from_slice(b"\r\nConnection: upgrade");
    out.extend_from_slice(rules.end(response.version));
}

/// Whether the status line is passed on as it came.
#[inline(always)]
fn has_usual_line(head: &[u8]) -> bool {
    head.starts_with(b"HTTP/1.1 ") && head.get(b"HTTP/1.1 200".len()) == Some(&b' ')
}

/// Writes the status line and the fields that are passed on, whatever there is, without the end of the
/// last line.
#[inline(never)]
fn copy(out: &mut Vec<u8>, response: &Response<'_>, head: &[u8], upgrades: bool) {
    let from = if has_usual_line(head) { 0 } else { status_line(out, response) };
    // These have no body, and are not to tell of one: RFC 9110 section 8.6, RFC 9112 section 6.1.
    let has_length = !matches!(response.status, 100..=199 | 204);
    let nominated = response.nominates.then(|| Nominated::of(response.fields()));
    let span = match response.hop_span.within(response.bytes.len()) {
        _ if nominated.is_some() || !has_length => response.fields_at as usize..head.len(),
        _ if response.hop_span.is_empty() => head.len()..head.len(),
        span => span,
    };
    let mut length = None;
    lines::copy(out, head, from, span, |field| match name(field.name()) {
        Name::HopByHop | Name::Te | Name::Alias => false,
        Name::Upgrade => upgrades,
        Name::Length if !has_length => false,
        Name::Length if is_canonical_length(field.line) => true,
        Name::Length => {
            length = Some(trim(field.value()));
            false
        }
        // What the others say is said of requests only.
        _ => !nominated.as_ref().is_some_and(|nominated| nominated.has(field.name())),
    });
    if let Some(length) = length {
        content_length(out, length);
    }
}

/// Writes the status line. Where the fields start.
#[cold]
fn status_line(out: &mut Vec<u8>, response: &Response<'_>) -> usize {
    out.extend_from_slice(b"HTTP/1.1 ");
    head::decimal(out, response.status.into());
    out.push(b' ');
    out.extend_from_slice(response.reason);
    out.extend_from_slice(b"\r\n");
    response.fields_at as usize
}
