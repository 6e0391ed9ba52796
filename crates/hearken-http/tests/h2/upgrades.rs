//! CONNECT and extended CONNECT.

use hearken_http::h2::{Config, Event, Unavailable};
use hearken_http::{Method, Request, RequestParser, Target};

use crate::raw::{Endpoint, headers, reset_code};

const WEBSOCKET: &[(&str, &str)] = &[
    (":method", "CONNECT"),
    (":protocol", "websocket"),
    (":scheme", "https"),
    (":authority", "a"),
    (":path", "/chat"),
    ("sec-websocket-version", "13"),
];

fn with_extended_connect() -> Config {
    Config { extended_connect: true, seed: 7, ..Config::default() }
}

fn parse(bytes: &[u8]) -> Request<'_> {
    RequestParser::new().parse(bytes, &Default::default()).unwrap().unwrap()
}

#[test]
fn extended_connect_is_a_request_for_an_upgrade() {
    let mut server = Endpoint::server(with_extended_connect());
    let bytes = headers(1, WEBSOCKET, false);
    let mut input = &bytes[..];
    let event = server.connection.receive(&mut input, &mut server.head, &mut server.out);
    let Ok(Some(Event::Request { stream, request, .. })) = event else { panic!("{event:?}") };
    assert_eq!((request.method, request.raw_target), (Method::Get, &b"/chat"[..]));
    assert_eq!(request.upgrade(), Some(&b"websocket"[..]));
    let key = request.field("Sec-WebSocket-Key").unwrap();
    assert!(key.len() == 24 && key.ends_with(b"A=="), "{}", key.escape_ascii());
    let fields = [("Upgrade", "websocket"), ("Sec-WebSocket-Accept", "x"), ("X", "y")];
    assert!(server.connection.respond(stream, 101, fields, false, &mut server.out));
    assert_eq!(server.connection.send_data(stream, b"tunnel", false, &mut server.out), 6);

    let mut client = Endpoint::client(Config::default(), &[0, 8, 0, 0, 0, 1]);
    let head = b"GET /chat HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Key: x\r\n\r\n";
    assert!(client.connection.supports_websocket());
    client.connection.send_request(&parse(head), true, &mut client.out).unwrap();
    client.receive(&server.out).unwrap();
    let events = client.events();
    assert_eq!(
        events[0],
        "response 1 end=false 101 None [\"x: y\", \"upgrade: websocket\", \"connection: upgrade\"]"
    );
    assert_eq!(events[1], "data 1 end=false tunnel");

    let mut server = Endpoint::server(with_extended_connect());
    server.receive(&client.out).unwrap();
    let event = server.events().remove(0);
    assert!(event.starts_with("request 1 end=false GET /chat None"), "{event}");
    assert!(!event.contains("key: x\""), "{event}");
}

#[test]
fn extended_connect_must_be_enabled() {
    let mut server = Endpoint::server(Config::default());
    server.receive(&headers(1, WEBSOCKET, false)).unwrap();
    assert_eq!(server.events(), ["reset 1 PROTOCOL_ERROR"]);
    assert!(reset_code(&server.sent()).is_some());
    let mut client = Endpoint::client(Config::default(), &[]);
    let head = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    let result = client.connection.send_request(&parse(head), true, &mut client.out);
    assert_eq!(result, Err(Unavailable::Upgrade));
    // Other responses to an upgrade are sent as they are.
    let mut server = Endpoint::server(with_extended_connect());
    let stream = server.request(&headers(1, WEBSOCKET, false));
    assert_eq!(server.answer(stream, b"no"), 2);
    let plain = server.request(&headers(3, crate::raw::GET, true));
    let none: [(&str, &str); 0] = [];
    assert!(!server.connection.respond(plain, 101, none, false, &mut server.out));
}

#[test]
fn connect_opens_a_tunnel() {
    let mut server = Endpoint::server(Config::default());
    let mut client = Endpoint::client(Config::default(), &[]);
    let head = b"CONNECT b:443 HTTP/1.1\r\nHost: b:443\r\n\r\n";
    client.connection.send_request(&parse(head), false, &mut client.out).unwrap();
    let mut input = &client.out[..];
    let event = server.connection.receive(&mut input, &mut server.head, &mut server.out);
    let Ok(Some(Event::Request { stream, request, end: false })) = event else {
        panic!("{event:?}")
    };
    assert_eq!(request.method, Method::Connect);
    assert_eq!(request.target(), Target::Authority(b"b:443"));
    assert_eq!(request.host, Some(&b"b:443"[..]));
    assert_eq!(server.answer(stream, b"to client"), 9);
    client.receive(&server.out).unwrap();
    assert_eq!(client.events()[1], "data 1 end=true to client");
    client.out.clear();
    let id = stream;
    assert_eq!(client.connection.send_data(id, b"to server", true, &mut client.out), 9);
    server.receive(&client.out).unwrap();
    assert_eq!(server.events(), ["data 1 end=true to server"]);
    assert_eq!(server.connection.active_streams() + client.connection.active_streams(), 0);
}
