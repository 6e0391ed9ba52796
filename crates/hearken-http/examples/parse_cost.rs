//! Parses one request repeatedly, to be run under a profiler that counts instructions.
//!
//! Usage: `parse_cost small|browser|httparse-small|httparse-browser [COUNT]`

use std::hint::black_box;
use std::time::Instant;

use hearken_http::{Limits, RequestParser};

mod heads;
use heads::BROWSER;

const SMALL: &[u8] = b"GET /1b HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";

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
