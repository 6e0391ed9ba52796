//! Requests as bytes.

use hearken_http::{Body, Limits, Method, RequestParser};
use proptest::prelude::*;

use crate::url::Url;
use crate::workload::Asking;
use crate::workload::message::{Maker, Message, Request};

fn made(url: &str, asking: &Asking, requests: &[Request<'_>]) -> Result<Vec<Message>, String> {
    let url = Url::parse(url).unwrap();
    let mut maker = Maker::new(&url, asking).map_err(|error| error.to_string())?;
    for request in requests {
        maker.add(request).map_err(|error| error.to_string())?;
    }
    Ok(maker.finish().into())
}

fn text(url: &str, fields: &[&str]) -> Result<String, String> {
    let headers = fields.iter().map(|&field| field.to_owned()).collect();
    let asking = Asking { headers, ..Asking::default() };
    let message = made(url, &asking, &[Request::of("/a?b#c")])?.remove(0);
    let parsed = RequestParser::new().parse(&message.bytes, &Limits::default());
    assert_eq!(parsed.unwrap().unwrap().head_len, message.bytes.len());
    Ok(String::from_utf8(message.bytes.into()).unwrap())
}

#[test]
fn a_request_is_what_it_should_be() {
    let plain = text("http://h:81/x", &[]).unwrap();
    assert!(plain.starts_with("GET /a?b HTTP/1.1\r\nHost: h:81\r\nUser-Agent: hearken-load/"));
    let own = text("http://h/", &["HOST: other", "X-A:  b "]).unwrap();
    assert!(!own.contains("Host: h\r\n"), "{own}");
    assert!(own.contains("HOST: other\r\nX-A: b\r\n\r\n"), "{own}");
}

#[test]
fn bad_fields_are_refused() {
    for field in [
        "",
        "none",
        ": v",
        "a b: c",
        "a: b\r\nc: d",
        "Content-Length: 5",
        "é: x",
        "expect: 100-continue",
        "TRANSFER-ENCODING: chunked",
    ] {
        let error = text("http://h/", &[field]).unwrap_err();
        assert!(error.contains("header"), "{error}");
    }
}

#[test]
fn methods_and_bodies() {
    let body = Some(b"x=1".to_vec());
    let asking = Asking { method: "PUT".to_owned(), body, ..Asking::default() };
    let get = Request { method: Some("GET"), ..Request::of("/") };
    let post = Request { method: Some("POST"), ..Request::of("/") };
    let own = Request { method: Some("PURGE"), body: Some(b"hello"), ..Request::of("/") };
    let requests = [Request::of("/"), get, post, own, get];
    let messages = made("http://h/", &asking, &requests).unwrap();
    let seen: Vec<_> = messages
        .iter()
        .map(|message| {
            let parsed = RequestParser::new().parse(&message.bytes, &Limits::default());
            let request = parsed.unwrap().unwrap();
            let body = &message.bytes[request.head_len..];
            (message.method, request.method, request.body, body)
        })
        .collect();
    let expected: [(_, _, _, &[u8]); 4] = [
        (Method::Put, Method::Put, Body::Length(3), b"x=1"),
        (Method::Get, Method::Get, Body::None, b""),
        (Method::Post, Method::Post, Body::None, b""),
        (Method::Other(b""), Method::Other(b"PURGE"), Body::Length(5), b"hello"),
    ];
    assert_eq!(seen, expected);
    let zero = b"\r\nContent-Length: 0\r\n\r\n";
    let said: Vec<_> = messages.iter().map(|message| message.bytes.ends_with(zero)).collect();
    assert_eq!(said, [false, false, true, false]);
    for bad in ["", "get", "CONNECT", "connect", "G T", "GET\r\n", "É"] {
        let request = Request { method: Some(bad), ..Request::of("/") };
        assert!(made("http://h/", &Asking::default(), &[request]).is_err(), "{bad}");
        let asking = Asking { method: bad.to_owned(), ..Asking::default() };
        assert!(made("http://h/", &asking, &[]).is_err(), "{bad}");
    }
}

#[test]
fn one_server() {
    let all = |target| {
        let options = Request { method: Some("OPTIONS"), ..Request::of(target) };
        made("http://Host:80/x", &Asking::default(), &[options])
    };
    for same in ["http://host/y", "HTTP://HOST:80/y", "//host", "/y", "*"] {
        assert!(all(same).is_ok(), "{same}");
    }
    for other in [
        "http://host:81/",
        "http://h/",
        "https://host/",
        "https://host:80/",
        "y",
        "",
        "/a b",
        "/ä",
        "**",
    ] {
        assert!(all(other).is_err(), "{other}");
    }
    let message = &all("http://host/y?z#f").unwrap()[0];
    assert!(message.bytes.starts_with(b"OPTIONS /y?z HTTP/1.1\r\nHost: Host:80\r\n"));
    assert!(made("http://h/", &Asking::default(), &[Request::of("*")]).is_err());
}

#[test]
fn the_same_is_kept_once() {
    let expect = "length=5".parse().unwrap();
    let checked = Request { expect: Some(&expect), ..Request::of("/") };
    let head = Request { method: Some("HEAD"), ..checked };
    let requests = [Request::of("/"), checked, Request::of("/#x"), checked, head];
    let messages = made("http://h/", &Asking::default(), &requests).unwrap();
    assert_eq!(messages.len(), 3);
    assert_eq!(messages[1].expect.as_deref(), Some(&expect));
    // Nothing can be asked of content that is not there.
    assert_eq!((messages[0].expect.is_some(), messages[2].expect.is_some()), (false, false));
}

proptest! {
    /// Whatever is asked for, what is sent is that one request.
    #[test]
    fn framing_holds(
        target in "[/*h][ -~\\r\\n]{0,20}|/[!-~]{0,20}|\\PC*",
        method in "[A-Z]{1,8}|[ -~\\r\\n]*",
        field in "[A-Za-z-]{1,9}: [ -~\\r\\n]{0,20}|\\PC*",
        body in any::<Option<Vec<u8>>>(),
    ) {
        let asking = Asking { method, headers: vec![field], body, expect: None };
        if let Ok(messages) = made("http://h/", &asking, &[Request::of(&target)]) {
            let bytes = &messages[0].bytes;
            let limits = Limits { target_bytes: 1 << 20, ..Limits::default() };
            // Only what is no fault of the framing may be refused, such as a strange Host.
            if let Ok(parsed) = RequestParser::new().parse(bytes, &limits) {
                let parsed = parsed.unwrap();
                let length = match parsed.body {
                    Body::None => 0,
                    Body::Length(length) => length as usize,
                    Body::Chunked => unreachable!(),
                };
                prop_assert_eq!(parsed.head_len + length, bytes.len());
            }
        }
    }
}
