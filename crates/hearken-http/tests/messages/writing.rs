//! Written heads, parsed again.

use hearken_http::{
    DateCache, Limits, Method, RequestParser, ResponseBody, ResponseHead, ResponseParser,
    format_http_date, head, parse_http_date, reason,
};
use proptest::prelude::*;

#[test]
fn every_status_can_be_parsed_again() {
    for status in 0..=u16::MAX {
        let mut out = Vec::new();
        ResponseHead::new(&mut out, status).content_length(0).end();
        let mut parser = ResponseParser::new();
        let response = parser.parse(&out, Method::Get, &Limits::default()).unwrap().unwrap();
        let want = if (100..1000).contains(&status) { status } else { 500 };
        assert_eq!(response.status, want);
        assert_eq!(response.reason, reason(want).as_bytes());
    }
}

#[test]
fn a_head_contains_the_given_fields() {
    let mut out = b"before".to_vec();
    let mut response = ResponseHead::new(&mut out, 416);
    response.date(&DateCache::new(0)).content_range_unsatisfied(10).field_u64("Age", u64::MAX);
    response.connection_keep_alive().chunked().end();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "beforeHTTP/1.1 416 Range Not Satisfiable\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n\
         Content-Range: bytes */10\r\nAge: 18446744073709551615\r\n\
         Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
}

#[test]
fn dates_are_limited_to_the_year_9999() {
    assert_eq!(&format_http_date(u64::MAX), b"Fri, 31 Dec 9999 23:59:59 GMT");
    for text in ["", "Sun, 06 Nov 1969 08:49:37 GMT", "\u{e9}", "Sun, 99 Nov 1994 08:49:37 GMT"] {
        assert_eq!(parse_http_date(text.as_bytes()), None, "{text:?}");
    }
}

proptest! {
    #[test]
    fn fields_cannot_inject_lines(
        name in prop::collection::vec(any::<u8>(), 0..10),
        value in prop::collection::vec(any::<u8>(), 0..30),
    ) {
        let mut out = Vec::new();
        ResponseHead::new(&mut out, 200).field(&name, &value).content_length(7).end();
        let mut parser = ResponseParser::new();
        let response = parser.parse(&out, Method::Get, &Limits::default()).unwrap().unwrap();
        prop_assert_eq!(response.fields().count(), 2);
        prop_assert_eq!(response.head_len, out.len());
    }

    #[test]
    fn request_lines_cannot_inject_lines(
        method in prop::collection::vec(any::<u8>(), 0..10),
        target in prop::collection::vec(any::<u8>(), 0..30),
    ) {
        let mut out = Vec::new();
        let target = [b"/", &target[..]].concat();
        head::request_line(&mut out, &method, &target);
        head::field(&mut out, "Host", "a");
        head::end(&mut out);
        if let Some(request) = RequestParser::new().parse(&out, &Limits::default()).unwrap_or(None) {
            prop_assert_eq!(request.fields().count(), 1);
            prop_assert_eq!(request.head_len, out.len());
        } else {
            prop_assert_eq!(method, b"CONNECT");
        }
    }

    #[test]
    fn numbers_are_written_in_decimal(number in prop_oneof![0u64..100, any::<u64>()]) {
        let mut out = Vec::new();
        ResponseHead::new(&mut out, 200).content_length(number).end();
        let mut parser = ResponseParser::new();
        let response = parser.parse(&out, Method::Get, &Limits::default()).unwrap().unwrap();
        let text = number.to_string();
        prop_assert!(response.field_values("Content-Length").eq([text.as_bytes()]));
        let body = if number == 0 { ResponseBody::None } else { ResponseBody::Length(number) };
        prop_assert_eq!(response.body, body);
    }

    #[test]
    fn dates_round_trip(second in 0u64..253_402_300_800) {
        prop_assert_eq!(parse_http_date(&format_http_date(second)), Some(second));
    }

    #[test]
    fn arbitrary_dates_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let _ = parse_http_date(&bytes);
    }
}
