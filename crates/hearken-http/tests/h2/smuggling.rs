//! Messages that RFC 9113 section 8 forbids, because they could be understood differently in HTTP/1.1.

use hearken_http::h2::{Config, ErrorCode};

use crate::raw::{DATA, END_STREAM, Endpoint, GET, POST, frame, headers, reset_code};

/// Checks that a request is malformed, and that the connection continues.
fn check_malformed(fields: &[(&str, &str)], end: bool) {
    let mut server = Endpoint::server(Config::default());
    server.receive(&headers(1, fields, end)).unwrap();
    assert_eq!(server.events(), ["reset 1 PROTOCOL_ERROR"], "{fields:?}");
    assert_eq!(reset_code(&server.sent()), Some(ErrorCode::PROTOCOL_ERROR));
    let stream = server.request(&headers(3, GET, true));
    assert_eq!(server.answer(stream, b"x"), 1);
}

#[test]
fn forbidden_fields_are_malformed() {
    for field in [
        ("X-Upper", "a"),
        ("x y", "a"),
        ("x\r\ny", "a"),
        ("x:", "a"),
        ("", "a"),
        ("x\u{e9}", "a"),
        ("x", "a\r\nHost: b"),
        ("x", "a\nb"),
        ("x", "a\0b"),
        ("x", " a"),
        ("x", "a\t"),
        ("x", "a\x7f"),
        ("connection", "close"),
        ("keep-alive", "timeout=1"),
        ("proxy-connection", "x"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "websocket"),
        ("te", "gzip"),
        ("te", "trailers, gzip"),
        ("host", "b"),
        ("host", ""),
        (":path", "/again"),
        (":unknown", "x"),
        (":status", "200"),
        ("content-length", "1"),
        ("content-length", "x"),
        ("content-length", "+1"),
        ("content-length", "18446744073709551616"),
    ] {
        check_malformed(&[GET, &[field]].concat(), true);
    }
    check_malformed(&[GET, &[("content-length", "1"), ("content-length", "1")]].concat(), false);
    check_malformed(&[GET, &[("host", "a"), ("host", "a")]].concat(), true);
}

#[test]
fn pseudo_header_fields_must_be_complete_first_and_valid() {
    for missing in 0..4 {
        let mut fields = GET.to_vec();
        fields.remove(missing);
        check_malformed(&fields, true);
        let mut empty = GET.to_vec();
        empty[missing].1 = "";
        check_malformed(&empty, true);
        let mut twice = GET.to_vec();
        twice.push(GET[missing]);
        check_malformed(&twice, true);
        let mut late = GET.to_vec();
        let field = late.remove(missing);
        late.extend([("x", "y"), field]);
        check_malformed(&late, true);
    }
    let late = [&[("cookie", "a=b")], GET].concat();
    check_malformed(&late, true);
    for (index, value) in [
        (0, "GE T"),
        (0, "GET / HTTP/1.1\r\nx:"),
        (2, "a b"),
        (2, "user@a"),
        (2, "a/b"),
        (2, "a:65536"),
        (3, "x"),
        (3, "*"),
        (3, "/a b"),
        (3, "/a#b"),
        (3, "/\u{e9}"),
        (3, "/ HTTP/1.1\r\nx: y"),
        (3, "http://b/"),
    ] {
        let mut fields = GET.to_vec();
        fields[index].1 = value;
        check_malformed(&fields, true);
    }
}

#[test]
fn connect_has_only_an_authority() {
    let connect = (":method", "CONNECT");
    for fields in [
        vec![connect],
        vec![connect, (":authority", "a")],
        vec![connect, (":authority", "a:")],
        vec![connect, (":authority", "a:1"), (":path", "/")],
        vec![connect, (":authority", "a:1"), (":scheme", "https")],
        vec![connect, (":authority", "a:1"), ("content-length", "3")],
    ] {
        check_malformed(&fields, false);
    }
}

#[test]
fn content_must_have_the_announced_length() {
    let with_length = [POST, &[("content-length", "3")]].concat();
    for frames in [
        vec![frame(DATA, 0, 1, b"abcd")],
        vec![frame(DATA, END_STREAM, 1, b"ab")],
        vec![frame(DATA, 0, 1, b"abc"), frame(DATA, END_STREAM, 1, b"d")],
        vec![frame(DATA, 0, 1, b"ab"), headers(1, &[("x", "y")], true)],
    ] {
        let mut server = Endpoint::server(Config::default());
        let bytes = [headers(1, &with_length, false), frames.concat()].concat();
        server.receive(&bytes).unwrap();
        assert_eq!(server.events().pop().unwrap(), "reset 1 PROTOCOL_ERROR");
    }
    let mut server = Endpoint::server(Config::default());
    let bytes = [headers(1, &with_length, false), frame(DATA, END_STREAM, 1, b"abc")].concat();
    server.receive(&bytes).unwrap();
    assert_eq!(server.events().pop().unwrap(), "data 1 end=true abc");
}

#[test]
fn trailer_sections_contain_no_pseudo_header_fields() {
    for field in [(":path", "/"), ("X", "y"), ("connection", "close"), ("x", "a\nb")] {
        let mut server = Endpoint::server(Config::default());
        server.receive(&[headers(1, POST, false), headers(1, &[field], true)].concat()).unwrap();
        assert_eq!(server.events().pop().unwrap(), "reset 1 PROTOCOL_ERROR", "{field:?}");
    }
}

#[test]
fn malformed_fields_keep_the_dynamic_table_intact() {
    let mut server = Endpoint::server(Config::default());
    // Literals that enter the table: an invalid one and then a valid one.
    let bad = [&headers(1, GET, true)[9..], b"\x40\x01X\x01a", b"\x40\x01x\x01b"].concat();
    server.receive(&frame(1, 5, 1, &bad)).unwrap();
    assert_eq!(server.events(), ["reset 1 PROTOCOL_ERROR"]);
    let good = [&headers(3, GET, true)[9..], &[0x80 | 62]].concat();
    server.receive(&frame(1, 5, 3, &good)).unwrap();
    assert!(server.events()[0].contains("\"x: b\""));
    let bad = [&headers(5, GET, true)[9..], &[0x80 | 63]].concat();
    server.receive(&frame(1, 5, 5, &bad)).unwrap();
    assert_eq!(server.events(), ["reset 5 PROTOCOL_ERROR"]);
}
