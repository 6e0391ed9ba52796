//! Lines of the access log as JSON: one object each, always with the same keys.
//!
//! What there is not is `null`. Text that a client chose is cut as in the other format. What is not
//! UTF-8 in it becomes U+FFFD, as a decoder that goes on would have it; control characters, those from
//! U+0080 on too, are written as `\u00XX`, so that a line is safe to show.

use std::io::Write;
use std::time::Duration;

use hearken_http::DateCache;

use super::logged::{End, Logged};
use super::{Line, MOST};

/// Adds the line of a request that has ended.
pub(super) fn line(date: &DateCache, logged: &Logged, end: &End<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"time\":\"");
    clock(date, out);
    out.extend_from_slice(b"\",\"client\":");
    // Writing to a vector does not fail. No address needs to be escaped.
    let _ = match end.peer {
        Some(peer) => write!(out, "\"{peer}\""),
        None => write!(out, "null"),
    };
    let first = logged.line();
    text("method", first.map(|line| line.method), out);
    text("target", first.map(|line| line.target), out);
    text("protocol", first.as_ref().map(Line::protocol).map(str::as_bytes), out);
    text("host", logged.host(), out);
    let _ = match end.status {
        0 => write!(out, ",\"status\":null"),
        status => write!(out, ",\"status\":{status}"),
    };
    let _ = write!(out, ",\"sent\":{},\"received\":{}", end.sent, end.received);
    text("referer", logged.referer(), out);
    text("user_agent", logged.user_agent(), out);
    text("server", end.server.map(str::as_bytes), out);
    let _ = write!(out, ",\"tries\":{}", end.tries);
    seconds("queued", end.queued, out);
    seconds("connected", end.connected, out);
    seconds("answered", end.answered, out);
    seconds("whole", end.whole, out);
    text("end", Some(end.how.as_bytes()), out);
    out.extend_from_slice(b"}\n");
}

fn text(key: &str, value: Option<&[u8]>, out: &mut Vec<u8>) {
    let _ = write!(out, ",\"{key}\":");
    match value {
        Some(value) => string(value.get(..MOST).unwrap_or(value), out),
        None => out.extend_from_slice(b"null"),
    }
}

/// To the microsecond.
fn seconds(key: &str, time: Duration, out: &mut Vec<u8>) {
    let _ = write!(out, ",\"{key}\":{}.{:06}", time.as_secs(), time.subsec_micros());
}

/// Adds a string, with its quotation marks, of any bytes.
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

/// `Sat, 21 Nov 2026 06:00:00 GMT` as `2026-11-21T06:00:00Z` (RFC 3339).
fn clock(date: &DateCache, out: &mut Vec<u8>) {
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
