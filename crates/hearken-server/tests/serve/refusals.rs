//! What is no request.

use std::io::Write;

use crate::support::{Site, Way, get, request};

pub(crate) fn each_with_its_status(way: &Way) {
    let site = Site::new();
    let server = way.serve(&site, |_| {});
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
        let mut client = server.connect();
        client.send(&bytes);
        let answer = client.answer();
        assert_eq!(
            (answer.status, answer.field("Connection")),
            (status, Some("close")),
            "{shown:?}"
        );
        client.ends();
    }
}

/// Where it is in doubt where a request ends, nothing that follows is one.
pub(crate) fn nothing_is_smuggled(way: &Way) {
    let site = Site::new();
    let server = way.serve(&site, |_| {});
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
        let mut client = server.connect();
        let bytes = [request("POST /small", fields), b"0\r\n\r\n".to_vec(), get("/small")].concat();
        client.send(bytes);
        let answer = client.answer();
        assert_eq!((answer.status, answer.field("Connection")), (400, Some("close")), "{fields:?}");
        client.ends();
    }
    let mut client = server.connect();
    client.send(b"POST /small HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    client.send(get("/small"));
    assert_eq!(client.answer().status, 400);
    client.ends();
}

/// A reset for what still comes would overtake the answer.
pub(crate) fn reach_who_still_sends(way: &Way) {
    let site = Site::new();
    let server = way.serve(&site, |config| config.site().unwrap().body_limit = 1000);
    let beginnings = [
        (400, b"no request\r\n".to_vec()),
        (413, request("POST /small", "Content-Length: 200000\r\n")),
        (431, request("GET /small", &format!("Long: {}\r\n", "x".repeat(20_000)))),
    ];
    for (status, mut bytes) in beginnings {
        bytes.resize(200 * 1024, b'x');
        for _ in 0..4 {
            let mut client = server.connect();
            client.send(&bytes);
            client.end_sending();
            assert_eq!(client.answer().status, status);
            client.ends();
        }
    }
}

pub(crate) fn come_after_what_was_asked_before(way: &Way) {
    let site = Site::with_large();
    let server = way.serve(&site, |_| {});
    for path in ["/small", "/cached", "/large"] {
        let mut client = server.connect();
        client.send(
            [get(path), get("/empty"), b"no request\r\n\r\n".to_vec(), get("/small")].concat(),
        );
        assert_eq!(client.answer().status, 200, "{path}");
        assert_eq!(client.answer().status, 200, "{path}");
        assert_eq!(client.answer().status, 400, "{path}");
        client.ends();
    }
}

pub(crate) fn an_endless_head_is_cut(way: &Way) {
    let site = Site::new();
    let server = way.serve(&site, |_| {});
    for line in [&b"Field: value\r\n"[..], b"x"] {
        let mut client = server.connect();
        client.send("GET /small HTTP/1.1\r\nHost: a\r\nX: ");
        let bytes = line.repeat(4096);
        let mut taken = 0;
        // Most of what is taken is in the buffers of the two sockets.
        while client.stream.write_all(&bytes).is_ok() {
            taken += bytes.len();
            assert!(taken < 64 << 20, "it takes whatever comes");
        }
    }
}

/// After a refusal the server reads on only so far that the response is not lost.
pub(crate) fn lingering_close_is_bounded_in_bytes(way: &Way) {
    let site = Site::new();
    let server = way.serve(&site, |config| config.site().unwrap().body_limit = 1000);
    let refused = [
        request("POST /small", "Content-Length: 1000000000000\r\n"),
        b"no request\r\n\r\n".to_vec(),
    ];
    for bytes in refused {
        let mut client = server.connect();
        client.send(bytes);
        let block = vec![b'x'; 1 << 18];
        let mut taken = 0;
        while client.stream.write_all(&block).is_ok() {
            taken += block.len();
            // Most of it may be in the buffers of the two sockets.
            assert!(taken < 48 << 20, "it reads whatever comes");
        }
    }
}
