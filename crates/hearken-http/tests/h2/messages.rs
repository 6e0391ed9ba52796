//! Translation between HTTP/2 and the heads of HTTP/1.1.

use hearken_http::h2::{Config, Event};
use hearken_http::{Body, Limits, Method, Request, RequestParser, Version};
use proptest::prelude::*;

use crate::raw::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, Endpoint, GET, HEADERS, POST, block, frame,
    headers,
};

/// Returns all public properties of a request.
fn properties(request: &Request<'_>) -> String {
    let fields: Vec<_> = request.fields().collect();
    format!(
        "{request:?} {:?} {:?} {:?} {:?} {:?} {:?} {fields:?}",
        request.is_plain(),
        request.range(),
        request.if_match(),
        request.if_none_match(),
        request.if_modified_since(),
        request.upgrade_protocols().collect::<Vec<_>>(),
    )
}

/// Forwards a request, which depends on data that is not public.
fn forwarded(request: &Request<'_>) -> Vec<u8> {
    use hearken_http::forward::{self, HeaderPolicy, RequestOptions, Rules};
    let mut out = Vec::new();
    for preserve_host in [true, false] {
        let rules = Rules::new("proxy", HeaderPolicy::Append, HeaderPolicy::Replace, preserve_host);
        let to = RequestOptions {
            authority: b"up",
            client: None,
            is_secure: false,
            keep_alive: true,
            subject: None,
        };
        forward::request(&rules, &mut out, request, &to);
    }
    out
}

/// Checks that the parser of HTTP/1.1 returns the same request for the translated head.
fn check_against_the_parser(request: &Request<'_>) {
    let parts = request.parts();
    // The head is not public, so it is rebuilt from its parts.
    let mut head = request.method.as_bytes().to_vec();
    head.push(b' ');
    head.extend(request.raw_target);
    head.extend(b" HTTP/1.1\r\n");
    for (index, (name, value)) in request.fields().enumerate() {
        assert_eq!(name == b"Host", index == 0, "Host is the first field");
        head.extend([name, b": ", value, b"\r\n"].concat());
    }
    head.extend(b"\r\n");
    assert_eq!(head.len(), request.head_len);
    let limits = Limits { max_head_bytes: 1 << 20, max_fields: 1000, max_target_bytes: 1 << 20 };
    let mut parsed = RequestParser::new().parse(&head, &limits).unwrap().expect("complete");
    parsed.version = Version::Http2;
    assert_eq!(properties(request), properties(&parsed));
    assert_eq!(forwarded(request), forwarded(&parsed));
    assert_eq!(properties(&parts.request(&head)), properties(&parsed));
}

