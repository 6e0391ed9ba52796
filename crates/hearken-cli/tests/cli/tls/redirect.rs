//! Redirects of clients without TLS, and Strict-Transport-Security.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::proxy::origin;
use super::{Site, request};
use crate::program::fails_with;

/// Sends bytes without TLS. Returns the response.
fn send(address: &str, bytes: &str) -> String {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.write_all(bytes.as_bytes()).unwrap();
    let mut response = String::new();
    socket.read_to_string(&mut response).unwrap();
    response
}

#[test]
fn clients_without_tls_are_redirected() {
    let site = Site::new();
    let (mut server, port) = site.serve(&["--redirect-to-https", "127.0.0.1:0"]);
    let line = server.line();
    let address = line.trim().strip_prefix("redirecting from http://").unwrap();
    for (target, host, location) in [
        ("/a/b?c=d", "a.example", format!("https://a.example:{port}/a/b?c=d")),
        ("/", "A.example:80", format!("https://A.example:{port}/")),
        ("/", "[::1]:80", format!("https://[::1]:{port}/")),
        ("/", "[::1]", format!("https://[::1]:{port}/")),
        ("http://b.example/x?", "b.example", format!("https://b.example:{port}/x?")),
    ] {
        let fields = format!("Host: {host}\r\nConnection: close\r\n");
        let response = send(address, &format!("GET {target} HTTP/1.1\r\n{fields}\r\n"));
        assert!(response.starts_with("HTTP/1.1 308 Permanent Redirect\r\n"), "{response}");
        assert!(response.contains(&format!("\r\nLocation: {location}\r\n")), "{response}");
        let post = format!("POST {target} HTTP/1.1\r\n{fields}Content-Length: 2\r\n\r\nab");
        assert!(send(address, &post).starts_with("HTTP/1.1 308 "));
    }
    assert!(send(address, "GET / HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 400 "));
    let root = site.dir.path().to_str().unwrap();
    fails_with(&["serve", root, "--redirect-to-https", "127.0.0.1:0"], "--tls-cert");
}

#[test]
fn responses_announce_strict_transport_security() {
    const FIELD: &str = "\r\nStrict-Transport-Security: max-age=7200\r\n";
    let site = Site::new();
    let responses = |port, requests: &[String]| {
        requests.iter().for_each(|request| {
            let mut client = site.connect(port);
            client.write_all(request.as_bytes()).unwrap();
            let mut response = Vec::new();
            client.read_to_end(&mut response).unwrap();
            let response = String::from_utf8_lossy(&response);
            assert_eq!(response.matches(FIELD).count(), 1, "{request}: {response}");
        });
    };
    let with = |fields: &str| format!("GET /1b HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n\r\n");
    let requests = [
        request("1b", "close"),
        request("absent", "close"),
        with("Connection: close\r\nIf-None-Match: *"),
        with("Connection: close\r\nRange: bytes=0-0"),
        with("Connection: close\r\nRange: bytes=9-"),
        "GET\r\n\r\n".to_owned(),
        "OPTIONS * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".to_owned(),
    ];
    let (_server, port) = site.serve(&["--hsts", "2h"]);
    responses(port, &requests);
    let (address, _heads) = origin();
    let (_proxy, port) = site.start(&["proxy", "--to", &address, "--hsts", "2h"]);
    responses(port, &[request("", "close"), "GET\r\n\r\n".to_owned()]);
    let plain = crate::program::run(&["serve", ".", "--hsts", "2h", "--check"]);
    assert_eq!(plain.status.code(), Some(2));
}
