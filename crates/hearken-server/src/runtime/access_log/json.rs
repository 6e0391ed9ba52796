//! Log lines in JSON: one object per line, always with the same keys.
//!
//! A missing value is `null`. Text from a client is truncated as in the combined format. Invalid
//! UTF-8 becomes U+FFFD. Control characters, including those above U+0080, become `\u00XX`, so lines
//! are safe to print to a terminal.

use std::io::Write;
use std::time::Duration;

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
    out.extend_from_slice(b"{\"time\":\"");
    time(date, out);
    out.extend_from_slice(b"\",\"client\":");
    // Writing to a vector does not fail, and an address needs no escaping.
    let _ = match record.peer {
        Some(peer) => write!(out, "\"{peer}\""),
        None => write!(out, "null"),
    };
    let field = |name| request.and_then(|request| request.field(name));
    text("method", request.map(|request| request.method.as_bytes()), out);
    text("target", request.map(|request| request.raw_target), out);
    text("protocol", request.map(|request| protocol(request, record).as_bytes()), out);
    text("host", request.and_then(|request| request.host), out);
    text("tls_version", record.tls_version.map(str::as_bytes), out);
    text("tls_client_subject", record.client_subject.map(str::as_bytes), out);
    let _ = match record.status {
        0 => write!(out, ",\"status\":null"),
        status => write!(out, ",\"status\":{status}"),
    };
    let _ = write!(
        out,
        ",\"bytes_sent\":{},\"bytes_received\":{}",
        record.bytes_sent, record.bytes_received
    );
    text("referer", field("Referer"), out);
    text("user_agent", field("User-Agent"), out);
    text("upstream", record.upstream.map(str::as_bytes), out);
    let _ = write!(out, ",\"attempts\":{}", record.attempts);
    seconds("queue_time", record.queue_time, out);
    seconds("connect_time", record.connect_time, out);
    seconds("header_time", record.header_time, out);
    seconds("request_time", record.request_time, out);
    text("outcome", Some(record.outcome.name().as_bytes()), out);
    text("input", rejected.as_ref().map(Rejected::input), out);
    text("reason", rejected.map(|rejected| rejected.reason.as_bytes()), out);
    out.extend_from_slice(b"}\n");
}

fn text(key: &str, value: Option<&[u8]>, out: &mut Vec<u8>) {
    let _ = write!(out, ",\"{key}\":");
    match value {
        Some(value) => string(value.get(..MAX_FIELD_BYTES).unwrap_or(value), out),
        None => out.extend_from_slice(b"null"),
    }
}

/// Appends a duration in seconds, with six decimal places.
fn seconds(key: &str, time: Duration, out: &mut Vec<u8>) {
    let _ = write!(out, ",\"{key}\":{}.{:06}", time.as_secs(), time.subsec_micros());
}

/// Appends bytes as a JSON string, including the quotation marks.
pub(crate) fn string(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' | '\\' => out.extend_from_slice(&[b'\\', character as u8]),
                _ if character.is_control() => {
                    let _ = write!(out, "\\u{:04x}", u32::from(character));
                }
                _ => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        if !chunk.invalid().is_empty() {
            out.extend_from_slice(b"\\ufffd");
        }
    }
    out.push(b'"');
}

/// Appends `Sat, 21 Nov 2026 06:00:00 GMT` as `2026-11-21T06:00:00Z` (RFC 3339).
fn time(date: &DateCache, out: &mut Vec<u8>) {
    const MONTHS: &[u8] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
    let part = |part| date.as_bytes().get(part).unwrap_or_default();
    let month = MONTHS.chunks(3).position(|month| month == part(8..11)).unwrap_or_default() + 1;
    out.extend_from_slice(part(12..16));
    let _ = write!(out, "-{month:02}-");
    out.extend_from_slice(part(5..7));
    out.push(b'T');
    out.extend_from_slice(part(17..25));
    out.push(b'Z');
}
