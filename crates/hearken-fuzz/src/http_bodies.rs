//! Message bodies: reading and forwarding.

use hearken_http::forward::Relay;
use hearken_http::{BodyReader, Limits, ResponseBody};

use crate::variation::{pieces, variation};

const LIMITS: Limits = Limits { max_head_bytes: 200, max_fields: 5, max_target_bytes: 0 };

/// The result of reading a body.
#[derive(PartialEq, Eq, Debug)]
struct Content {
    bytes: Vec<u8>,
    /// Number of bytes consumed.
    consumed: usize,
    is_done: bool,
}

/// Reads a body that arrives in pieces. Returns the status for a malformed one.
fn read(pieces: &[&[u8]], body: ResponseBody, max: u64) -> Result<Content, u16> {
    let mut reader = BodyReader::new(body, max, &LIMITS).map_err(|reject| reject.status)?;
    let mut content = Content { bytes: Vec::new(), consumed: 0, is_done: reader.is_done() };
    for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() && !reader.is_done() {
            let segment = reader.read(rest).map_err(|reject| reject.status)?;
            assert!(segment.consumed > 0 && segment.data.end <= segment.consumed);
            content.bytes.extend_from_slice(&rest[segment.data]);
            content.consumed += segment.consumed;
            rest = &rest[segment.consumed..];
            assert_eq!(segment.done, reader.is_done());
        }
    }
    content.is_done = reader.is_done();
    Ok(content)
}

/// Decodes a chunked body in the simplest way. Returns its content and its length if it is complete and its trailer
/// section is empty.
fn decode_chunks(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut content, mut rest) = (Vec::new(), bytes);
    loop {
        let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
        let (line, after) = (str::from_utf8(&rest[..end]).ok()?, &rest[end + 2..]);
        let digits = line.bytes().take_while(u8::is_ascii_hexdigit).count();
        let size = usize::from_str_radix(&line[..digits], 16).ok()?;
        if size == 0 {
            let end = after.strip_prefix(b"\r\n")?;
            return Some((content, bytes.len() - end.len()));
        }
        let (data, after) = after.split_at_checked(size)?;
        content.extend_from_slice(data);
        rest = after.strip_prefix(b"\r\n")?;
    }
}

// Content and end do not depend on the pieces, and are those that a simple decoder finds.
#[test]
fn chunked_body() {
    bolero::check!().for_each(|bytes: &[u8]| {
        let max = [50, u64::MAX][variation(bytes).usize(..2)];
        let whole = read(&[bytes], ResponseBody::Chunked, max);
        assert_eq!(read(&pieces(bytes), ResponseBody::Chunked, max), whole);
        let Ok(whole) = whole else { return };
        assert!(whole.bytes.len() as u64 <= max && whole.consumed <= bytes.len());
        if let Some((content, length)) = decode_chunks(bytes) {
            assert_eq!(whole, Content { bytes: content, consumed: length, is_done: true });
        }
    });
}

/// Forwards a body that arrives in pieces. Returns the bytes sent and the number of bytes consumed.
fn forward(
    pieces: &[&[u8]],
    from: ResponseBody,
    to: ResponseBody,
) -> Result<(Vec<u8>, usize), u16> {
    let mut relay = Relay::new(from, to, u64::MAX, &LIMITS).map_err(|reject| reject.status)?;
    let (mut out, mut consumed) = (Vec::new(), 0);
    for piece in pieces {
        consumed += relay.forward(piece, &mut out).map_err(|reject| reject.status)?;
        if relay.is_done() {
            return Ok((out, consumed));
        }
    }
    relay.finish(&mut out).map_err(|_| 0_u16)?;
    Ok((out, consumed))
}

// A forwarded body is complete, has the same content, and ends where the received one ends.
#[test]
fn forwarded_body() {
    bolero::check!().for_each(|bytes: &[u8]| {
        let length = ResponseBody::Length(variation(bytes).u64(..=bytes.len() as u64));
        let transitions = [
            (length, length),
            (ResponseBody::Chunked, ResponseBody::Chunked),
            (ResponseBody::Chunked, ResponseBody::UntilClose),
            (ResponseBody::UntilClose, ResponseBody::Chunked),
            (ResponseBody::UntilClose, ResponseBody::UntilClose),
        ];
        for (from, to) in transitions {
            let received = read(&[bytes], from, u64::MAX);
            let forwarded = forward(&pieces(bytes), from, to);
            let is_complete = |body: &Content| body.is_done || from == ResponseBody::UntilClose;
            assert_eq!(forwarded.is_ok(), received.as_ref().is_ok_and(is_complete));
            let (Ok((mut sent, consumed)), Ok(received)) = (forwarded, received) else { continue };
            assert_eq!(consumed, received.consumed);
            let length = sent.len();
            if to != ResponseBody::UntilClose {
                // The reader must not take the next request for a part of the body.
                sent.extend_from_slice(b"GET / HTTP/1.1\r\n\r\n");
            }
            let again = read(&[&sent], to, u64::MAX);
            let again = again.unwrap_or_else(|status| panic!("{status}: {}", sent.escape_ascii()));
            let is_done = to != ResponseBody::UntilClose;
            assert_eq!(again, Content { bytes: received.bytes, consumed: length, is_done });
        }
    });
}
