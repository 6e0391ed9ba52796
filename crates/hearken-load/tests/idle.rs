//! Idle connections are held, and made again when they are lost.

mod server;

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

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
