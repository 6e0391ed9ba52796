//! Requests that the server rejects.

use std::io::Write;

use crate::common::{Setup, Site, get, request};

pub(crate) fn rejects_malformed_requests_with_their_status(setup: &Setup) {
    let site = Site::new();
    let server = setup.serve(&site, |_| {});
    let long = |count| "x".repeat(count);
    let cases: Vec<(u16, Vec<u8>)> = vec![
        (400, b"\0\r\n\r\n".to_vec()),
        (400, b"GET /small HTTP/1.1\r\n\r\n".to_vec()),
        (400, b"GET /small HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".to_vec()),
        (400, b"GET /small HTTP/1.1\nHost: a\n\n".to_vec()),
        (400, b"GET  /small HTTP/1.1\r\nHost: a\r\n\r\n".to_vec()),
        (400, request("GET /small", "a\0b: c\r\n")),
        (400, request("GET /small", " folded: c\r\n")),
        (414, request(&format!("GET /{}", long(9000)), "")),
        (431, request("GET /small", &format!("Long: {}\r\n", long(20_000)))),
        (431, request("GET /small", &"A: b\r\n".repeat(101))),
        (501, request(&format!("{} /small", "M".repeat(40)), "")),
        (505, b"GET /small HTTP/2.0\r\nHost: a\r\n\r\n".to_vec()),
    ];
    for (status, bytes) in cases {
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
        let mut client = server.client();
        client.send(&bytes);
        let response = client.response();
        assert_eq!(
            (response.status, response.field("Connection")),
            (status, Some("close")),
            "{shown:?}"
        );
        client.assert_closed();
    }
}

pub(crate) fn rejects_ambiguous_framing(setup: &Setup) {
    // If the end of a request is ambiguous, nothing after it is parsed as a request.
    let site = Site::new();
    let server = setup.serve(&site, |_| {});
    let fields = [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: 99999999999999999999\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding:\x0bchunked\r\n",
        "Transfer-Encoding: xchunked\r\n",
    ];
    for fields in fields {
        let mut client = server.client();
        let bytes = [request("POST /small", fields), b"0\r\n\r\n".to_vec(), get("/small")].concat();
        client.send(bytes);
        let response = client.response();
        assert_eq!(
            (response.status, response.field("Connection")),
            (400, Some("close")),
            "{fields:?}"
        );
        client.assert_closed();
    }
    let mut client = server.client();
    client.send(b"POST /small HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    client.send(get("/small"));
    assert_eq!(client.response().status, 400);
    client.assert_closed();
}

pub(crate) fn error_responses_reach_clients_that_still_send(setup: &Setup) {
    // Closing the socket at once would send a reset, which discards the response at the client.
    let site = Site::new();
    let server =
        setup.serve(&site, |config| config.static_files_mut().unwrap().max_body_bytes = 1000);
    let prefixes = [
        (400, b"no request\r\n".to_vec()),
        (413, request("POST /small", "Content-Length: 200000\r\n")),
        (431, request("GET /small", &format!("Long: {}\r\n", "x".repeat(20_000)))),
    ];
    for (status, mut bytes) in prefixes {
        bytes.resize(200 * 1024, b'x');
        for _ in 0..4 {
            let mut client = server.client();
            client.send(&bytes);
            client.shutdown_write();
            assert_eq!(client.response().status, status);
            client.assert_closed();
        }
    }
}

pub(crate) fn error_responses_follow_earlier_responses(setup: &Setup) {
    let site = Site::with_large();
    let server = setup.serve(&site, |_| {});
    for path in ["/small", "/cached", "/large"] {
        let mut client = server.client();
        client.send(
            [get(path), get("/empty"), b"no request\r\n\r\n".to_vec(), get("/small")].concat(),
        );
        assert_eq!(client.response().status, 200, "{path}");
        assert_eq!(client.response().status, 200, "{path}");
        assert_eq!(client.response().status, 400, "{path}");
        client.assert_closed();
    }
}

pub(crate) fn closes_at_an_endless_head(setup: &Setup) {
    let site = Site::new();
    let server = setup.serve(&site, |_| {});
    for line in [&b"Field: value\r\n"[..], b"x"] {
        let mut client = server.client();
        client.send("GET /small HTTP/1.1\r\nHost: a\r\nX: ");
        let bytes = line.repeat(4096);
        let mut sent = 0;
        // The buffers of the two sockets take most of this.
        while client.stream.write_all(&bytes).is_ok() {
            sent += bytes.len();
            assert!(sent < 64 << 20, "the server reads an endless head");
        }
    }
}

pub(crate) fn lingering_close_is_bounded_in_bytes(setup: &Setup) {
    // After an error response the server discards a bounded number of bytes, so that the response is not
    // lost.
    let site = Site::new();
    let server =
        setup.serve(&site, |config| config.static_files_mut().unwrap().max_body_bytes = 1000);
    let rejected = [
        request("POST /small", "Content-Length: 1000000000000\r\n"),
        b"no request\r\n\r\n".to_vec(),
    ];
    for bytes in rejected {
        let mut client = server.client();
        client.send(bytes);
        let block = vec![b'x'; 1 << 18];
        let mut sent = 0;
        while client.stream.write_all(&block).is_ok() {
            sent += block.len();
            // The buffers of the two sockets may hold most of this.
            assert!(sent < 48 << 20, "the server reads an endless body");
        }
    }
}
