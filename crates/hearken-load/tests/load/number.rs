//! Loads with a total number of requests, connections or sessions.

use std::io::Write;
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::thread;
use std::time::{Duration, Instant};

use crate::server::assertions::assert_conserved;
use crate::server::{Behaviour, Server};
use hearken_load::{
    Arrivals, Config, Count, Model, Profile, Rank, Report, Source, StopSignal, run,
};
use proptest::prelude::*;
use tempfile::NamedTempFile;

fn config(server: &Server, requests: u64) -> Config {
    Config {
        url: server.url(),
        requests: NonZeroU64::new(requests),
        rate: Profile::constant(2000.0),
        connections: NonZeroUsize::new(6),
        timeout: Duration::from_secs(20),
        seed: Some(7),
        ..Config::default()
    }
}

fn load(config: &Config) -> Report {
    let report = run(config, &mut (), &StopSignal::new()).unwrap();
    assert_conserved(&report);
    assert!(report.complete, "{report}");
    assert_eq!(report.requests.failed, 0, "{report}");
    report
}

fn file(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

proptest! {
    #![proptest_config(crate::cases(12))]

    #[test]
    fn sends_exactly_the_total(
        total in 1..60u64,
        threads in 1..4usize,
        model in prop::sample::select(&[Model::Requests, Model::Connections, Model::Closed][..]),
        per_connection in prop::option::of(1..5u32),
        pipeline in prop::sample::select(&[1, 3][..]),
        arrivals in prop::sample::select(&[Arrivals::Poisson, Arrivals::Constant][..]),
    ) {
        let server = Server::start(|_| Behaviour::Reply);
        let pipeline = if model == Model::Requests { 1 } else { pipeline };
        let report = load(&Config {
            model: Some(model),
            arrivals,
            threads: NonZeroUsize::new(threads).unwrap(),
            requests_per_connection: per_connection.and_then(NonZeroU32::new).map(Count::exactly),
            pipeline: NonZeroUsize::new(pipeline).unwrap(),
            ..config(&server, total)
        });
        let requests = match model {
            Model::Connections => total * u64::from(per_connection.unwrap_or(1)),
            _ => total,
        };
        prop_assert_eq!(server.requests(), requests);
        prop_assert_eq!(report.requests.replies, requests);
        if model == Model::Connections {
            prop_assert_eq!(report.sessions.completed, total);
        }
    }

    #[test]
    fn processes_share_the_total(total in 1..40u64, size in 2..4u32, closed in any::<bool>()) {
        let server = Server::start(|_| Behaviour::Reply);
        let model = closed.then_some(Model::Closed);
        let config = Config { model, ..config(&server, total) };
        thread::scope(|scope| {
            for rank in 0..size {
                let rank = Rank::new(rank, size).unwrap();
                let config = Config { rank, ..config.clone() };
                scope.spawn(move || load(&config));
            }
        });
        prop_assert_eq!(server.requests(), total);
    }

    #[test]
    fn counts_the_sessions_of_a_file(total in 1..20u64, closed in any::<bool>()) {
        let server = Server::start(|_| Behaviour::Reply);
        let sessions = file("/a\n/b\n\n/c\n");
        let path = sessions.path().to_owned();
        let report = load(&Config {
            model: closed.then_some(Model::Closed),
            source: Source::Wsesslog { sessions: None, think: Duration::ZERO, path },
            ..config(&server, total)
        });
        prop_assert_eq!(report.sessions.completed, total);
        prop_assert_eq!(server.requests(), total + total.div_ceil(2));
    }
}

#[test]
fn ends_after_the_last_reply() {
    let server = Server::start(|_| Behaviour::Reply);
    let start = Instant::now();
    // The next arrival would follow after a quarter of an hour.
    let rate = Profile::constant(0.001);
    load(&Config { rate, arrivals: Arrivals::Constant, ..config(&server, 1) });
    assert!(start.elapsed() < Duration::from_secs(600));
    assert_eq!(server.requests(), 1);
}

#[test]
fn the_duration_ends_the_load_before_the_total() {
    let server = Server::start(|_| Behaviour::Reply);
    let duration = Some(Duration::from_millis(200));
    for rate in [Profile::constant(500.0), "500..500@200ms".parse().unwrap()] {
        let duration = duration.filter(|_| rate.length().is_none());
        let report = load(&Config { rate, duration, ..config(&server, 1_000_000_000) });
        assert!((1..10_000).contains(&report.requests.replies), "{report}");
    }
}

#[test]
fn a_file_has_at_least_the_total() {
    let server = Server::start(|_| Behaviour::Reply);
    let list = file("/1\0/2\0/3\0/4\0/5");
    let source = |repeat| Source::Wlog { path: list.path().to_owned(), repeat };
    load(&Config { source: source(false), arrivals: Arrivals::Constant, ..config(&server, 3) });
    let mut targets = server.targets().concat();
    targets.sort();
    assert_eq!(targets, ["/1", "/2", "/3"]);
    load(&Config { source: source(true), ..config(&server, 12) });
    assert_eq!(server.requests(), 15);
    let longer = Config { source: source(false), ..config(&server, 6) };
    let error = run(&longer, &mut (), &StopSignal::new()).unwrap_err().to_string();
    assert!(error.contains("5 requests, fewer than the total of 6"), "{error}");
}

#[test]
fn impossible_numbers_are_rejected() {
    let server = Server::start(|_| Behaviour::Reply);
    let base = config(&server, 1);
    let number = |number| NonZeroUsize::new(number).unwrap();
    for (config, reason) in [
        (
            Config { rate: Profile::constant(0.0), idle_connections: 1, ..base.clone() },
            "the rate is 0",
        ),
        (
            Config { connections: Some(number(100_000_000)), ..base.clone() },
            "cannot use 100,000,000 connections in a process: the maximum is 10,000,000",
        ),
        (
            Config { idle_connections: usize::MAX, ..base.clone() },
            "idle connections in a process: the maximum is 10,000,000",
        ),
        (
            Config { threads: number(5000), connections: Some(number(5000)), ..base.clone() },
            "cannot use 5,000 threads in a process: the maximum is 1,024",
        ),
        (
            Config { pipeline: number(1_000_000), model: Some(Model::Closed), ..base },
            "cannot use 1,000,000 pipelined requests in a process: the maximum is 10,000",
        ),
    ] {
        let error = run(&config, &mut (), &StopSignal::new()).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
    assert_eq!(server.accepted(), 0);
}
