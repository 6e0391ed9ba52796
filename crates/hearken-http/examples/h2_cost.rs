//! Receives one HTTP/2 request and answers it repeatedly, to be run under a profiler that counts instructions.
//!
//! Usage: `h2_cost repeated|literal|client|connection|peer [COUNT]`
//!
//! - `repeated`: a server, and requests whose fields are in the dynamic table.
//! - `literal`: a server, and requests whose fields are Huffman-coded literals.
//! - `client`: a client that sends the repeated request and receives the answer.
//! - `connection`: a server's new connection with one request.
//! - `peer`: the server of the `h2` crate instead, with the requests of `repeated`.
//!
//! The request is that of a browser with nine fields. The response has six fields and a body of 100 bytes.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use hearken_http::h2::{Config, Connection, Event, HeadBuffer, Limits};
use hearken_http::{Request, RequestParser};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

mod heads;
use heads::BROWSER;

const FIELDS: [(&str, &str); 6] = [
    ("Server", "hearken"),
    ("Date", "Sun, 06 Nov 1994 08:49:37 GMT"),
    ("Content-Type", "text/css; charset=utf-8"),
    ("Content-Length", "100"),
    ("Last-Modified", "Sat, 05 Nov 1994 08:49:37 GMT"),
    ("ETag", "\"5f3e-0123456789abc\""),
];

/// A WINDOW_UPDATE frame that permits 2 GB of content.
const WINDOW: &[u8] = b"\0\0\x04\x08\0\0\0\0\0\x7f\0\0\0";

/// Receives requests and answers each.
fn serve(server: &mut Connection, mut input: &[u8], head: &mut HeadBuffer, out: &mut Vec<u8>) {
    while let Ok(Some(event)) = server.receive(&mut input, head, out) {
        if let Event::Request { stream, request, .. } = event {
            black_box(&request);
            server.respond(stream, 200, FIELDS, false, out);
            server.send_data(stream, &[b'x'; 100], true, out);
        }
    }
}

/// Receives responses.
fn collect(client: &mut Connection, mut input: &[u8], head: &mut HeadBuffer, out: &mut Vec<u8>) {
    while let Ok(Some(event)) = client.receive(&mut input, head, out) {
        match event {
            Event::Data { stream, data, .. } => client.release(stream, data.len(), out),
            event => drop(black_box(event)),
        }
    }
}

/// Writes the stream identifier into the frames of `bytes`.
fn set_stream(bytes: &mut [u8], stream: u32) {
    let mut at = 0;
    while let Some(header) = bytes.get_mut(at..at + 9) {
        header[5..].copy_from_slice(&stream.to_be_bytes());
        at += 9 + u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
    }
}

/// Lets the `h2` crate answer `times` requests that follow `first` requests of the same connection.
fn serve_by_peer(first: &[u8], mut request: Vec<u8>, times: u32) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().build() else { return };
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let (mut near, far) = tokio::io::duplex(1 << 16);
        tokio::task::spawn_local(async move {
            let Ok(mut server) = h2::server::handshake(far).await else { return };
            while let Some(Ok((request, mut respond))) = server.accept().await {
                black_box(&request);
                let mut response = http::Response::builder();
                for (name, value) in FIELDS {
                    response = response.header(name, value);
                }
                let Ok(response) = response.body(()) else { return };
                let Ok(mut stream) = respond.send_response(response, false) else { return };
                let _ = stream.send_data(Bytes::from_static(&[b'x'; 100]), true);
            }
        });
        let mut buffer = [0; 4096];
        let _ = near.write_all(first).await;
        let start = Instant::now();
        for count in 0..times {
            set_stream(&mut request, 2 * count + 9);
            let _ = near.write_all(&request).await;
            let _ = near.read(&mut buffer).await;
        }
        println!("{:?} each", start.elapsed() / times);
    });
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap_or_default();
    let times: u32 = arguments.next().and_then(|times| times.parse().ok()).unwrap_or(1_000_000);
    let encoder_table_bytes = if what == "literal" { 0 } else { 4096 };
    let limits = Limits { encoder_table_bytes, ..Limits::default() };
    let (client_config, config) =
        (Arc::new(Config { limits, ..Config::default() }), Arc::new(Config::default()));
    let request = RequestParser::new().parse(BROWSER, &Default::default());
    let Ok(Some(request)) = request else { return };

    // Several rounds fill both tables. Then the messages differ only in their stream.
    let (mut to_server, mut to_client, mut head) = (Vec::new(), Vec::new(), HeadBuffer::new());
    let mut client = Connection::client(client_config, &mut to_server);
    let mut server = Connection::server(Arc::clone(&config), &mut to_client);
    to_server.extend_from_slice(WINDOW);
    let (mut first, mut all) = (Vec::new(), Vec::new());
    let mut rounds = 0;
    let mut round = |client: &mut Connection, server: &mut Connection, request: &Request<'_>| {
        let start = to_server.len();
        let _ = client.send_request(request, true, &mut to_server);
        let bytes_in = to_server[start..].to_vec();
        if rounds == 0 {
            first = to_server.clone();
        }
        all.extend_from_slice(&to_server);
        serve(server, &to_server, &mut head, &mut to_client);
        to_server.clear();
        let bytes_out = to_client.clone();
        collect(client, &to_client, &mut head, &mut to_server);
        to_client.clear();
        rounds += 1;
        (bytes_in, bytes_out)
    };
    for _ in 0..3 {
        round(&mut client, &mut server, &request);
    }
    let (mut bytes_in, mut bytes_out) = round(&mut client, &mut server, &request);

    if what == "peer" {
        return serve_by_peer(&all, bytes_in, times);
    }
    let mut out = Vec::new();
    let mut head = HeadBuffer::new();
    let start = Instant::now();
    for count in 0..times {
        out.clear();
        let stream = 2 * count + 9;
        match what.as_str() {
            "client" => {
                let _ = client.send_request(&request, true, &mut out);
                set_stream(&mut bytes_out, stream);
                collect(&mut client, black_box(&bytes_out), &mut head, &mut out);
            }
            "connection" => {
                let mut server = Connection::server(Arc::clone(&config), &mut out);
                serve(&mut server, black_box(&first), &mut head, &mut out);
            }
            _ => {
                set_stream(&mut bytes_in, stream);
                serve(&mut server, black_box(&bytes_in), &mut head, &mut out);
            }
        }
    }
    let each = start.elapsed() / times;
    println!("{} bytes in, {} out: {each:?} each", bytes_in.len(), out.len());
}
