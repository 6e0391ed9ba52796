//! Idle connections are held, and made again when they are lost.

mod server;

use std::net::{TcpListener, TcpStream};
use std::num::NonZeroUsize;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use hearken::io::{find, names};
use hearken_load::{Config, Profile, Progress, Report, Snapshot, Stop, run};
use server::{Act, Server, refusing};

enum Said {
    Holding(u64),
    Tick { idle: u64 },
}

struct Listener(Sender<Said>);

impl Progress for Listener {
    fn holding(&mut self, connections: u64) {
        let _ = self.0.send(Said::Holding(connections));
    }

    fn tick(&mut self, so_far: &Snapshot) {
        let _ = self.0.send(Said::Tick { idle: so_far.idle });
    }
}

/// Runs `config` beside `watch`, and stops it when that is done.
fn while_running(config: &Config, watch: impl FnOnce(&Receiver<Said>)) -> Report {
    let stop = Stop::new();
    let (sender, said) = channel();
    thread::scope(|scope| {
        let load = scope.spawn(|| run(config, &mut Listener(sender), &stop));
        watch(&said);
        stop.raise();
        load.join().unwrap().unwrap()
    })
}

fn until_holding(said: &Receiver<Said>, expected: u64) {
    loop {
        match said.recv().unwrap() {
            Said::Holding(held) => return assert_eq!(held, expected),
            Said::Tick { .. } => {}
        }
    }
}

fn holding(url: String, idle: usize, events: &str) -> Config {
    Config {
        url,
        rate: Profile::constant(0.0),
        idle,
        events: events.to_owned(),
        ..Config::default()
    }
}

#[test]
fn lost_connections_are_made_again() {
    thread::scope(|scope| {
        for name in names().filter(|name| find(name).unwrap().probe().is_ok()) {
            scope.spawn(|| {
                let server = Server::start(|_| Act::Reply);
                let config = holding(server.url(), 100, name);
                let report = while_running(&config, |said| {
                    until_holding(said, 100);
                    server.until(|server| server.accepted() >= 100);
                    server.drop_all();
                    server.until(|server| server.accepted() >= 200);
                    while !matches!(said.recv().unwrap(), Said::Tick { idle: 100 }) {}
                });
                assert!(report.complete, "{report}");
                assert_eq!(server.requests(), 0);
                let idle = report.idle;
                assert_eq!((idle.asked, idle.held), (100, 100), "{report}");
                assert_eq!((idle.lost, idle.re_established), (100, 100), "{report}");
            });
        }
    });
}

#[test]
fn each_may_ask_first() {
    for name in names().filter(|name| find(name).unwrap().probe().is_ok()) {
        let server = Server::start(|_| Act::Chunked);
        let config = Config { idle_request: true, ..holding(server.url(), 50, name) };
        let report = while_running(&config, |said| until_holding(said, 50));
        assert_eq!(server.replies(), 50);
        assert_eq!((report.idle.held, report.idle.lost), (50, 0), "{report}");
        assert_eq!(report.requests.intended, 0);
    }
}

#[test]
fn a_server_that_closes_at_once_does_not_make_us_spin() {
    let server = Server::start(|_| Act::Close);
    let config = Config {
        idle_request: true,
        duration: Some(Duration::from_millis(100)),
        timeout: Duration::from_millis(500),
        ..holding(server.url(), 10, "auto")
    };
    let report = run(&config, &mut (), &Stop::new()).unwrap();
    assert_eq!((report.idle.held, report.idle.lost), (0, 0), "{report}");
    assert!(report.warnings.iter().any(|text| text.contains("missing")), "{report}");
    // 600 ms and more, by 100 ms each; far from what a spin would do.
    assert!(server.accepted() < 10_000, "{}", server.accepted());
}

#[test]
fn refused_is_tried_again_and_told() {
    let (url, _held) = refusing();
    let config = Config {
        duration: Some(Duration::from_millis(50)),
        timeout: Duration::from_millis(150),
        ..holding(url, 5, "auto")
    };
    let report = run(&config, &mut (), &Stop::new()).unwrap();
    assert_eq!((report.idle.asked, report.idle.held), (5, 0), "{report}");
    assert!(report.warnings.iter().any(|text| text.contains("missing")), "{report}");
}

