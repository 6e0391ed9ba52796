//! Parses one request many times, to be run under a profiler that counts instructions.
//!
//! `parse_cost small|browser|httparse-small|httparse-browser [times]`

use std::hint::black_box;
use std::time::Instant;

use hearken_http::{Limits, RequestParser};

const SMALL: &[u8] = b"GET /1b HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
const BROWSER: &[u8] = b"GET /static/css/site.css?v=20240101 HTTP/1.1\r\n\
    Host: www.example.org\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n\
    Accept: text/css,*/*;q=0.1\r\n\
    Accept-Language: en-US,en;q=0.5\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\n\
    Referer: https://www.example.org/index.html\r\n\
    Connection: keep-alive\r\n\
    Cookie: session=0123456789abcdef0123456789abcdef; theme=dark\r\n\
    If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
    If-None-Match: \"5f3e-0123456789abc\"\r\n\r\n";

fn main() {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap_or_default();
    let times: u32 = arguments.next().and_then(|times| times.parse().ok()).unwrap_or(10_000_000);
    let bytes = if what.ends_with("browser") { BROWSER } else { SMALL };
    let limits = Limits::default();
    let mut parser = RequestParser::new();
    let start = Instant::now();
    for _ in 0..times {
        if what.starts_with("httparse") {
            let mut headers = [httparse::EMPTY_HEADER; 16];
            let mut request = httparse::Request::new(&mut headers);
            let _ = black_box(request.parse(black_box(bytes)));
            black_box(&request);
        } else {
            let _ = black_box(parser.parse(black_box(bytes), &limits));
        }
    }
    println!("{} bytes: {:?} each", bytes.len(), start.elapsed() / times);
}
