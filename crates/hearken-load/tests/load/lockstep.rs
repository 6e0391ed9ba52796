//! Lockstep rounds: counts, and conditions that end a pass.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::server::http2::{Answer, Http2Server};
use crate::server::tls::{Authority, Closing};
use crate::server::{Behaviour, Server, refusing};
use hearken_load::Config;
use hearken_load::lockstep::{Driver, Report, Settings};
use rustls::ServerConfig;

fn settings(batch: usize) -> Settings {
    Settings { batch: NonZeroUsize::new(batch).unwrap(), ..Settings::default() }
}

fn driver(url: String, settings: Settings) -> Driver {
    let config = Config { url, timeout: Duration::from_secs(5), ..Config::default() };
    Driver::new(&config, settings).unwrap()
}

fn pass(driver: &mut Driver, requests: u64) -> Report {
    driver.run(requests, &AtomicBool::new(false))
}

#[test]
fn passes_reuse_connections() {
    let server = Server::start(|_| Behaviour::Reply);
    let mut driver = driver(server.url(), settings(10));
    let first = pass(&mut driver, 95);
    assert!(first.complete, "{first}");
    // Rounds are always complete, so there are more requests than specified.
    let requests = first.requests;
    assert_eq!((requests.scheduled, requests.sent, requests.replies), (100, 100, 100));
    assert_eq!((first.status.success, first.connections_opened), (100, 10));
    assert_eq!((first.content_bytes, first.round_ns.count), (5, 10));
    let second = pass(&mut driver, 100);
    assert_eq!((second.requests.replies, second.connections_opened), (100, 0));
    assert_eq!((server.requests(), server.accepted()), (200, 10));
}

#[test]
fn opens_a_connection_per_request() {
    let server = Server::start(|_| Behaviour::AnnouncedClose);
    let mut driver = driver(server.url(), Settings { close: true, ..settings(5) });
    let report = pass(&mut driver, 20);
    assert!(report.complete, "{report}");
    assert_eq!((report.requests.replies, report.connections_opened), (20, 20));
    assert_eq!(server.accepted(), 20);
}

#[test]
fn replaces_connections_that_the_server_closes() {
    let server = Server::start(|_| Behaviour::AnnouncedClose);
    let mut driver = driver(server.url(), settings(4));
    let report = pass(&mut driver, 12);
    assert!(report.complete, "{report}");
    assert_eq!((report.requests.replies, report.connections_opened), (12, 12));
}

#[test]
fn accepts_all_forms_of_replies() {
    for behaviour in
        [Behaviour::Chunked, Behaviour::ByteByByte, Behaviour::Interim, Behaviour::UntilClose]
    {
        let server = Server::start(move |_| behaviour);
        let mut driver = driver(server.url(), settings(3));
        let report = pass(&mut driver, 6);
        assert!(report.complete && report.content_bytes == 5, "{behaviour:?} {report}");
    }
}

#[test]
fn a_failure_ends_the_pass_with_a_warning() {
    for (behaviour, named) in [
        (Behaviour::Missing, "status 404"),
        (Behaviour::Close, "closed"),
        (Behaviour::Partial, "closed"),
        (Behaviour::Garbage, "malformed"),
    ] {
        let server =
            Server::start(move |request| if request < 5 { Behaviour::Reply } else { behaviour });
        let mut driver = driver(server.url(), settings(2));
        let report = pass(&mut driver, 100);
        assert!(!report.complete && report.errors.total() == 1, "{behaviour:?} {report}");
        let requests = report.requests;
        assert!(requests.replies <= 6 && requests.failed == 1, "{behaviour:?} {report}");
        assert_eq!(requests.scheduled, requests.replies + requests.failed + requests.unfinished);
        assert!(report.warnings[0].contains(named), "{behaviour:?} {report}");
    }
}

#[test]
fn a_different_content_length_ends_the_pass() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let serving = std::thread::spawn(move || {
        let mut peer = listener.accept().unwrap().0;
        for content in ["hello", "hello", "hi"] {
            let _ = peer.read(&mut [0; 1024]).unwrap();
            let length = content.len();
            write!(peer, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{content}").unwrap();
        }
    });
    let report = pass(&mut driver(url, settings(1)), 100);
    assert_eq!(report.requests.replies, 2, "{report}");
    assert!(report.warnings[0].contains("2 bytes of content, the first reply had 5"), "{report}");
    serving.join().unwrap();
}

#[test]
fn distinguishes_timeouts_and_refused_connections() {
    let server = Server::start(|_| Behaviour::Never);
    let config =
        Config { url: server.url(), timeout: Duration::from_millis(50), ..Config::default() };
    let report = pass(&mut Driver::new(&config, settings(2)).unwrap(), 2);
    assert_eq!(report.errors.client_timo, 1, "{report}");
    let (url, _held) = refusing();
    let report = pass(&mut driver(url, settings(2)), 2);
    assert_eq!((report.errors.conn_refused, report.requests.scheduled), (1, 0), "{report}");
}

