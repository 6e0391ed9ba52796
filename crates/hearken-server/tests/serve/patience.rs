//! How long a server waits for what.

use std::thread;
use std::time::{Duration, Instant};

use crate::support::{
    Client, HANG, HUGE, Running, Site, Way, assert_took, get, limit_uploads, ms, request,
    request_timeout,
};

const PATIENCE: Duration = ms(400);

/// A name, and a client that is waited for in vain.
type Case = (&'static str, fn(&Running));

pub(crate) fn deadlines(way: &Way) {
    let site = Site::new();
    let server = way.serve(&site, |config| {
        config.timeouts.head = PATIENCE;
        config.timeouts.body = PATIENCE;
        config.timeouts.idle = PATIENCE;
    });
    let cases: [Case; 6] = [
        ("a new connection that says nothing", |server| {
            let since = Instant::now();
            server.connect().ends();
            assert_took(since, PATIENCE, "closed");
        }),
        ("an idle connection", |server| {
            let mut client = server.connect();
            thread::sleep(PATIENCE / 2);
            let since = Instant::now();
            client.get("/cached");
            client.ends();
            assert_took(since, PATIENCE, "closed");
        }),
        ("a head that trickles", |server| {
            let since = Instant::now();
            let mut client = server.connect();
            trickle(&mut client, &get("/small").repeat(2));
            assert_took(since, PATIENCE, "refused");
        }),
        ("a second head that trickles", |server| {
            let mut client = server.connect();
            client.get("/small");
            thread::sleep(PATIENCE / 2);
            let since = Instant::now();
            trickle(&mut client, &request("GET /small", &"A: b\r\n".repeat(90)));
            assert_took(since, PATIENCE, "refused");
        }),
        ("a body that trickles", |server| {
            let mut client = server.connect();
            let since = Instant::now();
            client.send(request("POST /small", "Content-Length: 1000\r\n"));
            trickle(&mut client, &[b'x'; 1000]);
            assert_took(since, PATIENCE, "refused");
        }),
        ("the head behind an answer", |server| {
            let mut client = server.connect();
            let since = Instant::now();
            client.send([get("/cached"), b"GET".to_vec()].concat());
            client.answer();
            assert_eq!(client.answer().status, 408);
            client.ends();
            assert_took(since, PATIENCE, "refused");
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

/// Sends a byte now and then until there is a 408, and the end.
fn trickle(client: &mut Client, bytes: &[u8]) {
    for byte in bytes {
        client.send([*byte]);
        if client.hears(ms(20)) {
            assert_eq!(client.answer().status, 408);
            client.ends();
            return;
        }
    }
    panic!("never refused");
}

pub(crate) fn uploads_above_the_minimum_rate_outlast_the_body_timeout(way: &Way) {
    const PIECE: usize = 4000;
    let site = Site::new();
    let server = way.serve(&site, |config| limit_uploads(config, 1000, ms(1000)));
    let mut client = server.connect();
    client.send(request("POST /small", &format!("Content-Length: {}\r\n", 50 * PIECE)));
    for piece in 0..50 {
        assert!(!client.hears(ms(50)), "ended after {piece} pieces of {PIECE} bytes in 50 ms each");
        client.send([b'x'; PIECE]);
    }
    assert_eq!(client.answer().status, 405);
}

pub(crate) fn uploads_below_the_minimum_rate_end(way: &Way) {
    let site = Site::new();
    let server = way.serve(&site, |config| limit_uploads(config, 10_000, PATIENCE));
    upload_slowly(&server);
}

pub(crate) fn slow_uploads_end_at_the_request_timeout(way: &Way) {
    let site = Site::new();
    let server = way.serve(&site, |config| {
        limit_uploads(config, 1, HANG);
        request_timeout(config, PATIENCE);
    });
    upload_slowly(&server);
}

/// Uploads a byte every 20 ms, until there is a 408 and the end.
fn upload_slowly(server: &Running) {
    let since = Instant::now();
    let mut client = server.connect();
    client.send(request("POST /small", "Content-Length: 1000\r\n"));
    trickle(&mut client, &[b'x'; 200]);
    assert_took(since, PATIENCE, "refused");
}

/// All at a time, as each takes theirs.
pub(crate) fn rates(way: &Way) {
    thread::scope(|scope| {
        for min_rate in [0, 100_000] {
            scope.spawn(move || who_does_not_read_is_cut(way, min_rate));
        }
        scope.spawn(|| who_reads_slowly_is_not(way));
    });
}

fn who_does_not_read_is_cut(way: &Way, min_rate: u64) {
    let site = Site::with_huge();
    let server = way.serve(&site, |config| {
        config.timeouts.send = PATIENCE;
        config.min_rate = min_rate;
    });
    let since = Instant::now();
    let mut client = server.connect();
    client.send(get("/huge"));
    assert!(client.is_reset(HANG), "never cut off");
    assert_took(since, PATIENCE, "cut off");
    assert!(client.drain() < HUGE);
}

fn who_reads_slowly_is_not(way: &Way) {
    const SIZE: usize = 4 << 20;
    let site = Site::new();
    site.add("file", &[0; SIZE]);
    let server = way.serve(&site, |config| {
        config.timeouts.send = ms(800);
        config.min_rate = 20_000;
    });
    let mut client = server.connect().receiving(32 << 10);
    client.send(get("/file"));
    assert_eq!(client.head().length(), SIZE as u64);
    let (since, mut got) = (Instant::now(), 0);
    while since.elapsed() < ms(2000) {
        client.skip(16 << 10);
        got += 16 << 10;
        thread::sleep(ms(40));
    }
    assert!(got < SIZE as u64 / 2, "{got} bytes are not slow");
    client.skip(SIZE as u64 - got);
}
