//! Requests without a body, and the connections they come on.

use std::thread;

use crate::support::{LARGE, Site, Way, get, ms, pattern, request};

pub(crate) fn files_of_every_size(way: &Way) {
    let site = Site::with_large();
    let server = way.serve(&site, |_| {});
    let mut client = server.connect();
    let sizes =
        [("/small", 6), ("/inline", 4000), ("/cached", 50_000), ("/empty", 0), ("/large", LARGE)];
    for (path, size) in sizes {
        let expected = if size == 6 { b"small\n" } else { &pattern()[..size] };
        let whole = client.get(path);
        assert_eq!((whole.status, whole.length()), (200, size as u64), "{path}");
        assert!(whole.body == expected, "{path} has the wrong bytes");
        client.send(request(&format!("HEAD {path}"), ""));
        let head = client.head();
        assert_eq!((head.status, head.length()), (200, size as u64), "HEAD {path}");
    }
    client.send(request("GET /large", "Range: bytes=1000000-5000007\r\n"));
    let part = client.answer();
    assert_eq!(part.status, 206);
    assert!(part.body == pattern()[1_000_000..5_000_008]);
    assert_eq!(client.get("/none").status, 404);
}

pub(crate) fn many_on_one_connection(way: &Way) {
    let site = Site::new();
    let server = way.serve(&site, |_| {});
    let mut client = server.connect();
    for round in 0..150 {
        let path = ["/small", "/cached", "/none", "/empty"][round % 4];
        let answer = client.get(path);
        let expected = [(200, 6), (200, 50_000), (404, 14), (200, 0)][round % 4];
        assert_eq!((answer.status, answer.length()), expected, "request {round}, {path}");
    }
}

pub(crate) fn a_hundred_in_one_write(way: &Way) {
    let site = Site::with_large();
    let server = way.serve(&site, |_| {});
    let mut client = server.connect();
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
        let answer = if kind == 5 { client.head() } else { client.answer() };
        let (status, body) = match kind {
            0 | 3 | 7 => (200, &b"small\n"[..]),
            1 => (200, &pattern()[..50_000]),
            2 => (404, &b"404 Not Found\n"[..]),
            4 => (200, &pattern()[..4000]),
            5 => (200, &b""[..]),
            6 => (405, &b"405 Method Not Allowed\n"[..]),
            _ => (200, pattern()),
        };
        assert_eq!(answer.status, status, "answer {index}");
        assert!(answer.body == body, "answer {index} has the wrong body");
    }
    client.end_sending();
    client.ends();
}

pub(crate) fn a_byte_at_a_time(way: &Way) {
    let site = Site::new();
    let server = way.serve(&site, |_| {});
    let mut client = server.connect();
    for _ in 0..2 {
        for byte in get("/small") {
            client.send([byte]);
            thread::sleep(ms(1)); // That it is a piece of its own.
        }
        assert_eq!(client.answer().body, b"small\n");
    }
}

pub(crate) fn split_anywhere(way: &Way) {
    let site = Site::new();
    let server = way.serve(&site, |_| {});
    let mut client = server.connect();
    let two = [get("/small"), request("HEAD /cached", "")].concat();
    for at in 1..two.len() {
        let (before, after) = two.split_at(at);
        client.send(before);
        thread::sleep(ms(1));
        client.send(after);
        assert_eq!(client.answer().body, b"small\n", "split at {at}");
        assert_eq!(client.head().length(), 50_000, "split at {at}");
    }
}

pub(crate) fn old_clients(way: &Way) {
    let site = Site::new();
    let server = way.serve(&site, |_| {});
    let mut client = server.connect();
    client.send("GET /small HTTP/1.0\r\n\r\n");
    let answer = client.answer();
    assert_eq!((answer.status, &*answer.body), (200, &b"small\n"[..]));
    client.ends();

    let mut client = server.connect();
    for _ in 0..2 {
        client.send("GET /small HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        let answer = client.answer();
        assert_eq!((answer.status, answer.field("Connection")), (200, Some("keep-alive")));
    }
    client.send("GET /cached HTTP/1.0\r\n\r\n");
    assert!(client.answer().body == pattern()[..50_000]);
    client.ends();
}

pub(crate) fn close_is_closed(way: &Way) {
    let site = Site::with_large();
    let server = way.serve(&site, |_| {});
    for (path, size) in [("/small", 6), ("/cached", 50_000), ("/large", LARGE), ("/none", 14)] {
        let mut client = server.connect();
        client.send(request(&format!("GET {path}"), "Connection: close\r\n"));
        let answer = client.answer();
        assert_eq!(
            (answer.body.len(), answer.field("Connection")),
            (size, Some("close")),
            "{path}"
        );
        client.ends();
    }
}

/// What follows is neither answered nor in the way of the answer.
pub(crate) fn close_with_more_behind_it(way: &Way) {
    let site = Site::with_large();
    let server = way.serve(&site, |_| {});
    let last = |path: &str| request(&format!("GET {path}"), "Connection: close\r\n");
    let mut client = server.connect();
    client.send([last("/small"), get("/small").repeat(1000)].concat());
    assert_eq!(client.answer().body, b"small\n");
    client.ends();
    // While the answer is under way.
    let mut client = server.connect();
    client.send(last("/large"));
    assert_eq!(client.head().length(), LARGE as u64);
    client.send(get("/small").repeat(1000));
    client.skip(LARGE as u64);
    client.ends();
}

pub(crate) fn several_clients_at_a_time(way: &Way) {
    let site = Site::with_large();
    let server = way.serve(&site, |_| {});
    let mut clients: Vec<_> = (0..24).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send([get("/cached"), get("/large"), get("/small")].concat());
    }
    // The last first: nobody waits for who does not read.
    for client in clients.iter_mut().rev() {
        assert!(client.answer().body == pattern()[..50_000]);
    }
    for client in clients.iter_mut().rev().take(4) {
        assert!(client.answer().body == pattern());
        assert_eq!(client.answer().body, b"small\n");
    }
}