#[test]
fn the_stop_flag_ends_a_pass() {
    let server = Server::start(|_| Behaviour::Reply);
    let stop = AtomicBool::new(true);
    let report = driver(server.url(), settings(2)).run(2, &stop);
    assert!(!report.complete && report.requests.scheduled == 0, "{report}");
    stop.store(false, Ordering::Relaxed);
}

/// Serves two connections from one blocking thread, the second one first. A driver that read the
/// first reply to its end before the second would block indefinitely.
#[test]
fn reads_large_replies_from_all_connections_in_turn() {
    const LENGTH: usize = 32 << 20;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let serving = std::thread::spawn(move || {
        let mut peers: Vec<_> = (0..2).map(|_| listener.accept().unwrap().0).collect();
        for peer in peers.iter_mut().rev() {
            let _ = peer.read(&mut [0; 1024]).unwrap();
            write!(peer, "HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n").unwrap();
            peer.write_all(&vec![b'x'; LENGTH]).unwrap();
        }
        peers
    });
    let report = pass(&mut driver(url, settings(2)), 2);
    assert!(report.complete && report.content_bytes == LENGTH as u64, "{report}");
    serving.join().unwrap();
}

#[test]
fn pipelines_requests() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let serving = std::thread::spawn(move || {
        let mut peer = listener.accept().unwrap().0;
        let (mut seen, mut bytes) = (Vec::new(), [0; 4096]);
        loop {
            let count = peer.read(&mut bytes).unwrap();
            if count == 0 {
                return;
            }
            seen.extend_from_slice(&bytes[..count]);
            let complete = seen.windows(4).filter(|w| w == b"\r\n\r\n").count();
            if complete == 8 {
                seen.clear();
                let replies = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi".repeat(8);
                // Two pieces, split within a head.
                peer.write_all(&replies.as_bytes()[..90]).unwrap();
                peer.write_all(&replies.as_bytes()[90..]).unwrap();
            }
        }
    });
    let pipeline = NonZeroUsize::new(8).unwrap();
    let report = pass(&mut driver(url, Settings { pipeline, ..settings(1) }), 16);
    assert!(report.complete && report.requests.replies == 16, "{report}");
    serving.join().unwrap();
}

#[test]
fn rejects_inconsistent_settings() {
    let pipeline = NonZeroUsize::new(2).unwrap();
    let settings = Settings { close: true, pipeline, ..settings(1) };
    let error = Driver::new(&Config::default(), settings).unwrap_err().to_string();
    assert!(error.contains("pipelining"), "{error}");
}

#[test]
fn measures_servers_under_tls() {
    let authority = Authority::new();
    let driver = |url: String, settings, tls| {
        let config = Config { url, tls, timeout: Duration::from_secs(20), ..Config::default() };
        Driver::new(&config, settings).unwrap()
    };
    for (behaviour, close) in [
        (Behaviour::Reply, false),
        (Behaviour::ByteByByte, false),
        (Behaviour::AnnouncedClose, true),
    ] {
        let server = authority.start_server(Closing::Announced, move |_| behaviour);
        let settings = Settings { close, ..settings(3) };
        let mut driver = driver(server.url(), settings, authority.options());
        let report = pass(&mut driver, 9);
        assert!(report.complete, "{report}");
        let opened = if close { 9 } else { 3 };
        assert_eq!((report.requests.replies, report.connections_opened), (9, opened));
        assert_eq!(server.requests(), 9);
    }
    let server = authority.start_server(Closing::Announced, |_| Behaviour::Reply);
    let other = Authority::new();
    let report = pass(&mut driver(server.url(), settings(3), other.options()), 9);
    assert!(report.warnings[0].contains("--cacert FILE"), "{report}");
    assert_eq!((report.complete, server.requests()), (false, 0));
}

#[test]
fn measures_http2_under_tls() {
    let authority = Authority::new();
    for offers_http2 in [true, false] {
        let mut tls = ServerConfig::clone(&authority.server_config());
        tls.alpn_protocols = if offers_http2 { vec![b"h2".to_vec()] } else { Vec::new() };
        let server = Http2Server::start(Some(tls.into()), |_| (), |_| Answer::Content(5));
        let config = Config {
            url: server.url(),
            tls: authority.options(),
            http2: NonZeroU32::new(4),
            timeout: Duration::from_secs(20),
            ..Config::default()
        };
        let mut driver = Driver::new(&config, settings(2)).unwrap();
        let report = pass(&mut driver, 24);
        assert_eq!(report.complete, offers_http2, "{report}");
        if offers_http2 {
            assert_eq!((report.requests.replies, report.connections_opened), (24, 2));
        } else {
            assert!(report.warnings[0].contains("omit --http2"), "{report}");
        }
    }
}
