//! Requests and responses.

use hearken_server::proxy::config::HealthCheck;
use tungstenite::handshake::derive_accept_key;

use super::origin::{H2Origin, RawOrigin, ok};
use super::proxy;
use crate::behaviour::{exchange, get, post, request};
use crate::common::server::{proxy_config, upstreams_config};
use crate::common::{Kind, Setup, content, ms, wait_until};

/// Forwards requests of every kind.
pub(super) fn forwards_requests_and_responses(setup: &Setup) {
    let origin = H2Origin::new(100);
    let proxy = proxy(setup, origin.addr(), |_| {});
    let mut connection = proxy.connect();
    let response = exchange(&mut connection, get("/fields?a=b"));
    assert_eq!(response.status(), 200);
    assert_eq!(response.field("x-uri").unwrap(), "http://site.test/fields?a=b");
    assert!(response.field("x-got-via").unwrap().starts_with("1.1 hearken-"), "{response:?}");
    assert!(response.field("via").unwrap().starts_with("2.0 hearken-"), "{response:?}");
    for status in [204, 304, 404, 503] {
        let response = exchange(&mut connection, get(&format!("/status/{status}")));
        assert_eq!(response.status(), status);
    }
    connection.send(request("HEAD", "/bytes/10", ""));
    assert_eq!(connection.final_response(Kind::Bodiless).unwrap().status(), 200);
    assert_eq!(exchange(&mut connection, get("/announced")).text(), "announced");
    assert_eq!(exchange(&mut connection, get("/bytes/0")).text(), "");
    let response = exchange(&mut connection, get("/trailers"));
    assert_eq!(response.text(), "content");
    assert_eq!(origin.accepted(), 1);
}

/// Forwards content larger than all windows.
pub(super) fn forwards_content_in_both_directions(setup: &Setup) {
    let origin = H2Origin::new(100);
    let proxy = proxy(setup, origin.addr(), |_| {});
    let mut connection = proxy.connect();
    let response = exchange(&mut connection, post("/echo", "hello"));
    assert_eq!(response.text(), "hello");
    let large = content(3, 1_000_000);
    let mut message =
        request("POST", "/echo", &format!("Content-Length: {}\r\n", large.len())).into_bytes();
    message.extend_from_slice(large);
    connection.send(message);
    assert!(connection.expect_response().body == large);
    // The response begins before the request is complete, so no other request follows.
    connection.assert_closed();
    let mut connection = proxy.connect();
    let response = exchange(&mut connection, get("/bytes/2000000"));
    assert!(response.body == content(1, 2_000_000));
}

/// Forwards trailer sections in both directions. The client cannot send its subject in one.
pub(super) fn forwards_trailers(setup: &Setup) {
    let origin = H2Origin::new(100);
    let proxy = proxy(setup, origin.addr(), |config| {
        proxy_config(config).fields.client_subject = Some("X-Subject".to_owned());
    });
    let fields = "TE: trailers\r\nConnection: TE\r\nTransfer-Encoding: chunked\r\n";
    let head = request("POST", "/echo", fields);
    let trailers = "X-Subject: CN=a\r\nX-Checksum: 17\r\nx_subject: CN=a\r\n";
    let response =
        exchange(&mut proxy.connect(), format!("{head}5\r\nhello\r\n0\r\n{trailers}\r\n"));
    assert_eq!(response.text(), "hello");
    let echoed: Vec<_> = response.trailers.iter().map(|field| field.0.as_str()).collect();
    assert_eq!(echoed, ["x-checksum"]);
}

/// Returns a request for a WebSocket.
fn websocket() -> String {
    let fields = "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n";
    request("GET", "/echo", &format!("{fields}Sec-WebSocket-Key: {KEY}\r\n"))
}

const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

/// Forwards WebSockets on a stream if the server supports that.
pub(super) fn forwards_websockets(setup: &Setup) {
    let origin = H2Origin::new(100);
    let proxy = proxy(setup, origin.addr(), |_| {});
    let mut connection = proxy.connect();
    let response = exchange(&mut connection, websocket());
    assert_eq!(response.status(), 101);
    let accept = derive_accept_key(KEY.as_bytes());
    assert_eq!(response.field("sec-websocket-accept").unwrap(), accept);
    assert_eq!(response.field("x-method").unwrap(), "CONNECT");
    for text in [&b"hello"[..], b"again"] {
        connection.send(text);
        assert_eq!(connection.read_raw(text.len()), text);
    }
    connection.shutdown_write();
    assert_eq!(connection.read_raw(1), b"");
}

/// Forwards WebSockets in HTTP/1.1 if the server does not support them in HTTP/2.
pub(super) fn forwards_websockets_in_http_1(setup: &Setup) {
    let origin = RawOrigin::new(|number, mut peer| {
        use std::io::Read;
        if number == 0 {
            peer.begin(&[]);
            while let Some(stream) = peer.request() {
                peer.send(ok(stream, "ok"));
            }
            return;
        }
        let mut bytes = [0; 4096];
        let count = peer.stream.read(&mut bytes).unwrap();
        assert!(bytes[..count].starts_with(b"GET /echo HTTP/1.1\r\n"));
        let fields = "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x";
        peer.send(format!("HTTP/1.1 101 Switching Protocols\r\n{fields}\r\n\r\nhello"));
        let _ = peer.stream.read(&mut bytes);
    });
    let proxy = proxy(setup, origin.addr(), |_| {});
    let mut connection = proxy.connect();
    assert_eq!(exchange(&mut connection, websocket()).status(), 101);
    assert_eq!(connection.read_raw(5), b"hello");
}

/// Checks the health of servers in HTTP/2.
pub(super) fn checks_the_health_of_servers(setup: &Setup) {
    for (path, status) in [("/status/200", 200), ("/status/404", 503)] {
        let origin = H2Origin::new(100);
        let proxy = proxy(setup, origin.addr(), |config| {
            upstreams_config(config).health = Some(HealthCheck {
                path: path.to_owned(),
                interval: ms(20),
                fall: std::num::NonZeroU32::MIN,
                ..HealthCheck::default()
            });
        });
        wait_until("the server is checked", || origin.accepted() >= 3);
        wait_until("the state is known", || {
            exchange(&mut proxy.connect(), get("/fields")).status() == status
        });
    }
}