#[test]
fn from_other_addresses() {
    let server = Server::start(|_| Act::Reply);
    let sources = ["127.0.0.2", "127.0.0.3"].map(|ip| ip.parse().unwrap());
    let config = Config { sources: sources.into(), ..holding(server.url(), 10, "auto") };
    let report = while_running(&config, |said| {
        until_holding(said, 10);
        server.until(|server| server.accepted() >= 10);
        let peers = server.counts.peers.lock().unwrap();
        for source in sources {
            let from = peers.iter().filter(|peer| peer.peer_addr().unwrap().ip() == source);
            assert_eq!(from.count(), 5);
        }
    });
    assert_eq!(report.idle.held, 10);
}

#[test]
fn held_by_some_of_the_threads() {
    let server = Server::start(|_| Act::Reply);
    let config = Config { threads: 3.try_into().unwrap(), ..holding(server.url(), 2, "auto") };
    let report = while_running(&config, |said| until_holding(said, 2));
    assert_eq!((report.idle.asked, report.idle.held), (2, 2), "{report}");
}

/// More or less at its rate, on connections that are not lost over it.
#[test]
fn each_asks_now_and_then() {
    for name in names().filter(|name| find(name).unwrap().probe().is_ok()) {
        let server = Server::start(|_| Act::Reply);
        let config = Config {
            idle_think: Some("uniform:5ms..15ms".parse().unwrap()),
            ..holding(server.url(), 20, name)
        };
        let began = Instant::now();
        let report = while_running(&config, |_| server.until(|server| server.replies() >= 200));
        let idle = report.idle;
        // 5 ms between two of each, at the least.
        let most = 20 * (began.elapsed().as_millis() as u64 / 5 + 1);
        assert!(idle.requests >= 200 && idle.requests <= most, "{name}: {report}");
        assert!(idle.replies <= server.replies() && idle.requests - idle.replies <= 20, "{report}");
        assert_eq!((idle.held, idle.lost, server.accepted()), (20, 0, 20), "{report}");
        // Whichever of them it is: all did.
        assert!(server.asked().iter().all(|asked| !asked.is_empty()));
        assert_eq!(report.requests.intended, 0);
    }
}

#[test]
fn they_are_begun_at_a_rate() {
    for threads in [1, 3] {
        let server = Server::start(|_| Act::Reply);
        let threads = NonZeroUsize::new(threads).unwrap();
        let config =
            Config { idle_rate: Some(200.0), threads, ..holding(server.url(), 30, "auto") };
        let began = Instant::now();
        while_running(&config, |said| until_holding(said, 30));
        // One of each thread at once.
        let least = (30 - threads.get()) as f64 / 200.0;
        assert!(began.elapsed().as_secs_f64() >= least, "{:?}", began.elapsed());
    }
}

/// A server that is stopped and started again at the same address.
#[test]
fn they_outlive_their_server() {
    // Not one of those that connections take, or one might be made to itself meanwhile.
    let mut ports = (0..).map(|_| fastrand::u16(10_000..30_000));
    let bound = ports.find_map(|port| TcpListener::bind(("127.0.0.1", port)).ok()).unwrap();
    let address = bound.local_addr().unwrap();
    drop(bound);
    let accepting = || {
        let listener = TcpListener::bind(address).unwrap();
        listener.set_nonblocking(true).unwrap();
        listener
    };
    /// Accepts until it has so many, or is told to end.
    fn accept(listener: &TcpListener, count: usize, held: &mut Vec<TcpStream>) {
        while held.len() < count {
            match listener.accept() {
                Ok((peer, _)) => held.push(peer),
                Err(_) => thread::sleep(Duration::from_millis(1)),
            }
        }
    }
    let config = Config {
        interval: Duration::from_millis(20),
        ..holding(format!("http://{address}/"), 200, "auto")
    };
    let mut first = Vec::new();
    let listener = accepting();
    let report = while_running(&config, |said| {
        accept(&listener, 200, &mut first);
        until_holding(said, 200);
        drop((listener, first));
        // The shortfall is seen.
        while !matches!(said.recv().unwrap(), Said::Tick { idle: 0 }) {}
        let (listener, mut second) = (accepting(), Vec::new());
        accept(&listener, 200, &mut second);
        // And heals.
        while !matches!(said.recv().unwrap(), Said::Tick { idle: 200 }) {}
        drop(listener);
        std::mem::forget(second);
    });
    let idle = report.idle;
    assert_eq!((idle.asked, idle.held), (200, 200), "{report}");
    assert_eq!((idle.lost, idle.re_established), (200, 200), "{report}");
}
