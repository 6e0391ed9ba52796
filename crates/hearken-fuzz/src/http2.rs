//! HTTP/2 connections and field blocks.

use std::sync::Arc;

use hearken_http::h2::{Config, Connection, Event, HeadBuffer, Limits, PREFACE};
use hearken_http::{Request, RequestParser, Version};

use crate::variation::{pieces, variation};

/// Empty SETTINGS and an acknowledgement.
const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0\0\0\0\x04\x01\0\0\0\0";

const HEAD_LIMITS: hearken_http::Limits = hearken_http::Limits {
    max_head_bytes: usize::MAX,
    max_fields: usize::MAX,
    max_target_bytes: usize::MAX,
};

/// Returns a description of the events and the output for input in pieces. Content is joined.
fn outcome(connection: &mut Connection, pieces: &[&[u8]]) -> (String, Vec<u8>) {
    let (mut head, mut out, mut events) = (HeadBuffer::new(), Vec::new(), String::new());
    let mut content = None;
    for mut piece in pieces.iter().copied() {
        loop {
            let event = match connection.receive(&mut piece, &mut head, &mut out) {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(error) => return (format!("{events}{error}"), out),
            };
            match event {
                Event::Data { stream, data, end } => {
                    if content != Some(stream) {
                        events.push_str(&format!("\ndata {} ", stream.get()));
                    }
                    events.push_str(&data.escape_ascii().to_string());
                    content = (!end).then_some(stream);
                    connection.release(stream, data.len(), &mut out);
                    continue;
                }
                Event::Request { stream, request, end } => {
                    check_request(&request);
                    events.push_str(&format!("\n{stream:?} {request:?} {end}"));
                    let none: [(&str, &str); 0] = [];
                    assert!(connection.respond(stream, 204, none, true, &mut out));
                }
                Event::Response { stream, response, end } => {
                    let fields: Vec<_> = response.fields().collect();
                    events.push_str(&format!("\n{stream:?} {} {fields:?} {end}", response.status));
                }
                Event::Trailers { stream, fields } => {
                    events.push_str(&format!("\n{stream:?} {:?}", fields.collect::<Vec<_>>()));
                }
                event => events.push_str(&format!("\n{event:?}")),
            }
            content = None;
        }
        assert!(piece.is_empty());
    }
    assert!(connection.buffered_bytes() <= 64 * 1024);
    (events, out)
}

/// Checks that the parser of HTTP/1.1 understands a translated request in the same way.
fn check_request(request: &Request<'_>) {
    let mut head = [request.method.as_bytes(), b" ", request.raw_target, b" HTTP/1.1\r\n"].concat();
    for (name, value) in request.fields() {
        head.extend([name, b": ", value, b"\r\n"].concat());
    }
    head.extend(b"\r\n");
    let parsed = RequestParser::new().parse(&head, &HEAD_LIMITS);
    let parsed = parsed.expect("valid").expect("complete");
    assert_eq!(request.version, Version::Http2);
    let in_http1 = format!("{request:?}").replace("version: Http2", "version: Http11");
    assert_eq!(in_http1, format!("{parsed:?}"));
    assert!(request.fields().eq(parsed.fields()));
    assert_eq!(request.is_plain(), parsed.is_plain());
    assert_eq!(request.upgrade(), parsed.upgrade());
}

fn config(bytes: &[u8]) -> Arc<Config> {
    let mut random = variation(bytes);
    let mut config = Config { extended_connect: random.bool(), ..Config::default() };
    if random.bool() {
        config.limits = Limits {
            max_streams: random.u32(..4),
            max_resets: random.u32(..4),
            max_block_bytes: random.usize(..300),
            max_overhead_bytes: random.u32(100..400),
            stream_window: random.u32(..100),
            decoder_table_bytes: random.usize(..200),
            ..Limits::default()
        };
        config.limits.head.max_head_bytes = random.usize(..300);
        config.limits.head.max_fields = random.usize(..8);
    }
    Arc::new(config)
}

// The input follows the preface. Pieces of it have the events and the output of the whole.
#[test]
fn server() {
    bolero::check!().for_each(|bytes: &[u8]| {
        let run = |pieces: &[&[u8]]| {
            let mut server = Connection::server(config(bytes), &mut Vec::new());
            let all = [&[PREFACE.as_slice(), SETTINGS], pieces].concat();
            outcome(&mut server, &all)
        };
        assert_eq!(run(&pieces(bytes)), run(&[bytes]));
    });
}

// The input answers three requests: GET, HEAD and an upgrade.
#[test]
fn client() {
    let heads: [&[u8]; 3] = [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    ];
    bolero::check!().for_each(|bytes: &[u8]| {
        let run = |pieces: &[&[u8]]| {
            let mut client = Connection::client(config(bytes), &mut Vec::new());
            // SETTINGS with ENABLE_CONNECT_PROTOCOL.
            let settings = b"\0\0\x06\x04\0\0\0\0\0\0\x08\0\0\0\x01\0\0\0\x04\x01\0\0\0\0";
            outcome(&mut client, &[settings]);
            for head in heads {
                let request = RequestParser::new().parse(head, &HEAD_LIMITS).unwrap().unwrap();
                client.send_request(&request, true, &mut Vec::new()).unwrap();
            }
            outcome(&mut client, pieces)
        };
        assert_eq!(run(&pieces(bytes)), run(&[bytes]));
    });
}

// The input is a field block, sent twice as a request with a body.
#[test]
fn field_block() {
    bolero::check!().for_each(|bytes: &[u8]| {
        if bytes.len() > 16_000 {
            return;
        }
        let mut server = Connection::server(config(bytes), &mut Vec::new());
        let mut input = [PREFACE.as_slice(), SETTINGS].concat();
        for stream in [1, 3] {
            let [_, a, b, c] = (bytes.len() as u32).to_be_bytes();
            input.extend([a, b, c, 1, 4, 0, 0, 0, stream]);
            input.extend(bytes);
        }
        outcome(&mut server, &[&input]);
    });
}
