//! At the connection limit, idle connections make room for new clients.

use std::thread;
use std::time::Duration;

use crate::support::{Client, HANG, HUGE, Running, Site, Way, get, limit_connections, ms, request};

/// Longer than a server takes to accept a client, unless the client has to wait for something.
const AT_ONCE: Duration = ms(5000);

/// Connects a new client, which is served at once.
fn admitted(server: &Running) -> Client {
    let mut client = server.connect();
    client.send(get("/small"));
    assert!(client.hears(AT_ONCE), "a new client waits while connections are idle");
    assert_eq!(client.answer().body, b"small\n");
    client
}

/// Sends a request on a connection that is still open.
fn is_served(client: &mut Client) {
    assert!(!client.hears(Duration::ZERO), "a connection was closed that was not idle longest");
    assert_eq!(client.get("/small").body, b"small\n");
    // The next connection becomes idle at a later time, whatever the resolution of the clock.
    thread::sleep(ms(20));
}

pub(crate) fn the_longest_idle_connection_makes_room(way: &Way) {
    let site = Site::new();
    let server = way.serve(&site, |config| limit_connections(config, 3));
    let [mut first, mut second, mut third] = [(); 3].map(|()| server.connect());
    for client in [&mut first, &mut second, &mut third] {
        is_served(client);
    }
    // Neither the order of accepting nor that of descriptors.
    is_served(&mut first);
    let mut fourth = admitted(&server);
    second.ends();
    is_served(&mut first);
    is_served(&mut fourth);
    let mut fifth = admitted(&server);
    third.ends();
    for client in [&mut first, &mut fourth, &mut fifth] {
        is_served(client);
    }
}

pub(crate) fn silent_connections_make_room(way: &Way) {
    let site = Site::new();
    let server = way.serve(&site, |config| limit_connections(config, 3));
    let [mut first, mut second] = [(); 2].map(|()| server.connect());
    // Accepted after the two before it.
    let mut third = admitted(&server);
    let mut fourth = admitted(&server);
    first.ends();
    is_served(&mut second);
    is_served(&mut third);
    is_served(&mut fourth);
}

pub(crate) fn requests_in_flight_are_not_closed(way: &Way) {
    let site = Site::with_huge();
    let server = way.serve(&site, |config| limit_connections(config, 3));
    let [mut first, mut second] = [(); 2].map(|()| {
        let mut client = server.connect().receiving(64 << 10);
        client.send(get("/huge"));
        assert!(client.hears(HANG), "no response");
        client
    });
    let mut upload = server.connect();
    upload.send(request("POST /small", "Expect: 100-continue\r\nContent-Length: 4\r\n"));
    assert_eq!(upload.answer().status, 100);
    upload.send("bo");
    let mut new = server.connect();
    new.send(get("/small"));
    assert!(!new.hears(ms(200)), "served beyond the limit");
    assert_eq!(first.head().length(), HUGE);
    first.skip(HUGE);
    assert!(new.hears(AT_ONCE), "a new client waits though a response has ended");
    assert_eq!(new.answer().body, b"small\n");
    first.ends();
    assert_eq!(second.head().length(), HUGE);
    second.skip(HUGE);
    upload.send("dy");
    assert_eq!(upload.answer().status, 405);
}
