//! Timeouts and minimum rates.

use std::thread;
use std::time::{Duration, Instant};

use crate::common::{
    Client, HUGE, RunningServer, Setup, Site, TEST_TIMEOUT, assert_took, get, limit_uploads, ms,
    request, request_timeout,
};

const TIMEOUT: Duration = ms(300);

/// A name, and a client that times out.
type Case = (&'static str, fn(&RunningServer));

pub(crate) fn slow_and_idle_clients_time_out(setup: &Setup) {
    let site = Site::new();
    let server = setup.serve(&site, |config| {
        config.timeouts.header = TIMEOUT;
        config.timeouts.body = TIMEOUT;
        config.timeouts.keepalive = TIMEOUT;
    });
    let cases: [Case; 6] = [
        ("a new connection without a request", |server| {
            let since = Instant::now();
            server.client().assert_closed();
            assert_took(since, TIMEOUT, "closed");
        }),
        ("an idle connection", |server| {
            let mut client = server.client();
            thread::sleep(TIMEOUT / 2);
            let since = Instant::now();
            client.get("/cached");
            client.assert_closed();
            assert_took(since, TIMEOUT, "closed");
        }),
        ("a slow head", |server| {
            let since = Instant::now();
            let mut client = server.client();
            send_slowly(&mut client, &get("/small").repeat(2));
            assert_took(since, TIMEOUT, "rejected");
        }),
        ("a slow second head", |server| {
            let mut client = server.client();
            client.get("/small");
            thread::sleep(TIMEOUT / 2);
            let since = Instant::now();
            send_slowly(&mut client, &request("GET /small", &"A: b\r\n".repeat(90)));
            assert_took(since, TIMEOUT, "rejected");
        }),
        ("a slow body", |server| {
            let mut client = server.client();
            let since = Instant::now();
            client.send(request("POST /small", "Content-Length: 1000\r\n"));
            send_slowly(&mut client, &[b'x'; 1000]);
            assert_took(since, TIMEOUT, "rejected");
        }),
        ("an incomplete head after a request", |server| {
            let mut client = server.client();
            let since = Instant::now();
            client.send([get("/cached"), b"GET".to_vec()].concat());
            client.response();
            assert_eq!(client.response().status, 408);
            client.assert_closed();
            assert_took(since, TIMEOUT, "rejected");
        }),
    ];
    let server = &server;
    thread::scope(|scope| {
        for (name, case) in cases {
            let thread = thread::Builder::new().name(name.to_owned());
            thread.spawn_scoped(scope, move || case(server)).unwrap();
        }
    });
}

/// Sends a byte every 20 ms until the server responds with 408 and closes the connection.
fn send_slowly(client: &mut Client, bytes: &[u8]) {
    for byte in bytes {
        client.send([*byte]);
        if client.is_readable_within(ms(20)) {
            assert_eq!(client.response().status, 408);
            client.assert_closed();
            return;
        }
    }
    panic!("the server does not reject a slow request");
}

pub(crate) fn uploads_above_the_minimum_rate_outlast_the_body_timeout(setup: &Setup) {
    const PIECE: usize = 4000;
    let site = Site::new();
    let server = setup.serve(&site, |config| limit_uploads(config, 1000, ms(300)));
    let mut client = server.client();
    client.send(request("POST /small", &format!("Content-Length: {}\r\n", 30 * PIECE)));
    for piece in 0..30 {
        assert!(
            !client.is_readable_within(ms(25)),
            "ended after {piece} pieces of {PIECE} bytes in 25 ms each"
        );
        client.send([b'x'; PIECE]);
    }
    assert_eq!(client.response().status, 405);
}

pub(crate) fn uploads_below_the_minimum_rate_end(setup: &Setup) {
    let site = Site::new();
    let server = setup.serve(&site, |config| limit_uploads(config, 10_000, TIMEOUT));
    upload_slowly(&server);
}

pub(crate) fn slow_uploads_end_at_the_request_timeout(setup: &Setup) {
    let site = Site::new();
    let server = setup.serve(&site, |config| {
        limit_uploads(config, 1, TEST_TIMEOUT);
        request_timeout(config, TIMEOUT);
    });
    upload_slowly(&server);
}

/// Uploads a byte every 20 ms until the server responds with 408 and closes the connection.
fn upload_slowly(server: &RunningServer) {
    let since = Instant::now();
    let mut client = server.client();
    client.send(request("POST /small", "Content-Length: 1000\r\n"));
    send_slowly(&mut client, &[b'x'; 200]);
    assert_took(since, TIMEOUT, "rejected");
}

pub(crate) fn clients_below_the_minimum_rate_are_reset(setup: &Setup) {
    thread::scope(|scope| {
        for min_rate in [0, 100_000] {
            scope.spawn(move || resets_clients_that_do_not_read(setup, min_rate));
        }
        scope.spawn(|| keeps_clients_that_read_slowly(setup));
    });
}

fn resets_clients_that_do_not_read(setup: &Setup, min_rate: u64) {
    let site = Site::with_huge();
    let server = setup.serve(&site, |config| {
        config.timeouts.send = TIMEOUT;
        config.min_rate = min_rate;
    });
    let since = Instant::now();
    let mut client = server.client();
    client.send(get("/huge"));
    assert!(client.is_reset_within(TEST_TIMEOUT), "not reset");
    assert_took(since, TIMEOUT, "reset");
    assert!(client.drain() < HUGE);
}

fn keeps_clients_that_read_slowly(setup: &Setup) {
    const SIZE: usize = 4 << 20;
    let site = Site::new();
    site.add("file", &[0; SIZE]);
    let server = setup.serve(&site, |config| {
        config.timeouts.send = TIMEOUT;
        config.min_rate = 20_000;
    });
    let mut client = server.client().with_receive_buffer(32 << 10);
    client.send(get("/file"));
    assert_eq!(client.head().length(), SIZE as u64);
    let (since, mut got) = (Instant::now(), 0);
    while since.elapsed() < 3 * TIMEOUT {
        client.skip(16 << 10);
        got += 16 << 10;
        thread::sleep(ms(20));
    }
    assert!(got < SIZE as u64 / 2, "{got} bytes are not a slow download");
    client.skip(SIZE as u64 - got);
}
