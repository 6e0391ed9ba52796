//! `hearken proxy` with upstream servers over TLS.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::operations::metrics;
use super::{Site, request};
use crate::program::{Running, fails_with};

/// Starts a proxy for clients without TLS. Returns it and its port.
fn proxy(args: &[&str]) -> (Running, u16) {
    let mut proxy = Running::start(&[&["proxy", "--listen", "127.0.0.1:0"], args].concat());
    let line = proxy.line();
    let (_, rest) = line.split_once("http://127.0.0.1:").unwrap_or_else(|| panic!("{line:?}"));
    let port = rest.split(' ').next().unwrap().parse().unwrap();
    (proxy, port)
}

/// Sends a request for a file without TLS. Returns the response.
fn get(port: u16, path: &str) -> String {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    socket.write_all(request(path, "close").as_bytes()).unwrap();
    let mut response = Vec::new();
    // A reset ends the response, too.
    let _ = socket.read_to_end(&mut response);
    String::from_utf8_lossy(&response).into_owned()
}

#[test]
fn servers_are_verified() {
    let site = Site::new();
    let (_origin, origin) = site.serve(&[]);
    let ca = site.path("cert.pem").display().to_string();
    site.issue("other", &["localhost"]);
    let other = site.path("other").display().to_string();
    let [by_name, by_address] =
        ["localhost", "127.0.0.1"].map(|host| format!("https://{host}:{origin}"));
    for (args, status) in [
        (&["--to", &by_name, "--upstream-ca", &ca][..], "200"),
        // The system does not trust the certificate.
        (&["--to", &by_name], "502"),
        (&["--to", &by_name, "--upstream-ca", &other], "502"),
        (&["--to", &by_name, "--upstream-insecure"], "200"),
        // The certificate has no address.
        (&["--to", &by_address, "--upstream-ca", &ca], "502"),
        (&["--to", &by_address, "--upstream-ca", &ca, "--upstream-name", "localhost"], "200"),
    ] {
        let (_proxy, port) = proxy(args);
        let response = get(port, "1b");
        assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{args:?}: {response}");
        if status == "200" {
            assert!(response.ends_with("\r\n\r\nx"), "{response}");
            assert!(get(port, "large").len() > 3_000_000);
        }
    }
}

#[test]
fn proxies_have_certificates_and_resume_sessions() {
    let site = Site::new();
    let ca = site.path("cert.pem").display().to_string();
    site.issue("client", &["client"]);
    let [client, client_key] =
        ["client", "client.key"].map(|name| site.path(name).display().to_string());
    let admin = ["--admin", "127.0.0.1:0"];
    let (mut server, origin) =
        site.serve(&[&["--tls-client-ca", &client][..], &admin[..]].concat());
    let line = server.line();
    let to = format!("https://localhost:{origin}");
    let args = ["--to", &to, "--upstream-ca", &ca, "--max-attempts", "1"];
    let (_proxy, port) = proxy(&args);
    assert!(get(port, "1b").starts_with("HTTP/1.1 502 "));
    let with = ["--upstream-cert", &client, "--upstream-key", &client_key, "--keepalive", "0"];
    let (_proxy, port) = proxy(&[&args[..], &with[..]].concat());
    for _ in 0..3 {
        assert!(get(port, "1b").starts_with("HTTP/1.1 200 "));
    }
    let page = metrics(&line);
    for (resumed, count) in [("false", 1), ("true", 2)] {
        let sample = format!("{{version=\"TLSv1.3\",resumed=\"{resumed}\"}} {count}\n");
        assert!(page.contains(&sample), "{sample}: {page}");
    }
}

#[test]
fn health_checks_use_tls() {
    let site = Site::new();
    let (_origin, origin) = site.serve(&[]);
    let ca = site.path("cert.pem").display().to_string();
    let to = format!("https://localhost:{origin}");
    for (trust, state) in [(&["--upstream-ca", &ca][..], "up"), (&[], "down")] {
        let checks = ["--health-path", "/1b", "--health-interval", "50ms"];
        let admin = ["--to", &to, "--admin", "127.0.0.1:0"];
        let (mut proxy, port) = proxy(&[&checks[..], &admin, trust].concat());
        let line = proxy.line();
        let expected = format!("state=\"{state}\"}} 1\n");
        let began = Instant::now();
        // The server is down after three failed checks.
        while !metrics(&line).contains(&expected) {
            assert!(began.elapsed() < Duration::from_secs(30), "{}", metrics(&line));
            thread::sleep(Duration::from_millis(20));
        }
        let status = if state == "up" { "200" } else { "503" };
        assert!(get(port, "1b").starts_with(&format!("HTTP/1.1 {status} ")));
    }
}

/// Starts a server over TLS whose response ends with the connection, with or without `close_notify`.
fn origin(site: &Site, notifies: bool) -> u16 {
    let key = PrivateKeyDer::from_pem_file(site.path("key.pem")).unwrap();
    let config = ServerConfig::builder_with_provider(hearken_tls::provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![site.certificate.clone()], key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for socket in listener.incoming() {
            let session = ServerConnection::new(config.clone()).unwrap();
            let mut client = StreamOwned::new(session, socket.unwrap());
            let _ = client.read(&mut [0; 4096]);
            let _ = client.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nbody");
            if notifies {
                client.conn.send_close_notify();
                let _ = client.flush();
            }
        }
    });
    port
}

#[test]
fn truncated_responses_are_incomplete() {
    let site = Site::new();
    let ca = site.path("cert.pem").display().to_string();
    for notifies in [true, false] {
        let to = format!("https://localhost:{}", origin(&site, notifies));
        let (_proxy, port) = proxy(&["--to", &to, "--upstream-ca", &ca]);
        let response = get(port, "");
        assert!(response.contains("\r\n4\r\nbody\r\n"), "{response}");
        assert_eq!(response.ends_with("\r\n0\r\n\r\n"), notifies, "{response}");
    }
}

#[test]
fn settings_of_upstream_tls_are_checked() {
    let to = ["proxy", "--to", "http://a", "--upstream-insecure"];
    fails_with(&to, "has no effect without an upstream server with https://");
    let secure = ["proxy", "--to", "https://a"];
    fails_with(&[&secure[..], &["--upstream-ca", "/absent"]].concat(), "/absent");
    fails_with(
        &[&secure[..], &["--send-proxy-protocol", "v2"]].concat(),
        "cannot be combined with servers that use https:// or h2c://",
    );
    let site = Site::new();
    site.issue("other", &["a"]);
    let [cert, other] = ["cert.pem", "other.key"].map(|name| site.path(name).display().to_string());
    let args = [&secure[..], &["--upstream-cert", &cert, "--upstream-key", &other]].concat();
    fails_with(&args, "with the certificate in");
    fs::write(site.path("empty"), "").unwrap();
    let empty = site.path("empty").display().to_string();
    fails_with(&[&secure[..], &["--upstream-ca", &empty]].concat(), "no certificate found");
}
