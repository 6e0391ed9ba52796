//! Connections that become another protocol's.

use super::{ask, get, request};
use crate::harness::{End, Framing, Kind, Link, Notes, Origin, Peer, Proxy, Way, content};

const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: echo\r\nSec-WebSocket-Key: abc\r\n";
const SWITCHED: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\nX-Accept: abc\r\n\r\n";

/// A server that agrees to another protocol, and has `then` speak it.
pub(super) fn agreeing(then: impl Fn(&mut Peer) + Send + Sync + 'static) -> Origin {
    Origin::new(move |mut peer| {
        while let Some(request) = peer.request() {
            if request.field("upgrade").is_none() {
                peer.answer("plain");
                continue;
            }
            assert!(request.names("upgrade") && request.field("upgrade").unwrap() == "echo");
            peer.link.send(SWITCHED);
            return then(&mut peer);
        }
    })
}

/// Sends back what comes, to its end.
pub(super) fn echo_all(peer: &mut Peer) {
    loop {
        peer.link.receive_until(|reader| !reader.rest().is_empty());
        let came = peer.link.reader.take_rest();
        if came.is_empty() {
            return;
        }
        peer.link.send(came);
    }
}

/// A client whose connection has been switched.
fn switched(proxy: &Proxy) -> Link {
    let mut link = proxy.connect();
    let answer = ask(&mut link, request("GET", "/chat", UPGRADE));
    assert_eq!((answer.status(), answer.framing), (101, Framing::None), "{answer:?}");
    assert!(answer.names("upgrade") && answer.field("upgrade").as_deref() == Some("echo"));
    assert_eq!(answer.field("x-accept").as_deref(), Some("abc"));
    link
}

pub(crate) fn echo(way: &Way) {
    let origin = agreeing(echo_all);
    let proxy = way.proxy(&[origin.addr()], |_| ());
    let mut link = proxy.connect();
    // A connection that has been used before, on both sides.
    assert_eq!(ask(&mut link, get("/")).text(), "plain");
    let answer = ask(&mut link, request("GET", "/chat", UPGRADE));
    assert_eq!(answer.status(), 101);
    for number in 0..20 {
        let text = format!("message {number}");
        link.send(&text);
        assert_eq!(link.raw(text.len()), text.as_bytes());
    }
    link.end_sending();
    assert_eq!(link.drain(), (0, End::Closed));
}

pub(crate) fn ended_by_the_client_first(way: &Way) {
    // It answers only once its client's side has ended.
    let origin = agreeing(|peer| {
        let (count, end) = peer.link.drain();
        peer.link.send(format!("{count} {end:?}"));
    });
    let proxy = way.proxy(&[origin.addr()], |_| ());
    let mut link = switched(&proxy);
    link.send(vec![b'x'; 300_000]);
    link.end_sending();
    assert_eq!(link.raw(100), b"300000 Closed");
    assert_eq!(link.end, Some(End::Closed));
}

pub(crate) fn ended_by_the_server_first(way: &Way) {
    let notes = Notes::new();
    let seen = notes.clone();
    let origin = agreeing(move |peer| {
        peer.link.send(content(5, 300_000));
        peer.link.end_sending();
        seen.add(peer.link.drain());
    });
    let proxy = way.proxy(&[origin.addr()], |_| ());
    let mut link = switched(&proxy);
    assert!(link.raw(300_001) == content(5, 300_000));
    assert_eq!(link.end, Some(End::Closed));
    link.send(vec![b'x'; 200_000]);
    link.end_sending();
    crate::harness::eventually("the server has all", || notes.len() == 1);
    assert_eq!(notes.take(), [(200_000, End::Closed)]);
}

pub(crate) fn long(way: &Way) {
    // Each side sends and reads at the same time; one of them now and then not at all.
    let origin = agreeing(echo_all);
    let proxy = way.proxy(&[origin.addr()], |_| ());
    let mut link = switched(&proxy);
    let mut back = 0;
    for round in 0..16 {
        let block = content(round, 1 << 20);
        link.send(block);
        let came = link.raw(block.len());
        assert!(came == block, "round {round}: {} bytes", came.len());
        back += came.len();
    }
    link.end_sending();
    assert_eq!((back, link.drain()), (16 << 20, (0, End::Closed)));
}

