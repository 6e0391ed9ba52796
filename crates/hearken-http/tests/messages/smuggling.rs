//! Messages that two parsers could interpret differently: requests with the expected status, and
//! responses.

use hearken_http::{Body, Limits, Method, RequestParser, ResponseParser};

/// Returns the status of the error, 200 for a valid request, or 100 for an incomplete one.
fn status(bytes: &[u8]) -> u16 {
    match RequestParser::new().parse(bytes, &Limits::default()) {
        Ok(Some(_)) => 200,
        Ok(None) => 100,
        Err(reject) => reject.status,
    }
}

#[track_caller]
fn check(cases: &[(&str, u16)]) {
    for (request, want) in cases {
        assert_eq!(status(request.as_bytes()), *want, "{request:?}");
    }
}

/// Checks cases that are the field sections of otherwise valid requests.
#[track_caller]
fn check_fields(cases: &[(&str, u16)]) {
    for (fields, want) in cases {
        let request = format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n");
        assert_eq!(status(request.as_bytes()), *want, "{fields:?}");
    }
}

#[test]
fn content_length_must_be_one_decimal_number() {
    check_fields(&[
        ("Content-Length: 5", 200),
        ("Content-Length:5", 200),
        ("Content-Length: \t5\t ", 200),
        ("CONTENT-length: 0", 200),
        ("Content-Length: 18446744073709551615", 200),
        ("Content-Length: 000000000000000000000000005", 200),
        ("Content-Length: 18446744073709551616", 400),
        ("Content-Length: 99999999999999999999999999", 400),
        ("Content-Length:", 400),
        ("Content-Length:  ", 400),
        ("Content-Length: +5", 400),
        ("Content-Length: -5", 400),
        ("Content-Length: -0", 400),
        ("Content-Length: 0x5", 400),
        ("Content-Length: 5.0", 400),
        ("Content-Length: 1e2", 400),
        ("Content-Length: 5;", 400),
        ("Content-Length: 5,", 400),
        ("Content-Length: 5, 5", 400),
        ("Content-Length: 5 5", 400),
        ("Content-Length: 1_000", 400),
        ("Content-Length: \"5\"", 400),
        ("Content-Length: \u{ff15}", 400),
        ("Content-Length: 5\r\nContent-Length: 5", 400),
        ("Content-Length: 5\r\nContent-Length: 6", 400),
        ("Content-Length: 5\r\ncontent-length: 5", 400),
        ("Content-Length: 0\r\nContent-Length:", 400),
        ("Content-Length : 5", 400),
        ("Content-Length\t: 5", 400),
        ("Content_Length: 5", 200), // a different field without special meaning
    ]);
}

#[test]
fn transfer_encoding_must_be_chunked() {
    check_fields(&[
        ("Transfer-Encoding: chunked", 200),
        ("Transfer-Encoding: CHUNKED ", 200),
        ("Transfer-Encoding: gzip, chunked", 501),
        ("Transfer-Encoding: gzip ,\tdeflate, chunked", 501),
        ("Transfer-Encoding: identity, chunked", 501),
        ("Transfer-Encoding: gzip", 400),
        ("Transfer-Encoding: identity", 400),
        ("Transfer-Encoding:", 400),
        ("Transfer-Encoding: ,", 400),
        ("Transfer-Encoding: ,chunked", 400),
        ("Transfer-Encoding: chunked,", 400),
        ("Transfer-Encoding: xchunked", 400),
        ("Transfer-Encoding: chunkedx", 400),
        ("Transfer-Encoding: x chunked", 400),
        ("Transfer-Encoding: chunked, chunked", 400),
        ("Transfer-Encoding: chunked, gzip, chunked", 400),
        ("Transfer-Encoding: chunked, identity", 400),
        ("Transfer-Encoding: chunked;q=1", 400),
        ("Transfer-Encoding: \"chunked\"", 400),
        ("Transfer-Encoding: 'chunked'", 400),
        ("Transfer-Encoding: \u{b}chunked", 400),
        ("Transfer-Encoding: \u{c}chunked", 400),
        ("Transfer-Encoding: chunked\u{0}", 400),
        ("Transfer-Encoding: \u{a0}chunked", 400),
        ("Transfer-Encoding:\r\n chunked", 400),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", 400),
        ("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked", 400),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", 400),
        ("Transfer-Encoding : chunked", 400),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5", 400),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked", 400),
        ("Content-Length: 0\r\nTransfer-Encoding: chunked", 400),
        ("Content-Length: 5\r\nTransfer-Encoding: gzip, chunked", 400),
        ("Content-Length: 5\r\nTransfer-Encoding: identity", 400),
    ]);
    check(&[
        ("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        ("POST / HTTP/1.0\r\nHost: a\r\nContent-Length: 5\r\n\r\n", 200),
    ]);
}

