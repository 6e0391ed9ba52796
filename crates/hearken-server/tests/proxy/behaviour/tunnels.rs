//! Connections that are upgraded to another protocol.

use super::{exchange, get, request};
use crate::common::{
    Connection, End, Framing, Kind, Origin, Peer, Recorder, RunningServer, Setup, content,
};

const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: echo\r\nSec-WebSocket-Key: abc\r\n";
const SWITCHED: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\nX-Accept: abc\r\n\r\n";

/// Starts an origin that accepts upgrades, after which `then` handles the connection.
pub(super) fn upgrading(then: impl Fn(&mut Peer) + Send + Sync + 'static) -> Origin {
    Origin::new(move |mut peer| {
        while let Some(request) = peer.request() {
            if request.field("upgrade").is_none() {
                peer.respond("plain");
                continue;
            }
            assert!(request.names("upgrade") && request.field("upgrade").unwrap() == "echo");
            peer.connection.send(SWITCHED);
            return then(&mut peer);
        }
    })
}

/// Sends back all received bytes until the end.
pub(super) fn echo_all(peer: &mut Peer) {
    loop {
        peer.connection.receive_until(|reader| !reader.rest().is_empty());
        let received = peer.connection.reader.take_rest();
        if received.is_empty() {
            return;
        }
        peer.connection.send(received);
    }
}

/// Connects a client and upgrades its connection.
fn upgraded(proxy: &RunningServer) -> Connection {
    let mut connection = proxy.connect();
    let response = exchange(&mut connection, request("GET", "/chat", UPGRADE));
    assert_eq!((response.status(), response.framing), (101, Framing::None), "{response:?}");
    assert!(response.names("upgrade") && response.field("upgrade").as_deref() == Some("echo"));
    assert_eq!(response.field("x-accept").as_deref(), Some("abc"));
    connection
}

pub(crate) fn tunnels_messages_in_both_directions(setup: &Setup) {
    let origin = upgrading(echo_all);
    let proxy = setup.proxy(&[origin.addr()], |_| ());
    let mut connection = proxy.connect();
    // The connections on both sides are reused.
    assert_eq!(exchange(&mut connection, get("/")).text(), "plain");
    let response = exchange(&mut connection, request("GET", "/chat", UPGRADE));
    assert_eq!(response.status(), 101);
    for number in 0..20 {
        let text = format!("message {number}");
        connection.send(&text);
        assert_eq!(connection.read_raw(text.len()), text.as_bytes());
    }
    connection.shutdown_write();
    assert_eq!(connection.drain(), (0, End::Closed));
}

pub(crate) fn forwards_a_half_close_by_the_client(setup: &Setup) {
    // The origin sends after the client has shut down its side.
    let origin = upgrading(|peer| {
        let (count, end) = peer.connection.drain();
        peer.connection.send(format!("{count} {end:?}"));
    });
    let proxy = setup.proxy(&[origin.addr()], |_| ());
    let mut connection = upgraded(&proxy);
    connection.send(vec![b'x'; 300_000]);
    connection.shutdown_write();
    assert_eq!(connection.read_raw(100), b"300000 Closed");
    assert_eq!(connection.end, Some(End::Closed));
}

pub(crate) fn forwards_a_half_close_by_the_server(setup: &Setup) {
    let notes = Recorder::new();
    let seen = notes.clone();
    let origin = upgrading(move |peer| {
        peer.connection.send(content(5, 300_000));
        peer.connection.shutdown_write();
        seen.add(peer.connection.drain());
    });
    let proxy = setup.proxy(&[origin.addr()], |_| ());
    let mut connection = upgraded(&proxy);
    assert!(connection.read_raw(300_001) == content(5, 300_000));
    assert_eq!(connection.end, Some(End::Closed));
    connection.send(vec![b'x'; 200_000]);
    connection.shutdown_write();
    crate::common::wait_until("the server has received all", || notes.len() == 1);
    assert_eq!(notes.take(), [(200_000, End::Closed)]);
}

pub(crate) fn tunnels_long_streams(setup: &Setup) {
    // The origin sends while the client sends, so both directions fill their buffers.
    let origin = upgrading(echo_all);
    let proxy = setup.proxy(&[origin.addr()], |_| ());
    let mut connection = upgraded(&proxy);
    let mut back = 0;
    for round in 0..6 {
        let block = content(round, 1 << 20);
        connection.send(block);
        let received = connection.read_raw(block.len());
        assert!(received == block, "round {round}: {} bytes", received.len());
        back += received.len();
    }
    connection.shutdown_write();
    assert_eq!((back, connection.drain()), (6 << 20, (0, End::Closed)));
}

pub(crate) fn forwards_bytes_sent_with_the_upgrade(setup: &Setup) {
    let origin = Origin::new(|mut peer| {
        peer.request();
        peer.connection.send(format!("{SWITCHED}early "));
        let received = peer.connection.read_raw(5);
        peer.connection.send(received);
    });
    let proxy = setup.proxy(&[origin.addr()], |_| ());
    let mut connection = proxy.connect();
    let mut both = request("GET", "/", UPGRADE);
    both.push_str("hello");
    connection.send(both);
    assert_eq!(
        connection.final_response(Kind::Response).map(|response| response.status()),
        Some(101)
    );
    assert_eq!(connection.read_raw(11), b"early hello");
}

