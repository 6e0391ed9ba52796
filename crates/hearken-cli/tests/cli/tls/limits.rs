//! Handshakes that are slow, many, or never end.

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
