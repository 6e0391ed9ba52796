//! Stopping a server.

use std::thread;
use std::time::Instant;

use crate::common::{
    Client, HUGE, LARGE, Setup, Site, TEST_TIMEOUT, assert_took, get, ms, pattern, workers,
};

pub(crate) fn finishes_requests_in_flight(setup: &Setup) {
    let site = Site::with_huge();
    let server = setup.serve(&site, |_| {});
    let (mut busy, mut idle, mut new) = (server.client(), server.client(), server.client());
    idle.get("/small");
    busy.send(get("/huge"));
    assert_eq!(busy.head().length(), HUGE);
    let addr = server.addr();
    server.handle().stop();
    idle.assert_closed();
    new.assert_closed();
    // Other workers may close their listening sockets later.
    assert!(
        !setup.has_one_limit() || !site.is_served_at(addr),
        "the server still accepts connections"
    );
    busy.skip(HUGE);
    busy.assert_closed();
    drop(busy);
    server.wait();
}

pub(crate) fn closes_connections_after_the_grace_period(setup: &Setup) {
    let site = Site::with_huge();
    let server = setup.serve(&site, |config| config.event_loops.shutdown_timeout = ms(200));
    let (mut slow, mut partial) = (server.client(), server.client());
    slow.send(get("/huge"));
    slow.head();
    partial.send("GET /sma");
    partial.send("l");
    let since = Instant::now();
    server.handle().stop();
    server.wait();
    assert_took(since, ms(200), "ended");
    assert!(slow.drain() < HUGE);
}

pub(crate) fn answers_requests_sent_before_the_stop(setup: &Setup) {
    // The server has not yet received these requests when it is stopped.
    let site = Site::new();
    for idle in [false, true] {
        let server = setup.serve(&site, |_| {});
        let mut clients: Vec<Client> = (0..30).map(|_| server.client()).collect();
        if idle {
            clients.iter_mut().for_each(|client| drop(client.get("/small")));
        }
        for client in &mut clients {
            client.send(get("/cached"));
        }
        server.handle().stop();
        for (index, client) in clients.iter_mut().enumerate() {
            assert!(client.response().body == pattern()[..50_000], "client {index}");
            client.assert_closed();
        }
        drop(clients);
        server.wait();
    }
}

pub(crate) fn finishes_request_heads_that_have_begun(setup: &Setup) {
    let site = Site::new();
    let server = setup.serve(&site, |_| {});
    let (mut first, mut later, mut idle) = (server.client(), server.client(), server.client());
    idle.get("/small");
    let (before, after) = (&get("/small")[..10], &get("/small")[10..]);
    first.send(before);
    later.get("/small");
    later.send(before);
    server.handle().stop();
    idle.assert_closed();
    for client in [&mut first, &mut later] {
        client.send(after);
        let response = client.response();
        assert_eq!(
            (&*response.body, response.field("Connection")),
            (&b"small\n"[..], Some("close"))
        );
        client.assert_closed();
    }
    drop((first, later));
    server.wait();
}

pub(crate) fn late_requests_do_not_reset_the_last_response(setup: &Setup) {
    // A client may send the next request at any time. A reset in return would discard the response that
    // is still in the network.
    let site = Site::with_large();
    let server = setup.serve(&site, |_| {});
    // Bytes beyond the receive buffer are in the server's send buffer, and a reset discards these.
    let (mut client, mut idle) = (server.client().with_receive_buffer(32 << 10), server.client());
    idle.get("/small");
    client.send(get("/large"));
    assert_eq!(client.head().length(), LARGE as u64);
    server.handle().stop();
    idle.assert_closed();
    // The rest is in the buffers of the two sockets.
    client.skip(LARGE as u64 - 600_000);
    // The server sends all, closes its side, and receives the request.
    thread::sleep(ms(20));
    client.send(get("/small"));
    thread::sleep(ms(20));
    client.skip(600_000);
    drop(client);
    server.wait();
}

pub(crate) fn stops_at_once_without_open_connections(setup: &Setup) {
    let site = Site::new();
    for count in [1, 3] {
        let server = setup.serve(&site, |config| {
            config.event_loops.workers = workers(count);
            config.event_loops.shutdown_timeout = TEST_TIMEOUT * 2;
        });
        server.client().get("/small");
        let since = Instant::now();
        server.end();
        assert!(since.elapsed() < TEST_TIMEOUT / 4, "took {:?}", since.elapsed());
    }
}

pub(crate) fn dropping_the_server_stops_it(setup: &Setup) {
    let site = Site::new();
    let server = hearken_server::start(&setup.files_config(&site)).unwrap();
    let addr = server.addr();
    let mut client = Client::connect(addr);
    client.get("/small");
    assert!(site.is_served_at(addr));
    drop(server);
    client.assert_closed();
    assert!(!site.is_served_at(addr));
}