pub(crate) fn forwards_resets(setup: &Setup) {
    let notes = Recorder::new();
    let seen = notes.clone();
    let origin = upgrading(move |peer| seen.add(peer.connection.drain().1));
    let proxy = setup.proxy(&[origin.addr()], |_| ());
    let mut connection = upgraded(&proxy);
    connection.send("x");
    connection.reset();
    crate::common::wait_until("the origin's connection is closed", || notes.len() == 1);
    assert!(matches!(notes.take()[..], [End::Reset | End::Closed]));
    // A reset by the origin reaches the client.
    let origin = Origin::new(|mut peer| {
        peer.request();
        peer.connection.send(SWITCHED);
        peer.connection.read_raw(1);
        peer.connection.reset();
    });
    let proxy = setup.proxy(&[origin.addr()], |_| ());
    let mut connection = upgraded(&proxy);
    connection.send("x");
    assert_eq!(connection.drain(), (0, End::Reset), "the truncated stream ends without a reset");
}

pub(crate) fn forwards_refused_upgrades(setup: &Setup) {
    // A server may ignore the upgrade and send an ordinary response.
    let origin = Origin::responding(|request| request.field("upgrade").unwrap_or_default());
    let proxy = setup.proxy(&[origin.addr()], |_| ());
    let mut connection = proxy.connect();
    assert_eq!(exchange(&mut connection, request("GET", "/", UPGRADE)).text(), "echo");
    assert_eq!(exchange(&mut connection, get("/")).text(), "");
    // A 101 without an upgrade in the request is an error.
    let origin = Origin::new(|mut peer| {
        peer.request();
        peer.connection.send(SWITCHED);
        peer.connection.drain();
    });
    let proxy = setup.proxy(&[origin.addr()], |_| ());
    assert_eq!(exchange(&mut proxy.connect(), get("/")).status(), 502);
}

/// Starts an origin that records the Upgrade field of each request, and responds 101 with these lines.
fn switching(lines: &str) -> (Origin, Recorder<Option<String>>) {
    let notes = Recorder::new();
    let (seen, lines) = (notes.clone(), lines.to_owned());
    let origin = Origin::new(move |mut peer| {
        let Some(request) = peer.request() else { return };
        seen.add(request.field("upgrade"));
        peer.connection.send(format!("HTTP/1.1 101 Switching Protocols\r\n{lines}\r\n"));
        peer.connection.drain();
    });
    (origin, notes)
}

/// Returns the Upgrade field that the server receives, and the status that the client receives.
fn upgrade(setup: &Setup, client: &str, server: &str) -> (Option<String>, u16) {
    let (origin, seen) = switching(server);
    let proxy = setup.proxy(&[origin.addr()], |_| ());
    let status = exchange(&mut proxy.connect(), request("GET", "/", client)).status();
    (seen.take().remove(0), status)
}

pub(crate) fn only_the_requested_protocol_is_switched_to(setup: &Setup) {
    let switched = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
    let websocket = Some("websocket".to_owned());
    for (client, server, expected) in [
        (switched, switched, 101),
        (switched, "Connection: Upgrade\r\nUpgrade: WebSocket\r\n", 101),
        (switched, "Connection: Upgrade\r\nUpgrade: foo\r\n", 502),
        (switched, "Connection: Upgrade\r\nUpgrade: websocket2\r\n", 502),
        (switched, "Connection: Upgrade\r\n", 502),
        (switched, "", 502),
    ] {
        let got = upgrade(setup, client, server);
        assert_eq!(got, (websocket.clone(), expected), "101 with {server:?}");
    }
    // Connection does not name Upgrade, so the proxy removes it.
    assert_eq!(upgrade(setup, "Upgrade: websocket\r\n", switched), (None, 502));
    let either = upgrade(setup, "Connection: Upgrade\r\nUpgrade: foo, websocket\r\n", switched);
    assert_eq!(either, (Some("foo, websocket".to_owned()), 101));
}

pub(crate) fn versions_of_http_and_tls_are_not_upgraded_to(setup: &Setup) {
    for name in ["h2c", "H2C", "HTTP/2.0", "TLS/1.0"] {
        let alone = format!("Connection: Upgrade\r\nUpgrade: {name}\r\n");
        assert_eq!(upgrade(setup, &alone, &alone), (None, 502), "{name}");
        for list in [
            format!("Upgrade: {name}, websocket\r\n"),
            format!("Upgrade: websocket, {name}\r\n"),
            format!("Upgrade: {name}\r\nUpgrade: websocket\r\n"),
        ] {
            let client = format!("Connection: Upgrade\r\n{list}");
            let websocket = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
            let got = upgrade(setup, &client, websocket);
            assert_eq!(got, (Some("websocket".to_owned()), 101), "{list:?}");
            assert_eq!(upgrade(setup, &client, &alone).1, 502, "{list:?}, and 101 for {name}");
        }
    }
}
