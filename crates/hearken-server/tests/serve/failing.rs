//! Clients that go, and files that change.

use std::fs::File;

use crate::support::{HUGE, LARGE, Site, Way, get, limit_connections, pattern};

pub(crate) fn half_closed_clients_get_all(way: &Way) {
    let site = Site::with_large();
    let server = way.serve(&site, |_| {});
    for path in ["/small", "/cached", "/large"] {
        let mut client = server.connect();
        client.send(get(path));
        client.end_sending();
        let answer = client.answer();
        assert_eq!(answer.status, 200, "{path}");
        assert!(path != "/large" || answer.body == pattern());
        client.ends();
    }
}

pub(crate) fn half_closed_with_requests_left(way: &Way) {
    let site = Site::with_large();
    let server = way.serve(&site, |_| {});
    let mut client = server.connect();
    let requests = [get("/large"), get("/small").repeat(700), get("/large"), b"GET /par".to_vec()];
    client.send(requests.concat());
    client.end_sending();
    assert!(client.answer().body == pattern());
    for index in 0..700 {
        assert_eq!(client.answer().body, b"small\n", "answer {index}");
    }
    assert!(client.answer().body == pattern());
    client.ends();
}

pub(crate) fn resets_concern_nobody_else(way: &Way) {
    // Before all are taken, the server has seen that the first ones left.
    const LIMIT: usize = 16;
    let site = Site::with_huge();
    let server = way.serve(&site, |config| limit_connections(config, LIMIT));
    let mut other = server.connect();
    for round in 0..60 {
        let mut client = server.connect();
        match round % 4 {
            0 => {}
            1 => client.send("GET /sma"),
            2 => client.send(get("/small").repeat(100)),
            _ => {
                client.send([get("/huge"), get("/huge")].concat());
                client.skip(10_000);
            }
        }
        client.reset();
        assert_eq!(other.get("/small").body, b"small\n", "round {round}");
    }
    drop(other);
    server.assert_all_slots_are_free(LIMIT);
}

/// A length that was promised and cannot be kept: the connection ends, and soon.
pub(crate) fn a_file_that_shrinks(way: &Way) {
    let site = Site::with_huge();
    let server = way.serve(&site, |_| {});
    let mut client = server.connect();
    client.send([get("/huge"), get("/small")].concat());
    assert_eq!(client.head().length(), HUGE);
    let file = File::options().write(true).open(site.root().join("huge")).unwrap();
    file.set_len(LARGE as u64).unwrap();
    assert!(client.drain() < HUGE);
    // And from then on it is as long as it is.
    let mut client = server.connect();
    client.send(get("/huge"));
    assert_eq!(client.head().length(), LARGE as u64);
    client.skip(LARGE as u64);
}
