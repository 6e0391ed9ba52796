//! Heads of requests and responses.

use hearken_http::{
    Limits, Method, Request, RequestParser, Response, ResponseBody, ResponseParser,
};

use crate::variation::{pieces, variation};

#[path = "../../hearken-http/tests/properties/reference/outcome.rs"]
mod outcome;
#[path = "../../hearken-http/tests/properties/reference/parser.rs"]
mod parser;

use outcome::outcome;
use parser::Failure;

fn limits(bytes: &[u8]) -> Limits {
    let mut random = variation(bytes);
    match random.u8(..4) {
        0 => Limits {
            max_head_bytes: random.usize(..200),
            max_fields: random.usize(..5),
            max_target_bytes: random.usize(..40),
        },
        _ => Limits::default(),
    }
}

// The parser agrees with the reference parser, for the whole input and for pieces of it.
#[test]
fn request_head() {
    bolero::check!().for_each(|bytes: &[u8]| {
        let limits = limits(bytes);
        let whole = RequestParser::new().parse(bytes, &limits);
        if let Ok(Some(request)) = whole {
            check_request(bytes, &request);
        }
        assert_eq!(outcome(whole), parser::parse(bytes, &limits));

        let (mut incremental, mut end) = (RequestParser::new(), 0);
        for piece in pieces(bytes) {
            end += piece.len();
            let got = outcome(incremental.parse(&bytes[..end], &limits));
            let want = parser::parse(&bytes[..end], &limits);
            if got == Err(Failure::Incomplete) {
                // The parser may report an error only at the end of the line or of the head.
                assert!(want.is_err(), "{want:?} is not reported at {end}");
            } else {
                assert_eq!(got, want);
                break;
            }
        }
    });
}

/// Checks that httparse understands the request in the same way, and that its parts restore it.
fn check_request(bytes: &[u8], request: &Request<'_>) {
    let mut headers = [httparse::EMPTY_HEADER; 100];
    let mut other = httparse::Request::new(&mut headers);
    match other.parse(bytes) {
        Ok(parsed) => {
            assert_eq!(parsed, httparse::Status::Complete(request.head_len));
            assert_eq!(other.method.map(str::as_bytes), Some(request.method.as_bytes()));
            assert_eq!(other.path.map(str::as_bytes), Some(request.raw_target));
            let others = other.headers.iter().map(|field| (field.name.as_bytes(), field.value));
            assert!(request.fields().eq(others));
        }
        // This parser treats later minor versions as 1.1.
        Err(error) => assert_eq!(error, httparse::Error::Version),
    }
    let parts = request.parts();
    let copy = bytes[..parts.head_len()].to_vec();
    let restored = parts.request(&copy);
    assert_eq!(outcome(Ok(Some(restored))), outcome(Ok(Some(*request))));
    assert!(restored.upgrade_protocols().eq(request.upgrade_protocols()));
    // With other bytes, the content is unspecified but nothing panics.
    let other = parts.request(&copy[..copy.len() / 2]);
    let _ = (outcome(Ok(Some(other))), other.upgrade_protocols().count(), other.is_plain());
}

fn describe(result: &Result<Option<Response<'_>>, hearken_http::Malformed>) -> String {
    match result {
        Ok(None) => "incomplete".to_owned(),
        Ok(Some(response)) => format!(
            "{:?} {} {:?} {:?} {} {} {:?} {:?} {:?}",
            response.version,
            response.status,
            response.reason,
            response.body,
            response.keep_alive,
            response.head_len,
            response.keep_alive_timeout(),
            response.upgrade_protocols().collect::<Vec<_>>(),
            response.fields().collect::<Vec<_>>(),
        ),
        Err(error) => error.to_string(),
    }
}

// The first byte selects the method of the request. The split into pieces does not change the result, and httparse
// finds the same fields.
#[test]
fn response_head() {
    bolero::check!().for_each(|bytes: &[u8]| {
        let Some((&first, bytes)) = bytes.split_first() else { return };
        let methods = [Method::Get, Method::Head, Method::Connect, Method::Other(b"X")];
        let method = methods[usize::from(first) % methods.len()];
        let limits = limits(bytes);
        let result = ResponseParser::new().parse(bytes, method, &limits);
        let want = describe(&result);
        if let Ok(Some(response)) = result {
            check_response(bytes, &response, method);
        }
        let (mut parser, mut end, mut got) = (ResponseParser::new(), 0, "incomplete".to_owned());
        for piece in pieces(bytes) {
            end += piece.len();
            got = describe(&parser.parse(&bytes[..end], method, &limits));
            if got != "incomplete" {
                break;
            }
        }
        if got == "incomplete" && want != "incomplete" {
            // An error may be reported only at the end of the line or of the head.
            let ended = [bytes, b"\r\n\r\n"].concat();
            got = describe(&parser.parse(&ended, method, &limits));
        }
        assert_eq!(got, want);
    });
}

fn check_response(bytes: &[u8], response: &Response<'_>, method: Method<'_>) {
    assert!((100..=999).contains(&response.status) && response.head_len <= bytes.len());
    if method == Method::Head || matches!(response.status, 100..=199 | 204 | 304) {
        assert_eq!(response.body, ResponseBody::None);
    }
    let mut headers = [httparse::EMPTY_HEADER; 100];
    let mut other = httparse::Response::new(&mut headers);
    // httparse accepts only minor versions 0 and 1.
    if let Ok(parsed) = other.parse(bytes) {
        assert_eq!(parsed, httparse::Status::Complete(response.head_len));
        assert_eq!(other.code, Some(response.status));
        let others = other.headers.iter().map(|field| (field.name.as_bytes(), field.value));
        assert!(response.fields().eq(others));
    }
}