/// Receives one request.
fn with_request(bytes: &[u8], check: impl FnOnce(&Request<'_>)) {
    let mut server = Endpoint::server(Config::default());
    let mut input = bytes;
    match server.connection.receive(&mut input, &mut server.head, &mut server.out) {
        Ok(Some(Event::Request { request, .. })) => {
            check_against_the_parser(&request);
            check(&request);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_has_the_form_of_http_1() {
    let fields = [
        (":method", "GET"),
        (":path", "/p/q?x=1"),
        (":scheme", "https"),
        (":authority", "example.org:8443"),
        ("accept", "*/*"),
        ("cookie", "a=1"),
        ("range", "bytes=0-1"),
        ("cookie", "b=2"),
        ("if-none-match", "\"x\""),
        ("te", "trailers"),
    ];
    with_request(&headers(1, &fields, true), |request| {
        assert_eq!(request.method, Method::Get);
        assert_eq!(request.raw_target, b"/p/q?x=1");
        assert_eq!(request.host, Some(&b"example.org:8443"[..]));
        assert_eq!(request.body, Body::None);
        assert!(request.keep_alive && !request.is_plain());
        assert_eq!(request.range(), Some(&b"bytes=0-1"[..]));
        let cookies: Vec<_> = request.field_values("Cookie").collect();
        assert_eq!(cookies, [b"a=1; b=2"], "RFC 9113 section 8.2.3");
    });
}

#[test]
fn uncommon_authorities_are_valid() {
    for authority in ["[::1]:8443", "a:65535", "a_b.example", "127.0.0.1:80"] {
        let fields =
            [(":method", "GET"), (":scheme", "http"), (":authority", authority), (":path", "/")];
        with_request(&headers(1, &fields, true), |request| {
            assert_eq!(request.host, Some(authority.as_bytes()));
        });
    }
    let host = [(":method", "GET"), (":scheme", "http"), (":path", "/"), ("host", "b")];
    with_request(&headers(1, &host, true), |request| {
        assert_eq!(request.host, Some(&b"b"[..]), "Host replaces :authority");
    });
    let both = [&GET[..3], &[(":path", "/"), ("host", "A")]].concat();
    with_request(&headers(1, &both, true), |request| {
        assert_eq!(request.field_values("Host").count(), 1);
    });
}

#[test]
fn bodies_are_framed_by_their_length_or_chunked() {
    let with_length = [POST, &[("content-length", "3")]].concat();
    with_request(&headers(1, &with_length, false), |request| {
        assert_eq!(request.body, Body::Length(3));
    });
    with_request(&headers(1, POST, false), |request| assert_eq!(request.body, Body::Chunked));
    with_request(&headers(1, POST, true), |request| assert_eq!(request.body, Body::None));
    let empty = [POST, &[("content-length", "0")]].concat();
    with_request(&headers(1, &empty, true), |request| assert_eq!(request.body, Body::None));
}

#[test]
fn long_targets_and_heads_fit() {
    let path = format!("/{}", "p".repeat(5000));
    let fields = [(":method", "GET"), (":scheme", "https"), (":authority", "a"), (":path", &*path)];
    let fields = [&fields[..], &[("range", "bytes=0-1"), ("priority", "u=1")]].concat();
    with_request(&headers(1, &fields, true), |request| {
        assert_eq!(request.raw_target.len(), 5001);
        assert_eq!(request.range(), Some(&b"bytes=0-1"[..]));
    });
}

#[test]
fn content_and_trailers_are_delivered() {
    let mut server = Endpoint::server(Config::default());
    let bytes = [
        headers(1, POST, false),
        frame(DATA, 0, 1, b"he"),
        frame(DATA, 8, 1, b"\x02llo\0\0"),
        headers(1, &[("x-sum", "1")], true),
    ];
    server.receive(&bytes.concat()).unwrap();
    let events = server.events();
    assert!(events[0].contains("\"transfer-encoding: chunked\""), "{events:?}");
    assert_eq!(
        &events[1..],
        ["data 1 end=false he", "data 1 end=false llo", "trailers 1 [\"x-sum: 1\"]"]
    );
    let stream = server.request(&headers(3, GET, true));
    assert_eq!(server.answer(stream, b"x"), 1);
}

#[test]
fn a_field_block_may_span_several_frames() {
    let block = block(GET);
    let (first, rest) = block.split_at(5);
    let (second, third) = rest.split_at(1);
    let bytes = [
        frame(HEADERS, END_STREAM, 1, first),
        frame(CONTINUATION, 0, 1, second),
        frame(CONTINUATION, END_HEADERS, 1, third),
    ];
    with_request(&bytes.concat(), |request| assert_eq!(request.method, Method::Get));
}

#[test]
fn rejected_requests_have_the_status_of_http_1() {
    let long = "p".repeat(9000);
    let path = format!("/{long}");
    let huge = "v".repeat(8000);
    for (fields, status) in [
        (vec![(":method", "GET"), (":scheme", "ftp"), (":authority", "a"), (":path", "/")], 400),
        (vec![(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", &path)], 414),
        ([GET, &[("a", &huge), ("b", &huge), ("c", &huge)]].concat(), 431),
        ([GET, &[("x", "y")].repeat(101)].concat(), 431),
        ([GET, &[("expect", "x")]].concat(), 417),
        ([&[(":method", &long[..33])], &GET[1..]].concat(), 501),
    ] {
        let mut server = Endpoint::server(Config::default());
        let block = block(&fields);
        let (first, rest) = block.split_at(block.len().min(16_384));
        let bytes = match rest {
            [] => frame(HEADERS, END_HEADERS | END_STREAM, 1, first),
            _ => [frame(HEADERS, END_STREAM, 1, first), frame(CONTINUATION, END_HEADERS, 1, rest)]
                .concat(),
        };
        server.receive(&bytes).unwrap();
        assert_eq!(server.events(), [format!("rejected 1 {status}")]);
        let stream = server.request(&headers(3, GET, true));
        assert_eq!(server.answer(stream, b"x"), 1, "the connection continues");
    }
}

#[test]
fn responses_omit_fields_of_the_connection() {
    let mut server = Endpoint::server(Config::default());
    let mut client = Endpoint::client(Config::default(), &[]);
    let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let request = RequestParser::new().parse(request, &Limits::default()).unwrap().unwrap();
    client.connection.send_request(&request, true, &mut client.out).unwrap();
    let stream = server.request(&client.out);
    let fields = [
        ("Connection", "close"),
        ("Keep-Alive", "timeout=1"),
        ("Transfer-Encoding", "chunked"),
        ("Upgrade", "x"),
        ("Content-Type", "text/plain"),
        ("X-Thing", "1"),
    ];
    let out = &mut server.out;
    assert!(server.connection.respond(stream, 103, [("link", "x")], true, out));
    assert!(server.connection.respond(stream, 200, fields, false, out));
    assert!(!server.connection.respond(stream, 200, fields, false, out), "answered once");
    assert_eq!(server.connection.send_data(stream, b"hi", false, out), 2);
    assert!(server.connection.send_trailers(stream, [("x-sum", "1")], out));
    assert_eq!(server.connection.active_streams(), 0);
    client.receive(&server.out).unwrap();
    assert_eq!(
        client.events(),
        [
            "response 1 end=false 103 None [\"link: x\"]",
            "response 1 end=false 200 Chunked [\"content-type: text/plain\", \"x-thing: 1\", \
             \"transfer-encoding: chunked\"]",
            "data 1 end=false hi",
            "trailers 1 [\"x-sum: 1\"]",
        ]
    );
    assert_eq!(client.connection.active_streams(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    // The parser of HTTP/1.1 understands every accepted request in the same way.
    #[test]
    fn accepted_requests_are_those_of_http_1(
        fields in prop::collection::vec(
            prop_oneof![
                3 => Just((":method", "GET")),
                1 => Just((":method", "POST")),
                1 => Just((":method", "OPTIONS")),
                1 => Just((":method", "CONNECT")),
                3 => Just((":scheme", "https")),
                3 => Just((":path", "/a?b")),
                1 => Just((":path", "*")),
                1 => Just((":path", "http://b/")),
                3 => Just((":authority", "a:1")),
                1 => Just((":authority", "[::1]")),
                1 => Just((":authority", "u@a")),
                1 => Just(("host", "a:1")),
                1 => Just(("cookie", "c=1")),
                1 => Just(("content-length", "5")),
                1 => Just(("content-length", "05")),
                1 => Just(("expect", "100-continue")),
                1 => Just(("te", "trailers")),
                1 => Just(("range", "bytes=1-")),
                1 => Just(("via", "1.1 x")),
                1 => Just(("x-forwarded-for", "y")),
                1 => Just(("if-match", "*")),
                1 => Just(("proxy", "x")),
                1 => Just(("x", "a\tb")),
                1 => Just(("x", "")),
                1 => Just(("http2-settings", "x")),
            ],
            0..6,
        ),
        complete: bool,
        end: bool,
    ) {
        let mut all = if complete { POST.to_vec() } else { Vec::new() };
        all.extend(fields);
        let mut server = Endpoint::server(Config::default());
        let bytes = headers(1, &all, end);
        let mut input = &bytes[..];
        match server.connection.receive(&mut input, &mut server.head, &mut server.out) {
            Ok(Some(Event::Request { request, .. })) => check_against_the_parser(&request),
            Ok(Some(Event::Reset { .. } | Event::Rejected { .. })) => {}
            other => prop_assert!(false, "{other:?}"),
        }
    }
}
