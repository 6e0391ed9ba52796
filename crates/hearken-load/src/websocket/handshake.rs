//! The opening handshake of a WebSocket connection (RFC 6455, section 4.1).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hearken_http::{Method, ResponseParser};
use tungstenite::handshake::derive_accept_key;

use super::WebSocketOptions;
use crate::config::LoadError;
use crate::reply::LIMITS;
use crate::url::Url;
use crate::workload::{RequestTemplate, Workload};

const FIELDS: [&str; 3] =
    ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"];

/// The request of all connections, except for the key.
#[derive(Debug)]
pub(crate) struct HandshakeRequest(Vec<u8>);

impl HandshakeRequest {
    /// Creates the request with the header fields of `template`.
    pub(crate) fn new(
        url: &Url,
        template: &RequestTemplate,
        options: &WebSocketOptions,
    ) -> Result<HandshakeRequest, LoadError> {
        let target = options.path.clone().unwrap_or_else(|| url.target.clone());
        let url = Url { target, ..url.clone() };
        let template = RequestTemplate {
            headers: template.headers.iter().cloned().chain(FIELDS.map(str::to_owned)).collect(),
            ..RequestTemplate::default()
        };
        let workload = Workload::for_url(&url, &template)?;
        let mut bytes = workload.message(0).bytes.to_vec();
        // The key replaces the empty line at the end of the head.
        bytes.truncate(bytes.len().saturating_sub(2));
        Ok(HandshakeRequest(bytes))
    }

    /// Begins a handshake with a random key. Returns its state and the bytes to send.
    pub(super) fn begin(&self, random: &mut fastrand::Rng) -> (Handshake, Vec<u8>) {
        let key = STANDARD.encode(random.u128(..).to_le_bytes());
        let mut bytes = self.0.clone();
        bytes.extend_from_slice(format!("Sec-WebSocket-Key: {key}\r\n\r\n").as_bytes());
        let accept = derive_accept_key(key.as_bytes());
        (Handshake { accept, parser: ResponseParser::new(), head: Vec::new() }, bytes)
    }
}

/// A handshake that waits for the response.
#[derive(Debug)]
pub(crate) struct Handshake {
    /// Value of `Sec-WebSocket-Accept` that proves that the server speaks the protocol.
    accept: String,
    parser: ResponseParser,
    /// The part of the head that was received.
    head: Vec<u8>,
}

impl Handshake {
    /// Parses received bytes. Returns the bytes that follow the response, once it is complete.
    ///
    /// # Errors
    /// Returns the reason why the server did not accept.
    pub(super) fn receive(&mut self, bytes: &[u8]) -> Result<Option<Vec<u8>>, String> {
        self.head.extend_from_slice(bytes);
        loop {
            let response = self
                .parser
                .parse(&self.head, Method::Get, &LIMITS)
                .map_err(|malformed| malformed.to_string())?;
            let Some(response) = response else { return Ok(None) };
            let end = response.head_len;
            match response.status {
                101 => {}
                100..200 => {
                    self.head.drain(..end);
                    continue;
                }
                status => return Err(format!("status {status}")),
            }
            let has_token = |name: &str, token: &[u8]| {
                let mut values = response.field_values(name);
                values.any(|value| {
                    let mut tokens = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
                    tokens.any(|other| other.eq_ignore_ascii_case(token))
                })
            };
            if !has_token("Upgrade", b"websocket") || !has_token("Connection", b"upgrade") {
                return Err("status 101 without an upgrade to websocket".to_owned());
            }
            if !response.field_values("Sec-WebSocket-Accept").eq([self.accept.as_bytes()]) {
                return Err("invalid Sec-WebSocket-Accept field".to_owned());
            }
            return Ok(Some(self.head.split_off(end)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handshake() -> (Handshake, String) {
        let url = Url::parse("http://127.0.0.1:8080/chat").unwrap();
        let template = RequestTemplate {
            headers: vec!["Origin: http://a".to_owned()],
            ..RequestTemplate::default()
        };
        let request = HandshakeRequest::new(&url, &template, &WebSocketOptions::idle(1)).unwrap();
        let (handshake, bytes) = request.begin(&mut fastrand::Rng::with_seed(1));
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.starts_with("GET /chat HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n"), "{text}");
        assert!(
            text.contains("\r\nOrigin: http://a\r\n") && text.ends_with("==\r\n\r\n"),
            "{text}"
        );
        (handshake, text)
    }

    fn response(accept: &str) -> String {
        format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: keep-alive, \
             Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
        )
    }

    #[test]
    fn accepts_a_response_in_pieces_and_returns_the_rest() {
        let (mut handshake, _) = handshake();
        let text = format!("HTTP/1.1 103 Hints\r\n\r\n{}rest", response(&handshake.accept));
        let (last, first) = (&text[text.len() - 5..], &text[..text.len() - 5]);
        for byte in first.as_bytes() {
            assert_eq!(handshake.receive(&[*byte]), Ok(None));
        }
        assert_eq!(handshake.receive(last.as_bytes()), Ok(Some(b"rest".to_vec())));
    }

    #[test]
    fn rejects_other_responses() {
        for (text, reason) in [
            ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned(), "status 404"),
            (response("x"), "invalid Sec-WebSocket-Accept field"),
            (response("x").replace("WebSocket", "h2c"), "without an upgrade"),
            (response("x").replace("keep-alive, Upgrade", "close"), "without an upgrade"),
        ] {
            let error = handshake().0.receive(text.as_bytes()).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
        assert!(handshake().0.receive(b"SSH-2.0-x\r\n\r\n").is_err());
    }
}
