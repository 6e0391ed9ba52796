//! Memory that peers can occupy: with bodies that a peer does not read, and with endless messages.

use std::sync::{Mutex, mpsc};

use crate::Test;
use crate::common::process::Process;
use crate::common::{Connection, End, Origin, Recorder, Setup, TEST_TIMEOUT, ms, wait_until};

pub(crate) const TESTS: &[(&str, Test)] = &[
    (
        "memory::a_client_that_stops_reading_uses_bounded_memory",
        a_client_that_stops_reading_uses_bounded_memory,
    ),
    (
        "memory::a_server_that_stops_reading_uses_bounded_memory",
        a_server_that_stops_reading_uses_bounded_memory,
    ),
    ("memory::endless_messages_use_bounded_memory", endless_messages_use_bounded_memory),
    ("memory::incomplete_heads_use_bounded_memory", incomplete_heads_use_bounded_memory),
];

/// Maximum growth in KiB. With io_uring, all its buffers come into use.
const MAX_GROWTH: u64 = 8 << 10;
const BODY: u64 = 200 << 20;

/// Sends until the peer has accepted nothing for a while. Returns the number of bytes.
fn send_until_full(connection: &mut Connection, max: u64) -> u64 {
    let block = vec![b'x'; 1 << 16];
    let before = connection.sent;
    while connection.sent - before < max && connection.is_writable_within(ms(200)) {
        connection.send_some(&block);
    }
    connection.sent - before
}

#[track_caller]
fn assert_bounded(proxy: &Process, before: u64, connections: u64, what: &str) {
    let after = proxy.resident();
    let more = after.saturating_sub(before);
    assert!(more < MAX_GROWTH, "{what}: {more} KiB more for {connections} connections");
}

/// Returns the memory of a proxy after its first requests, in KiB.
fn memory_after_warm_up(proxy: &Process) -> u64 {
    let mut connections: Vec<Connection> = (0..8).map(|_| proxy.connect()).collect();
    for connection in &mut connections {
        connection.send("GET /small HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    for connection in &mut connections {
        assert_eq!(connection.expect_response().text(), "small");
    }
    proxy.resident()
}

fn a_client_that_stops_reading_uses_bounded_memory(setup: &Setup) {
    let recorded = Recorder::new();
    let recorder = recorded.clone();
    let blocked = Recorder::new();
    let is_blocked = blocked.clone();
    let origin = Origin::new(move |mut peer| {
        while let Some(request) = peer.request() {
            if request.target() == "/small" {
                peer.respond("small");
                continue;
            }
            peer.connection.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY}\r\n\r\n"));
            let sent = send_until_full(&mut peer.connection, BODY);
            assert!(sent < BODY, "the proxy accepted the whole body");
            is_blocked.add(());
            // The client disconnects without reading.
            recorder.add(peer.connection.wait_closed());
            return;
        }
    });
    let proxy = Process::proxy(setup, origin.addr());
    let before = memory_after_warm_up(&proxy);
    let mut connections: Vec<Connection> =
        (0..4).map(|_| proxy.connect().with_receive_buffer(4096)).collect();
    for connection in &mut connections {
        connection.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(connection.is_readable_within(TEST_TIMEOUT));
    }
    wait_until("no connection accepts more", || blocked.len() == 4);
    assert_bounded(&proxy, before, 4, "bodies that clients do not read");
    drop(connections);
    wait_until("the origin's connections are closed", || recorded.len() == 4);
    drop(proxy);
    origin.end();
    assert_eq!(recorded.take(), [true; 4]);
}

fn a_server_that_stops_reading_uses_bounded_memory(setup: &Setup) {
    let (left, gone) = mpsc::channel::<()>();
    let gone = Mutex::new(gone);
    let recorded = Recorder::new();
    let recorder = recorded.clone();
    let origin = Origin::new(move |mut peer| {
        while let Some(head) = peer.head() {
            if head.target() != "/small" {
                let _ = gone.lock().unwrap().recv_timeout(TEST_TIMEOUT);
                recorder.add(peer.connection.drain());
                return;
            }
            peer.request();
            peer.respond("small");
        }
    });
    let proxy = Process::proxy(setup, origin.addr());
    let before = memory_after_warm_up(&proxy);
    let mut connections: Vec<Connection> = (0..4).map(|_| proxy.connect()).collect();
    let head = format!("PUT /large HTTP/1.1\r\nHost: a\r\nContent-Length: {BODY}\r\n\r\n");
    for connection in &mut connections {
        connection.send(&head);
        let sent = send_until_full(connection, BODY);
        assert!(sent < BODY, "the proxy accepted the whole body");
    }
    assert_bounded(&proxy, before, 4, "bodies that the server does not read");
    connections.into_iter().for_each(Connection::reset);
    drop(left);
    wait_until("the origin's connections are closed", || recorded.len() == 4);
    drop(proxy);
    origin.end();
    for (had, end) in recorded.take() {
        assert!(had < BODY && end != End::Hangs, "{had}, {end:?}");
    }
}

