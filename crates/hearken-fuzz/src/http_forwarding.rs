//! Forwarded heads: they are valid, mean the same, and contain no field that could smuggle a request.

use std::net::IpAddr;

use hearken_http::forward::{self, HeaderPolicy, RequestOptions, ResponseOptions, Rules};
use hearken_http::{
    Body, Limits, Method, RequestParser, Response, ResponseBody, ResponseParser, Version,
};

use crate::variation::variation;

/// Limits that a forwarded head cannot exceed.
const LARGE: Limits =
    Limits { max_head_bytes: 1 << 20, max_fields: 1000, max_target_bytes: 1 << 16 };

/// Fields that concern a single connection, without those that the proxy sets itself.
const HOP_BY_HOP: [&str; 6] = [
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-authentication-info",
    "http2-settings",
];

/// Returns how many fields an origin that maps fields to CGI variables takes for `name`.
fn count<'b>(fields: impl Iterator<Item = (&'b [u8], &'b [u8])>, name: &str) -> usize {
    let canonical = |field: &[u8]| {
        field
            .iter()
            .map(|byte| if *byte == b'_' { b'-' } else { byte.to_ascii_lowercase() })
            .collect::<Vec<_>>()
    };
    fields.filter(|(field, _)| canonical(field) == name.as_bytes()).count()
}

/// Returns the rules that the input selects.
fn rules(random: &mut fastrand::Rng) -> Rules {
    let policies =
        [HeaderPolicy::Replace, HeaderPolicy::Append, HeaderPolicy::Keep, HeaderPolicy::Remove];
    let via = ["", "me"][random.usize(..2)];
    let (x_forwarded, forwarded) = (policies[random.usize(..4)], policies[random.usize(..4)]);
    Rules::new(via, x_forwarded, forwarded, random.bool())
}

#[test]
fn forwarded_request() {
    bolero::check!().for_each(|bytes: &[u8]| {
        let Ok(Some(received)) = RequestParser::new().parse(bytes, &Limits::default()) else {
            return;
        };
        let mut random = variation(bytes);
        let rules = rules(&mut random);
        let client = [None, Some(IpAddr::from([192, 0, 2, 1])), Some(IpAddr::from([9; 16]))];
        let to = RequestOptions {
            authority: b"o:9",
            client: client[random.usize(..3)],
            keep_alive: random.bool(),
            is_secure: random.bool(),
            subject: None,
        };
        let mut out = Vec::new();
        forward::request(&rules, &mut out, &received, &to);
        let head_len = out.len();
        out.extend_from_slice(b"GET /smuggled HTTP/1.1\r\n");
        let sent = RequestParser::new().parse(&out, &LARGE);
        let sent = sent.ok().flatten().unwrap_or_else(|| panic!("invalid: {}", out.escape_ascii()));
        assert_eq!((sent.head_len, sent.version), (head_len, Version::Http11));
        assert_eq!((sent.method, sent.body), (received.method, received.body));
        assert_eq!(sent.expect_continue, received.expect_continue);
        if sent.raw_target != b"*" {
            assert_eq!(sent.target().path_and_query(), received.target().path_and_query());
        }
        assert_eq!(count(sent.fields(), "host"), 1);
        assert_eq!(
            count(sent.fields(), "transfer-encoding"),
            usize::from(received.body == Body::Chunked)
        );
        assert!(
            count(sent.fields(), "content-length") <= usize::from(received.body != Body::Chunked)
        );
        for name in HOP_BY_HOP {
            assert_eq!(count(sent.fields(), name), 0, "{name}");
        }
        let is_upgrade = forward::forwards_upgrade(&received);
        assert_eq!(count(sent.fields(), "upgrade") > 0, is_upgrade);
        assert_eq!(sent.keep_alive, to.keep_alive || is_upgrade);
        // Another parser finds the same fields in the same place.
        let mut headers = [httparse::EMPTY_HEADER; 200];
        let mut other = httparse::Request::new(&mut headers);
        assert_eq!(other.parse(&out), Ok(httparse::Status::Complete(head_len)));
        let others = other.headers.iter().map(|field| (field.name.as_bytes(), field.value));
        assert!(sent.fields().eq(others));
        let _ = (forward::is_loop(&rules, &received), forward::max_forwards(&received));
    });
}

fn parse<'b>(bytes: &'b [u8], method: Method<'_>, limits: &Limits) -> Option<Response<'b>> {
    ResponseParser::new().parse(bytes, method, limits).ok().flatten()
}

#[test]
fn forwarded_response() {
    bolero::check!().for_each(|bytes: &[u8]| {
        let mut random = variation(bytes);
        let method = [Method::Get, Method::Head][random.usize(..2)];
        let Some(received) = parse(bytes, method, &Limits::default()) else { return };
        let rules = rules(&mut random);
        let version = [Version::Http10, Version::Http11][random.usize(..2)];
        let to = ResponseOptions { version, keep_alive: random.bool(), date: None };
        let mut out = Vec::new();
        if received.status < 200 {
            forward::interim(&rules, &mut out, &received);
            let sent = parse(&out, method, &LARGE).expect("a forwarded interim response is valid");
            assert_eq!((sent.status, sent.head_len), (received.status, out.len()));
            return;
        }
        let body = forward::response(&rules, &mut out, &received, &to);
        let head_len = out.len();
        out.extend_from_slice(b"HTTP/1.1 200 Smuggled\r\n");
        let sent = parse(&out, method, &LARGE);
        let sent = sent.unwrap_or_else(|| panic!("invalid: {}", out.escape_ascii()));
        assert_eq!((sent.head_len, sent.status), (head_len, received.status));
        assert_eq!((sent.body, sent.reason), (body, received.reason));
        match (received.body, version) {
            (ResponseBody::None | ResponseBody::Length(_), _) => assert_eq!(body, received.body),
            (_, Version::Http11 | Version::Http2) => assert_eq!(body, ResponseBody::Chunked),
            (_, Version::Http10) => assert_eq!(body, ResponseBody::UntilClose),
        }
        for name in HOP_BY_HOP.iter().chain(&["te", "upgrade"]) {
            assert_eq!(count(sent.fields(), name), 0, "{name}");
        }
        assert_eq!(
            count(sent.fields(), "transfer-encoding"),
            usize::from(body == ResponseBody::Chunked)
        );
    });
}
