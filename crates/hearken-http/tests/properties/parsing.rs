//! Properties of incremental parsing.

use hearken_http::{Limits, Reject, Request, RequestParser, ResponseParser, Version};
use proptest::prelude::*;

/// Formats all public properties of a request.
fn describe(result: Result<Option<Request<'_>>, Reject>) -> String {
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

/// Returns a strategy for exactly these bytes.
fn literal(bytes: &'static [u8]) -> Just<&'static [u8]> {
    Just(bytes)
}

/// Generates bytes that resemble a request to varying degrees.
fn request_like() -> impl Strategy<Value = Vec<u8>> {
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
        1 => Just(Limits { max_head_bytes: 80, max_fields: 4, max_target_bytes: 12 }),
        1 => (0usize..100, 0usize..5, 0usize..20).prop_map(|(head, lines, target)| {
            Limits { max_head_bytes: head, max_fields: lines, max_target_bytes: target }
        }),
    ]
}

proptest! {
    #![proptest_config(crate::cases(1000))]

    // The first result for an incremental parse equals the result for all bytes. It may be returned later,
    // but no later than at the end of the head.
    #[test]
    fn the_split_into_pieces_does_not_change_the_result(
        bytes in request_like(),
        limits in limits(),
        steps in prop::collection::vec(1usize..20, 1..4),
    ) {
        let want = describe(RequestParser::new().parse(&bytes, &limits));
        let mut parser = RequestParser::new();
        let mut result = String::new();
        let mut steps = steps.iter().cycle();
        let mut end = 0;
        while end < bytes.len() && (result.is_empty() || result == "incomplete") {
            end = bytes.len().min(end + steps.next().unwrap());
            result = describe(parser.parse(&bytes[..end], &limits));
        }
        if result == "incomplete" && want != "incomplete" {
            let ended = [&bytes, &b"\r\n\r\n"[..]].concat();
            result = describe(parser.parse(&ended, &limits));
        }
        prop_assert!(bytes.is_empty() || result == want, "{result:?} is not {want:?}");
    }

    // More bytes can complete an incomplete request but never change a result.
    #[test]
    fn a_result_is_final(bytes in request_like(), more in request_like(), limits in limits()) {
        let before = describe(RequestParser::new().parse(&bytes, &limits));
        if before != "incomplete" {
            let both = [bytes, more].concat();
            prop_assert_eq!(describe(RequestParser::new().parse(&both, &limits)), before);
        }
    }

    #[test]
    fn httparse_accepts_every_accepted_request(bytes in request_like()) {
        if let Ok(Some(request)) = RequestParser::new().parse(&bytes, &Limits::default()) {
            // httparse rejects minor versions above 1, which this parser treats as 1.1.
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
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = RequestParser::new().parse(&bytes, &Limits::default());
        let after_line = [b"GET / HTTP/1.1\r\n", &bytes[..]].concat();
        let _ = RequestParser::new().parse(&after_line, &Limits::default());
        let method = hearken_http::Method::Get;
        let _ = ResponseParser::new().parse(&bytes, method, &Limits::default());
        let after_line = [b"HTTP/1.1 200 OK\r\n", &bytes[..]].concat();
        let _ = ResponseParser::new().parse(&after_line, method, &Limits::default());
    }

    // A parser that is called with unrelated bytes does not panic.
    #[test]
    fn unrelated_bytes_do_not_panic(one in request_like(), other in request_like()) {
        let mut parser = RequestParser::new();
        let _ = parser.parse(&one, &Limits::default());
        let _ = parser.parse(&other, &Limits::default());
        let _ = parser.parse(&one[..one.len() / 2], &Limits::default());
    }
}

// An invalid request line is rejected when it is complete, even if it resembles a field line.
#[test]
fn a_request_line_that_resembles_a_field_is_rejected_at_its_end() {
    for start in ["", "\r\n"] {
        let mut parser = RequestParser::new();
        let first = format!("{start}O");
        assert!(parser.parse(first.as_bytes(), &Limits::default()).unwrap().is_none());
        let line = format!("{first}:TIONS / HTTP/1.1\r\n");
        let reject = parser.parse(line.as_bytes(), &Limits::default()).unwrap_err();
        assert_eq!(reject.status, 400, "{line:?}");
    }
}