fn endless_messages_use_bounded_memory(setup: &Setup) {
    let parts = [
        ("/interim", "", "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"),
        ("/head", "HTTP/1.1 200 OK\r\n", "X-Fill: more of it\r\n"),
        ("/value", "HTTP/1.1 200 OK\r\nX: ", "more"),
        ("/reason", "HTTP/1.1 200 ", "more"),
        ("/size", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "0"),
        ("/extension", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;x=", "more"),
        ("/extensions", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1;x=y\r\nz\r\n"),
        ("/trailers", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", "X: y\r\n"),
        ("/trailer", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ", "more"),
    ];
    let origin = Origin::new(move |mut peer| {
        while let Some(request) = peer.request() {
            let Some((_, first, more)) = parts.iter().find(|part| part.0 == request.target())
            else {
                peer.respond("small");
                continue;
            };
            peer.connection.send(first);
            let block = more.repeat(1 + 8000 / more.len());
            let max = peer.connection.sent + (32 << 20);
            while !peer.connection.broken && peer.connection.sent < max {
                peer.connection.send(&block);
            }
            assert!(
                peer.connection.broken,
                "the proxy accepted 32 MiB of an endless message: {}",
                request.target()
            );
            return;
        }
    });
    let proxy = Process::proxy(setup, origin.addr());
    let before = memory_after_warm_up(&proxy);
    for (target, first, _) in parts {
        let mut connection = proxy.connect();
        connection.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        // A chunked response is forwarded as it arrives, and then truncated.
        match connection.final_response(crate::common::Kind::Response) {
            Some(response) => assert_eq!(response.status(), 502, "{target}: {response:?}"),
            None => assert!(first.contains("chunked"), "{target}: {:?}", connection.end),
        }
    }
    assert_bounded(&proxy, before, 1, "endless messages");
    // Endless messages of clients.
    let heads = [
        ("GET /", "x", 414),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: ", "x", 431),
        ("GET / HTTP/1.1\r\nHost: a\r\n", "X: y\r\n", 431),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;", "x", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", "X: y\r\n", 431),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", "0", 400),
    ];
    for (first, more, status) in heads {
        let mut connection = proxy.connect();
        connection.send(first);
        let block = more.repeat(8000);
        let mut rounds = 0;
        while !connection.broken && !connection.is_readable_within(ms(0)) {
            connection.send(&block);
            rounds += 1;
            assert!(rounds < 4000, "{first:?}: {} bytes were taken", connection.sent);
        }
        assert_eq!(connection.expect_response().status(), status, "{first:?}");
    }
    assert_bounded(&proxy, before, 1, "endless messages");
    drop(proxy);
    drop(origin);
}

fn incomplete_heads_use_bounded_memory(setup: &Setup) {
    let origin = Origin::responding(|_| "small".to_owned());
    let proxy = Process::proxy(setup, origin.addr());
    let before = memory_after_warm_up(&proxy);
    // Each connection may buffer a head of the maximum size.
    let mut connections: Vec<Connection> = (0..50).map(|_| proxy.connect()).collect();
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(8000));
    for connection in &mut connections {
        connection.send(&head);
    }
    // The number of pipelined requests that are read ahead is limited.
    let mut eager = proxy.connect();
    let many = "GET /small HTTP/1.1\r\nHost: a\r\n\r\n".repeat(2000);
    while eager.is_writable_within(ms(200)) && eager.sent < 64 << 20 {
        eager.send_some(many.as_bytes());
    }
    assert!(
        eager.sent < 64 << 20,
        "the proxy accepted 64 MiB of requests without sending a response"
    );
    assert_bounded(&proxy, before, 51, "incomplete heads and pipelined requests");
}
