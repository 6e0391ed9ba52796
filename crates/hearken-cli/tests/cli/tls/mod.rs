//! Servers over TLS, with clients of rustls, curl and OpenSSL. Those two are skipped where they are
//! not installed.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hearken::io::find;
use rcgen::CertifiedKey;
use rustix::process::Signal;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tempfile::TempDir;

use crate::program::{Running, fails_with, site};

mod limits;
mod operations;
mod proxy;
mod redirect;
mod sites;
mod upstreams;

/// A directory with files, a certificate for localhost, and its key.
struct Site {
    dir: TempDir,
    certificate: CertificateDer<'static>,
}

impl Site {
    fn new() -> Site {
        let mut site = Site { dir: site(), certificate: Vec::new().into() };
        fs::write(site.path("large"), large()).unwrap();
        site.replace_certificate();
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn replace_certificate(&mut self) {
        self.certificate = self.issue("cert.pem", &["localhost"]);
        fs::rename(self.path("cert.pem.key"), self.path("key.pem")).unwrap();
    }

    /// Starts a server for the files. Returns it and its port.
    fn serve(&self, more: &[&str]) -> (Running, u16) {
        let root = self.dir.path().to_str().unwrap();
        self.start(&[&["serve", root], more].concat())
    }

    /// Starts a server with the certificate. Returns it and its port.
    fn start(&self, command: &[&str]) -> (Running, u16) {
        let files = ["cert.pem", "key.pem"].map(|name| self.path(name).display().to_string());
        let tls = ["--listen", "127.0.0.1:0", "--tls-cert", &files[0], "--tls-key", &files[1]];
        start(&[command, &tls].concat())
    }

    fn connect(&self, port: u16) -> StreamOwned<ClientConnection, TcpStream> {
        connect(port, &self.certificate, "localhost")
    }

    /// Issues a certificate for names. Writes it to a file, and its key to one with `.key`.
    fn issue(&self, file: &str, names: &[&str]) -> CertificateDer<'static> {
        let names: Vec<_> = names.iter().map(ToString::to_string).collect();
        let CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(names).unwrap();
        fs::write(self.path(file), cert.pem()).unwrap();
        fs::write(self.path(&format!("{file}.key")), signing_key.serialize_pem()).unwrap();
        cert.der().clone()
    }
}

/// Connects to a server with this certificate and name.
fn connect(
    port: u16,
    certificate: &CertificateDer<'static>,
    name: &str,
) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let config = ClientConfig::builder_with_provider(hearken_tls::provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    StreamOwned::new(connection, socket)
}

/// Starts a server over TLS. Returns it and its port.
fn start(args: &[&str]) -> (Running, u16) {
    let mut server = Running::start(args);
    let line = server.line();
    let (_, rest) = line.split_once(" on https://127.0.0.1:").unwrap_or_else(|| panic!("{line:?}"));
    (server, rest.split(' ').next().unwrap().parse().unwrap())
}

