//! Frames and states of streams: the requirements of RFC 9113 that h2spec tests.

use std::sync::Arc;

use hearken_http::RequestParser;
use hearken_http::h2::{Config, Connection, ErrorCode, HeadBuffer, PREFACE};

use crate::raw::*;

/// Returns the error that bytes cause, on a connection where stream 1 is open, 3 is half-closed by the
/// client, and 5 is closed.
fn error_of(bytes: &[u8]) -> ErrorCode {
    let mut server = Endpoint::server(Config::default());
    server.receive(&headers(1, POST, false)).unwrap();
    server.receive(&headers(3, GET, true)).unwrap();
    let closed = server.request(&headers(5, GET, true));
    server.answer(closed, b"x");
    server.sent();
    server.fail(bytes).code
}

#[test]
fn violations_end_the_connection() {
    use ErrorCode as E;
    let self_update = [&1_u32.to_be_bytes()[..], b"u=0"].concat();
    for (bytes, want) in [
        (frame(DATA, 0, 0, b"x"), E::PROTOCOL_ERROR),
        (frame(DATA, 0, 7, b"x"), E::PROTOCOL_ERROR),
        (frame(DATA, PADDED, 1, &[5, 1, 2]), E::PROTOCOL_ERROR),
        (frame(DATA, PADDED, 1, &[]), E::PROTOCOL_ERROR),
        (headers(0, GET, true), E::PROTOCOL_ERROR),
        (headers(2, GET, true), E::PROTOCOL_ERROR),
        (headers(5, GET, true), E::STREAM_CLOSED),
        (frame(HEADERS, END_HEADERS | PADDED, 7, &[9, 0x82]), E::PROTOCOL_ERROR),
        (frame(HEADERS, END_HEADERS | 32, 7, &[0; 4]), E::FRAME_SIZE_ERROR),
        ([frame(HEADERS, 0, 7, &[0x82]), frame(PING, 0, 0, &[0; 8])].concat(), E::PROTOCOL_ERROR),
        ([frame(HEADERS, 0, 7, &[0x82]), headers(9, GET, true)].concat(), E::PROTOCOL_ERROR),
        (
            [frame(HEADERS, 0, 7, &[0x82]), frame(CONTINUATION, 4, 9, &[0x84])].concat(),
            E::PROTOCOL_ERROR,
        ),
        ([frame(HEADERS, 0, 7, &[0x82]), frame(99, 0, 0, &[])].concat(), E::PROTOCOL_ERROR),
        (frame(CONTINUATION, END_HEADERS, 1, &[0x82]), E::PROTOCOL_ERROR),
        (frame(PRIORITY, 0, 0, &[0; 5]), E::PROTOCOL_ERROR),
        (frame(RST_STREAM, 0, 0, &[0; 4]), E::PROTOCOL_ERROR),
        (frame(RST_STREAM, 0, 7, &[0; 4]), E::PROTOCOL_ERROR),
        (frame(RST_STREAM, 0, 1, &[0; 3]), E::FRAME_SIZE_ERROR),
        (frame(SETTINGS, 0, 1, &[]), E::PROTOCOL_ERROR),
        (frame(SETTINGS, 0, 0, &[0; 5]), E::FRAME_SIZE_ERROR),
        (frame(SETTINGS, ACK, 0, &[0; 6]), E::FRAME_SIZE_ERROR),
        (frame(SETTINGS, 0, 0, &[0, 2, 0, 0, 0, 2]), E::PROTOCOL_ERROR),
        (frame(SETTINGS, 0, 0, &[0, 4, 0x80, 0, 0, 0]), E::FLOW_CONTROL_ERROR),
        (frame(SETTINGS, 0, 0, &[0, 5, 0, 0, 0x3f, 0xff]), E::PROTOCOL_ERROR),
        (frame(SETTINGS, 0, 0, &[0, 5, 1, 0, 0, 0]), E::PROTOCOL_ERROR),
        (frame(SETTINGS, 0, 0, &[0, 8, 0, 0, 0, 2]), E::PROTOCOL_ERROR),
        (frame(SETTINGS, 0, 0, &[0, 9, 0, 0, 0, 2]), E::PROTOCOL_ERROR),
        (frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2]), E::PROTOCOL_ERROR),
        (frame(PING, 0, 1, &[0; 8]), E::PROTOCOL_ERROR),
        (frame(PING, 0, 0, &[0; 7]), E::FRAME_SIZE_ERROR),
        (frame(GOAWAY, 0, 1, &[0; 8]), E::PROTOCOL_ERROR),
        (frame(GOAWAY, 0, 0, &[0; 7]), E::FRAME_SIZE_ERROR),
        (frame(WINDOW_UPDATE, 0, 0, &[0; 4]), E::PROTOCOL_ERROR),
        (frame(WINDOW_UPDATE, 0, 0, &[0; 3]), E::FRAME_SIZE_ERROR),
        (frame(WINDOW_UPDATE, 0, 7, &[0, 0, 0, 1]), E::PROTOCOL_ERROR),
        (frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]), E::FLOW_CONTROL_ERROR),
        (frame(PRIORITY_UPDATE, 0, 1, &self_update), E::PROTOCOL_ERROR),
        (frame(PRIORITY_UPDATE, 0, 0, &[0; 3]), E::FRAME_SIZE_ERROR),
        (frame(PRIORITY_UPDATE, 0, 0, &[0; 4]), E::PROTOCOL_ERROR),
        (frame(DATA, 0, 1, &[0; 16_385]), E::FRAME_SIZE_ERROR),
        (frame(99, 0, 1, &[0; 16_385]), E::FRAME_SIZE_ERROR),
    ] {
        assert_eq!(error_of(&bytes), want, "{:x?}", &bytes[..bytes.len().min(20)]);
    }
}

