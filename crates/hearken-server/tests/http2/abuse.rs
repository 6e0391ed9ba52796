//! Clients that abuse the protocol. A limit ends their connection, and others are still served.

use std::thread;

use hearken_server::Config;

use crate::client::{
    DATA, END_HEADERS, END_STREAM, GET_SMALL, GOAWAY, HEADERS, PING, RST_STREAM, RawClient,
    WINDOW_UPDATE, frame, get_small,
};
use crate::common::admin::metric_sum;
use crate::common::{HUGE, Origin, RunningServer, Setup, Site, ms, wait_until};

const ENHANCE_YOUR_CALM: u32 = 11;

fn server(change: impl FnOnce(&mut Config)) -> (Site, RunningServer) {
    let site = Site::with_huge();
    let server = Setup::named("epoll-edge").serve(&site, change);
    (site, server)
}

/// Returns the sum of the samples of a metric.
fn metric(server: &RunningServer, name: &str, label: &str) -> f64 {
    let mut page = String::new();
    server.metrics().render(&[], &mut page);
    metric_sum(&page, name, label)
}

/// Returns the identifier of the stream of a round.
fn stream(round: u32) -> u32 {
    2 * round + 1
}

#[test]
fn rapid_resets() {
    let origin = Origin::new(|mut peer| while peer.request().is_some() {});
    let proxy = Setup::named("epoll-edge").proxy(&[origin.addr()], |_| {});
    let client = RawClient::connect(proxy.addr(), &[]);
    let reader = RawClient::reading(&client);
    let sender = thread::spawn(move || {
        let mut client = client;
        let rounds = (0..1_000_000).map(|round| {
            let cancel = frame(RST_STREAM, 0, stream(round), &[0, 0, 0, 8]);
            [get_small(stream(round)), cancel].concat()
        });
        rounds.take_while(|bytes| client.try_send(bytes)).count()
    });
    let code = { reader }.read_end();
    assert!(sender.join().unwrap() < 1_000_000, "the server accepts everything");
    assert!(matches!(code, None | Some(ENHANCE_YOUR_CALM)), "{code:?}");
    wait_until("no request is in progress", || {
        metric(&proxy, "hearken_connections_accepted_total", "") == 1.0
            && metric(&proxy, "hearken_http2_requests_total", "") > 0.0
            && metric(&proxy, "hearken_requests_in_flight", "") == 0.0
            && metric(&proxy, "hearken_connections_open", "") == 0.0
    });
}

#[test]
fn compression_bombs() {
    let (_site, server) = server(|_| {});
    let mut client = RawClient::connect(server.addr(), &[]);
    // A field of 4,000 bytes enters the table, and each following byte repeats it.
    let mut block = GET_SMALL.to_vec();
    block.extend(b"\x40\x01a\x7f\xa1\x1e");
    block.extend([b'x'; 4000]);
    block.extend([0xbe; 10_000]);
    client.send(frame(HEADERS, END_STREAM | END_HEADERS, 1, &block));
    // 431, with an incremental field or a literal status.
    let head = client.expect(HEADERS);
    assert!(head.payload.windows(3).any(|digits| digits == b"431"), "{head:?}");
    client.send(get_small(3));
    while client.expect(DATA).stream != 3 {}
}

#[test]
fn closed_windows() {
    let (_site, server) = server(|config| config.timeouts.send = ms(300));
    // No window for any stream.
    let mut client = RawClient::connect(server.addr(), &[(4, 0)]);
    for round in 0..100 {
        client.send(get_small(stream(round)));
    }
    for _ in 0..100 {
        client.expect(HEADERS);
    }
    assert_eq!(client.read_end(), None, "the connection is reset");
    // Pings do not count as progress.
    let mut client = RawClient::connect(server.addr(), &[(4, 0)]);
    client.send(get_small(1));
    client.expect(HEADERS);
    while client.try_send(frame(PING, 0, 0, &[0; 8])) {
        thread::sleep(ms(10));
    }
    server.client().get("/small");
}

#[test]
fn slow_readers() {
    let (_site, server) = server(|config| config.timeouts.send = ms(300));
    let window = i32::MAX as u32;
    let mut client = RawClient::connect(server.addr(), &[(4, window)]);
    client.send(frame(WINDOW_UPDATE, 0, 0, &(window - 65_535).to_be_bytes()));
    let block = b"\x82\x86\x01\x01a\x04\x05/huge";
    client.send(frame(HEADERS, END_STREAM | END_HEADERS, 1, block));
    client.expect(HEADERS);
    wait_until("the client is too slow", || {
        metric(&server, "hearken_errors_total", "client_timeout") == 1.0
    });
    let mut received = 0;
    while let Some(frame) = client.frame() {
        received += frame.payload.len() as u64;
    }
    assert!(received < HUGE);
}

#[test]
fn idle_connections() {
    let (_site, server) = server(|config| config.timeouts.keepalive = ms(300));
    let mut client = RawClient::connect(server.addr(), &[]);
    client.send(get_small(1));
    assert_eq!(client.expect(DATA).payload, b"small\n");
    let goaway = client.expect(GOAWAY);
    assert_eq!(goaway.payload[..8], [0, 0, 0, 1, 0, 0, 0, 0]);
    assert_eq!(client.read_end(), None);
}

#[test]
fn incomplete_heads() {
    let (_site, server) = server(|config| config.timeouts.header = ms(300));
    let mut client = RawClient::connect(server.addr(), &[]);
    client.send(get_small(1));
    assert_eq!(client.expect(DATA).payload, b"small\n");
    client.send(frame(HEADERS, 0, 3, GET_SMALL));
    assert_eq!(client.expect(GOAWAY).payload[..4], [0, 0, 0, 1]);
    assert_eq!(client.read_end(), None);
}
