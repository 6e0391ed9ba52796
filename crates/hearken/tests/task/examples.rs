//! The examples, over the mechanism that they select by default.

use std::future::Future;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc;
use std::thread;

use hearken::task::{self, Stopper, TcpListener};

use crate::net::{loopback, pattern};
use crate::suite::{Tests, tests};

#[allow(dead_code)]
#[path = "../../examples/task_chat.rs"]
mod task_chat;
#[allow(dead_code)]
#[path = "../../examples/task_echo.rs"]
mod task_echo;
#[allow(dead_code)]
#[path = "../../examples/task_hyper.rs"]
mod task_hyper;
#[allow(dead_code)]
#[path = "../../examples/task_hyper_services.rs"]
mod task_hyper_services;
#[allow(dead_code)]
#[path = "../../examples/task_proxy.rs"]
mod task_proxy;

/// Returns the tests of this module.
pub(crate) fn tests() -> Tests {
    tests! {
        echo_returns_what_it_receives
        chat_distributes_lines
        hyper_says_hello
        hyper_runs_its_services
        proxy_forwards_both_directions
    }
}

/// Runs a server while `client` uses it, and stops it.
fn with_server<F: Future<Output = std::io::Result<()>> + 'static>(
    serve: impl FnOnce(TcpListener) -> F + Send + 'static,
    client: impl FnOnce(SocketAddr),
) {
    let (sender, receiver) = mpsc::channel::<(SocketAddr, Stopper)>();
    let server = thread::spawn(move || {
        task::block_on("auto", async move {
            let listener = TcpListener::bind(loopback()).unwrap();
            sender.send((listener.local_addr().unwrap(), task::stopper())).unwrap();
            serve(listener).await
        })
        .unwrap()
    });
    let (address, stopper) = receiver.recv().unwrap();
    client(address);
    stopper.stop();
    assert_eq!(server.join().unwrap().unwrap_err().to_string(), "the executor stops");
}

/// Sends bytes and the end of the stream, and checks that they come back.
fn check_echo(address: SocketAddr) {
    let mut stream = TcpStream::connect(address).unwrap();
    let bytes = pattern(1 << 20);
    let (mut sender, sent) = (stream.try_clone().unwrap(), bytes.clone());
    let sending = thread::spawn(move || {
        sender.write_all(&sent).unwrap();
        sender.shutdown(Shutdown::Write).unwrap();
    });
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    sending.join().unwrap();
    assert!(received == bytes, "the received bytes differ");
}

fn echo_returns_what_it_receives() {
    with_server(task_echo::serve, check_echo);
}

fn proxy_forwards_both_directions() {
    with_server(task_echo::serve, |upstream| {
        with_server(move |listener| task_proxy::serve(listener, upstream), check_echo);
    });
}

fn chat_distributes_lines() {
    with_server(task_chat::serve, |address| {
        let mut clients: Vec<_> =
            (0..3).map(|_| BufReader::new(TcpStream::connect(address).unwrap())).collect();
        let mut line = String::new();
        // Clients have joined when the lines of one reach the others, in order.
        for number in 0..3 {
            let mut heard = Vec::new();
            clients[number].get_mut().write_all(b"hello\nall\n").unwrap();
            for (other, client) in clients.iter_mut().enumerate() {
                if other != number {
                    for _ in 0..2 {
                        line.clear();
                        client.read_line(&mut line).unwrap();
                        heard.push(line.clone());
                    }
                }
            }
            let name = number + 1;
            let lines = [format!("{name}: hello\n"), format!("{name}: all\n")];
            assert_eq!(heard, [&lines[..], &lines[..]].concat());
        }
    });
}

fn hyper_says_hello() {
    with_server(task_hyper::serve, |address| {
        let mut stream = TcpStream::connect(address).unwrap();
        let request = "GET / HTTP/1.1\r\nhost: test\r\n";
        write!(stream, "{request}\r\n{request}connection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert_eq!(text.matches("Hello World!").count(), 2, "{text}");
    });
}

fn hyper_runs_its_services() {
    with_server(task_hyper_services::serve, |address| {
        for (request, body, expected) in [
            ("POST /echo", "abc", "\r\nabc"),
            ("POST /echo/uppercase", "abc", "\r\nABC"),
            ("POST /echo/reversed", "abc", "\r\ncba"),
            ("POST /json", "{\"a\":1}", "{\"a\":1,\"test\":\"hearken\"}"),
            ("GET /client", "", "{\"test\":\"hearken\",\"value\":1}"),
            ("GET /", "", "404 Not Found"),
        ] {
            let mut stream = TcpStream::connect(address).unwrap();
            let length = body.len();
            let fields = format!("host: test\r\nconnection: close\r\ncontent-length: {length}");
            write!(stream, "{request} HTTP/1.1\r\n{fields}\r\n\r\n{body}").unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            assert!(text.contains(expected), "{request}: {text}");
        }

        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET /upgrade HTTP/1.1\r\nhost: test\r\nconnection: upgrade\r\nupgrade: foobar\r\n\r\nfirst").unwrap();
        let mut text = String::new();
        let mut bytes = [0; 64];
        while !text.ends_with("\r\n\r\nFIRST") {
            let count = stream.read(&mut bytes).unwrap();
            assert_ne!(count, 0, "{text}");
            text.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
        }
        assert!(text.starts_with("HTTP/1.1 101 "), "{text}");
        stream.write_all(b"second").unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        text.clear();
        stream.read_to_string(&mut text).unwrap();
        assert_eq!(text, "SECOND");
    });
}
