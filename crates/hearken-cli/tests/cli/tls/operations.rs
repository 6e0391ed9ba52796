//! Certificates that change, ticket keys, metrics, logs, and the subjects of clients.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::proxy::origin;
use super::{Site, request};
use crate::program::{fails_with, text};

/// Returns the configuration of a client that trusts the server. With `subject`, it has a
/// certificate of an authority, whose certificate is written to the file `ca`.
fn client(site: &Site, subject: Option<&str>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(site.certificate.clone()).unwrap();
    let builder = ClientConfig::builder_with_provider(hearken_tls::provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let Some(subject) = subject else { return Arc::new(builder.with_no_client_auth()) };
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    fs::write(site.path("ca"), params.self_signed(&key).unwrap().pem()).unwrap();
    let issuer = Issuer::new(params, key);
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, subject);
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    Arc::new(builder.with_client_auth_cert(vec![certificate.der().clone()], key).unwrap())
}

/// Sends a request. Returns the response.
fn get(config: &Arc<ClientConfig>, port: u16, request: &str) -> String {
    let name = ServerName::try_from("localhost").unwrap();
    let session = ClientConnection::new(config.clone(), name).unwrap();
    let socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut client = StreamOwned::new(session, socket);
    client.write_all(request.as_bytes()).unwrap();
    let mut response = Vec::new();
    client.read_to_end(&mut response).unwrap();
    text(&response).to_owned()
}

/// Returns the metrics page at the address that a server prints.
pub(super) fn metrics(line: &str) -> String {
    let address = line.trim().strip_prefix("metrics on http://").unwrap();
    let address = address.strip_suffix("/metrics").unwrap();
    let mut socket = TcpStream::connect(address).unwrap();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).unwrap();
    let mut page = String::new();
    socket.read_to_string(&mut page).unwrap();
    page
}

#[test]
fn certificates_are_replaced_when_their_files_change() {
    let mut site = Site::new();
    let (_server, port) = site.serve(&[]);
    site.replace_certificate();
    let began = Instant::now();
    loop {
        let mut client = site.connect(port);
        if client.write_all(request("1b", "close").as_bytes()).is_ok()
            && client.read_to_end(&mut Vec::new()).is_ok()
        {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "the new certificate is not in use");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn metrics_and_logs_contain_tls() {
    let site = Site::new();
    let config = client(&site, Some("a, \"b\""));
    let [ca, log] = ["ca", "log"].map(|name| site.path(name).display().to_string());
    let more = ["--tls-client-ca", &ca, "--access-log", &log, "--log-format", "json"];
    let (mut server, port) = site.serve(&[&more[..], &["--admin", "127.0.0.1:0"]].concat());
    let admin = server.line();
    for _ in 0..2 {
        assert!(get(&config, port, &request("1b", "close")).ends_with("\r\n\r\nx"));
    }
    // A client that does not speak TLS.
    let mut plain = TcpStream::connect(("127.0.0.1", port)).unwrap();
    plain.write_all(request("1b", "close").as_bytes()).unwrap();
    let _ = plain.read_to_end(&mut Vec::new());
    let page = metrics(&admin);
    for line in [
        "hearken_tls_handshakes_total{version=\"TLSv1.3\",resumed=\"false\"} 1\n",
        "hearken_tls_handshakes_total{version=\"TLSv1.3\",resumed=\"true\"} 1\n",
        "hearken_tls_handshakes_total{version=\"TLSv1.2\",resumed=\"false\"} 0\n",
        "hearken_tls_handshake_failures_total{reason=\"not_tls\"} 1\n",
        "hearken_tls_reload_failures_total 0\n",
        "hearken_tls_certificate_expiry_timestamp_seconds{number=\"1\",file=\"",
    ] {
        assert!(page.contains(line), "{line}: {page}");
    }
    let began = Instant::now();
    let expected =
        "\"tls_version\":\"TLSv1.3\",\"tls_client_subject\":\"CN=a\\\\, \\\\\\\"b\\\\\\\"\"";
    while fs::read_to_string(&log).unwrap_or_default().matches(expected).count() < 2 {
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", fs::read_to_string(&log));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_subject_of_the_client_is_forwarded() {
    let site = Site::new();
    let (address, heads) = origin();
    let ca = site.path("ca").display().to_string();
    let with = client(&site, Some("a"));
    let without = client(&site, None);
    let config = site.path("p.toml");
    let settings = "[headers]\nclient-subject = 'X-Subject'\n[tls]\nclient-auth = 'optional'\n";
    fs::write(&config, settings).unwrap();
    let config = config.to_str().unwrap();
    let (_proxy, port) =
        site.start(&["proxy", "--to", &address, "--config", config, "--tls-client-ca", &ca]);
    let request = "GET / HTTP/1.1\r\nHost: localhost\r\nx_subject: CN=b\r\nX-SUBJECT: CN=c\r\n\
                   Connection: close\r\n\r\n";
    get(&with, port, request);
    let head = heads.recv().unwrap();
    assert!(head.contains("\r\nX-Subject: CN=a\r\n") && !head.contains("CN=b"), "{head}");
    assert!(!head.contains("CN=c"), "{head}");
    get(&without, port, request);
    let head = heads.recv().unwrap();
    assert!(!head.contains("CN="), "{head}");
    let (to, unused) = (["proxy", "--to", &address, "--config"], site.path("u.toml"));
    fs::write(&unused, "headers.client-subject = 'X-Subject'").unwrap();
    let args = [&to[..], &[unused.to_str().unwrap()]].concat();
    fails_with(&args, "has no effect without '--tls-client-ca'");
}

#[test]
fn ticket_keys_of_a_file_are_shared_by_servers() {
    let site = Site::new();
    let keys = site.path("keys").display().to_string();
    let root = site.dir.path().to_str().unwrap();
    let cert = site.path("cert.pem").display().to_string();
    let key = site.path("key.pem").display().to_string();
    let args = ["serve", root, "--tls-cert", &cert, "--tls-key", &key, "--tls-ticket-keys", &keys];
    fails_with(&args, "cannot read the file");
    fs::write(&keys, "c2hvcnQ=\n").unwrap();
    fails_with(&args, "line 1: expected 32 or 80 bytes in Base64");
    fs::write(&keys, [0x87; 80]).unwrap();
    let config = client(&site, None);
    let is_resumed = |port| {
        let name = ServerName::try_from("localhost").unwrap();
        let session = ClientConnection::new(config.clone(), name).unwrap();
        let socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let mut client = StreamOwned::new(session, socket);
        client.write_all(request("1b", "close").as_bytes()).unwrap();
        client.read_to_end(&mut Vec::new()).unwrap();
        client.conn.handshake_kind() == Some(rustls::HandshakeKind::Resumed)
    };
    let (one, other) =
        (site.serve(&["--tls-ticket-keys", &keys]), site.serve(&["--tls-ticket-keys", &keys]));
    assert!(!is_resumed(one.1));
    assert!(is_resumed(other.1));
}
