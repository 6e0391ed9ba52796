//! Requests without a body, pipelining and persistent connections.

use crate::common::{LARGE, Setup, Site, get, pattern, request};

pub(crate) fn serves_files_of_every_size(setup: &Setup) {
    let site = Site::with_large();
    let server = setup.serve(&site, |_| {});
    let mut client = server.client();
    let sizes =
        [("/small", 6), ("/inline", 4000), ("/cached", 50_000), ("/empty", 0), ("/large", LARGE)];
    for (path, size) in sizes {
        let expected = if size == 6 { b"small\n" } else { &pattern()[..size] };
        let response = client.get(path);
        assert_eq!((response.status, response.length()), (200, size as u64), "{path}");
        assert!(response.body == expected, "{path} has the wrong bytes");
        client.send(request(&format!("HEAD {path}"), ""));
        let head = client.head();
        assert_eq!((head.status, head.length()), (200, size as u64), "HEAD {path}");
    }
    client.send(request("GET /large", "Range: bytes=1000000-3000007\r\n"));
    let part = client.response();
    assert_eq!(part.status, 206);
    assert!(part.body == pattern()[1_000_000..3_000_008]);
    assert_eq!(client.get("/none").status, 404);
}

pub(crate) fn answers_many_requests_on_one_connection(setup: &Setup) {
    let site = Site::new();
    let server = setup.serve(&site, |_| {});
    let mut client = server.client();
    for round in 0..150 {
        let path = ["/small", "/cached", "/none", "/empty"][round % 4];
        let response = client.get(path);
        let expected = [(200, 6), (200, 50_000), (404, 14), (200, 0)][round % 4];
        assert_eq!((response.status, response.length()), expected, "request {round}, {path}");
    }
}

pub(crate) fn answers_a_hundred_pipelined_requests(setup: &Setup) {
    let site = Site::with_large();
    let server = setup.serve(&site, |_| {});
    let mut client = server.client();
    let kind = |index: usize| match index {
        31 | 77 => 8,
        32 => 7,
        _ => index % 7,
    };
    let requests: Vec<u8> = (0..100)
        .flat_map(|index| match kind(index) {
            0 | 3 => get("/small"),
            1 => get("/cached"),
            2 => get("/none"),
            4 => get("/inline"),
            5 => request("HEAD /cached", ""),
            6 => [request("POST /small", "Content-Length: 9\r\n"), b"GET / HTT".to_vec()].concat(),
            7 => {
                let head = request("GET /small", "Transfer-Encoding: chunked\r\n");
                [head, b"3\r\nabc\r\n0\r\n\r\n".to_vec()].concat()
            }
            _ => get("/large"),
        })
        .collect();
    client.send(requests);
    for index in 0..100 {
        let kind = kind(index);
        let response = if kind == 5 { client.head() } else { client.response() };
        let (status, body) = match kind {
            0 | 3 | 7 => (200, &b"small\n"[..]),
            1 => (200, &pattern()[..50_000]),
            2 => (404, &b"404 Not Found\n"[..]),
            4 => (200, &pattern()[..4000]),
            5 => (200, &b""[..]),
            6 => (405, &b"405 Method Not Allowed\n"[..]),
            _ => (200, pattern()),
        };
        assert_eq!(response.status, status, "answer {index}");
        assert!(response.body == body, "answer {index} has the wrong body");
    }
    client.shutdown_write();
    client.assert_closed();
}

pub(crate) fn parses_requests_byte_by_byte(setup: &Setup) {
    let site = Site::new();
    let server = setup.serve(&site, |_| {});
    let mut client = server.client();
    for _ in 0..2 {
        for byte in get("/small") {
            client.send_piece([byte]);
        }
        assert_eq!(client.response().body, b"small\n");
    }
}

pub(crate) fn parses_requests_split_at_any_byte(setup: &Setup) {
    let site = Site::new();
    let server = setup.serve(&site, |_| {});
    let mut client = server.client();
    let two = [get("/small"), request("HEAD /cached", "")].concat();
    for at in 1..two.len() {
        let (before, after) = two.split_at(at);
        client.send_piece(before);
        client.send(after);
        assert_eq!(client.response().body, b"small\n", "split at {at}");
        assert_eq!(client.head().length(), 50_000, "split at {at}");
    }
}

pub(crate) fn closes_http_1_0_connections_without_keep_alive(setup: &Setup) {
    let site = Site::new();
    let server = setup.serve(&site, |_| {});
    let mut client = server.client();
    client.send("GET /small HTTP/1.0\r\n\r\n");
    let response = client.response();
    assert_eq!((response.status, &*response.body), (200, &b"small\n"[..]));
    client.assert_closed();

    let mut client = server.client();
    for _ in 0..2 {
        client.send("GET /small HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        let response = client.response();
        assert_eq!((response.status, response.field("Connection")), (200, Some("keep-alive")));
    }
    client.send("GET /cached HTTP/1.0\r\n\r\n");
    assert!(client.response().body == pattern()[..50_000]);
    client.assert_closed();
}

pub(crate) fn closes_after_connection_close(setup: &Setup) {
    let site = Site::with_large();
    let server = setup.serve(&site, |_| {});
    for (path, size) in [("/small", 6), ("/cached", 50_000), ("/large", LARGE), ("/none", 14)] {
        let mut client = server.client();
        client.send(request(&format!("GET {path}"), "Connection: close\r\n"));
        let response = client.response();
        assert_eq!(
            (response.body.len(), response.field("Connection")),
            (size, Some("close")),
            "{path}"
        );
        client.assert_closed();
    }
}

pub(crate) fn ignores_requests_after_connection_close(setup: &Setup) {
    // Requests after `Connection: close` are not answered, and do not disturb the response.
    let site = Site::with_large();
    let server = setup.serve(&site, |_| {});
    let last = |path: &str| request(&format!("GET {path}"), "Connection: close\r\n");
    let mut client = server.client();
    client.send([last("/small"), get("/small").repeat(200)].concat());
    assert_eq!(client.response().body, b"small\n");
    client.assert_closed();
    // While the response is sent. It does not fit into the buffers.
    let mut client = server.client().with_receive_buffer(32 << 10);
    client.send(last("/large"));
    assert_eq!(client.head().length(), LARGE as u64);
    client.send(get("/small").repeat(200));
    client.skip(LARGE as u64);
    client.assert_closed();
}

pub(crate) fn clients_that_do_not_read_delay_no_others(setup: &Setup) {
    let site = Site::with_large();
    let server = setup.serve(&site, |_| {});
    let mut clients: Vec<_> = (0..16).map(|_| server.client()).collect();
    for client in &mut clients {
        client.send([get("/cached"), get("/large"), get("/small")].concat());
    }
    // The last client reads first.
    for client in clients.iter_mut().rev() {
        assert!(client.response().body == pattern()[..50_000]);
    }
    for client in clients.iter_mut().rev().take(2) {
        assert!(client.response().body == pattern());
        assert_eq!(client.response().body, b"small\n");
    }
}
