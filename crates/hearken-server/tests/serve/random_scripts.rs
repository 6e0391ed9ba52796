//! Random scripts of requests, and the expected responses.

use std::thread;

use crate::common::{
    Client, Random, RunningServer, Setup, Site, get, limit_connections, pattern, request,
};

const CLIENTS: u64 = 4;
const SCRIPTS: u64 = 20;

/// The expected response to a request.
#[derive(Clone, Debug)]
struct Expected {
    status: u16,
    /// The length of the body, if it is checked.
    body: Option<usize>,
    is_head: bool,
    last: bool,
}

/// Returns a request that keeps the connection open, and the expected response.
fn random_request(random: &mut Random) -> (Vec<u8>, Expected) {
    let expected = |status, body| Expected { status, body, is_head: false, last: false };
    let length = random.below(3000) + 1;
    let content = get("/small").repeat(length / 30 + 1)[..length].to_vec();
    let chunked =
        [format!("{length:x}\r\n").into_bytes(), content.clone(), b"\r\n0\r\n\r\n".to_vec()];
    let with_length = format!("Content-Length: {length}\r\n");
    match random.below(16) {
        0 | 1 => (get("/small"), expected(200, Some(6))),
        2 => (get("/cached?query"), expected(200, Some(50_000))),
        3 => (get("/inline"), expected(200, Some(4000))),
        4 => (get("/empty"), expected(200, Some(0))),
        5 => (get("/sent"), expected(200, Some(300_000))),
        6 => (get("/none"), expected(404, None)),
        7 => {
            let expected = Expected { is_head: true, ..expected(200, Some(0)) };
            (request("HEAD /cached", ""), expected)
        }
        8 => (request("OPTIONS /small", ""), expected(204, Some(0))),
        9 => (request("BREW /small", ""), expected(501, None)),
        10 => (request("GET /sent", "Range: bytes=5-9\r\n"), expected(206, Some(5))),
        11 => ([request("POST /small", &with_length), content].concat(), expected(405, None)),
        12 => ([request("GET /small", &with_length), content].concat(), expected(200, Some(6))),
        13 => {
            let head = request("PUT /small", "Transfer-Encoding: chunked\r\n");
            ([head, chunked.concat()].concat(), expected(405, None))
        }
        14 => {
            let head = request("GET /inline", "Transfer-Encoding: chunked\r\n");
            ([head, chunked.concat()].concat(), expected(200, Some(4000)))
        }
        _ => ([b"\r\n".to_vec(), get("/small")].concat(), expected(200, Some(6))),
    }
}

/// Returns a request after which the server closes the connection, and the expected response.
fn random_last(random: &mut Random) -> (Vec<u8>, Expected) {
    let (bytes, status) = match random.below(6) {
        0 => (request("GET /small", "Connection: close\r\n"), 200),
        1 => (b"GET /small HTTP/1.0\r\n\r\n".to_vec(), 200),
        2 => (b"nonsense\r\n\r\n".to_vec(), 400),
        3 => (request("GET /small", "Content-Length: 1\r\nContent-Length: 2\r\n"), 400),
        4 => {
            ([request("GET /small", "Transfer-Encoding: chunked\r\n"), b"q".to_vec()].concat(), 400)
        }
        _ => (request("POST /small", "Content-Length: 99999999\r\n"), 413),
    };
    (bytes, Expected { status, body: None, is_head: false, last: true })
}

fn run(server: &RunningServer, random: &mut Random) {
    let mut script = Vec::new();
    let mut expected = Vec::new();
    for _ in 0..random.below(12) {
        let (bytes, response) = random_request(random);
        script.extend(bytes);
        expected.push((script.len(), response));
    }
    let is_last = random.below(3) == 0;
    if is_last {
        let (bytes, response) = random_last(random);
        script.extend(bytes);
        expected.push((script.len(), response));
        script.extend(get("/small").repeat(random.below(3)));
    } else if random.below(3) == 0 {
        script.extend(&get("/small")[..random.below(20)]);
    }

    let mut client = server.client();
    let mut expected = expected.into_iter().peekable();
    let mut sent = 0;
    let resets = random.below(6) == 0;
    while sent < script.len() {
        let max = [1, 40, 500, 100_000][random.below(4)].min(script.len() - sent);
        let piece = random.below(max) + 1;
        client.send(&script[sent..sent + piece]);
        sent += piece;
        // Reads some responses now and leaves others for later.
        while random.below(3) == 0 && expected.peek().is_some_and(|(end, _)| *end <= sent) {
            let (_, response) = expected.next().unwrap();
            let last = response.last;
            check(&mut client, &response);
            if last {
                return client.assert_closed();
            }
        }
        if resets && random.below(20) == 0 {
            return client.reset();
        }
        if random.below(4) == 0 {
            thread::yield_now();
        }
    }
    let half_closed = random.below(2) == 0;
    if half_closed {
        client.shutdown_write();
    }
    for (_, response) in expected {
        check(&mut client, &response);
    }
    if half_closed || is_last {
        client.assert_closed();
    }
}

fn check(client: &mut Client, expected: &Expected) {
    let response = if expected.is_head { client.head() } else { client.response() };
    assert_eq!(response.status, expected.status, "{expected:?}");
    let Some(length) = expected.body else { return };
    assert_eq!(response.body.len(), length, "{expected:?}");
    if expected.status == 200 && length > 6 {
        assert!(response.body == pattern()[..length], "{expected:?}");
    }
}

pub(crate) fn random_scripts_get_the_expected_responses(setup: &Setup) {
    // High enough that no idle client is closed before the server has seen that others disconnected.
    const LIMIT: usize = 32;
    let site = Site::new();
    site.add("sent", &pattern()[..300_000]);
    let limit = setup.limit_for(LIMIT);
    let server = setup.serve(&site, |config| limit_connections(config, limit));
    thread::scope(|scope| {
        for client in 1..=CLIENTS {
            let server = &server;
            scope.spawn(move || {
                for script in 1..=SCRIPTS {
                    let seed = client << 32 | script;
                    let _seed = PrintOnPanic(seed);
                    run(server, &mut Random::new(seed));
                }
            });
        }
    });
    server.assert_all_slots_are_free(LIMIT);
}

/// Prints the seed of a script that fails.
struct PrintOnPanic(u64);

impl Drop for PrintOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("script with seed {:#x}", self.0);
        }
    }
}