pub(crate) fn with_bytes_right_behind(way: &Way) {
    let origin = Origin::new(|mut peer| {
        peer.request();
        peer.link.send(format!("{SWITCHED}early "));
        let came = peer.link.raw(5);
        peer.link.send(came);
    });
    let proxy = way.proxy(&[origin.addr()], |_| ());
    let mut link = proxy.connect();
    let mut both = request("GET", "/", UPGRADE);
    both.push_str("hello");
    link.send(both);
    assert_eq!(link.response(Kind::Response).map(|answer| answer.status()), Some(101));
    assert_eq!(link.raw(11), b"early hello");
}

pub(crate) fn reset(way: &Way) {
    let notes = Notes::new();
    let seen = notes.clone();
    let origin = agreeing(move |peer| seen.add(peer.link.drain().1));
    let proxy = way.proxy(&[origin.addr()], |_| ());
    let mut link = switched(&proxy);
    link.send("x");
    link.reset();
    crate::harness::eventually("the server is told", || notes.len() == 1);
    assert!(matches!(notes.take()[..], [End::Reset | End::Closed]));
    // And the other way.
    let origin = Origin::new(|mut peer| {
        peer.request();
        peer.link.send(SWITCHED);
        peer.link.raw(1);
        peer.link.reset();
    });
    let proxy = way.proxy(&[origin.addr()], |_| ());
    let mut link = switched(&proxy);
    link.send("x");
    assert_eq!(link.drain(), (0, End::Reset), "it looks as if all had come");
}

pub(crate) fn refused_upgrades(way: &Way) {
    // Who does not want to answers as if it had not been asked.
    let origin = Origin::answering(|request| request.field("upgrade").unwrap_or_default());
    let proxy = way.proxy(&[origin.addr()], |_| ());
    let mut link = proxy.connect();
    assert_eq!(ask(&mut link, request("GET", "/", UPGRADE)).text(), "echo");
    assert_eq!(ask(&mut link, get("/")).text(), "");
    // And nobody switches who was not asked to.
    let origin = Origin::new(|mut peer| {
        peer.request();
        peer.link.send(SWITCHED);
        peer.link.drain();
    });
    let proxy = way.proxy(&[origin.addr()], |_| ());
    assert_eq!(ask(&mut proxy.connect(), get("/")).status(), 502);
}

/// A server that notes the Upgrade field of each request, and answers with a 101 with these lines.
fn switching(lines: &str) -> (Origin, Notes<Option<String>>) {
    let notes = Notes::new();
    let (seen, lines) = (notes.clone(), lines.to_owned());
    let origin = Origin::new(move |mut peer| {
        let Some(request) = peer.request() else { return };
        seen.add(request.field("upgrade"));
        peer.link.send(format!("HTTP/1.1 101 Switching Protocols\r\n{lines}\r\n"));
        peer.link.drain();
    });
    (origin, notes)
}

/// The Upgrade field that the server sees, and the status of the response to the client.
fn upgrade(way: &Way, client: &str, server: &str) -> (Option<String>, u16) {
    let (origin, seen) = switching(server);
    let proxy = way.proxy(&[origin.addr()], |_| ());
    let status = ask(&mut proxy.connect(), request("GET", "/", client)).status();
    (seen.take().remove(0), status)
}

pub(crate) fn only_the_requested_protocol_is_switched_to(way: &Way) {
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
        let got = upgrade(way, client, server);
        assert_eq!(got, (websocket.clone(), expected), "101 with {server:?}");
    }
    // Connection does not name the field, so the server does not see it.
    assert_eq!(upgrade(way, "Upgrade: websocket\r\n", switched), (None, 502));
    let either = upgrade(way, "Connection: Upgrade\r\nUpgrade: foo, websocket\r\n", switched);
    assert_eq!(either, (Some("foo, websocket".to_owned()), 101));
}

pub(crate) fn versions_of_http_and_tls_are_not_upgraded_to(way: &Way) {
    for name in ["h2c", "H2C", "HTTP/2.0", "TLS/1.0"] {
        let alone = format!("Connection: Upgrade\r\nUpgrade: {name}\r\n");
        assert_eq!(upgrade(way, &alone, &alone), (None, 502), "{name}");
        for list in [
            format!("Upgrade: {name}, websocket\r\n"),
            format!("Upgrade: websocket, {name}\r\n"),
            format!("Upgrade: {name}\r\nUpgrade: websocket\r\n"),
        ] {
            let client = format!("Connection: Upgrade\r\n{list}");
            let websocket = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
            let got = upgrade(way, &client, websocket);
            assert_eq!(got, (Some("websocket".to_owned()), 101), "{list:?}");
            assert_eq!(upgrade(way, &client, &alone).1, 502, "{list:?}, and 101 for {name}");
        }
    }
}
