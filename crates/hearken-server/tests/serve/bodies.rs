//! Requests with a body.

use std::io::Write;
use std::sync::mpsc;
use std::thread;

use crate::common::{HUGE, Setup, Site, get, request};

/// Returns the framing fields and the encoded body of `content`, with a length and chunked.
fn framed(content: &[u8]) -> [(String, Vec<u8>); 2] {
    let mut chunked = Vec::new();
    for chunk in content.chunks(1000) {
        chunked.extend_from_slice(format!("{:x};name=value\r\n", chunk.len()).as_bytes());
        chunked.extend_from_slice(chunk);
        chunked.extend_from_slice(b"\r\n");
    }
    chunked.extend_from_slice(b"0\r\nTrailer: yes\r\n\r\n");
    [
        (format!("Content-Length: {}\r\n", content.len()), content.to_vec()),
        ("Transfer-Encoding: chunked\r\n".to_owned(), chunked),
    ]
}

pub(crate) fn discards_request_bodies(setup: &Setup) {
    let site = Site::new();
    let server = setup.serve(&site, |_| {});
    // Content that looks like requests must not be answered.
    let content = get("/cached").repeat(3000);
    let mut client = server.client();
    for (method, status) in [("POST", 405), ("GET", 200), ("DELETE", 405)] {
        for (fields, body) in framed(&content) {
            for piece in [body.len(), 30_011] {
                client.send(request(&format!("{method} /small"), &fields));
                for piece in body.chunks(piece) {
                    client.send(piece);
                }
                let response = client.response();
                assert_eq!(response.status, status, "{method} with {fields}");
                assert_eq!(client.get("/small").body, b"small\n", "after {method} with {fields}");
            }
        }
        for (fields, body) in framed(&content[..100]) {
            let head = request(&format!("{method} /small"), &fields);
            client.send([head, body, get("/empty")].concat());
            assert_eq!(client.response().status, status, "{method} with {fields} in one write");
            assert_eq!(client.response().length(), 0);
        }
        // The end of the body byte by byte.
        for (fields, body) in framed(b"ab") {
            client.send(request(&format!("{method} /small"), &fields));
            for byte in body {
                client.send_piece([byte]);
            }
            assert_eq!(client.response().status, status, "{method} with {fields} in bytes");
        }
    }
}

pub(crate) fn receives_a_body_while_sending_an_earlier_response(setup: &Setup) {
    let site = Site::with_huge();
    let server = setup.serve(&site, |_| {});
    for (fields, body) in framed(&[b'x'; 200_000]) {
        let mut client = server.client();
        client.send([get("/huge"), request("POST /small", &fields)].concat());
        assert_eq!(client.head().length(), HUGE);
        thread::scope(|scope| {
            let mut stream = client.stream.try_clone().unwrap();
            let (begun, has_begun) = mpsc::channel();
            scope.spawn(move || {
                stream.write_all(&body[..10_000]).unwrap();
                begun.send(()).unwrap();
                stream.write_all(&[&body[10_000..], &get("/small")].concat()).unwrap();
            });
            // Part of the body arrives before this client reads the response.
            has_begun.recv().unwrap();
            client.skip(HUGE);
            assert_eq!(client.response().status, 405, "{fields}");
            assert_eq!(client.response().body, b"small\n", "{fields}");
        });
    }
}

pub(crate) fn closes_at_an_end_of_stream_within_a_body(setup: &Setup) {
    // A client that shuts down its side within a body gets no response to that request.
    let site = Site::with_huge();
    let server = setup.serve(&site, |_| {});
    let part = [request("POST /small", "Content-Length: 100\r\n"), b"part".to_vec()].concat();
    let mut client = server.client();
    client.send(&part);
    client.shutdown_write();
    assert_eq!(client.drain(), 0);
    // The end arrives while an earlier response is sent.
    let mut client = server.client();
    client.send([get("/huge"), part].concat());
    client.shutdown_write();
    assert_eq!(client.head().length(), HUGE);
    client.skip(HUGE);
    client.assert_closed();
}

pub(crate) fn rejects_malformed_chunks(setup: &Setup) {
    let site = Site::new();
    let server = setup.serve(&site, |_| {});
    let bodies = [
        "x\r\n",
        "5\nhello\n",
        "5\r\nhello!\r\n",
        "-1\r\n",
        "11111111111111111\r\n",
        "0\r\nbad\r\n",
    ];
    for body in bodies {
        for together in [true, false] {
            let mut client = server.client();
            let head = request("GET /small", "Transfer-Encoding: chunked\r\n");
            if together {
                client.send([&head, body.as_bytes(), &get("/small")].concat());
            } else {
                client.send_piece(head);
                client.send(body);
            }
            let response = client.response();
            assert_eq!(
                (response.status, response.field("Connection")),
                (400, Some("close")),
                "{body:?}"
            );
            client.assert_closed();
        }
    }
}

pub(crate) fn rejects_bodies_over_the_limit(setup: &Setup) {
    let site = Site::new();
    let server =
        setup.serve(&site, |config| config.static_files_mut().unwrap().max_body_bytes = 1000);
    for (fields, body) in framed(&[b'x'; 1000]) {
        let mut client = server.client();
        client.send([request("GET /small", &fields), body].concat());
        assert_eq!(client.response().status, 200, "{fields}");
    }
    for (fields, body) in framed(&[b'x'; 1001]) {
        let mut client = server.client();
        client.send([request("GET /small", &fields), body, get("/small")].concat());
        assert_eq!(client.response().status, 413, "{fields}");
        client.assert_closed();
    }
}

pub(crate) fn sends_100_continue_to_waiting_clients(setup: &Setup) {
    let site = Site::new();
    let server =
        setup.serve(&site, |config| config.static_files_mut().unwrap().max_body_bytes = 1000);
    let mut client = server.client();
    // More rounds than a counter of one byte holds.
    for _ in 0..300 {
        client.send(request("GET /small", "Expect: 100-continue\r\nContent-Length: 4\r\n"));
        assert_eq!(client.response().status, 100);
        client.send("body");
        assert_eq!(client.response().body, b"small\n");
    }
    // A client that does not wait gets no interim response.
    let head = request("POST /small", "Expect: 100-continue\r\nContent-Length: 4\r\n");
    client.send([head, b"body".to_vec()].concat());
    assert_eq!(client.response().status, 405);
    // A body over the limit is rejected at once.
    client.send(request("POST /small", "Expect: 100-continue\r\nContent-Length: 1001\r\n"));
    assert_eq!(client.response().status, 413);
    client.assert_closed();
    let mut client = server.client();
    client.send(request("POST /small", "Expect: nothing\r\nContent-Length: 4\r\n"));
    assert_eq!(client.response().status, 417);
    client.assert_closed();
}