#[test]
fn violations_on_a_stream_end_the_stream() {
    use ErrorCode as E;
    for (bytes, stream, want) in [
        (frame(DATA, 0, 3, b"x"), 3, E::STREAM_CLOSED),
        (frame(DATA, 0, 5, b"x"), 5, E::STREAM_CLOSED),
        (headers(3, GET, true), 3, E::STREAM_CLOSED),
        (headers(1, &[("x", "y")], false), 1, E::PROTOCOL_ERROR),
        (frame(WINDOW_UPDATE, 0, 1, &[0; 4]), 1, E::PROTOCOL_ERROR),
        (frame(WINDOW_UPDATE, 0, 1, &[0x7f, 0xff, 0xff, 0xff]), 1, E::FLOW_CONTROL_ERROR),
        (frame(PRIORITY, 0, 1, &[0; 4]), 1, E::FRAME_SIZE_ERROR),
    ] {
        let mut server = Endpoint::server(Config::default());
        server.receive(&headers(1, POST, false)).unwrap();
        server.receive(&headers(3, GET, true)).unwrap();
        let closed = server.request(&headers(5, GET, true));
        server.answer(closed, b"x");
        server.sent();
        server.events();
        server.receive(&bytes).unwrap();
        assert_eq!(server.events(), [format!("reset {stream} {want}")], "{bytes:x?}");
        assert_eq!(reset_code(&server.sent()), Some(want));
        // Frames that were sent before the peer saw the reset are ignored.
        let late = [frame(DATA, 0, stream, b"late"), headers(stream, &[("x", "y")], true)];
        server.receive(&late.concat()).unwrap();
        assert_eq!(server.events(), [""; 0]);
    }
}

#[test]
fn harmless_frames_are_ignored() {
    let mut server = Endpoint::server(Config::default());
    let closed = server.request(&headers(1, GET, true));
    server.answer(closed, b"x");
    server.sent();
    let bytes = [
        frame(99, 0xff, 7, b"unknown"),
        frame(PRIORITY, 0, 9, &[0, 0, 0, 9, 1]),
        frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]),
        frame(RST_STREAM, 0, 1, &[0; 4]),
        frame(SETTINGS, ACK, 0, &[]),
        frame(PRIORITY_UPDATE, 0, 0, &[0, 0, 0, 1, b'u', b'=', b'1']),
    ];
    server.receive(&bytes.concat()).unwrap();
    assert_eq!((server.events(), server.sent()), (vec![], vec![]));
    server.receive(&frame(SETTINGS, 0, 0, &[0xff, 0, 1, 2, 3, 4])).unwrap();
    assert_eq!(server.events(), ["Settings"]);
    assert_eq!((server.sent()[0].kind, server.connection.active_streams()), (SETTINGS, 0));
    server.receive(&frame(PING, 0, 0, b"12345678")).unwrap();
    let pong = Frame { kind: PING, flags: ACK, stream: 0, payload: b"12345678".to_vec() };
    assert_eq!(server.sent(), [pong]);
}

#[test]
fn the_preface_must_be_complete_and_followed_by_settings() {
    for bytes in [
        &b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..],
        &PREFACE.map(|byte| byte ^ 1),
        &[PREFACE, &frame(PING, 0, 0, &[0; 8])[..]].concat(),
        &[PREFACE, &frame(SETTINGS, ACK, 0, &[])[..]].concat(),
    ] {
        let (mut out, mut head, mut input) = (Vec::new(), HeadBuffer::new(), bytes);
        let mut server = Connection::server(Arc::default(), &mut out);
        out.clear();
        let error = server.receive(&mut input, &mut head, &mut out).unwrap_err();
        assert_eq!(error.code, ErrorCode::PROTOCOL_ERROR);
        assert_eq!(frames(&out)[0].kind, GOAWAY);
    }
}

#[test]
fn both_sides_begin_with_settings() {
    let mut out = Vec::new();
    Connection::server(Arc::default(), &mut out);
    assert_eq!(frames(&out)[0].kind, SETTINGS);
    assert_eq!(frames(&out)[0].payload.len() % 6, 0);
    let mut out = Vec::new();
    Connection::client(Arc::default(), &mut out);
    let frames = frames(out.strip_prefix(PREFACE).unwrap());
    assert_eq!(frames[0].kind, SETTINGS);
    assert!(frames[0].payload.as_chunks().0.contains(&[0, 2, 0, 0, 0, 0]), "push is disabled");
}

