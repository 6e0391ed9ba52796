//! What does not fit: bodies that nobody reads, connections whose time is over, sessions that the
//! server ends, runs that are stopped.

mod server;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

use hearken_load::{
    Arrivals, Asking, Config, Count, Errors, Model, Profile, Report, Source, Stop, run,
};
use server::conserved::{assert_conserved, assert_sums};
use server::{Act, Server};
use tempfile::NamedTempFile;

fn config(url: String) -> Config {
    Config {
        url,
        rate: Profile::constant(100.0),
        duration: Some(Duration::from_millis(100)),
        arrivals: Arrivals::Constant,
        connections: NonZeroUsize::new(3).unwrap(),
        timeout: Duration::from_secs(20),
        ..Config::default()
    }
}

fn load(config: &Config) -> Report {
    run(config, &mut (), &Stop::new()).unwrap()
}

fn file(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

/// A reply may come before the request is complete.
#[test]
fn a_reply_comes_early() {
    let body = Some(vec![b'x'; 4 << 20]);
    let asking = Asking { method: "POST".to_owned(), body, ..Asking::default() };
    let addr = server::hasty(b"HTTP/1.1 413 No\r\nContent-Length: 2\r\n\r\nno", 20);
    let url = format!("http://{addr}/");
    let report = load(&Config {
        asking: asking.clone(),
        per_connection: Some(Count::exactly(NonZeroU32::MIN)),
        ..config(url)
    });
    assert_conserved(&report);
    assert_eq!(report.status.client_error, 10, "{report}");
    assert_eq!(report.errors, Errors::default(), "{report}");
    // On a connection that is kept, what was not sent yet comes before the next request.
    let server = Server::start(|_| Act::Reply);
    let report = load(&Config { asking, ..config(server.url()) });
    assert_conserved(&report);
    assert_eq!((report.requests.replies, server.replies()), (10, 10), "{report}");
}

/// No request is made on a connection whose time is over.
#[test]
fn a_connection_has_its_time() {
    let server = Server::start(|_| Act::Reply);
    let report = load(&Config {
        connections: NonZeroUsize::MIN,
        rate: Profile::constant(10.0),
        duration: Some(Duration::from_millis(500)),
        connection_time: Some("20ms".parse().unwrap()),
        ..config(server.url())
    });
    assert_conserved(&report);
    assert_eq!(report.errors, Errors::default(), "{report}");
    assert_eq!(report.requests.replies, 5, "{report}");
    // Five requests, 100 ms apart: each finds one that was opened after the one before.
    let asked = server.asked();
    assert!(asked.iter().all(|of| of.len() <= 1), "{asked:?}");
}

/// Connections that arrive are held for their time.
#[test]
fn connections_are_held() {
    let server = Server::start(|_| Act::Reply);
    let report = load(&Config {
        model: Some(Model::Connections),
        // What is due after the end is not asked: there is time for the second requests.
        rate: "1000@9.5ms,0".parse().unwrap(),
        duration: Some(Duration::from_secs(2)),
        connection_time: Some("1h".parse().unwrap()),
        per_connection: NonZeroU32::new(2).map(Count::exactly),
        ..config(server.url())
    });
    assert_conserved(&report);
    assert_eq!((report.requests.replies, report.connections_opened), (20, 10), "{report}");
    assert_eq!(report.sessions.completed, 10);
}

/// A session whose next request cannot be made has failed with that request, which is told.
#[test]
fn a_session_fails_with_a_request() {
    let file = file("/a think=0.03\n/b\n/c\n");
    let one = |act: fn(u64) -> Act, closes: bool| {
        let server = Server::start(act);
        let path = file.path().to_owned();
        let source = Source::Wsesslog { sessions: Some(1), think: Duration::ZERO, path };
        let stop = Stop::new();
        let config = Config { duration: None, source, ..config(server.url()) };
        let report = thread::scope(|scope| {
            let load = scope.spawn(|| run(&config, &mut (), &stop).unwrap());
            if closes {
                // In its pause, twice: what takes the connection's place is closed, too.
                for accepted in 1..=2 {
                    server.until(|server| server.accepted() >= accepted && server.requests() >= 1);
                    server.until(|server| !server.counts.peers.lock().unwrap().is_empty());
                    server.drop_all();
                }
            }
            load.join().unwrap()
        });
        assert_conserved(&report);
        assert_eq!(report.sessions.begun, 1);
        (report, server)
    };
    let (report, _) = one(|number| if number == 1 { Act::Reset } else { Act::Reply }, false);
    assert_eq!((report.requests.intended, report.errors.conn_reset), (2, 1), "{report}");
    assert_eq!(report.sessions.failed, 1);
    // A close that is announced is none of the session's business.
    let (report, server) = one(|_| Act::AnnouncedClose, false);
    assert_eq!((report.requests.replies, server.accepted()), (3, 3), "{report}");
    assert_eq!(report.sessions.completed, 1);
    // Nor is one that comes in its pause; but the second one is.
    let (report, _) = one(|_| Act::Reply, true);
    assert_eq!((report.requests.intended, report.requests.replies), (2, 1), "{report}");
    assert_eq!((report.errors.conn_reset, report.sessions.failed), (1, 1), "{report}");
}

/// Whenever it is stopped, everything is accounted for.
#[test]
fn stopped_at_any_time() {
    let list = file("/a\n /b\n /c\n/d think=0.01\n/e\n");
    for (index, act) in [Act::Reply, Act::Slow, Act::Never, Act::Reset].into_iter().enumerate() {
        for model in [Model::Requests, Model::Connections, Model::Sessions, Model::Closed] {
            let server = Server::start(move |_| act);
            let path = list.path().to_owned();
            let config = Config {
                model: Some(model),
                rate: Profile::constant(500.0),
                duration: Some(Duration::from_secs(3600)),
                threads: NonZeroUsize::new(1 + index % 3).unwrap(),
                interval: Duration::from_millis(10),
                source: match model {
                    Model::Sessions => {
                        Source::Wsesslog { sessions: None, think: Duration::ZERO, path }
                    }
                    _ => Source::Url,
                },
                ..config(server.url())
            };
            let stop = Stop::new();
            let report = thread::scope(|scope| {
                let load = scope.spawn(|| run(&config, &mut (), &stop));
                server.until(|server| server.counts.requests.load(SeqCst) >= 3);
                stop.raise();
                load.join().unwrap().unwrap()
            });
            assert_sums(&report);
            assert!(!report.complete, "{report}");
            assert!(report.requests.replies <= server.replies());
            assert!(report.requests.sent >= server.requests());
        }
    }
}

/// Once the time is over, nothing takes the place of what the server closes.
#[test]
fn nothing_is_opened_after_the_end() {
    let server = Server::start(|_| Act::AnnouncedClose);
    let report = load(&Config {
        connections: NonZeroUsize::MIN,
        duration: Some(Duration::from_micros(1)),
        ..config(server.url())
    });
    assert_conserved(&report);
    assert_eq!((report.requests.replies, report.connections_opened), (1, 1), "{report}");
    // Whoever connected before us was accepted before us.
    let mut last = TcpStream::connect(server.addr).unwrap();
    last.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    last.read_to_end(&mut Vec::new()).unwrap();
    assert_eq!(server.accepted(), 2);
}

/// What cannot be is refused, not passed over.
#[test]
fn settings_that_do_not_fit() {
    let refuse = |config: Config| run(&config, &mut (), &Stop::new()).unwrap_err().to_string();
    let base = || config("http://127.0.0.1:1/".to_owned());
    let pipeline = NonZeroUsize::new(4).unwrap();
    assert!(refuse(Config { pipeline, ..base() }).contains("one by one"));
    let think = Some("1s".parse().unwrap());
    assert!(refuse(Config { think, ..base() }).contains("one by one"));
    // Sessions have as many connections as it takes.
    let (list, threads) = (file("/a\n"), NonZeroUsize::new(2).unwrap());
    let server = Server::start(|_| Act::Reply);
    let path = list.path().to_owned();
    let source = Source::Wsesslog { sessions: Some(3), think: Duration::ZERO, path };
    let connections = NonZeroUsize::MIN;
    let config = config(server.url());
    assert_eq!(load(&Config { threads, connections, source, ..config }).requests.replies, 3);
}
