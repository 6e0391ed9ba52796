//! `hearken proxy` with clients over TLS.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use super::{Site, request};

/// Starts a server that answers each connection with one response. Returns its address and the heads
/// that it receives.
pub(super) fn origin() -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (sender, heads) = mpsc::channel();
    thread::spawn(move || {
        for socket in listener.incoming() {
            let Ok(head) = answer(socket.unwrap()) else { continue };
            if sender.send(head).is_err() {
                return;
            }
        }
    });
    (address, heads)
}

fn answer(mut socket: TcpStream) -> std::io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte)?;
        head.extend_from_slice(&byte);
    }
    socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")?;
    Ok(String::from_utf8_lossy(&head).into_owned())
}

#[test]
fn forwards_requests_from_clients_over_tls() {
    let site = Site::new();
    let (address, heads) = origin();
    let forwarded = "headers.forwarded=\"replace\"";
    let config = site.path("proxy.toml");
    std::fs::write(&config, forwarded).unwrap();
    let config = config.to_str().unwrap();
    let (_proxy, port) = site.start(&["proxy", "--to", &address, "--config", config]);
    let mut client = site.connect(port);
    client.write_all(request("", "close").as_bytes()).unwrap();
    let mut response = String::new();
    client.read_to_string(&mut response).unwrap();
    assert!(response.ends_with("\r\n\r\nok"), "{response}");
    let head = heads.recv().unwrap();
    assert!(head.contains("\r\nX-Forwarded-Proto: https\r\n"), "{head}");
    assert!(head.contains("\r\nForwarded: for=127.0.0.1;proto=https;host=localhost\r\n"), "{head}");
}