#[test]
fn goaway_ends_the_connection_after_its_streams() {
    let mut server = Endpoint::server(Config::default());
    let stream = server.request(&headers(1, GET, true));
    server.connection.announce_shut_down(&mut server.out);
    let second = server.request(&headers(3, GET, true));
    server.connection.shut_down(&mut server.out);
    // A request after the last stream is ignored, but its fields change the dynamic table.
    let late = [&block(GET)[..], b"\x40\x01x\x01y"].concat();
    let rest = [frame(DATA, 0, 5, b"x"), headers(5, &[("x", "y")], true)].concat();
    server.receive(&[frame(HEADERS, END_HEADERS, 5, &late), rest].concat()).unwrap();
    assert_eq!(server.events(), [""; 0]);
    let last: Vec<_> = server.sent().iter().map(|frame| frame.payload[3]).collect();
    assert_eq!(last, [0xff, 3]);
    // A frame must not name a higher stream than the one before.
    server.connection.announce_shut_down(&mut server.out);
    server.connection.shut_down(&mut server.out);
    assert_eq!(server.sent().iter().map(|frame| frame.payload[3]).collect::<Vec<_>>(), [3]);
    server.answer(stream, b"x");
    assert!(!server.connection.is_finished());
    server.answer(second, b"x");
    assert!(server.connection.is_finished());
}

#[test]
fn a_client_learns_which_requests_were_not_processed() {
    let mut client = Endpoint::client(Config::default(), &[]);
    let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let request = RequestParser::new().parse(request, &Default::default()).unwrap().unwrap();
    for _ in 0..3 {
        client.connection.send_request(&request, true, &mut client.out).unwrap();
    }
    client.receive(&frame(GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0])).unwrap();
    assert_eq!(
        client.events(),
        ["goaway NO_ERROR", "reset 5 REFUSED_STREAM", "reset 3 REFUSED_STREAM"]
    );
    assert!(client.connection.send_request(&request, true, &mut client.out).is_err());
    client.receive(&headers(1, &[(":status", "204")], true)).unwrap();
    assert!(client.connection.is_finished());
}

#[test]
fn a_client_ignores_late_frames_of_all_streams_that_it_reset() {
    let mut client = Endpoint::client(Config::default(), &[]);
    let mut parser = RequestParser::new();
    let request =
        parser.parse(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", &Default::default()).unwrap().unwrap();
    assert_eq!(client.connection.free_streams(), u32::MAX as usize);
    let send = |client: &mut Endpoint| {
        client.connection.send_request(&request, true, &mut client.out).unwrap()
    };
    let streams: Vec<_> = (0..100).map(|_| send(&mut client)).collect();
    for stream in streams {
        client.connection.reset(stream, ErrorCode::CANCEL, &mut client.out);
    }
    let last = send(&mut client).get();
    for stream in (1..=last).step_by(2) {
        client.receive(&headers(stream, &[(":status", "204")], true)).unwrap();
    }
    assert_eq!(client.events().len(), 1);
    client.receive(&frame(GOAWAY, 0, 0, &[0; 8])).unwrap();
    assert_eq!(client.connection.free_streams(), 0);
}

#[test]
fn a_client_rejects_malformed_responses() {
    for (method, fields, end) in [
        ("GET", &[("x", "y")][..], true),
        ("GET", &[(":status", "20")], true),
        ("GET", &[(":status", "101")], false),
        ("GET", &[(":status", "100")], true),
        ("GET", &[(":status", "200"), (":path", "/")], true),
        ("GET", &[(":status", "200"), ("content-length", "1")], true),
        ("GET", &[(":status", "200"), ("connection", "close")], true),
        ("GET", &[(":status", "200"), ("X", "close")], true),
        ("GET", &[(":status", "200"), ("content-length", "1"), ("content-length", "2")], false),
    ] {
        let mut client = Endpoint::client(Config::default(), &[]);
        let head = format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n");
        let request =
            RequestParser::new().parse(head.as_bytes(), &Default::default()).unwrap().unwrap();
        client.connection.send_request(&request, true, &mut client.out).unwrap();
        client.receive(&headers(1, fields, end)).unwrap();
        assert_eq!(client.events(), ["reset 1 PROTOCOL_ERROR"], "{fields:?}");
    }
    // A response to HEAD has a length but no content.
    let mut client = Endpoint::client(Config::default(), &[]);
    let request = RequestParser::new()
        .parse(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", &Default::default())
        .unwrap()
        .unwrap();
    client.connection.send_request(&request, true, &mut client.out).unwrap();
    client.receive(&headers(1, &[(":status", "200"), ("content-length", "9")], true)).unwrap();
    assert!(client.events()[0].contains("200 None"));
}
