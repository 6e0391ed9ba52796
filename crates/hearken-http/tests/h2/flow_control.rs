//! Windows and priorities.

use hearken_http::h2::{Config, ErrorCode, Limits, StreamId};

use crate::raw::*;

/// Returns a SETTINGS frame with an initial window.
fn initial_window(bytes: u32) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[&[0, 4][..], &bytes.to_be_bytes()].concat())
}

fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
}

/// Returns the lengths of the DATA frames of each stream.
fn data(frames: &[Frame]) -> Vec<(u32, usize)> {
    let data = frames.iter().filter(|frame| frame.kind == DATA);
    data.map(|frame| (frame.stream, frame.payload.len())).collect()
}

#[test]
fn content_waits_for_the_windows_of_stream_and_connection() {
    let mut server = Endpoint::server(Config::default());
    server.receive(&initial_window(10)).unwrap();
    let stream = server.request(&headers(1, GET, true));
    server.sent();
    assert_eq!(server.answer(stream, &[0; 25]), 10);
    assert!(server.connection.is_waiting());
    assert_eq!(server.connection.next_writable(), None);
    assert_eq!(data(&server.sent()), [(1, 10)]);
    server.receive(&window_update(1, 5)).unwrap();
    assert_eq!(server.connection.next_writable(), Some(stream));
    assert_eq!(server.connection.send_data(stream, &[0; 15], true, &mut server.out), 5);
    // A smaller initial window makes the window negative.
    server.receive(&initial_window(0)).unwrap();
    server.receive(&window_update(1, 10)).unwrap();
    assert_eq!(server.connection.next_writable(), None);
    server.receive(&initial_window(100)).unwrap();
    assert_eq!(server.connection.next_writable(), Some(stream));
    assert_eq!(server.connection.send_data(stream, &[0; 10], true, &mut server.out), 10);
    let sent = server.sent();
    assert_eq!(data(&sent), [(1, 5), (1, 10)]);
    assert_eq!(sent.last().unwrap().flags, END_STREAM);
    assert_eq!(server.connection.active_streams(), 0);
    assert!(!server.connection.is_waiting());
}

#[test]
fn large_content_is_split_into_frames_within_the_window() {
    let mut server = Endpoint::server(Config::default());
    server.receive(&initial_window(1 << 20)).unwrap();
    let stream = server.request(&headers(1, GET, true));
    server.sent();
    // The connection's window is 65,535 bytes.
    assert_eq!(server.answer(stream, &[7; 100_000]), 65_535);
    assert_eq!(data(&server.sent()), [(1, 16_384), (1, 16_384), (1, 16_384), (1, 16_383)]);
    server.receive(&window_update(0, 100_000)).unwrap();
    let header = server.connection.data_header(stream, 34_465, true, &mut server.out);
    assert_eq!((header, server.out.len()), (Some(16_384), 9));
}

#[test]
fn received_content_is_bounded_by_the_windows() {
    let limits = Limits { stream_window: 65_535, connection_window: 65_535, ..Limits::default() };
    let mut server = Endpoint::server(Config { limits, ..Config::default() });
    let mut input = headers(1, POST, false);
    for _ in 0..3 {
        input.extend(frame(DATA, 0, 1, &[0; 16_384]));
    }
    // Released content returns to both windows.
    server.receive(&input).unwrap();
    let updates: Vec<_> = server
        .sent()
        .iter()
        .filter(|frame| frame.kind == WINDOW_UPDATE)
        .map(|f| f.stream)
        .collect();
    assert_eq!(updates, [0, 1]);

    // Content that is not released does not.
    let mut server = Endpoint::server(Config { limits, ..Config::default() });
    let mut input = headers(1, POST, false);
    input.extend(headers(3, POST, false));
    for stream in [1, 3, 1, 3, 1] {
        input.extend(frame(DATA, 0, stream, &[0; 16_384]));
    }
    let mut input = &input[..];
    let error = loop {
        match server.connection.receive(&mut input, &mut server.head, &mut server.out) {
            Ok(Some(_)) => {}
            Ok(None) => panic!("no error"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.code, ErrorCode::FLOW_CONTROL_ERROR);
}

#[test]
fn a_small_window_applies_after_the_acknowledgement() {
    let limits = Limits { stream_window: 10, ..Limits::default() };
    let mut server = Endpoint::server(Config { limits, ..Config::default() });
    server.receive(&headers(1, POST, false)).unwrap();
    server.receive(&frame(DATA, 0, 1, &[0; 10])).unwrap();
    server.events();
    server.receive(&frame(DATA, 0, 1, &[0; 11])).unwrap();
    assert_eq!(server.events(), ["reset 1 FLOW_CONTROL_ERROR"]);
}

/// Lets all streams wait for the connection's window, and returns the order in which they continue.
fn order(server: &mut Endpoint, streams: &[StreamId], turns: usize) -> Vec<u32> {
    for &stream in streams {
        let none: [(&str, &str); 0] = [];
        assert!(server.connection.respond(stream, 200, none, false, &mut server.out));
        server.connection.wait_for_turn(stream);
    }
    let mut order = Vec::new();
    for _ in 0..turns {
        let Some(stream) = server.connection.next_writable() else { break };
        order.push(stream.get());
        assert_eq!(server.connection.send_data(stream, b"xy", false, &mut server.out), 2);
        server.connection.wait_for_turn(stream);
    }
    order
}

fn get_with_priority(stream: u32, priority: &str) -> Vec<u8> {
    headers(stream, &[GET, &[("priority", priority)]].concat(), true)
}

#[test]
fn urgent_streams_precede_others() {
    let mut server = Endpoint::server(Config::default());
    let streams = [
        server.request(&get_with_priority(1, "u=5")),
        server.request(&get_with_priority(3, "u=2")),
        server.request(&get_with_priority(5, "u=2")),
        server.request(&get_with_priority(7, "u=7, i")),
    ];
    assert_eq!(order(&mut server, &streams, 3), [3, 3, 3]);
    server.connection.reset(streams[1], ErrorCode::CANCEL, &mut server.out);
    assert_eq!(server.connection.next_writable(), Some(streams[2]));
    // PRIORITY_UPDATE changes the order.
    server.receive(&frame(PRIORITY_UPDATE, 0, 0, &[0, 0, 0, 7, b'u', b'=', b'0'])).unwrap();
    assert_eq!(server.connection.next_writable(), Some(streams[3]));
}

#[test]
fn incremental_streams_take_turns() {
    let mut server = Endpoint::server(Config::default());
    let streams = [
        server.request(&headers(1, GET, true)),
        server.request(&get_with_priority(3, "i")),
        server.request(&get_with_priority(5, "u=3, i=?1")),
    ];
    assert_eq!(order(&mut server, &streams, 6), [1, 3, 5, 1, 3, 5]);
}

#[test]
fn an_early_priority_update_applies_to_the_request() {
    let mut server = Endpoint::server(Config::default());
    server.receive(&frame(PRIORITY_UPDATE, 0, 0, &[0, 0, 0, 3, b'u', b'=', b'1'])).unwrap();
    let streams = [
        server.request(&get_with_priority(1, "u=2")),
        server.request(&get_with_priority(3, "u=6")),
    ];
    assert_eq!(order(&mut server, &streams, 1), [3]);
}
