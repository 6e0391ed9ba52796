//! Forwarding of response heads.

use super::Rules;
use super::field_kind::{FieldKind, classify};
use super::lines::{self, Nominated};
use super::request::{CHUNKED, CLOSE, content_length};
use crate::class::trim;
use crate::date::DateCache;
use crate::framing::{ResponseBody, is_canonical_length};
use crate::head;
use crate::response::Response;
use crate::version::Version;

/// The properties of the client connection that a response is forwarded to.
#[derive(Debug, Clone, Copy)]
pub struct ResponseOptions<'a> {
    /// HTTP version of the client.
    pub version: Version,
    /// Whether the connection to the client persists after the response.
    pub keep_alive: bool,
    /// Time of receipt, if the response [needs a Date field](needs_date).
    pub date: Option<&'a DateCache>,
}

/// Returns whether a final response lacks a Date field after forwarding. An intermediary with a clock adds
/// one (RFC 9110 section 6.6.1).
#[inline]
pub fn needs_date(response: &Response<'_>) -> bool {
    !response.is_dated
        || response.nominates && Nominated::from_fields(response.fields()).contains(b"date")
}

/// Appends the head of a final response as forwarded and returns the framing of the forwarded body.
///
/// A length is forwarded unchanged. A body that is chunked or ends at close is chunked for HTTP/1.1
/// clients. For HTTP/1.0 clients it ends at close, and the head announces this regardless of `to`.
pub fn response(
    rules: &Rules,
    out: &mut Vec<u8>,
    response: &Response<'_>,
    to: &ResponseOptions<'_>,
) -> ResponseBody {
    let body = match (response.body, to.version) {
        (ResponseBody::Chunked | ResponseBody::UntilClose, Version::Http10) => {
            ResponseBody::UntilClose
        }
        (ResponseBody::Chunked | ResponseBody::UntilClose, _) => ResponseBody::Chunked,
        (body, _) => body,
    };
    let head = response.bytes.get(..response.head_len).unwrap_or_default();
    let span = &response.rewrite_span;
    // Most responses need only their Connection field removed.
    let is_simple = span.is_all_removed()
        && !response.nominates
        && response.status >= 200
        && response.status != 204
        && has_common_first_line(head);
    if !is_simple {
        copy(out, response, head, false);
    } else if span.is_empty() {
        lines::copy_rest(out, head, 0);
    } else {
        lines::copy_outside(out, head, 0, span.range(response.bytes.len()));
    }
    if let Some(date) = to.date {
        out.extend_from_slice(b"\r\nDate: ");
        out.extend_from_slice(date.as_bytes());
    }
    if !rules.hsts.is_empty() {
        write_hsts(rules, out, response);
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

#[inline(never)]
fn write_hsts(rules: &Rules, out: &mut Vec<u8>, response: &Response<'_>) {
    let is_hsts = |name: &[u8]| name.eq_ignore_ascii_case(b"Strict-Transport-Security");
    if !response.fields().any(|(name, _)| is_hsts(name)) {
        out.extend_from_slice(&rules.hsts);
    }
}

/// Appends the head of an interim response (1xx except 101) as forwarded.
pub fn interim(rules: &Rules, out: &mut Vec<u8>, response: &Response<'_>) {
    let head = response.bytes.get(..response.head_len).unwrap_or_default();
    copy(out, response, head, false);
    out.extend_from_slice(rules.end(response.version));
}

/// Appends the head of a 101 response as forwarded, including its Upgrade field.
pub fn switching_protocols(rules: &Rules, out: &mut Vec<u8>, response: &Response<'_>) {
    let head = response.bytes.get(..response.head_len).unwrap_or_default();
    copy(out, response, head, true);
    out.extend_from_slice(b"\r\nConnection: upgrade");
    out.extend_from_slice(rules.end(response.version));
}

/// Returns whether the status line is forwarded unchanged.
#[inline(always)]
fn has_common_first_line(head: &[u8]) -> bool {
    head.starts_with(b"HTTP/1.1 ") && head.get(b"HTTP/1.1 200".len()) == Some(&b' ')
}

/// Writes the status line and the forwarded fields of any response, without the last CRLF.
#[inline(never)]
fn copy(out: &mut Vec<u8>, response: &Response<'_>, head: &[u8], upgrades: bool) {
    let from = if has_common_first_line(head) { 0 } else { status_line(out, response) };
    // These have no body and must not announce one: RFC 9110 section 8.6, RFC 9112 section 6.1.
    let has_length = !matches!(response.status, 100..=199 | 204);
    let nominated = response.nominates.then(|| Nominated::from_fields(response.fields()));
    let span = match response.rewrite_span.range(response.bytes.len()) {
        _ if nominated.is_some() || !has_length => response.fields_at as usize..head.len(),
        _ if response.rewrite_span.is_empty() => head.len()..head.len(),
        span => span,
    };
    let mut length = None;
    lines::copy_filtered(out, head, from, span, |field| match classify(field.name()) {
        FieldKind::HopByHop | FieldKind::Te | FieldKind::Alias => false,
        FieldKind::Upgrade => upgrades,
        FieldKind::ContentLength if !has_length => false,
        FieldKind::ContentLength if is_canonical_length(field.line) => true,
        FieldKind::ContentLength => {
            length = Some(trim(field.value()));
            false
        }
        // The other kinds are special only in requests.
        _ => !nominated.as_ref().is_some_and(|nominated| nominated.contains(field.name())),
    });
    if let Some(length) = length {
        content_length(out, length);
    }
}

/// Writes the status line. Returns the position of the first field line.
#[cold]
fn status_line(out: &mut Vec<u8>, response: &Response<'_>) -> usize {
    out.extend_from_slice(b"HTTP/1.1 ");
    head::write_decimal(out, response.status.into());
    out.push(b' ');
    out.extend_from_slice(response.reason);
    out.extend_from_slice(b"\r\n");
    response.fields_at as usize
}
