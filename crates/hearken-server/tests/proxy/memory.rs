//! Memory that peers can take: a body that nobody takes, and what has no end.

use std::sync::{Mutex, mpsc};

use crate::Test;
use crate::harness::process::Process;
use crate::harness::{End, HANG, Link, Notes, Origin, Way, eventually, ms};

pub(crate) const TESTS: &[(&str, Test)] = &[
    ("memory::a_client_that_reads_no_more", a_client_that_reads_no_more),
    ("memory::a_server_that_reads_no_more", a_server_that_reads_no_more),
    ("memory::without_an_end", without_an_end),
    ("memory::heads_that_are_not_whole", heads_that_are_not_whole),
];

/// How many kibibytes more it may have than before: with io_uring, all its buffers come into use.
const MOST: u64 = 8 << 10;
const BODY: u64 = 200 << 20;

/// Sends until nothing has been taken for a while; how much was.
fn send_until_full(link: &mut Link, most: u64) -> u64 {
    let block = vec![b'x'; 1 << 16];
    let before = link.sent;
    while link.sent - before < most && link.takes(ms(500)) {
        link.send_some(&block);
    }
    link.sent - before
}

#[track_caller]
fn assert_bounded(proxy: &Process, before: u64, connections: u64, what: &str) {
    let after = proxy.resident();
    let more = after.saturating_sub(before);
    assert!(more < MOST, "{what}: {more} KiB more for {connections} connections");
}

/// Its size once it has served something, so that what it has but once is there.
fn settled(proxy: &Process) -> u64 {
    let mut links: Vec<Link> = (0..8).map(|_| proxy.connect()).collect();
    for link in &mut links {
        link.send("GET /small HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    for link in &mut links {
        assert_eq!(link.answer().text(), "small");
    }
    proxy.resident()
}

fn a_client_that_reads_no_more(way: &Way) {
    let told = Notes::new();
    let tells = told.clone();
    let origin = Origin::new(move |mut peer| {
        while let Some(request) = peer.request() {
            if request.target() == "/small" {
                peer.answer("small");
                continue;
            }
            peer.link.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY}\r\n\r\n"));
            let sent = send_until_full(&mut peer.link, BODY);
            assert!(sent < BODY, "all of it was taken");
            // The client, which has read nothing, leaves.
            tells.add(peer.link.is_gone());
            return;
        }
    });
    let proxy = Process::start(way, origin.addr());
    let before = settled(&proxy);
    let mut links: Vec<Link> = (0..4).map(|_| proxy.connect().receiving(4096)).collect();
    for link in &mut links {
        link.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(link.hears(HANG));
    }
    // The servers' ends are full by now, or soon: nothing is read by us.
    std::thread::sleep(ms(700));
    assert_bounded(&proxy, before, 4, "what the clients do not read");
    drop(links);
    eventually("the server is told that nobody wants it any more", || told.len() == 4);
    drop(proxy);
    origin.end();
    assert_eq!(told.take(), [true; 4]);
}

fn a_server_that_reads_no_more(way: &Way) {
    let (left, gone) = mpsc::channel::<()>();
    let gone = Mutex::new(gone);
    let told = Notes::new();
    let tells = told.clone();
    let origin = Origin::new(move |mut peer| {
        while let Some(head) = peer.head() {
            if head.target() != "/small" {
                let _ = gone.lock().unwrap().recv_timeout(HANG);
                tells.add(peer.link.drain());
                return;
            }
            peer.request();
            peer.answer("small");
        }
    });
    let proxy = Process::start(way, origin.addr());
    let before = settled(&proxy);
    let mut links: Vec<Link> = (0..4).map(|_| proxy.connect()).collect();
    let head = format!("PUT /large HTTP/1.1\r\nHost: a\r\nContent-Length: {BODY}\r\n\r\n");
    for link in &mut links {
        link.send(&head);
        let sent = send_until_full(link, BODY);
        assert!(sent < BODY, "all of it was taken");
    }
    assert_bounded(&proxy, before, 4, "what the server does not read");
    links.into_iter().for_each(Link::reset);
    drop(left);
    eventually("the server is told that its clients have left", || told.len() == 4);
    drop(proxy);
    origin.end();
    for (had, end) in told.take() {
        assert!(had < BODY && end != End::Hangs, "{had}, {end:?}");
    }
}

fn without_an_end(way: &Way) {
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
                peer.answer("small");
                continue;
            };
            peer.link.send(first);
            let block = more.repeat(1 + 8000 / more.len());
            let most = peer.link.sent + (32 << 20);
            while !peer.link.broken && peer.link.sent < most {
                peer.link.send(&block);
            }
            assert!(peer.link.broken, "32 MiB of it were taken: {}", request.target());
            return;
        }
    });
    let proxy = Process::start(way, origin.addr());
    let before = settled(&proxy);
    for (target, first, _) in parts {
        let mut link = proxy.connect();
        link.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        // It may be passed on as it comes: then it is cut off.
        match link.response(crate::harness::Kind::Response) {
            Some(answer) => assert_eq!(answer.status(), 502, "{target}: {answer:?}"),
            None => assert!(first.contains("chunked"), "{target}: {:?}", link.end),
        }
    }
    assert_bounded(&proxy, before, 1, "what has no end");
    // What clients send without an end.
    let heads = [
        ("GET /", "x", 414),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: ", "x", 431),
        ("GET / HTTP/1.1\r\nHost: a\r\n", "X: y\r\n", 431),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;", "x", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", "X: y\r\n", 431),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", "0", 400),
    ];
    for (first, more, status) in heads {
        let mut link = proxy.connect();
        link.send(first);
        let block = more.repeat(8000);
        let mut rounds = 0;
        while !link.broken && !link.hears(ms(0)) {
            link.send(&block);
            rounds += 1;
            assert!(rounds < 4000, "{first:?}: {} bytes were taken", link.sent);
        }
        assert_eq!(link.answer().status(), status, "{first:?}");
    }
    assert_bounded(&proxy, before, 1, "what has no end");
    drop(proxy);
    drop(origin);
}

fn heads_that_are_not_whole(way: &Way) {
    let origin = Origin::answering(|_| "small".to_owned());
    let proxy = Process::start(way, origin.addr());
    let before = settled(&proxy);
    // Each may hold what a head may have, and no more.
    let mut links: Vec<Link> = (0..50).map(|_| proxy.connect()).collect();
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(8000));
    for link in &mut links {
        link.send(&head);
    }
    // Pipelined requests are not read ahead without a bound.
    let mut eager = proxy.connect();
    let many = "GET /small HTTP/1.1\r\nHost: a\r\n\r\n".repeat(2000);
    while eager.takes(ms(200)) && eager.sent < 64 << 20 {
        eager.send_some(many.as_bytes());
    }
    assert!(eager.sent < 64 << 20, "64 MiB of requests were taken, and no answer was read");
    assert_bounded(&proxy, before, 51, "heads, and requests behind requests");
}
