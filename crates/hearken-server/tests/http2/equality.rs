//! A request has the same response over HTTP/1.1 and HTTP/2, from every handler.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::client::{connect, exchange, request, run};
use crate::common::server::enable_admin;
use crate::common::{Connection, Kind, Origin, Setup, Site};

/// A request, without its authority.
#[derive(Clone, Debug)]
struct Case {
    method: &'static str,
    path: &'static str,
    fields: Vec<(&'static str, &'static str)>,
    content: Vec<u8>,
}

/// The status, the fields and the content of a response.
type Reply = (u16, BTreeMap<String, Vec<String>>, Vec<u8>);

/// Fields that differ between the protocols or in time.
const IGNORED: &[&str] = &["connection", "keep-alive", "transfer-encoding", "date"];

/// Fields whose values depend on the time or on the connection.
const VARYING: &[&str] = &["etag", "x-request"];

fn normalised(fields: impl Iterator<Item = (String, String)>) -> BTreeMap<String, Vec<String>> {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in fields.filter(|(name, _)| !IGNORED.contains(&name.as_str())) {
        let value = if VARYING.contains(&name.as_str()) { String::new() } else { value };
        all.entry(name).or_default().push(value);
    }
    all
}

fn over_http1(addr: SocketAddr, case: &Case) -> Reply {
    let mut connection = Connection::connect(addr, Kind::Response);
    let mut head = format!("{} {} HTTP/1.1\r\nHost: {addr}\r\n", case.method, case.path);
    for (name, value) in &case.fields {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if !case.content.is_empty() {
        head.push_str(&format!("Content-Length: {}\r\n", case.content.len()));
    }
    head.push_str("\r\n");
    connection.send([head.as_bytes(), &case.content].concat());
    let kind = if case.method == "HEAD" { Kind::Bodiless } else { Kind::Response };
    let response = connection.final_response(kind).expect("a response");
    let fields = normalised(response.fields.clone().into_iter());
    (response.status(), fields, response.body)
}

fn over_http2(addr: SocketAddr, case: &Case) -> Reply {
    run(async {
        let mut send = connect(addr).await;
        let mut request = request(case.method, case.path);
        *request.uri_mut() = format!("http://{addr}{}", case.path).parse().unwrap();
        for (name, value) in &case.fields {
            request.headers_mut().append(*name, value.parse().unwrap());
        }
        if !case.content.is_empty() {
            request.headers_mut().insert("content-length", case.content.len().into());
        }
        let reply = exchange(&mut send, request, &case.content).await.unwrap();
        let text = |value: &http::HeaderValue| value.to_str().unwrap().to_owned();
        let fields = reply.fields.iter().map(|(name, value)| (name.to_string(), text(value)));
        (reply.status, normalised(fields), reply.content)
    })
}

/// Compares the responses to random requests.
fn compare(addr: SocketAddr, paths: &'static [&'static str]) {
    let methods = &["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PROPFIND"];
    let fields: &[(&str, &str)] = &[
        ("range", "bytes=1-3"),
        ("range", "bytes=0-0,2-3"),
        ("range", "bytes=9999999-"),
        ("if-none-match", "*"),
        ("if-match", "\"x\""),
        ("if-modified-since", "Fri, 01 Jan 2100 00:00:00 GMT"),
        ("accept-encoding", "gzip"),
        ("cookie", "a=1; b=2"),
        ("max-forwards", "0"),
        ("expect", "100-continue"),
        ("origin", "http://other"),
        ("x-custom", "value"),
        ("te", "trailers"),
    ];
    let content = prop_oneof![3 => Just(0), 1 => 1..100usize, 1 => 100_000..200_000usize];
    let cases = (
        prop_oneof![Just("GET"), proptest::sample::select(methods)],
        proptest::sample::select(paths),
        proptest::sample::subsequence(fields, 0..3),
        content.prop_map(|length| vec![b'c'; length]),
    );
    let cases = cases.prop_map(|(method, path, fields, content)| {
        // A boundary is random, and 100-continue needs content.
        let is_allowed = |(name, value): &(&str, &str)| {
            *value != "bytes=0-0,2-3" && (*name != "expect" || !content.is_empty())
        };
        let fields = fields.into_iter().filter(is_allowed).collect();
        Case { method, path, fields, content }
    });
    let mut runner = TestRunner::new(Config { cases: 200, ..Config::default() });
    let result = runner.run(&cases, |case| {
        prop_assert_eq!(over_http1(addr, &case), over_http2(addr, &case));
        Ok(())
    });
    result.unwrap();
}

#[test]
fn of_static_files() {
    let site = Site::with_large();
    std::fs::create_dir(site.root().join("dir")).unwrap();
    let server = Setup::named("epoll-edge").serve(&site, |_| {});
    let paths = &[
        "/small",
        "/inline",
        "/cached",
        "/large",
        "/empty",
        "/dir",
        "/dir/",
        "/",
        "/nothing",
        "/.x",
        "/small?query",
        "/%73mall",
        "/../x",
        "/a%00b",
    ];
    compare(server.addr(), paths);
}

#[test]
fn of_proxies() {
    let origin = Origin::new(|mut peer| {
        while let Some(request) = peer.request() {
            // The request as received, except for fields that describe its connection.
            let mut text = format!("{} {}\n", request.method(), request.target());
            let mut fields = request.fields.clone();
            fields.retain(|(name, _)| !name.starts_with("x-forwarded") && name != "host");
            fields.sort();
            for (name, value) in fields {
                // `Via` names the protocol in which the request was received.
                let value =
                    value.strip_prefix("2.0 ").or(value.strip_prefix("1.1 ")).unwrap_or(&value);
                text.push_str(&format!("{name}: {value}\n"));
            }
            text.push_str(&format!("{} bytes\n", request.body.len()));
            let length = text.len();
            let is_bodiless = request.method() == "HEAD";
            let body = if is_bodiless { String::new() } else { text.clone() };
            let response = match request.target() {
                "/chunked" if is_bodiless => "200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".into(),
                "/chunked" => format!(
                    "200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{length:x}\r\n{body}\r\n0\r\n\r\n"
                ),
                "/close" => format!("200 OK\r\nConnection: close\r\n\r\n{body}"),
                "/none" => "204 No Content\r\nX-A: 1\r\nX-A: 2\r\n\r\n".into(),
                "/early" => format!(
                    "103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\n\
                    Content-Length: {length}\r\n\r\n{body}"
                ),
                "/bad" => "what\r\n\r\n".into(),
                "/error" => {
                    format!("500 Internal Server Error\r\nContent-Length: {length}\r\n\r\n{body}")
                }
                _ => format!("200 OK\r\nContent-Length: {length}\r\nKeep-Alive: x\r\n\r\n{body}"),
            };
            peer.connection.send(format!("HTTP/1.1 {response}"));
            if request.target() == "/close" {
                return;
            }
        }
    });
    let proxy = Setup::named("epoll-edge").proxy(&[origin.addr()], |_| {});
    compare(
        proxy.addr(),
        &["/", "/chunked", "/close", "/none", "/early", "/bad", "/error", "/a?b=c"],
    );
}

#[test]
fn of_the_admin_address() {
    let site = Site::new();
    let server = Setup::named("epoll-edge").serve(&site, enable_admin);
    let admin = server.admin_addr().unwrap();
    compare(admin, &["/healthz", "/upstreams", "/nothing", "/upstreams/x/drain"]);
}
