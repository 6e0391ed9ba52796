//! The opening handshake of WebSocket where HTTP/2 and HTTP/1.1 are translated into each other (RFC 8441).
//!
//! In HTTP/2 there is neither a key nor its proof. Towards a server with HTTP/1.1, the front has generated a
//! key, and the proxy checks the proof. Towards a client with HTTP/1.1, the proxy computes the proof.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hearken_http::{Request, Response};
use sha1::{Digest, Sha1};

/// The bytes that follow the key (RFC 6455 section 1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Returns the value of Sec-WebSocket-Accept in a response to a request, or `None` if it has no key.
pub(super) fn accept_value(request: &Request<'_>) -> Option<String> {
    let key = request.field_values("Sec-WebSocket-Key").next()?;
    Some(STANDARD.encode(Sha1::new().chain_update(key).chain_update(GUID).finalize()))
}

/// Returns whether a response proves that the server has accepted the request, if the request has a key.
pub(super) fn is_accepted(request: &Request<'_>, response: &Response<'_>) -> bool {
    accept_value(request)
        .is_none_or(|value| response.field_values("Sec-WebSocket-Accept").eq([value.as_bytes()]))
}

#[cfg(test)]
mod tests {
    use hearken_http::{Limits, Method, RequestParser, ResponseParser};

    use super::*;

    // The example of RFC 6455 section 1.3.
    #[test]
    fn computes_and_checks_the_proof() {
        let bytes =
            b"GET / HTTP/1.1\r\nHost: a\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        let request = RequestParser::new().parse(bytes, &Limits::default()).unwrap().unwrap();
        let value = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
        assert_eq!(accept_value(&request).as_deref(), Some(value));
        for (fields, is_valid) in [
            (format!("Sec-WebSocket-Accept: {value}\r\n"), true),
            (format!("Sec-WebSocket-Accept: {value}\r\n").repeat(2), false),
            ("Sec-WebSocket-Accept: x\r\n".to_owned(), false),
            (String::new(), false),
        ] {
            let bytes = format!("HTTP/1.1 101 \r\n{fields}\r\n");
            let mut parser = ResponseParser::new();
            let response = parser.parse(bytes.as_bytes(), Method::Get, &Limits::default());
            assert_eq!(is_accepted(&request, &response.unwrap().unwrap()), is_valid, "{fields}");
        }
    }
}
