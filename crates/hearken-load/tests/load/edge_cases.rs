//! Unusual cases: early replies, expired connections, sessions that the server ends, stopped runs.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

use crate::server::assertions::{assert_conserved, assert_sums};
use crate::server::{Behaviour, Server};
use hearken_load::{
    Arrivals, Config, Count, Errors, Model, Profile, Report, RequestTemplate, Source, StopSignal,
    run,
};
use tempfile::NamedTempFile;

fn config(url: String) -> Config {
    Config {
        url,
        rate: Profile::constant(100.0),
        duration: Some(Duration::from_millis(100)),
        arrivals: Arrivals::Constant,
        connections: NonZeroUsize::new(3),
        timeout: Duration::from_secs(20),
        ..Config::default()
    }
}

fn load(config: &Config) -> Report {
    run(config, &mut (), &StopSignal::new()).unwrap()
}

fn file(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

/// Checks that a reply may arrive before the request has been sent completely.
#[test]
fn accepts_replies_before_the_end_of_the_request() {
    let body = Some(vec![b'x'; 4 << 20]);
    let template =
        RequestTemplate { method: "POST".to_owned(), body, ..RequestTemplate::default() };
    let addr = crate::server::hasty(b"HTTP/1.1 413 No\r\nContent-Length: 2\r\n\r\nno", 20);
    let url = format!("http://{addr}/");
    let report = load(&Config {
        template: template.clone(),
        requests_per_connection: Some(Count::exactly(NonZeroU32::MIN)),
        ..config(url)
    });
    assert_conserved(&report);
    assert_eq!(report.status.client_error, 10, "{report}");
    assert_eq!(report.errors, Errors { status: 10, ..Errors::default() }, "{report}");
    // On a persistent connection the rest of the request precedes the next request.
    let server = Server::start(|_| Behaviour::Reply);
    let report = load(&Config { template, ..config(server.url()) });
    assert_conserved(&report);
    assert_eq!((report.requests.replies, server.replies()), (10, 10), "{report}");
}

/// Checks that no request is sent on a connection after its lifetime.
#[test]
fn connections_are_not_used_after_their_lifetime() {
    let server = Server::start(|_| Behaviour::Reply);
    let report = load(&Config {
        connections: Some(NonZeroUsize::MIN),
        rate: Profile::constant(10.0),
        duration: Some(Duration::from_millis(500)),
        connection_lifetime: Some("20ms".parse().unwrap()),
        ..config(server.url())
    });
    assert_conserved(&report);
    assert_eq!(report.errors, Errors::default(), "{report}");
    assert_eq!(report.requests.replies, 5, "{report}");
    // The requests are 100 ms apart: each uses a connection opened after the previous one.
    let targets = server.targets();
    assert!(targets.iter().all(|of| of.len() <= 1), "{targets:?}");
}

/// Checks that connections that arrive stay open for their lifetime.
#[test]
fn arriving_connections_stay_open_for_their_lifetime() {
    let server = Server::start(|_| Behaviour::Reply);
    let report = load(&Config {
        model: Some(Model::Connections),
        // Nothing is sent after the end of the run: allow time for the second requests.
        rate: "1000@9.5ms,0".parse().unwrap(),
        duration: Some(Duration::from_secs(2)),
        connections: None,
        connection_lifetime: Some("1h".parse().unwrap()),
        requests_per_connection: NonZeroU32::new(2).map(Count::exactly),
        ..config(server.url())
    });
    assert_conserved(&report);
    assert_eq!((report.requests.replies, report.connections_opened), (20, 10), "{report}");
    assert_eq!(report.sessions.completed, 10);
}

/// Checks that a session whose next request cannot be sent fails with that request.
#[test]
fn a_session_fails_with_its_request() {
    let file = file("/a think=0.3\n/b\n/c\n");
    let one = |behaviour: fn(u64) -> Behaviour, closes: bool| {
        let server = Server::start(behaviour);
        let path = file.path().to_owned();
        let source = Source::Wsesslog { sessions: Some(1), think: Duration::ZERO, path };
        let stop = StopSignal::new();
        let config = Config { duration: None, source, ..config(server.url()) };
        let report = thread::scope(|scope| {
            let load = scope.spawn(|| run(&config, &mut (), &stop).unwrap());
            if closes {
                // Close the connection during the pause, and then its replacement.
                for accepted in 1..=2 {
                    server.until(|server| server.accepted() >= accepted && server.requests() >= 1);
                    server.until(|server| !server.counts.peers.lock().unwrap().is_empty());
                    server.drop_all();
                }
            }
            load.join().unwrap()
        });
        assert_conserved(&report);
        assert_eq!(report.sessions.started, 1);
        (report, server)
    };
    let (report, _) =
        one(|number| if number == 1 { Behaviour::Reset } else { Behaviour::Reply }, false);
    assert_eq!((report.requests.scheduled, report.errors.conn_reset), (2, 1), "{report}");
    assert_eq!(report.sessions.failed, 1);
    // An announced close does not fail the session.
    let (report, server) = one(|_| Behaviour::AnnouncedClose, false);
    assert_eq!((report.requests.replies, server.accepted()), (3, 3), "{report}");
    assert_eq!(report.sessions.completed, 1);
    // Neither does a close during the pause, but the second one does.
    let (report, _) = one(|_| Behaviour::Reply, true);
    assert_eq!((report.requests.scheduled, report.requests.replies), (2, 1), "{report}");
    assert_eq!((report.errors.conn_reset, report.sessions.failed), (1, 1), "{report}");
}

/// Checks that all requests are accounted for whenever the run is stopped.
#[test]
fn accounts_for_requests_of_stopped_runs() {
    let list = file("/a\n /b\n /c\n/d think=0.01\n/e\n");
    for (index, behaviour) in
        [Behaviour::Reply, Behaviour::Slow, Behaviour::Never, Behaviour::Reset]
            .into_iter()
            .enumerate()
    {
        for model in [Model::Requests, Model::Connections, Model::Sessions, Model::Closed] {
            let server = Server::start(move |_| behaviour);
            let path = list.path().to_owned();
            let config = Config {
                model: Some(model),
                rate: Profile::constant(500.0),
                duration: Some(Duration::from_secs(3600)),
                threads: NonZeroUsize::new(1 + index % 3).unwrap(),
                report_interval: Duration::from_millis(10),
                source: match model {
                    Model::Sessions => {
                        Source::Wsesslog { sessions: None, think: Duration::ZERO, path }
                    }
                    _ => Source::Url,
                },
                ..config(server.url())
            };
            let stop = StopSignal::new();
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

/// Checks that closed connections are not replaced after the end of the run.
#[test]
fn opens_no_connections_after_the_end() {
    let server = Server::start(|_| Behaviour::AnnouncedClose);
    let report = load(&Config {
        connections: Some(NonZeroUsize::MIN),
        duration: Some(Duration::from_micros(1)),
        ..config(server.url())
    });
    assert_conserved(&report);
    assert_eq!((report.requests.replies, report.connections_opened), (1, 1), "{report}");
    // Connections are accepted in order, so earlier ones have been accepted.
    let mut last = TcpStream::connect(server.addr).unwrap();
    last.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    last.read_to_end(&mut Vec::new()).unwrap();
    assert_eq!(server.accepted(), 2);
}

/// Checks that inconsistent settings are rejected.
#[test]
fn rejects_inconsistent_settings() {
    let refuse =
        |config: Config| run(&config, &mut (), &StopSignal::new()).unwrap_err().to_string();
    let base = || config("http://127.0.0.1:1/".to_owned());
    let pipeline = NonZeroUsize::new(4).unwrap();
    assert!(refuse(Config { pipeline, ..base() }).contains("several requests per connection"));
    let think_time = Some("1s".parse().unwrap());
    assert!(refuse(Config { think_time, ..base() }).contains("several requests per connection"));
    // Sessions are not limited by the number of connections.
    let (list, threads) = (file("/a\n"), NonZeroUsize::new(2).unwrap());
    let server = Server::start(|_| Behaviour::Reply);
    let path = list.path().to_owned();
    let source = Source::Wsesslog { sessions: Some(3), think: Duration::ZERO, path };
    let connections = NonZeroUsize::new(2);
    let config = config(server.url());
    assert_eq!(load(&Config { threads, connections, source, ..config }).requests.replies, 3);
}
