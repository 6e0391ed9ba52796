//! Parsing of requests.

use hearken_http::{Limits, Method, Request, RequestParser, Target, Version};

fn parse(bytes: &[u8]) -> Request<'_> {
    RequestParser::new().parse(bytes, &Limits::default()).unwrap().expect("incomplete")
}

#[test]
fn returns_every_part_of_a_request() {
    let bytes = b"\r\nGET http://B:80/p/q?x=1?y HTTP/1.1\r\nhost: a\r\nRange: bytes=0-1\r\n\
        IF-RANGE: \"t\"\r\nIf-Match: *\r\nif-none-match: \"u\"\r\nIf-None-Match: \"v\"\r\n\
        If-Modified-Since: m\r\nIf-Unmodified-Since: n\r\nReferer: r\r\nUser-Agent:  u a \r\n\
        Accept-Encoding: gzip\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\
        Connection: Upgrade\r\nUpgrade: websocket\r\n\r\nabc";
    let request = parse(bytes);
    assert_eq!(request.method, Method::Get);
    assert_eq!(request.version, Version::Http11);
    assert_eq!(request.raw_target, b"http://B:80/p/q?x=1?y");
    assert_eq!(
        request.target(),
        Target::Absolute {
            scheme: b"http",
            authority: b"B:80",
            path: b"/p/q",
            query: Some(b"x=1?y")
        }
    );
    assert_eq!(request.target().path_and_query(), Some((&b"/p/q"[..], Some(&b"x=1?y"[..]))));
    assert_eq!(request.host, Some(&b"B:80"[..]), "the target takes precedence over the Host field");
    assert_eq!(request.range(), Some(&b"bytes=0-1"[..]));
    assert_eq!(request.if_range(), Some(&b"\"t\""[..]));
    assert_eq!(format!("{:?}", request.if_match()), format!("Some([{:?}])", b"*"));
    assert_eq!(request.if_none_match().unwrap().tags().count(), 2);
    assert_eq!(request.if_modified_since(), Some(&b"m"[..]));
    assert_eq!(request.if_unmodified_since(), Some(&b"n"[..]));
    assert_eq!(request.field("referer"), Some(&b"r"[..]));
    assert_eq!(request.field("User-Agent"), Some(&b"u a"[..]));
    assert_eq!(request.field("ACCEPT-ENCODING"), Some(&b"gzip"[..]));
    assert_eq!(request.upgrade(), Some(&b"websocket"[..]));
    assert!(request.expect_continue);
    assert!(request.keep_alive);
    assert_eq!(&bytes[request.head_len..], b"abc");
    assert_eq!(request.fields().count(), 15);
    assert_eq!(request.fields().next(), Some((&b"host"[..], &b"a"[..])));
    assert!(request.field_values("If-None-Match").eq([b"\"u\"", b"\"v\""]));
    assert_eq!(request.field_values("absent").count(), 0);
}

#[test]
fn persistence_depends_on_version_and_connection() {
    for (version, fields, want) in [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: Close\r\n", false),
        ("1.1", "Connection: x, close\r\n", false),
        ("1.1", "Connection: keep-alive, close\r\n", false),
        ("1.1", "Connection: keep-alive\r\nConnection: close\r\n", false),
        ("1.1", "Connection: close\r\nConnection: keep-alive\r\n", false),
        ("1.1", "Connection: closed\r\n", true),
        ("1.1", "Connection:\r\n", true),
        ("1.0", "", false),
        ("1.0", "Connection: keep-alive\r\n", true),
        ("1.0", "Connection: x\t,Keep-Alive ,\r\n", true),
        ("1.0", "Connection: keep-alive, close\r\n", false),
        ("1.0", "Keep-Alive: 300\r\n", false),
    ] {
        let bytes = format!("GET / HTTP/{version}\r\nHost: a\r\n{fields}\r\n");
        assert_eq!(parse(bytes.as_bytes()).keep_alive, want, "{version} {fields:?}");
    }
}

#[test]
fn http_1_0_requests_neither_upgrade_nor_expect() {
    let bytes = b"POST / HTTP/1.0\r\nConnection: upgrade\r\nUpgrade: x\r\n\
        Expect: 100-continue\r\nContent-Length: 1\r\n\r\n";
    let request = parse(bytes);
    assert_eq!((request.upgrade(), request.expect_continue), (None, false));
    let unnamed = parse(b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\n\r\n");
    assert_eq!(unnamed.upgrade(), None, "the Connection field must name it");
    let bodyless = parse(b"GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n");
    assert!(!bodyless.expect_continue);
}

#[test]
fn preserves_methods() {
    for method in
        ["GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE", "TRACE", "PATCH", "PURGE", "get"]
    {
        let bytes = format!("{method} / HTTP/1.0\r\n\r\n");
        let parsed = parse(bytes.as_bytes()).method;
        assert_eq!(parsed.as_bytes(), method.as_bytes());
        let is_other = matches!(parsed, Method::Other(_));
        assert_eq!(is_other, ["PURGE", "get"].contains(&method));
    }
}

#[test]
fn a_parser_reads_consecutive_requests() {
    let bytes = b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut parser = RequestParser::new();
    let mut at = 0;
    for path in [b"/1", b"/2"] {
        for end in at..at + 28 {
            assert!(parser.parse(&bytes[at..end], &Limits::default()).unwrap().is_none());
        }
        let request = parser.parse(&bytes[at..], &Limits::default()).unwrap().unwrap();
        assert_eq!(request.raw_target, path);
        at += request.head_len;
    }
    assert_eq!(at, bytes.len());
}

#[test]
fn a_head_that_arrives_byte_by_byte_takes_linear_time() {
    // 1 MiB in single bytes would take minutes with quadratic complexity.
    const LONG: usize = 1 << 20;
    let limits = Limits { max_head_bytes: LONG, max_target_bytes: LONG, ..Limits::default() };
    for start in ["GET / HTTP/1.1\r\nHost: a\r\nX: ", "GET /"] {
        let mut head = start.as_bytes().to_vec();
        let mut parser = RequestParser::new();
        while head.len() < limits.max_head_bytes {
            head.push(b'x');
            assert!(parser.parse(&head, &limits).unwrap().is_none());
        }
        head.push(b'x');
        assert_eq!(parser.parse(&head, &limits).unwrap_err().status, 431);
    }
}

#[test]
fn a_parser_occupies_at_most_eight_bytes() {
    assert!(size_of::<RequestParser>() <= 8);
}
