//! Idle connections are established, and replaced when they are lost.

use std::net::{TcpListener, TcpStream};
use std::num::NonZeroUsize;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::server::tls::{Authority, Closing};
use crate::server::{Behaviour, Server, refusing};
use hearken::io::{find, names};
use hearken_load::{Config, Profile, Progress, Report, Snapshot, StopSignal, run};

enum Event {
    Held(u64),
    Tick { idle: u64 },
}

struct Listener(Sender<Event>);

impl Progress for Listener {
    fn on_idle_open(&mut self, connections: u64) {
        let _ = self.0.send(Event::Held(connections));
    }

    fn on_interval(&mut self, so_far: &Snapshot) {
        let _ = self.0.send(Event::Tick { idle: so_far.idle });
    }
}

/// Runs `config` concurrently with `watch`, and stops it when `watch` returns.
fn while_running(config: &Config, watch: impl FnOnce(&Receiver<Event>)) -> Report {
    let stop = StopSignal::new();
    let (sender, events) = channel();
    thread::scope(|scope| {
        let load = scope.spawn(|| run(config, &mut Listener(sender), &stop));
        watch(&events);
        stop.raise();
        load.join().unwrap().unwrap()
    })
}

fn until_holding(events: &Receiver<Event>, expected: u64) {
    loop {
        match events.recv().unwrap() {
            Event::Held(held) => return assert_eq!(held, expected),
            Event::Tick { .. } => {}
        }
    }
}

fn idle_config(url: String, idle_connections: usize, mechanism: &str) -> Config {
    Config {
        url,
        rate: Profile::constant(0.0),
        idle_connections,
        mechanism: mechanism.to_owned(),
        ..Config::default()
    }
}

#[test]
fn replaces_lost_connections() {
    thread::scope(|scope| {
        for name in names().filter(|name| find(name).unwrap().probe().is_ok()) {
            scope.spawn(|| {
                let server = Server::start(|_| Behaviour::Reply);
                let config = idle_config(server.url(), 100, name);
                let report = while_running(&config, |events| {
                    until_holding(events, 100);
                    server.until(|server| server.accepted() >= 100);
                    server.drop_all();
                    server.until(|server| server.accepted() >= 200);
                    while !matches!(events.recv().unwrap(), Event::Tick { idle: 100 }) {}
                });
                assert!(report.complete, "{report}");
                assert_eq!(server.requests(), 0);
                let idle = report.idle;
                assert_eq!((idle.requested, idle.open), (100, 100), "{report}");
                assert_eq!((idle.lost, idle.reestablished), (100, 100), "{report}");
            });
        }
    });
}

#[test]
fn each_connection_may_send_a_request_first() {
    for name in names().filter(|name| find(name).unwrap().probe().is_ok()) {
        let server = Server::start(|_| Behaviour::Chunked);
        let config = Config { idle_sends_request: true, ..idle_config(server.url(), 50, name) };
        let report = while_running(&config, |events| until_holding(events, 50));
        assert_eq!(server.replies(), 50);
        assert_eq!((report.idle.open, report.idle.lost), (50, 0), "{report}");
        assert_eq!(report.requests.scheduled, 0);
    }
}

#[test]
fn a_server_that_closes_immediately_causes_no_busy_loop() {
    let server = Server::start(|_| Behaviour::Close);
    let config = Config {
        idle_sends_request: true,
        duration: Some(Duration::from_millis(100)),
        timeout: Duration::from_millis(500),
        ..idle_config(server.url(), 10, "auto")
    };
    let report = run(&config, &mut (), &StopSignal::new()).unwrap();
    assert_eq!((report.idle.open, report.idle.lost), (0, 0), "{report}");
    assert!(report.warnings.iter().any(|text| text.contains("missing")), "{report}");
    // The run lasts at least 600 ms with a retry every 100 ms. A busy loop would open far more.
    assert!(server.accepted() < 10_000, "{}", server.accepted());
}

/// Asserts that three idle connections, each of which sends a request first, cannot be opened, and that
/// a warning contains `reason`.
fn assert_unopened(config: Config, reason: &str) {
    let config = Config {
        idle_sends_request: true,
        duration: Some(Duration::from_millis(50)),
        // The load waits for the connections for this time, which is long enough for a busy machine.
        timeout: Duration::from_secs(2),
        ..config
    };
    let report = run(&config, &mut (), &StopSignal::new()).unwrap();
    assert_eq!((report.idle.requested, report.idle.open), (3, 0), "{report}");
    assert!(report.warnings.iter().any(|text| text.contains(reason)), "{reason}: {report}");
}

#[test]
fn reports_why_connections_could_not_be_opened() {
    thread::scope(|scope| {
        for (behaviour, reason) in [
            (Behaviour::Close, "the server closed the connection"),
            (Behaviour::Reset, "reset"),
            (Behaviour::AnnouncedClose, "does not keep the connection open"),
            (Behaviour::Garbage, "invalid HTTP version"),
            (Behaviour::Never, "timed out"),
        ] {
            scope.spawn(move || {
                let server = Server::start(move |_| behaviour);
                assert_unopened(idle_config(server.url(), 3, "auto"), reason);
            });
        }
    });
}

#[test]
fn reports_why_tls_connections_could_not_be_opened() {
    let authority = Authority::new();
    let closing = authority.start_server(Closing::Announced, |_| Behaviour::Close);
    let untrusted = idle_config(closing.url(), 3, "auto");
    let trusted = Config { tls: authority.options(), ..untrusted.clone() };
    thread::scope(|scope| {
        scope.spawn(|| assert_unopened(trusted, "the server closed the connection"));
        scope.spawn(|| assert_unopened(untrusted, "certificate"));
    });
}

