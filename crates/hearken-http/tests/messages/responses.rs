//! Parsing of responses.

use hearken_http::{
    BodyReader, Limits, Malformed, Method, Response, ResponseBody, ResponseParser, Version,
};

fn parse<'b>(bytes: &'b [u8], method: Method<'_>) -> Result<Option<Response<'b>>, Malformed> {
    ResponseParser::new().parse(bytes, method, &Limits::default())
}

#[test]
fn framing_follows_method_status_and_fields() {
    use ResponseBody::{Chunked, Length, None, UntilClose};
    for (method, head, want) in [
        (Method::Get, "200 OK\r\nContent-Length: 5", Length(5)),
        (Method::Get, "200 OK\r\nContent-Length: 0", None),
        (Method::Get, "200 OK\r\nTransfer-Encoding: chunked", Chunked),
        (Method::Get, "200 OK\r\nServer: x", UntilClose),
        (Method::Head, "200 OK\r\nContent-Length: 5", None),
        (Method::Head, "200 OK\r\nTransfer-Encoding: chunked", None),
        (Method::Get, "304 Not Modified\r\nContent-Length: 5", None),
        (Method::Get, "204 No Content\r\nServer: x", None),
        (Method::Get, "100 Continue\r\nServer: x", None),
        (Method::Connect, "200 OK\r\nContent-Length: 5", None),
        (Method::Connect, "404 Not Found\r\nContent-Length: 5", Length(5)),
    ] {
        let bytes = format!("HTTP/1.1 {head}\r\n\r\n");
        let response = parse(bytes.as_bytes(), method).unwrap().unwrap();
        assert_eq!(response.body, want, "{method:?} {head:?}");
        assert_eq!(response.head_len, bytes.len());
        assert_eq!(response.keep_alive, want != UntilClose);
    }
}

#[test]
fn accepts_only_valid_status_lines() {
    for (line, want) in [
        ("HTTP/1.1 200 OK", Some((200, "OK"))),
        ("HTTP/1.1 200 ", Some((200, ""))),
        ("HTTP/1.1 200", Some((200, ""))),
        ("HTTP/1.0 999 a\tb \u{e9}", Some((999, "a\tb \u{e9}"))),
        ("HTTP/1.1 099 x", None),
        ("HTTP/1.1 20 x", None),
        ("HTTP/1.1 2000", None),
        ("HTTP/1.1  200", None),
        ("HTTP/1.1 20x", None),
        ("HTTP/1.1 200 \u{0}", None),
        ("HTTP/1.1 200\n", None),
        ("HTTP/2.0 200 OK", None),
        ("http/1.1 200 OK", None),
        ("ICY 200 OK", None),
        ("\r\nHTTP/1.1 200 OK", None),
    ] {
        let bytes = format!("{line}\r\nA: b\r\n\r\n");
        let response = parse(bytes.as_bytes(), Method::Get);
        let found = response.ok().flatten().map(|r| (r.status, r.reason));
        assert_eq!(found, want.map(|(status, reason)| (status, reason.as_bytes())), "{line:?}");
    }
}

#[test]
fn rejects_ambiguous_framing() {
    for fields in [
        "Content-Length: 5\r\nContent-Length: 5",
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Content-Length: +5",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: gzip",
        "A: b\r\n c",
        "A : b",
        "A: b\nC: d",
    ] {
        let bytes = format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n");
        assert!(parse(bytes.as_bytes(), Method::Get).is_err(), "{fields:?}");
    }
    assert!(parse(b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", Method::Get).is_err());
}

#[test]
fn persistence_depends_on_version_and_connection() {
    for (version, connection, want) in [
        ("1.1", "x", true),
        ("1.1", "close", false),
        ("1.0", "x", false),
        ("1.0", "keep-alive", true),
    ] {
        let bytes = format!(
            "HTTP/{version} 200 OK\r\nConnection: {connection}\r\nContent-Length: 1\r\n\r\n"
        );
        let response = parse(bytes.as_bytes(), Method::Get).unwrap().unwrap();
        assert_eq!(response.keep_alive, want);
        assert_eq!(response.version == Version::Http11, version == "1.1");
        assert!(response.field_values("connection").eq([connection.as_bytes()]));
    }
}

#[test]
fn limits_the_size_of_a_head() {
    let whole = b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n";
    for max_head_bytes in 0..whole.len() {
        let limits = Limits { max_head_bytes, ..Limits::default() };
        let mut parser = ResponseParser::new();
        assert!(parser.parse(whole, Method::Get, &limits).is_err());
        for end in 0..=max_head_bytes {
            assert!(parser.parse(&whole[..end], Method::Get, &limits).unwrap().is_none());
        }
        assert!(parser.parse(&whole[..=max_head_bytes], Method::Get, &limits).is_err());
    }
    let limits = Limits { max_fields: 0, ..Limits::default() };
    assert!(ResponseParser::new().parse(whole, Method::Get, &limits).is_err());
}

#[test]
fn a_response_may_arrive_in_any_pieces() {
    let bytes = b"HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 1\r\n\r\n";
    let mut parser = ResponseParser::new();
    for end in 0..bytes.len() {
        let part = parser.parse(&bytes[..end], Method::Get, &Limits::default()).unwrap();
        assert!(part.is_none(), "{end}");
    }
    let whole = parser.parse(bytes, Method::Get, &Limits::default()).unwrap().unwrap();
    assert_eq!(whole.fields().count(), 2);
}

#[test]
fn a_body_until_close_is_limited_and_may_end_at_close() {
    let limits = Limits::default();
    let mut reader = BodyReader::new(ResponseBody::UntilClose, 3, &limits).unwrap();
    let segment = reader.read(b"abc").unwrap();
    assert_eq!((segment.data, segment.done), (0..3, false));
    assert!(reader.is_complete_at_close());
    assert_eq!(reader.read(b"d").unwrap_err().status, 413);
    let short = BodyReader::new(ResponseBody::Length(3), 3, &limits).unwrap();
    assert!(!short.is_complete_at_close());
}