#[test]
fn field_lines_must_be_well_formed() {
    check_fields(&[
        ("X: ", 200),
        ("X:", 200),
        ("X: a\tb \u{e9}", 200),
        ("x!#$%&'*+-.^_`|~9: v", 200),
        ("X_Y: v", 200),
        ("X: a\r\n b", 400),
        ("X: a\r\n\tb", 400),
        ("X: a\rb", 400),
        ("X: a\nY: b", 400),
        ("X: a\n", 400),
        ("X: a\u{0}b", 400),
        ("X: a\u{7}b", 400),
        ("X: a\u{7f}b", 400),
        ("X: a\u{1b}[31m", 400),
        ("X : a", 400),
        ("X\t: a", 400),
        (" X: a", 400),
        ("\tX: a", 400),
        (": a", 400),
        ("X", 400),
        ("X Y: a", 400),
        ("X(: a", 400),
        ("X\": a", 400),
        ("X/: a", 400),
        ("X\u{0}: a", 400),
        ("X\u{e9}: a", 400),
        ("\rX: a", 400),
        ("X: a\r\r", 400),
    ]);
    check(&[
        ("GET / HTTP/1.1\r\n Host: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n\tHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\nHost: a\n\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\n\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\n\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\r\n", 400),
    ]);
}

#[test]
fn host_must_be_one_valid_authority() {
    check(&[
        ("GET / HTTP/1.0\r\n\r\n", 200),
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost:\r\nhost: b\r\n\r\n", 400),
        ("GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost:\r\n\r\n", 200),
        ("GET / HTTP/1.1\r\nHost: a:80\r\n\r\n", 200),
        ("GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", 200),
        ("GET / HTTP/1.1\r\nHost: a:80:80\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a:x\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a:65536\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: :80\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a?b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a#b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: http://a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", 400),
        ("GET http://b/ HTTP/1.1\r\n\r\n", 400),
        ("GET http://b/ HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
    ]);
}

#[test]
fn request_lines_must_be_well_formed() {
    let long = "a".repeat(9000);
    check(&[
        ("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 200),
        ("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (" GET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET /  HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400),
        ("GET /\r\n", 400),
        ("GET / \r\n", 400),
        ("GET HTTP/1.1\r\n", 400),
        ("GET  HTTP/1.1\r\n", 400),
        ("G(T / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("G\u{e9}T / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("get / HTTP/1.1\r\nHost: a\r\n\r\n", 200), // an extension method, not GET
        ("GET / http/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\rHost: a\r\n\r\n", 400),
        ("GET / HTTP/01.1\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.10\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1,1\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTPS/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.2\r\nHost: a\r\n\r\n", 200),
        ("GET / HTTP/0.9\r\nHost: a\r\n\r\n", 505),
        ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        ("GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET /a\u{0}b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET /a\tb HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET /a\u{7f} HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET /\u{e9} HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET /?a#b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET /?a?b={|}\\ HTTP/1.1\r\nHost: a\r\n\r\n", 200),
        ("GET a HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET ?a HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 200),
        ("OPTIONS ** HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("OPTIONS *?a HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n", 200),
        ("CONNECT a HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("CONNECT a: HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("CONNECT /a HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("CONNECT a:80/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("CONNECT a:80?x HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET a:80 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET http://a HTTP/1.1\r\nHost: a\r\n\r\n", 200),
        ("GET HTTPS://a:8443/b?c HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        ("GET http://a?b HTTP/1.1\r\nHost: a\r\n\r\n", 200),
        ("GET http:///b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET http:/b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET http://u@a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET http://a:x/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET http://a\\b/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET file:///etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (&format!("GET /{long}"), 414),
        (&format!("GET /?{long} HTTP/1.1\r\nHost: a\r\n\r\n"), 414),
        (&format!("{long} / HTTP/1.1\r\nHost: a\r\n\r\n"), 501),
        ("\u{16}\u{3}\u{1}\u{2}", 400), // the start of a TLS handshake
    ]);
}

#[test]
fn only_100_continue_may_be_expected() {
    check_fields(&[
        ("Expect: 100-continue", 200),
        ("Expect: 100-Continue\r\nContent-Length: 1", 200),
        ("Expect: 100-continue, 100-continue", 417),
        ("Expect: 100-continue\r\nExpect: x", 417),
        ("Expect:", 417),
        ("Expect: 200-ok", 417),
    ]);
    check(&[("POST / HTTP/1.0\r\nExpect: x\r\n\r\n", 200)]);
}

#[test]
fn heads_are_limited_in_size() {
    let many = "X: y\r\n".repeat(100);
    let long = "y".repeat(17_000);
    check(&[
        (&format!("GET / HTTP/1.0\r\n{many}\r\n"), 200),
        (&format!("GET / HTTP/1.0\r\n{many}X: y\r\n\r\n"), 431),
        (&format!("GET / HTTP/1.0\r\nX: {long}"), 431),
        (&format!("GET / HTTP/1.0\r\nX: {long}\r\n\r\n"), 431),
    ]);
    // A target is rejected at the first byte over the limit, before it ends.
    let mut parser = RequestParser::new();
    let limits = Limits { max_target_bytes: 50, ..Limits::default() };
    let mut request = b"GET /".to_vec();
    while request.len() < 4 + 50 {
        request.push(b'x');
        assert!(parser.parse(&request, &limits).unwrap().is_none());
    }
    request.push(b'x');
    assert_eq!(parser.parse(&request, &limits).unwrap_err().status, 414);
    // A head of exactly the maximum size is accepted, and one byte more is not.
    let limits = Limits { max_head_bytes: 30, ..Limits::default() };
    for (fill, want) in [(7, None), (8, Some(431))] {
        let request = format!("GET / HTTP/1.0\r\nX: {}\r\n\r\n", "y".repeat(fill));
        assert_eq!(request.len(), 23 + fill);
        let result = RequestParser::new().parse(request.as_bytes(), &limits);
        assert_eq!(result.err().map(|reject| reject.status), want);
    }
    // The limit applies at any position, all at once or byte by byte.
    let whole = b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n";
    for max_head_bytes in 0..whole.len() {
        let limits = Limits { max_head_bytes, ..Limits::default() };
        let mut parser = RequestParser::new();
        assert_eq!(parser.parse(whole, &limits).unwrap_err().status, 431, "{max_head_bytes}");
        for end in 0..=max_head_bytes {
            assert!(parser.parse(&whole[..end], &limits).unwrap().is_none(), "{max_head_bytes}");
        }
        let reject = parser.parse(&whole[..=max_head_bytes], &limits).unwrap_err();
        assert_eq!(reject.status, 431, "{max_head_bytes}");
    }
}

#[test]
fn invalid_bytes_are_rejected_before_the_end_of_the_head() {
    for (good, bad) in [
        ("GET / HTTP/1.1\r\nHost: a", "\n"),
        ("GET / HTTP/1.1\r\nHost: a\r", "X"),
        ("GET / HTTP/1.1\r\nHost: a", "\0"),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: y\r\nContent-Length", " : 5\r\n"),
        ("GET /", "\0"),
        ("GET / HTTP/1.1", "\n"),
        ("GE", "\r\n"),
    ] {
        let mut parser = RequestParser::new();
        assert!(parser.parse(good.as_bytes(), &Limits::default()).is_ok_and(|r| r.is_none()));
        let both = format!("{good}{bad}");
        let reject = parser.parse(both.as_bytes(), &Limits::default()).unwrap_err();
        assert_eq!(reject.status, 400, "{both:?}");
    }
}

#[test]
fn framing_follows_the_fields() {
    for (fields, want) in [
        ("", Body::None),
        ("Content-Length: 0\r\n", Body::None),
        ("Content-Length: 07\r\n", Body::Length(7)),
        ("Transfer-Encoding: Chunked\r\n", Body::Chunked),
        ("X-Content-Length: 5\r\n", Body::None),
    ] {
        let request = format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let mut parser = RequestParser::new();
        let parsed = parser.parse(request.as_bytes(), &Limits::default()).unwrap().unwrap();
        assert_eq!(parsed.body, want);
        assert_eq!(parsed.head_len, request.len());
    }
}

#[test]
fn the_number_of_connection_options_is_limited() {
    let options = |count: usize| vec!["x"; count].join(",");
    check_fields(&[
        (&format!("Connection: {}", options(32)), 200),
        (&format!("Connection: {}", options(33)), 400),
        (&format!("Connection: {}\r\nConnection: {}", options(16), options(16)), 200),
        (&format!("Connection: {}\r\nConnection: {}", options(16), options(17)), 400),
        (&format!("Connection: {}", ",".repeat(40)), 400),
        ("Connection: close\r\n".repeat(33).trim_end(), 400),
    ]);
}

/// Returns whether the response with these fields, to a request with this method, is accepted.
fn is_accepted(method: Method<'_>, status: &str, fields: &str) -> bool {
    let bytes = format!("HTTP/1.1 {status}\r\n{fields}\r\n\r\n");
    match ResponseParser::new().parse(bytes.as_bytes(), method, &Limits::default()) {
        Ok(Some(response)) => {
            assert_eq!(response.head_len, bytes.len());
            true
        }
        Ok(None) => panic!("{bytes:?} is incomplete"),
        Err(_) => false,
    }
}

/// Ambiguous framing is an error even in a response without a body, because the next recipient may not
/// know the request.
#[test]
fn responses_must_be_unambiguous() {
    for (fields, want) in [
        ("Content-Length: 5", true),
        ("Content-Length: 0005", true),
        ("Transfer-Encoding: chunked", true),
        ("Content_Length: 5", true),
        ("Content-Length: 5\r\nContent-Length: 5", false),
        ("Content-Length: 5\r\nContent-Length: 6", false),
        ("Content-Length: 5, 5", false),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked", false),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5", false),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", false),
        ("Transfer-Encoding: gzip, chunked", false),
        ("Transfer-Encoding: identity", false),
        ("Transfer-Encoding: \u{b}chunked", false),
        ("Transfer-Encoding:", false),
        ("Content-Length:", false),
        ("Content-Length: -1", false),
        ("Content-Length: +5", false),
        ("Content-Length: 0x5", false),
        ("Content-Length: 99999999999999999999", false),
        ("Content-Length : 5", false),
        ("Content-Length\t: 5", false),
        (" Content-Length: 5", false),
        ("X: a\r\n Content-Length: 5", false),
        ("X: a\r\n\tb", false),
        ("X: a\rContent-Length: 5", false),
        ("X: a\nContent-Length: 5", false),
        ("X: a\0b", false),
        ("X: a\u{7f}", false),
        ("X\0: a", false),
        ("X Y: a", false),
        (": a", false),
        ("X", false),
        ("X: a\r", false),
    ] {
        for (method, status) in
            [(Method::Get, "200 OK"), (Method::Head, "200 OK"), (Method::Get, "304 Not Modified")]
        {
            assert_eq!(is_accepted(method, status, fields), want, "{method:?} {status} {fields:?}");
        }
        // A response without a body that also announces none.
        if !want {
            assert!(!is_accepted(Method::Get, "204 No Content", fields), "204 {fields:?}");
            assert!(!is_accepted(Method::Get, "100 Continue", fields), "100 {fields:?}");
        }
    }
    for (status, want) in [
        ("200 O\rK", false),
        ("200 O\0K", false),
        ("200 O\nK", false),
        ("200\tOK", false),
        ("0200 OK", false),
        ("200 OK", true),
    ] {
        assert_eq!(is_accepted(Method::Get, status, "A: b"), want, "{status:?}");
    }
}

#[test]
fn a_body_after_a_bodyless_response_closes_the_connection() {
    for fields in ["Content-Length: 5", "Transfer-Encoding: chunked"] {
        assert!(!is_accepted(Method::Get, "100 Continue", fields), "{fields}");
        assert!(!is_accepted(Method::Get, "101 Switching Protocols", fields), "{fields}");
        let bytes = format!("HTTP/1.1 204 No Content\r\n{fields}\r\n\r\n");
        let mut parser = ResponseParser::new();
        let response = parser.parse(bytes.as_bytes(), Method::Get, &Limits::default());
        assert!(!response.unwrap().unwrap().keep_alive, "{fields}");
    }
    assert!(is_accepted(Method::Get, "100 Continue", "Content-Length: 0"));
    let bytes = b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n";
    let response = ResponseParser::new().parse(bytes, Method::Get, &Limits::default());
    assert!(response.unwrap().unwrap().keep_alive);
    let options = vec!["x"; 33].join(",");
    assert!(!is_accepted(Method::Get, "200 OK", &format!("Connection: {options}")));
}
