//! The end of a server.

use std::thread;
use std::time::Instant;

use crate::support::{
    Client, HANG, HUGE, LARGE, Site, Way, assert_took, get, ms, pattern, workers,
};

pub(crate) fn finishes_what_is_in_flight(way: &Way) {
    let site = Site::with_huge();
    let server = way.serve(&site, |_| {});
    let (mut busy, mut idle, mut new) = (server.connect(), server.connect(), server.connect());
    idle.get("/small");
    busy.send(get("/huge"));
    assert_eq!(busy.head().length(), HUGE);
    let addr = server.addr();
    server.stopper().stop();
    idle.ends();
    new.ends();
    assert!(!site.is_served_at(addr), "it still accepts");
    busy.skip(HUGE);
    busy.ends();
    drop(busy);
    server.wait();
}

pub(crate) fn grace_ends(way: &Way) {
    let site = Site::with_huge();
    let server = way.serve(&site, |config| config.loops.grace = ms(300));
    let (mut slow, mut partial) = (server.connect(), server.connect());
    slow.send(get("/huge"));
    slow.head();
    partial.send("GET /sma");
    partial.send("l");
    let since = Instant::now();
    server.stopper().stop();
    server.wait();
    assert_took(since, ms(300), "ended");
    assert!(slow.drain() < HUGE);
}

/// However the server comes to know of them.
pub(crate) fn answers_what_was_sent_before(way: &Way) {
    let site = Site::new();
    for kept in [false, true] {
        let server = way.serve(&site, |_| {});
        let mut clients: Vec<Client> = (0..30).map(|_| server.connect()).collect();
        if kept {
            clients.iter_mut().for_each(|client| drop(client.get("/small")));
        }
        for client in &mut clients {
            client.send(get("/cached"));
        }
        server.stopper().stop();
        for (index, client) in clients.iter_mut().enumerate() {
            assert!(client.answer().body == pattern()[..50_000], "client {index}");
            client.ends();
        }
        drop(clients);
        server.wait();
    }
}

pub(crate) fn finishes_a_head_that_has_begun(way: &Way) {
    let site = Site::new();
    let server = way.serve(&site, |_| {});
    let (mut first, mut later, mut idle) = (server.connect(), server.connect(), server.connect());
    idle.get("/small");
    let (before, after) = (&get("/small")[..10], &get("/small")[10..]);
    first.send(before);
    later.get("/small");
    later.send(before);
    server.stopper().stop();
    idle.ends();
    for client in [&mut first, &mut later] {
        client.send(after);
        let answer = client.answer();
        assert_eq!((&*answer.body, answer.field("Connection")), (&b"small\n"[..], Some("close")));
        client.ends();
    }
    drop((first, later));
    server.wait();
}

/// A client that keeps its connection may send the next request any time, and a reset for it
/// must not take from it what is on its way.
pub(crate) fn a_last_answer_survives_what_the_client_still_sends(way: &Way) {
    let site = Site::with_large();
    let server = way.serve(&site, |_| {});
    // What the client cannot hold stays with the server, and is lost in a reset.
    let (mut client, mut idle) = (server.connect().receiving(32 << 10), server.connect());
    idle.get("/small");
    client.send(get("/large"));
    assert_eq!(client.head().length(), LARGE as u64);
    server.stopper().stop();
    idle.ends();
    // All but what the sockets hold.
    client.skip(LARGE as u64 - 600_000);
    thread::sleep(ms(50));
    client.send(get("/small"));
    thread::sleep(ms(50));
    client.skip(600_000);
    drop(client);
    server.wait();
}

pub(crate) fn is_prompt_with_nothing_open(way: &Way) {
    let site = Site::new();
    for count in [1, 3] {
        let server = way.serve(&site, |config| {
            config.loops.workers = workers(count);
            config.loops.grace = HANG * 2;
        });
        server.connect().get("/small");
        let since = Instant::now();
        server.end();
        assert!(since.elapsed() < HANG / 4, "took {:?}", since.elapsed());
    }
}

pub(crate) fn dropping_stops(way: &Way) {
    let site = Site::new();
    let server = hearken_server::start(&way.config(&site)).unwrap();
    let addr = server.addr();
    let mut client = Client::connect(addr);
    client.get("/small");
    assert!(site.is_served_at(addr));
    drop(server);
    client.ends();
    assert!(!site.is_served_at(addr));
}
