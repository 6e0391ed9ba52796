//! Loads over Unix sockets, and with a given address of the host.

use std::net::TcpListener;
use std::num::{NonZeroU64, NonZeroUsize};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::PathBuf;
use std::time::Duration;

use crate::server::scripted::{self, Requests, field};
use hearken_load::lockstep::{Driver, Settings};
use hearken_load::{Config, Profile, Report, StopSignal, run};
use tempfile::TempDir;

/// A host name without an address.
const URL: &str = "http://unknown.invalid:8080/path";

fn config() -> Config {
    Config {
        url: URL.to_owned(),
        requests: NonZeroU64::new(20),
        rate: Profile::constant(1000.0),
        connections: NonZeroUsize::new(4),
        idle_connections: 3,
        threads: NonZeroUsize::new(2).unwrap(),
        timeout: Duration::from_secs(20),
        ..Config::default()
    }
}

fn at(path: impl Into<PathBuf>) -> Config {
    Config { unix_socket: Some(path.into()), ..config() }
}

fn assert_sent(report: &Report, requests: &Requests) {
    assert_eq!((report.requests.replies, report.requests.failed), (20, 0), "{report}");
    assert_eq!(report.idle.open, 3, "{report}");
    let requests = requests.lock().unwrap();
    assert_eq!(requests.len(), 20);
    for (_, request) in &*requests {
        assert!(request.starts_with("GET /path HTTP/1.1\r\n"), "{request}");
        assert_eq!(field(request, "Host"), Some("unknown.invalid:8080"));
    }
}

#[test]
fn requests_go_to_a_unix_socket() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("server.sock");
    let requests = scripted::start(UnixListener::bind(&path).unwrap(), |_| String::new());
    let report = run(&at(&path), &mut (), &StopSignal::new()).unwrap();
    assert_sent(&report, &requests);
}

#[test]
fn requests_go_to_an_abstract_socket() {
    let name = format!("hearken-load-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let requests = scripted::start(UnixListener::bind_addr(&address).unwrap(), |_| String::new());
    let report = run(&at(format!("@{name}")), &mut (), &StopSignal::new()).unwrap();
    assert_sent(&report, &requests);
}

#[test]
fn every_mechanism_connects_to_unix_sockets() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("server.sock");
    let requests = scripted::start(UnixListener::bind(&path).unwrap(), |_| String::new());
    let mut sent = 0;
    for name in ["poll", "epoll-level", "epoll-edge", "uring"] {
        let config = Config { mechanism: name.to_owned(), idle_connections: 0, ..at(&path) };
        // io_uring may be unavailable.
        let Ok(report) = run(&config, &mut (), &StopSignal::new()) else { continue };
        sent += 20;
        assert_eq!((report.requests.replies, report.requests.failed), (20, 0), "{name}: {report}");
    }
    assert!(sent >= 60);
    assert_eq!(requests.lock().unwrap().len(), sent);
}

#[test]
fn requests_without_a_listening_socket_fail() {
    let dir = TempDir::new().unwrap();
    let config = Config { idle_connections: 0, ..at(dir.path().join("none")) };
    let report = run(&config, &mut (), &StopSignal::new()).unwrap();
    assert_eq!((report.requests.replies, report.requests.failed), (0, 20), "{report}");
}

#[test]
fn requests_go_to_the_given_address() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let requests = scripted::start(listener, |_| String::new());
    let url = URL.replace("8080", &port.to_string());
    let resolve = vec!["unknown.invalid:127.0.0.1".parse().unwrap()];
    let report = run(&Config { url, resolve, ..config() }, &mut (), &StopSignal::new()).unwrap();
    assert_eq!((report.requests.replies, report.requests.failed), (20, 0), "{report}");
    let host = format!("unknown.invalid:{port}");
    let requests = requests.lock().unwrap();
    assert!(requests.iter().all(|(_, request)| field(request, "Host") == Some(&host)));
}

#[test]
fn contradictory_addresses_are_rejected() {
    let wrong = Config { resolve: vec!["unkown.invalid:127.0.0.1".parse().unwrap()], ..config() };
    let both = Config { resolve: vec!["unknown.invalid:127.0.0.1".parse().unwrap()], ..at("x") };
    for (config, reason) in [
        (wrong, "host 'unkown.invalid' (did you mean 'unknown.invalid:127.0.0.1'?)"),
        (both, "cannot use Unix socket 'x'"),
        (Config { source_addresses: vec![[127, 0, 0, 1].into()], ..at("x") }, "source addresses"),
    ] {
        let error = hearken_load::check(&config).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
    let error = Driver::new(&at("x"), Settings::default()).unwrap_err().to_string();
    assert!(error.contains("does not support Unix sockets"), "{error}");
}
