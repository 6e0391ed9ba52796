//! At the connection limit, the server closes idle connections to accept new clients.

use std::thread;
use std::time::Duration;

use crate::common::{
    Client, HUGE, RunningServer, Setup, Site, TEST_TIMEOUT, get, limit_connections, ms, request,
};

/// The limit on the time until a client is accepted that need not wait for another.
const ACCEPT_TIMEOUT: Duration = ms(5000);

/// Connects a new client and asserts that it is served at once.
fn connect_and_get(server: &RunningServer) -> Client {
    let mut client = server.client();
    client.send(get("/small"));
    assert!(
        client.is_readable_within(ACCEPT_TIMEOUT),
        "a new client waits while connections are idle"
    );
    assert_eq!(client.response().body, b"small\n");
    client
}

/// Asserts that a connection is open and served.
fn assert_served(client: &mut Client) {
    assert!(
        !client.is_readable_within(Duration::ZERO),
        "a connection was closed that was not the longest idle one"
    );
    assert_eq!(client.get("/small").body, b"small\n");
    // The next connection becomes idle later, at any resolution of the clock.
    thread::sleep(ms(20));
}

pub(crate) fn closes_the_longest_idle_connection(setup: &Setup) {
    let site = Site::new();
    let server = setup.serve(&site, |config| limit_connections(config, 3));
    let [mut first, mut second, mut third] = [(); 3].map(|()| server.client());
    for client in [&mut first, &mut second, &mut third] {
        assert_served(client);
    }
    // Differs from the order of accepting and the order of descriptors.
    assert_served(&mut first);
    let mut fourth = connect_and_get(&server);
    second.assert_closed();
    assert_served(&mut first);
    assert_served(&mut fourth);
    let mut fifth = connect_and_get(&server);
    third.assert_closed();
    for client in [&mut first, &mut fourth, &mut fifth] {
        assert_served(client);
    }
}

pub(crate) fn closes_connections_without_a_request(setup: &Setup) {
    if setup.has_thread_per_connection() {
        // The first thread may run too late to know its connection before the fourth arrives.
        return;
    }
    let site = Site::new();
    let server = setup.serve(&site, |config| limit_connections(config, 3));
    let [mut first, mut second] = [(); 2].map(|()| server.client());
    // The first two are accepted before it.
    let mut third = connect_and_get(&server);
    let mut fourth = connect_and_get(&server);
    first.assert_closed();
    assert_served(&mut second);
    assert_served(&mut third);
    assert_served(&mut fourth);
}

pub(crate) fn keeps_requests_in_flight(setup: &Setup) {
    let site = Site::with_huge();
    let server = setup.serve(&site, |config| limit_connections(config, 3));
    let [mut first, mut second] = [(); 2].map(|()| {
        let mut client = server.client().with_receive_buffer(64 << 10);
        client.send(get("/huge"));
        assert!(client.is_readable_within(TEST_TIMEOUT), "no response");
        client
    });
    let mut upload = server.client();
    upload.send(request("POST /small", "Expect: 100-continue\r\nContent-Length: 4\r\n"));
    assert_eq!(upload.response().status, 100);
    upload.send("bo");
    let mut new = server.client();
    new.send(get("/small"));
    assert!(!new.is_readable_within(ms(200)), "served beyond the limit");
    assert_eq!(first.head().length(), HUGE);
    first.skip(HUGE);
    assert!(
        new.is_readable_within(ACCEPT_TIMEOUT),
        "a new client waits although a response has ended"
    );
    assert_eq!(new.response().body, b"small\n");
    first.assert_closed();
    assert_eq!(second.head().length(), HUGE);
    second.skip(HUGE);
    upload.send("dy");
    assert_eq!(upload.response().status, 405);
}
