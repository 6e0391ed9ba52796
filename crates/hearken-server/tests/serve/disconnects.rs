//! Clients that disconnect, and files that change.

use std::fs::File;

use crate::common::{HUGE, LARGE, Setup, Site, get, limit_connections, pattern};

pub(crate) fn half_closed_clients_receive_whole_responses(setup: &Setup) {
    let site = Site::with_large();
    let server = setup.serve(&site, |_| {});
    for path in ["/small", "/cached", "/large"] {
        let mut client = server.client();
        client.send(get(path));
        client.shutdown_write();
        let response = client.response();
        assert_eq!(response.status, 200, "{path}");
        assert!(path != "/large" || response.body == pattern());
        client.assert_closed();
    }
}

pub(crate) fn pipelined_requests_are_answered_after_a_half_close(setup: &Setup) {
    let site = Site::with_large();
    let server = setup.serve(&site, |_| {});
    let mut client = server.client();
    let requests = [get("/large"), get("/small").repeat(700), get("/large"), b"GET /par".to_vec()];
    client.send(requests.concat());
    client.shutdown_write();
    assert!(client.response().body == pattern());
    for index in 0..700 {
        assert_eq!(client.response().body, b"small\n", "answer {index}");
    }
    assert!(client.response().body == pattern());
    client.assert_closed();
}

pub(crate) fn resets_do_not_affect_other_clients(setup: &Setup) {
    // The server closes the first connections before it reaches the limit.
    const LIMIT: usize = 16;
    if !setup.has_one_limit() {
        return;
    }
    let site = Site::with_huge();
    let server = setup.serve(&site, |config| limit_connections(config, setup.limit_for(LIMIT)));
    let mut other = server.client();
    for round in 0..40 {
        let mut client = server.client();
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

pub(crate) fn closes_when_a_file_shrinks(setup: &Setup) {
    // The server closes the connection when a file has fewer bytes than `Content-Length`.
    let site = Site::with_huge();
    let server = setup.serve(&site, |_| {});
    let mut client = server.client();
    client.send([get("/huge"), get("/small")].concat());
    assert_eq!(client.head().length(), HUGE);
    let file = File::options().write(true).open(site.root().join("huge")).unwrap();
    file.set_len(LARGE as u64).unwrap();
    assert!(client.drain() < HUGE);
    // The next response has the new length.
    let mut client = server.client();
    client.send(get("/huge"));
    assert_eq!(client.head().length(), LARGE as u64);
    client.skip(LARGE as u64);
}
