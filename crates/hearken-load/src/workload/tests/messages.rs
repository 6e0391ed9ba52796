//! Encoding of requests.

use hearken_http::{Body, Limits, Method, RequestParser};
use proptest::prelude::*;

use crate::url::Url;
use crate::workload::RequestTemplate;
use crate::workload::message::{Message, MessageBuilder, Request};

fn build(
    url: &str,
    template: &RequestTemplate,
    requests: &[Request<'_>],
) -> Result<Vec<Message>, String> {
    let url = Url::parse(url).unwrap();
    let mut builder = MessageBuilder::new(&url, template).map_err(|error| error.to_string())?;
    for request in requests {
        builder.add(request).map_err(|error| error.to_string())?;
    }
    Ok(builder.finish().into())
}

fn text(url: &str, fields: &[&str]) -> Result<String, String> {
    let headers = fields.iter().map(|&field| field.to_owned()).collect();
    let template = RequestTemplate { headers, ..RequestTemplate::default() };
    let message = build(url, &template, &[Request::new("/a?b#c")])?.remove(0);
    let parsed = RequestParser::new().parse(&message.bytes, &Limits::default());
    assert_eq!(parsed.unwrap().unwrap().head_len, message.bytes.len());
    Ok(String::from_utf8(message.bytes.into()).unwrap())
}

#[test]
fn requests_contain_default_and_given_fields() {
    let plain = text("http://h:81/x", &[]).unwrap();
    assert!(plain.starts_with("GET /a?b HTTP/1.1\r\nHost: h:81\r\nUser-Agent: hearken-load/"));
    let own = text("http://h/", &["HOST: other", "X-A:  b "]).unwrap();
    assert!(!own.contains("Host: h\r\n"), "{own}");
    assert!(own.contains("HOST: other\r\nX-A: b\r\n\r\n"), "{own}");
}

#[test]
fn rejects_invalid_fields() {
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
        assert!(error.contains(field), "{error}");
    }
}

#[test]
fn encodes_methods_and_bodies() {
    let body = Some(b"x=1".to_vec());
    let template = RequestTemplate { method: "PUT".to_owned(), body, ..RequestTemplate::default() };
    let get = Request { method: Some("GET"), ..Request::new("/") };
    let post = Request { method: Some("POST"), ..Request::new("/") };
    let own = Request { method: Some("PURGE"), body: Some(b"hello"), ..Request::new("/") };
    let requests = [Request::new("/"), get, post, own, get];
    let messages = build("http://h/", &template, &requests).unwrap();
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
    let have_zero_length: Vec<_> =
        messages.iter().map(|message| message.bytes.ends_with(zero)).collect();
    assert_eq!(have_zero_length, [false, false, true, false]);
    for invalid in ["", "get", "CONNECT", "connect", "G T", "GET\r\n", "É"] {
        let request = Request { method: Some(invalid), ..Request::new("/") };
        assert!(build("http://h/", &RequestTemplate::default(), &[request]).is_err(), "{invalid}");
        let template = RequestTemplate { method: invalid.to_owned(), ..RequestTemplate::default() };
        assert!(build("http://h/", &template, &[]).is_err(), "{invalid}");
    }
}

#[test]
fn all_targets_must_belong_to_one_server() {
    let all = |target| {
        let options = Request { method: Some("OPTIONS"), ..Request::new(target) };
        build("http://Host:80/x", &RequestTemplate::default(), &[options])
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
    assert!(build("http://h/", &RequestTemplate::default(), &[Request::new("*")]).is_err());
}

#[test]
fn equal_messages_are_stored_once() {
    let expect = "length=5".parse().unwrap();
    let checked = Request { expect: Some(&expect), ..Request::new("/") };
    let head = Request { method: Some("HEAD"), ..checked };
    let requests = [Request::new("/"), checked, Request::new("/#x"), checked, head];
    let messages = build("http://h/", &RequestTemplate::default(), &requests).unwrap();
    assert_eq!(messages.len(), 3);
    assert_eq!(messages[1].expect.as_deref(), Some(&expect));
    // Replies to HEAD have no content to check.
    assert_eq!((messages[0].expect.is_some(), messages[2].expect.is_some()), (false, false));
}

proptest! {
    // The encoded bytes are exactly one request.
    #[test]
    fn encoded_bytes_are_one_request(
        target in "[/*h][ -~\\r\\n]{0,20}|/[!-~]{0,20}|\\PC*",
        method in "[A-Z]{1,8}|[ -~\\r\\n]*",
        field in "[A-Za-z-]{1,9}: [ -~\\r\\n]{0,20}|\\PC*",
        body in any::<Option<Vec<u8>>>(),
    ) {
        let template = RequestTemplate { method, headers: vec![field], body, ..RequestTemplate::default() };
        if let Ok(messages) = build("http://h/", &template, &[Request::new(&target)]) {
            let bytes = &messages[0].bytes;
            let limits = Limits { max_target_bytes: 1 << 20, ..Limits::default() };
            // The parser may reject messages for reasons other than framing, such as an invalid Host field.
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