/// Returns the content of a file that takes many records.
fn large() -> Vec<u8> {
    (0..3_000_000_u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn request(path: &str, connection: &str) -> String {
    format!("GET /{path} HTTP/1.1\r\nHost: localhost\r\nConnection: {connection}\r\n\r\n")
}

#[test]
fn serves_over_tls() {
    let site = Site::new();
    let mechanisms = ["epoll-edge", "poll", "uring", "uring:sends=ring"];
    for name in mechanisms.into_iter().filter(|name| find(name).unwrap().probe().is_ok()) {
        let (server, port) = site.serve(&["--events", name, "--workers", "2"]);
        let mut client = site.connect(port);
        for _ in 0..3 {
            client.write_all(request("1b", "keep-alive").as_bytes()).unwrap();
            let mut response = Vec::new();
            while !response.ends_with(b"\r\n\r\nx") {
                let mut byte = [0];
                client.read_exact(&mut byte).unwrap();
                response.extend_from_slice(&byte);
            }
        }
        // Pipelined requests, the last of a large file. The client fails without `close_notify`.
        let requests = [request("1b", "keep-alive"), request("large", "close")].concat();
        client.write_all(requests.as_bytes()).unwrap();
        let mut response = Vec::new();
        client.read_to_end(&mut response).unwrap();
        assert!(response.ends_with(&large()), "over {name}");
        // A client that closes without `close_notify`, and one that speaks plain HTTP.
        let mut client = site.connect(port);
        client.write_all(request("large", "keep-alive").as_bytes()).unwrap();
        drop(client.sock);
        let mut plain = TcpStream::connect(("127.0.0.1", port)).unwrap();
        plain.write_all(request("1b", "close").as_bytes()).unwrap();
        let mut alert = Vec::new();
        let _ = plain.read_to_end(&mut alert);
        assert_eq!(alert.first(), Some(&21), "over {name}");
        server.signal(Signal::TERM);
        let mut server = server;
        assert_eq!(server.child.wait().unwrap().code(), Some(0), "{name}");
    }
}

#[test]
fn reads_certificates_again_on_a_signal() {
    let mut site = Site::new();
    let (server, port) = site.serve(&[]);
    let is_served = |site: &Site| {
        let mut client = site.connect(port);
        client.write_all(request("1b", "close").as_bytes()).is_ok()
            && client.read_to_end(&mut Vec::new()).is_ok()
    };
    assert!(is_served(&site));
    site.replace_certificate();
    assert!(!is_served(&site), "the old certificate is still in use");
    server.signal(Signal::HUP);
    let began = Instant::now();
    while !is_served(&site) {
        assert!(began.elapsed() < Duration::from_secs(30), "the new certificate is not in use");
    }
    // Invalid files change nothing.
    fs::write(site.path("key.pem"), "").unwrap();
    server.signal(Signal::HUP);
    for _ in 0..5 {
        assert!(is_served(&site));
    }
}

#[test]
fn refuses_unusable_certificates() {
    let site = Site::new();
    let [cert, key, other] =
        ["cert.pem", "key.pem", "1b"].map(|name| site.path(name).display().to_string());
    let root = site.dir.path().to_str().unwrap();
    fails_with(&["serve", root, "--tls-cert", &cert, "--tls-key", &other], "no private key");
    fails_with(&["serve", root, "--tls-cert", &other, "--tls-key", &key], "no certificate");
    fails_with(&["serve", root, "--tls-cert", "/absent"], "/absent");
    fails_with(&["serve", root, "--check", "--tls-cert", &cert], "no private key");
    fails_with(&["serve", root, "--tls-key", &key], "--tls-cert");
}

/// Runs another client with standard input. Returns its output, or nothing where it is not installed.
fn output_of(command: &mut Command, input: &str) -> Option<String> {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().ok()?;
    // It may have ended.
    let _ = child.stdin.take()?.write_all(input.as_bytes());
    let output = child.wait_with_output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    Some(String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn serves_curl_and_openssl() {
    let site = Site::new();
    let (_server, port) = site.serve(&[]);
    let cert = site.path("cert.pem");
    let curl = |versions: &[&str]| {
        let mut command = Command::new("curl");
        let url = format!("https://localhost:{port}/1b");
        command.args(["--silent", "--show-error", "--ipv4", "--max-time", "30", "--cacert"]);
        output_of(command.arg(&cert).args(versions).args([&url, &url]), "")
    };
    for versions in [&[][..], &["--tlsv1.3"], &["--tls-max", "1.2"], &["--http1.1"]] {
        if let Some(output) = curl(&[versions, &["--write-out", " %{http_version} "]].concat()) {
            let number = if versions == ["--http1.1"] { "1.1" } else { "2" };
            assert_eq!(output, format!("x {number} x {number} "), "{versions:?}");
        }
    }
    let openssl = |more: &[&str], input: &str| {
        let mut command = Command::new("openssl");
        let address = format!("127.0.0.1:{port}");
        command.args(["s_client", "-connect", &address, "-servername", "localhost", "-CAfile"]);
        output_of(command.arg(&cert).args(more), input)
    };
    let Some(output) =
        openssl(&["-tls1_3", "-alpn", "http/1.1", "-ign_eof"], &request("1b", "close"))
    else {
        return;
    };
    assert!(output.contains("ALPN protocol: http/1.1"), "{output}");
    assert!(output.contains("Cipher is TLS_AES_128_GCM_SHA256"), "{output}");
    assert!(output.contains("\r\n\r\nx"), "{output}");
    let output = openssl(&["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"], "").unwrap();
    assert!(output.contains("Cipher is (NONE)"), "{output}");
    // The server refuses to renegotiate.
    let output = openssl(&["-tls1_2"], "R\n").unwrap();
    assert!(output.contains("Cipher is ECDHE-ECDSA-AES128-GCM-SHA256"), "{output}");
    assert!(output.contains("no renegotiation"), "{output}");
}
