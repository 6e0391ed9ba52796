//! Forwards one message repeatedly, to be run under a profiler that counts instructions.
//!
//! Usage: `forward_cost [parse-]small|small-v6|browser|post|proxied|response|chunked|relay [COUNT]`
//!
//! With the prefix `parse-`, each iteration also parses the head.

use std::hint::black_box;
use std::time::Instant;

use hearken_http::forward::{self, HeaderPolicy, Relay, RequestOptions, ResponseOptions, Rules};
use hearken_http::{Body, Limits, Method, RequestParser, ResponseParser, Version};

mod heads;
use heads::BROWSER;

const SMALL: &[u8] = b"GET /1k HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n";
const POST: &[u8] = b"POST /form HTTP/1.1\r\n\
    Host: www.example.org\r\n\
    Content-Type: application/x-www-form-urlencoded\r\n\
    Content-Length: 27\r\n\
    Connection: keep-alive\r\n\r\n";
const PROXIED: &[u8] = b"GET /1k HTTP/1.1\r\n\
    Host: www.example.org\r\n\
    User-Agent: x\r\n\
    X-Forwarded-For: 192.0.2.7\r\n\
    X-Forwarded-Proto: https\r\n\
    X-Forwarded-Host: www.example.org\r\n\
    Accept: */*\r\n\
    Connection: close\r\n\r\n";
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\n\
    Server: nginx/1.22.1\r\n\
    Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
    Content-Type: application/octet-stream\r\n\
    Content-Length: 1024\r\n\
    Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
    Connection: keep-alive\r\n\
    ETag: \"5f3e0123-400\"\r\n\
    Accept-Ranges: bytes\r\n\r\n";
const CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\n\
    Server: nginx/1.22.1\r\n\
    Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
    Content-Type: text/html\r\n\
    Transfer-Encoding: chunked\r\n\
    Connection: keep-alive\r\n\r\n";

fn main() {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap_or_default();
    let times: u32 = arguments.next().and_then(|times| times.parse().ok()).unwrap_or(10_000_000);
    let rules = Rules::new("hearken", HeaderPolicy::Replace, HeaderPolicy::Remove, true);
    let limits = Limits::default();
    let mut out = Vec::with_capacity(4096);
    let start = Instant::now();
    let parses = what.starts_with("parse-");
    match what.trim_start_matches("parse-") {
        "relay" => {
            let bytes = [b"400\r\n", &[b'x'; 1024][..], b"\r\n0\r\n\r\n"].concat();
            for _ in 0..times {
                out.clear();
                let relay = Relay::new(Body::Chunked, Body::Chunked, u64::MAX, &limits);
                let passed = relay.map(|mut relay| relay.forward(black_box(&bytes), &mut out));
                let _ = black_box(passed);
            }
        }
        head @ ("response" | "chunked") => {
            let bytes = if head == "chunked" { CHUNKED } else { RESPONSE };
            let to = ResponseOptions { version: Version::Http11, keep_alive: true, date: None };
            let mut parser = ResponseParser::new();
            let Ok(Some(mut response)) = parser.parse(bytes, Method::Get, &limits) else { return };
            for _ in 0..times {
                if parses {
                    match parser.parse(black_box(bytes), Method::Get, &limits) {
                        Ok(Some(parsed)) => response = parsed,
                        _ => return,
                    }
                }
                out.clear();
                black_box(forward::response(&rules, &mut out, black_box(&response), &to));
            }
        }
        head => {
            let bytes = match head {
                "browser" => BROWSER,
                "post" => POST,
                "proxied" => PROXIED,
                _ => SMALL,
            };
            let client = match head {
                "small-v6" => Some([0x2001, 0xdb8, 0, 0, 0x1234, 0x5678, 0x9abc, 0xdef0].into()),
                _ => Some([192, 168, 10, 20].into()),
            };
            let authority = b"127.0.0.1:9000";
            let to = RequestOptions {
                authority,
                client,
                is_secure: false,
                keep_alive: true,
                subject: None,
            };
            let mut parser = RequestParser::new();
            let Ok(Some(mut request)) = parser.parse(bytes, &limits) else { return };
            for _ in 0..times {
                if parses {
                    match parser.parse(black_box(bytes), &limits) {
                        Ok(Some(parsed)) => request = parsed,
                        _ => return,
                    }
                }
                out.clear();
                forward::request(&rules, &mut out, black_box(&request), black_box(&to));
            }
        }
    }
    println!("{:?} each", start.elapsed() / times);
}
