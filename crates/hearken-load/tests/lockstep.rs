//! Rounds of requests: what is counted, and what ends them.

mod server;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hearken_load::Config;
use hearken_load::lockstep::{Driver, Report, Settings};
use server::{Act, Server, refusing};

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
fn passes_share_their_connections() {
    let server = Server::start(|_| Act::Reply);
    let mut driver = driver(server.url(), settings(10));
    let first = pass(&mut driver, 95);
    assert!(first.complete, "{first}");
    // Whole rounds, so more than were asked for.
    let requests = first.requests;
    assert_eq!((requests.intended, requests.sent, requests.replies), (100, 100, 100));
    assert_eq!((first.status.success, first.connections_opened), (100, 10));
    assert_eq!((first.content_bytes, first.round_ns.count), (5, 10));
    let second = pass(&mut driver, 100);
    assert_eq!((second.requests.replies, second.connections_opened), (100, 0));
    assert_eq!((server.requests(), server.accepted()), (200, 10));
}

#[test]
fn a_connection_for_each_request() {
    let server = Server::start(|_| Act::AnnouncedClose);
    let mut driver = driver(server.url(), Settings { close: true, ..settings(5) });
    let report = pass(&mut driver, 20);
    assert!(report.complete, "{report}");
    assert_eq!((report.requests.replies, report.connections_opened), (20, 20));
    assert_eq!(server.accepted(), 20);
}

#[test]
fn what_the_server_closes_is_made_again() {
    let server = Server::start(|_| Act::AnnouncedClose);
    let mut driver = driver(server.url(), settings(4));
    let report = pass(&mut driver, 12);
    assert!(report.complete, "{report}");
    assert_eq!((report.requests.replies, report.connections_opened), (12, 12));
}

#[test]
fn replies_in_any_form_are_taken() {
    for act in [Act::Chunked, Act::ByteByByte, Act::Interim, Act::UntilClose] {
        let server = Server::start(move |_| act);
        let mut driver = driver(server.url(), settings(3));
        let report = pass(&mut driver, 6);
        assert!(report.complete && report.content_bytes == 5, "{act:?} {report}");
    }
}

#[test]
fn what_is_wrong_ends_the_pass_and_is_named() {
    for (act, named) in [
        (Act::Missing, "status 404"),
        (Act::Close, "closed"),
        (Act::Partial, "closed"),
        (Act::Garbage, "malformed"),
    ] {
        let server = Server::start(move |request| if request < 5 { Act::Reply } else { act });
        let mut driver = driver(server.url(), settings(2));
        let report = pass(&mut driver, 100);
        assert!(!report.complete && report.errors.total() == 1, "{act:?} {report}");
        let requests = report.requests;
        assert!(requests.replies <= 6 && requests.failed == 1, "{act:?} {report}");
        assert_eq!(requests.intended, requests.replies + requests.failed + requests.unfinished);
        assert!(report.warnings[0].contains(named), "{act:?} {report}");
    }
}

#[test]
fn another_length_is_wrong() {
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
    assert!(report.warnings[0].contains("2 bytes where the first had 5"), "{report}");
    serving.join().unwrap();
}

#[test]
fn silence_is_a_timeout_and_refusal_is_refusal() {
    let server = Server::start(|_| Act::Never);
    let config =
        Config { url: server.url(), timeout: Duration::from_millis(50), ..Config::default() };
    let report = pass(&mut Driver::new(&config, settings(2)).unwrap(), 2);
    assert_eq!(report.errors.client_timo, 1, "{report}");
    let (url, _held) = refusing();
    let report = pass(&mut driver(url, settings(2)), 2);
    assert_eq!((report.errors.conn_refused, report.requests.intended), (1, 0), "{report}");
}

#[test]
fn a_raised_flag_ends_a_pass() {
    let server = Server::start(|_| Act::Reply);
    let stop = AtomicBool::new(true);
    let report = driver(server.url(), settings(2)).run(2, &stop);
    assert!(!report.complete && report.requests.intended == 0, "{report}");
    stop.store(false, Ordering::Relaxed);
}

/// Serves two connections from one thread, blocking: the second one first. A driver that read the
/// first to its end before it looks at the second would wait for ever.
#[test]
fn large_replies_are_read_from_all_in_turn() {
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
fn many_requests_at_once_on_a_connection() {
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
            let whole = seen.windows(4).filter(|w| w == b"\r\n\r\n").count();
            if whole == 8 {
                seen.clear();
                let replies = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi".repeat(8);
                // In two pieces, within a head.
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
fn what_makes_no_sense_is_refused() {
    let pipeline = NonZeroUsize::new(2).unwrap();
    let settings = Settings { close: true, pipeline, ..settings(1) };
    let error = Driver::new(&Config::default(), settings).unwrap_err().to_string();
    assert!(error.contains("pipelined"), "{error}");
}
