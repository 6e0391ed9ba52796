//! Handshakes that are slow, malformed, many, or never end.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::operations::metrics;
use super::{Site, request};

/// Returns the bytes with which a client begins.
fn hello() -> Vec<u8> {
    let config = ClientConfig::builder_with_provider(hearken_tls::provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let mut session = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut bytes = Vec::new();
    while session.wants_write() {
        session.write_tls(&mut bytes).unwrap();
    }
    bytes
}

fn connect(port: u16) -> TcpStream {
    let socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    socket
}

/// Reads until the server closes the connection.
fn read_all(mut socket: TcpStream) -> Vec<u8> {
    let mut received = Vec::new();
    // A reset ends the connection, too.
    let _ = socket.read_to_end(&mut received);
    received
}

fn is_served(site: &Site, port: u16) -> bool {
    let mut client = site.connect(port);
    let mut response = Vec::new();
    client.write_all(request("1b", "close").as_bytes()).is_ok()
        && client.read_to_end(&mut response).is_ok()
        && response.ends_with(b"\r\n\r\nx")
}

#[test]
fn slow_handshakes_end_at_the_header_timeout() {
    let site = Site::new();
    let (mut server, port) = site.serve(&["--header-timeout", "1s", "--admin", "127.0.0.1:0"]);
    let admin = server.line();
    let began = Instant::now();
    let silent = connect(port);
    let mut slow = connect(port);
    // Each byte comes in time, and the handshake does not.
    for byte in hello() {
        if slow.write_all(&[byte]).is_err() || began.elapsed() > Duration::from_secs(20) {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(is_served(&site, port));
    assert!(read_all(silent).is_empty());
    read_all(slow);
    assert!((1..20).contains(&began.elapsed().as_secs()));
    let timeouts = "hearken_tls_handshake_failures_total{reason=\"timeout\"} 2\n";
    while !metrics(&admin).contains(timeouts) {
        assert!(began.elapsed() < Duration::from_secs(30), "{}", metrics(&admin));
    }
}

#[test]
fn floods_of_handshakes_do_not_stop_the_server() {
    let site = Site::new();
    let (_server, port) = site.serve(&["--header-timeout", "30s"]);
    let hello = hello();
    // More than the limit of concurrent handshakes, all of which wait for the client.
    let flood: Vec<TcpStream> = (0..1200)
        .map(|_| {
            let mut socket = connect(port);
            socket.write_all(&hello).unwrap();
            socket
        })
        .collect();
    assert!(is_served(&site, port));
    // The oldest were ended for the newest.
    let mut sockets = flood.into_iter();
    let answer = read_all(sockets.next().unwrap());
    assert_eq!(answer.first(), Some(&22));
    assert!(sockets.all(|socket| socket.peer_addr().is_ok()));
}

#[test]
fn oversized_records_and_messages_are_refused() {
    let site = Site::new();
    let (_server, port) = site.serve(&[]);
    let hello = hello();
    // A record of 65,535 bytes, one that is empty, and a message of 16 MiB in many records.
    let long = [&[22, 3, 1, 0xff, 0xff][..], &[0; 100]].concat();
    let empty = [22, 3, 1, 0, 0];
    let mut message = vec![22, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff];
    message.resize(5 + 0x4000, 0);
    for bytes in [long, empty.repeat(100), message.repeat(8)] {
        let mut socket = connect(port);
        let _ = socket.write_all(&bytes);
        let answer = read_all(socket);
        assert!(answer.is_empty() || answer[0] == 21, "{answer:?}");
    }
    // Records of one byte each are valid.
    let mut socket = connect(port);
    let fragments: Vec<u8> = hello[5..].iter().flat_map(|byte| [22, 3, 1, 0, 1, *byte]).collect();
    socket.write_all(&fragments).unwrap();
    let mut answer = [0];
    let _ = socket.read(&mut answer);
    assert!([21, 22].contains(&answer[0]));
    assert!(is_served(&site, port));
}
