//! Scripts made at random, and what is to come of them.

use std::thread;

use crate::support::{Client, Running, Site, Way, get, limit_connections, pattern, request};

const CLIENTS: u64 = 4;
const SCRIPTS: u64 = 25;

/// xorshift64*: Vigna, "An experimental exploration of Marsaglia's xorshift generators", 2016.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
    }
}

/// What a request is to be answered with.
#[derive(Clone, Debug)]
struct Expected {
    status: u16,
    /// How long the body is; `None` where that does not matter.
    body: Option<usize>,
    is_head: bool,
    last: bool,
}

/// A request, and its answers: none is a body's that was not waited for.
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

/// Something after which nothing is answered any more.
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

fn run(server: &Running, random: &mut Random) {
    let mut script = Vec::new();
    let mut expected = Vec::new();
    for _ in 0..random.below(12) {
        let (bytes, answer) = random_request(random);
        script.extend(bytes);
        expected.push((script.len(), answer));
    }
    let is_last = random.below(3) == 0;
    if is_last {
        let (bytes, answer) = random_last(random);
        script.extend(bytes);
        expected.push((script.len(), answer));
        script.extend(get("/small").repeat(random.below(3)));
    } else if random.below(3) == 0 {
        script.extend(&get("/small")[..random.below(20)]);
    }

    let mut client = server.connect();
    let mut expected = expected.into_iter().peekable();
    let mut sent = 0;
    let resets = random.below(6) == 0;
    while sent < script.len() {
        let most = [1, 40, 500, 100_000][random.below(4)].min(script.len() - sent);
        let piece = random.below(most) + 1;
        client.send(&script[sent..sent + piece]);
        sent += piece;
        // Some of what has been asked is waited for, some piles up.
        while random.below(3) == 0 && expected.peek().is_some_and(|(end, _)| *end <= sent) {
            let (_, answer) = expected.next().unwrap();
            let last = answer.last;
            check(&mut client, &answer);
            if last {
                return client.ends();
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
        client.end_sending();
    }
    for (_, answer) in expected {
        check(&mut client, &answer);
    }
    if half_closed || is_last {
        client.ends();
    }
}

fn check(client: &mut Client, expected: &Expected) {
    let answer = if expected.is_head { client.head() } else { client.answer() };
    assert_eq!(answer.status, expected.status, "{expected:?}");
    let Some(length) = expected.body else { return };
    assert_eq!(answer.body.len(), length, "{expected:?}");
    if expected.status == 200 && length > 6 {
        assert!(answer.body == pattern()[..length], "{expected:?}");
    }
}

pub(crate) fn scripts(way: &Way) {
    // So many that no client is idle longest when the server has not seen yet that others left.
    const LIMIT: usize = 16;
    let site = Site::new();
    site.add("sent", &pattern()[..300_000]);
    let server = way.serve(&site, |config| limit_connections(config, LIMIT));
    thread::scope(|scope| {
        for client in 1..=CLIENTS {
            let server = &server;
            scope.spawn(move || {
                for script in 1..=SCRIPTS {
                    let seed = client << 32 | script;
                    let told = Told(seed);
                    run(server, &mut Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
                    drop(told);
                }
            });
        }
    });
    server.assert_all_slots_are_free(LIMIT);
}

/// Tells which script it was that failed.
struct Told(u64);

impl Drop for Told {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("script {:#x}", self.0);
        }
    }
}
