//! Several certificates, selected by the name that a client requests.

use std::io::{Read, Write};
use std::net::TcpStream;

use rustls::pki_types::CertificateDer;

use super::{Site, connect, start};
use crate::program::{fails_with, text};

/// Certificates of two sites and of all subdomains of a third one.
struct Sites {
    site: Site,
    certificates: Vec<CertificateDer<'static>>,
}

const NAMES: [&[&str]; 3] = [&["a.example", "www.a.example"], &["b.example"], &["*.c.example"]];

impl Sites {
    fn new() -> Sites {
        let site = Site::new();
        let certificates =
            (0..).zip(NAMES).map(|(number, names)| site.issue(&number.to_string(), names));
        Sites { certificates: certificates.collect(), site }
    }

    fn file(&self, name: &str) -> String {
        self.site.path(name).display().to_string()
    }

    /// Connects with a name, which must select the certificate of that number.
    fn get(&self, port: u16, (name, number): (&str, usize), host: &str) -> String {
        let mut client = connect(port, &self.certificates[number], name);
        let request = format!("GET /1b HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        client.write_all(request.as_bytes()).unwrap();
        let mut response = Vec::new();
        client.read_to_end(&mut response).unwrap();
        text(&response).split(' ').nth(1).unwrap().to_owned()
    }
}

#[test]
fn names_select_certificates_and_wrong_hosts_are_misdirected() {
    let sites = Sites::new();
    let files: Vec<String> = (0..3).map(|number| sites.file(&number.to_string())).collect();
    let keys: Vec<String> = files.iter().map(|file| format!("{file}.key")).collect();
    let root = sites.file("");
    let mut args = vec!["serve", &root, "--listen", "127.0.0.1:0"];
    for (file, key) in files.iter().zip(&keys) {
        args.extend(["--tls-cert", file, "--tls-key", key]);
    }
    let (_server, port) = start(&args);
    for (name, host, status) in [
        (("a.example", 0), "a.example", "200"),
        (("a.example", 0), "WWW.A.Example.:443", "200"),
        (("b.example", 1), "b.example:8443", "200"),
        (("x.c.example", 2), "y.c.example", "200"),
        // Another certificate covers these hosts.
        (("a.example", 0), "b.example", "421"),
        (("b.example", 1), "www.a.example", "421"),
        (("b.example", 1), "x.c.example", "421"),
        (("x.c.example", 2), "A.EXAMPLE:443", "421"),
        // No certificate covers these hosts.
        (("a.example", 0), "x.b.example", "200"),
        (("a.example", 0), "[::1]:443", "200"),
        (("x.c.example", 2), "c.example", "200"),
        (("b.example", 1), "d.example", "200"),
    ] {
        assert_eq!(sites.get(port, name, host), status, "{name:?} {host}");
    }
    // A client that requests no name gets the default, and may use any host.
    let mut bare = std::process::Command::new("openssl");
    let address = format!("127.0.0.1:{port}");
    let request = "GET /1b HTTP/1.1\r\nHost: b.example\r\nConnection: close\r\n\r\n";
    bare.args(["s_client", "-connect", &address, "-noservername", "-ign_eof"]);
    if let Some(output) = super::output_of(&mut bare, request) {
        assert!(output.contains("HTTP/1.1 200 OK"), "{output}");
    }
}

#[test]
fn certificates_come_from_a_config_file() {
    let sites = Sites::new();
    let config = "[static]\nroot = '.'\n[tls]\ncert = ['0', '1']\nkey = ['0.key', '1.key']\n";
    std::fs::write(sites.site.path("s.toml"), config).unwrap();
    let (_server, port) =
        start(&["serve", "--config", &sites.file("s.toml"), "--listen", "127.0.0.1:0"]);
    assert_eq!(sites.get(port, ("b.example", 1), "b.example"), "200");
    drop(TcpStream::connect(("127.0.0.1", port)).unwrap());
}

#[test]
fn lists_of_certificates_must_match() {
    let sites = Sites::new();
    let (root, one, two) = (sites.file(""), sites.file("0"), sites.file("1"));
    let key = sites.file("0.key");
    let more = ["serve", &root, "--tls-cert", &one, "--tls-cert", &two, "--tls-key", &key];
    fails_with(&more, "1 keys for 2 certificates");
    let swapped = [&more[..], &["--tls-key", &key]].concat();
    fails_with(&swapped, "the private key does not match the certificate in");
    sites.site.issue("nameless", &[]);
    let nameless = sites.file("nameless");
    let other = sites.file("nameless.key");
    let args = ["serve", &root, "--tls-cert", &one, "--tls-cert", &nameless];
    let args = [&args[..], &["--tls-key", &key, "--tls-key", &other]].concat();
    fails_with(&args, "no client can select it");
}