#[test]
fn retries_refused_connections_and_warns() {
    let (url, _held) = refusing();
    let config = Config {
        duration: Some(Duration::from_millis(50)),
        timeout: Duration::from_millis(150),
        ..idle_config(url, 5, "auto")
    };
    let report = run(&config, &mut (), &StopSignal::new()).unwrap();
    assert_eq!((report.idle.requested, report.idle.open), (5, 0), "{report}");
    assert!(report.warnings.iter().any(|text| text.contains("missing")), "{report}");
}

#[test]
fn uses_source_addresses_in_turn() {
    let server = Server::start(|_| Behaviour::Reply);
    let sources = ["127.0.0.2", "127.0.0.3"].map(|ip| ip.parse().unwrap());
    let config =
        Config { source_addresses: sources.into(), ..idle_config(server.url(), 10, "auto") };
    let report = while_running(&config, |events| {
        until_holding(events, 10);
        server.until(|server| server.accepted() >= 10);
        let peers = server.counts.peers.lock().unwrap();
        for source in sources {
            let from = peers.iter().filter(|peer| peer.peer_addr().unwrap().ip() == source);
            assert_eq!(from.count(), 5);
        }
    });
    assert_eq!(report.idle.open, 10);
}

#[test]
fn there_may_be_fewer_connections_than_threads() {
    let server = Server::start(|_| Behaviour::Reply);
    let config = Config { threads: 3.try_into().unwrap(), ..idle_config(server.url(), 2, "auto") };
    let report = while_running(&config, |events| until_holding(events, 2));
    assert_eq!((report.idle.requested, report.idle.open), (2, 2), "{report}");
}

/// Checks the request rate of idle connections. The requests do not close connections.
#[test]
fn idle_connections_send_requests_after_think_times() {
    for name in names().filter(|name| find(name).unwrap().probe().is_ok()) {
        let server = Server::start(|_| Behaviour::Reply);
        let config = Config {
            idle_think_time: Some("uniform:5ms..15ms".parse().unwrap()),
            ..idle_config(server.url(), 20, name)
        };
        let began = Instant::now();
        let report = while_running(&config, |_| server.until(|server| server.replies() >= 200));
        let idle = report.idle;
        // Requests on a connection are at least 5 ms apart.
        let max_requests = 20 * (began.elapsed().as_millis() as u64 / 5 + 1);
        assert!(idle.requests >= 200 && idle.requests <= max_requests, "{name}: {report}");
        assert!(idle.replies <= server.replies() && idle.requests - idle.replies <= 20, "{report}");
        assert_eq!((idle.open, idle.lost, server.accepted()), (20, 0, 20), "{report}");
        // All connections sent requests.
        assert!(server.targets().iter().all(|targets| !targets.is_empty()));
        assert_eq!(report.requests.scheduled, 0);
    }
}

#[test]
fn connections_are_opened_at_a_limited_rate() {
    for threads in [1, 3] {
        let server = Server::start(|_| Behaviour::Reply);
        let threads = NonZeroUsize::new(threads).unwrap();
        let config =
            Config { idle_rate: Some(200.0), threads, ..idle_config(server.url(), 30, "auto") };
        let began = Instant::now();
        while_running(&config, |events| until_holding(events, 30));
        // Each thread opens its first connection immediately.
        let min_seconds = (30 - threads.get()) as f64 / 200.0;
        assert!(began.elapsed().as_secs_f64() >= min_seconds, "{:?}", began.elapsed());
    }
}

/// Checks the replacement of connections when the server restarts at the same address.
#[test]
fn connections_are_replaced_when_the_server_restarts() {
    // Use a port outside the ephemeral range, so that no connection connects to itself.
    let mut ports = (0..).map(|_| fastrand::u16(10_000..30_000));
    let bound = ports.find_map(|port| TcpListener::bind(("127.0.0.1", port)).ok()).unwrap();
    let address = bound.local_addr().unwrap();
    drop(bound);
    let accepting = || {
        let listener = TcpListener::bind(address).unwrap();
        listener.set_nonblocking(true).unwrap();
        listener
    };
    /// Accepts until there are `count` connections.
    fn accept(listener: &TcpListener, count: usize, held: &mut Vec<TcpStream>) {
        while held.len() < count {
            match listener.accept() {
                Ok((peer, _)) => held.push(peer),
                Err(_) => thread::sleep(Duration::from_millis(1)),
            }
        }
    }
    let config = Config {
        report_interval: Duration::from_millis(20),
        ..idle_config(format!("http://{address}/"), 200, "auto")
    };
    let mut first = Vec::new();
    let listener = accepting();
    let report = while_running(&config, |events| {
        accept(&listener, 200, &mut first);
        until_holding(events, 200);
        drop((listener, first));
        // The loss is reported.
        while !matches!(events.recv().unwrap(), Event::Tick { idle: 0 }) {}
        let (listener, mut second) = (accepting(), Vec::new());
        accept(&listener, 200, &mut second);
        // The connections are replaced.
        while !matches!(events.recv().unwrap(), Event::Tick { idle: 200 }) {}
        drop(listener);
        std::mem::forget(second);
    });
    let idle = report.idle;
    assert_eq!((idle.requested, idle.open), (200, 200), "{report}");
    assert_eq!((idle.lost, idle.reestablished), (200, 200), "{report}");
}
