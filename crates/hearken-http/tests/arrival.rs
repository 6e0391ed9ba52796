//! Properties of request parsing over the input space.

use hearken_http::{Limits, Reject, Request, RequestParser, ResponseParser, Version};
use proptest::prelude::*;

/// Everything there is to see of a request.
fn view(result: Result<Option<Request<'_>>, Reject>) -> String {
    match result {
        Ok(None) => "incomplete".to_owned(),
        Ok(Some(request)) => {
            let fields: Vec<_> = request.fields().collect();
            format!(
                "{:?} {:?} {:?} {:?} {:?} {} {} {:?} {} {fields:?}",
                request.method,
                request.target(),
                request.version,
                request.host,
                request.body,
                request.keep_alive,
                request.expect_continue,
                request.upgrade(),
                request.head_len,
            )
        }
        Err(reject) => reject.to_string(),
    }
}

/// A strategy for exactly these bytes.
fn literal(bytes: &'static [u8]) -> Just<&'static [u8]> {
    Just(bytes)
}

/// Bytes that look like a request from near or far.
fn requestish() -> impl Strategy<Value = Vec<u8>> {
    let start = prop_oneof![
        6 => literal(b"GET / HTTP/1.1\r\nHost: a\r\n"),
        2 => literal(b"POST /a?b HTTP/1.0\r\n"),
        1 => literal(b"\r\nOPTIONS * HTTP/1.1\r\nHost: [::1]:80\r\n"),
        1 => literal(b"GET http://b:1/x?y HTTP/1.2\r\n"),
        1 => literal(b"CONNECT a:1 HTTP/1.1\r\nHost:\r\n"),
        1 => literal(b"GET  "),
        1 => literal(b""),
    ];
    let piece = prop_oneof![
        4 => literal(b"\r\n"),
        1 => literal(b"Content-Length: 5\r\n"),
        1 => literal(b"Transfer-Encoding: chunked\r\n"),
        1 => literal(b"Transfer-Encoding: x, chunked\r\n"),
        1 => literal(b"Connection: close, upgrade\r\n"),
        1 => literal(b"Upgrade: x\r\n"),
        1 => literal(b"Expect: 100-continue\r\n"),
        1 => literal(b"Expect: x\r\n"),
        1 => literal(b"Host: b\r\n"),
        3 => literal(b"If-None-Match: \"aaaaaaaaaaaaaaaaaa\"\t \r\n"),
        2 => literal(b"X: "),
        1 => literal(b"y y\t"),
        1 => literal(b"\r"),
        1 => literal(b"\n"),
        1 => literal(b" "),
        1 => literal(b":"),
        1 => literal(b"/aaaaaaaaaaaaaa"),
        1 => literal(b" HTTP/1.1"),
        1 => literal(b"HTTP/2.0\r\n"),
        1 => literal(b"\0"),
        1 => literal(b"\xe9"),
    ];
    (start, prop::collection::vec(piece, 0..10), any::<bool>()).prop_map(|(start, pieces, end)| {
        let mut bytes = [start, &pieces.concat()[..]].concat();
        if end {
            bytes.extend_from_slice(b"\r\n");
        }
        bytes
    })
}

fn limits() -> impl Strategy<Value = Limits> {
    prop_oneof![
        4 => Just(Limits::default()),
        1 => Just(Limits { head_bytes: 80, fields: 4, target_bytes: 12 }),
        1 => (0usize..100, 0usize..5, 0usize..20).prop_map(|(head_bytes, fields, target_bytes)| {
            Limits { head_bytes, fields, target_bytes }
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// However the bytes arrive, the first verdict is the verdict on all of them. It may come
    /// later than for the whole, but no later than the end of the head.
    #[test]
    fn the_pieces_do_not_matter(
        bytes in requestish(),
        limits in limits(),
        steps in prop::collection::vec(1usize..20, 1..4),
    ) {
        let want = view(RequestParser::new().parse(&bytes, &limits));
        let mut parser = RequestParser::new();
        let mut verdict = String::new();
        let mut steps = steps.iter().cycle();
        let mut end = 0;
        while end < bytes.len() && (verdict.is_empty() || verdict == "incomplete") {
            end = bytes.len().min(end + steps.next().unwrap());
            verdict = view(parser.parse(&bytes[..end], &limits));
        }
        if verdict == "incomplete" && want != "incomplete" {
            let ended = [&bytes, &b"\r\n\r\n"[..]].concat();
            verdict = view(parser.parse(&ended, &limits));
        }
        prop_assert!(bytes.is_empty() || verdict == want, "{verdict:?} is not {want:?}");
    }

    /// What is incomplete can still become a good request or a bad one, but bad stays bad.
    #[test]
    fn a_verdict_is_final(bytes in requestish(), more in requestish(), limits in limits()) {
        let before = view(RequestParser::new().parse(&bytes, &limits));
        if before != "incomplete" {
            let both = [bytes, more].concat();
            prop_assert_eq!(view(RequestParser::new().parse(&both, &limits)), before);
        }
    }

    #[test]
    fn what_is_accepted_httparse_accepts(bytes in requestish()) {
        if let Ok(Some(request)) = RequestParser::new().parse(&bytes, &Limits::default()) {
            // httparse refuses the minor versions above 1 that are read as 1.1 here.
            let mut bytes = bytes.clone();
            if let Some(at) = bytes.windows(10).position(|window| window == b"HTTP/1.2\r\n") {
                bytes[at + 7] = b'1';
            }
            let mut headers = [httparse::EMPTY_HEADER; 100];
            let mut other = httparse::Request::new(&mut headers);
            let parsed = other.parse(&bytes);
            prop_assert_eq!(parsed, Ok(httparse::Status::Complete(request.head_len)));
            prop_assert_eq!(other.method.unwrap().as_bytes(), request.method.as_bytes());
            prop_assert_eq!(other.path.unwrap().as_bytes(), request.raw_target);
            prop_assert_eq!(other.version == Some(1), request.version == Version::Http11);
            let fields: Vec<_> = request.fields().collect();
            let others: Vec<_> =
                other.headers.iter().map(|h| (h.name.as_bytes(), h.value)).collect();
            prop_assert_eq!(fields, others);
        }
    }

    #[test]
    fn arbitrary_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = RequestParser::new().parse(&bytes, &Limits::default());
        let after_line = [b"GET / HTTP/1.1\r\n", &bytes[..]].concat();
        let _ = RequestParser::new().parse(&after_line, &Limits::default());
        let method = hearken_http::Method::Get;
        let _ = ResponseParser::new().parse(&bytes, method, &Limits::default());
        let after_line = [b"HTTP/1.1 200 OK\r\n", &bytes[..]].concat();
        let _ = ResponseParser::new().parse(&after_line, method, &Limits::default());
    }

    /// A parser that is given other bytes than it was promised answers something.
    #[test]
    fn a_broken_promise_does_no_harm(one in requestish(), other in requestish()) {
        let mut parser = RequestParser::new();
        let _ = parser.parse(&one, &Limits::default());
        let _ = parser.parse(&other, &Limits::default());
        let _ = parser.parse(&one[..one.len() / 2], &Limits::default());
    }
}

/// What is wrong with a request line is said when it is whole, even if it could be a field.
#[test]
fn a_request_line_like_a_field_does_not_wait() {
    for start in ["", "\r\n"] {
        let mut parser = RequestParser::new();
        let first = format!("{start}O");
        assert!(parser.parse(first.as_bytes(), &Limits::default()).unwrap().is_none());
        let line = format!("{first}:TIONS / HTTP/1.1\r\n");
        let reject = parser.parse(line.as_bytes(), &Limits::default()).unwrap_err();
        assert_eq!(reject.status, 400, "{line:?}");
    }
}
