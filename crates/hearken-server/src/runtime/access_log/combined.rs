//! Log lines in the combined format.
//!
//! A missing value is `-`. The line of rejected input contains the input instead of a request line,
//! and an additional quoted field with the reason at its end.

use std::io::Write;

use hearken_http::{DateCache, Request};

use super::{MAX_FIELD_BYTES, Rejected, RequestRecord, protocol};

/// Appends the line of a request.
pub(super) fn line(
    date: &DateCache,
    request: Option<&Request<'_>>,
    rejected: Option<Rejected<'_>>,
    record: &RequestRecord<'_>,
    out: &mut Vec<u8>,
) {
    // Writing to a vector does not fail.
    let _ = match record.peer {
        Some(peer) => write!(out, "{peer} - - ["),
        None => write!(out, "- - - ["),
    };
    time(date, out);
    out.extend_from_slice(b"] \"");
    match (request, rejected) {
        (Some(request), _) => {
            escape(request.method.as_bytes(), out);
            out.push(b' ');
            escape(request.raw_target, out);
            out.push(b' ');
            out.extend_from_slice(protocol(request, record).as_bytes());
        }
        (None, Some(rejected)) if !rejected.input.is_empty() => escape(rejected.input(), out),
        (None, _) => out.push(b'-'),
    }
    let _ = match record.status {
        0 => write!(out, "\" - {}", record.bytes_sent),
        status => write!(out, "\" {status} {}", record.bytes_sent),
    };
    for name in ["Referer", "User-Agent"] {
        quoted(request.and_then(|request| request.field(name)).unwrap_or(b"-"), out);
    }
    if let Some(rejected) = rejected {
        quoted(rejected.reason.as_bytes(), out);
    }
    out.push(b'\n');
}

fn quoted(value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b" \"");
    escape(value, out);
    out.push(b'"');
}

/// Appends `Sat, 21 Nov 2026 06:00:00 GMT` as `21/Nov/2026:06:00:00 +0000`.
fn time(date: &DateCache, out: &mut Vec<u8>) {
    let parts = [(5..7, "/"), (8..11, "/"), (12..16, ":"), (17..25, " +0000")];
    for (part, after) in parts {
        out.extend_from_slice(date.as_bytes().get(part).unwrap_or_default());
        out.extend_from_slice(after.as_bytes());
    }
}

/// Appends bytes. Quotation marks, backslashes and all bytes other than printable ASCII become `\xHH`.
fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    for &byte in bytes.iter().take(MAX_FIELD_BYTES) {
        match byte {
            b'"' | b'\\' | 0..=0x1f | 0x7f.. => {
                let _ = write!(out, "\\x{byte:02x}");
            }
            _ => out.push(byte),
        }
    }
}
