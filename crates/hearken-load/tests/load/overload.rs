//! Offered rates beyond what the server, the connections or the generator can handle.

use std::io::Write;
use std::num::NonZeroUsize;
use std::thread;
use std::time::{Duration, Instant};

use crate::server::assertions::{assert_conserved, assert_sums};
use crate::server::{Behaviour, Server};
use hearken_load::{
    Arrivals, Bottleneck, Config, ConnectionLimit, Errors, Objectives, Profile, QueueOrder, Report,
    Source, StopSignal, run,
};
use tempfile::NamedTempFile;

/// A rate that no machine reaches.
const UNREACHABLE: f64 = 50e6;

fn load(config: &Config) -> Report {
    let report = run(config, &mut (), &StopSignal::new()).unwrap();
    assert_conserved(&report);
    report
}

fn delayed(millis: u64) -> Server {
    Server::start(move |_| {
        thread::sleep(Duration::from_millis(millis));
        Behaviour::Reply
    })
}

#[test]
fn an_unreachable_rate_ends_on_time() {
    let server = Server::start(|_| Behaviour::Reply);
    let (duration, timeout) = (Duration::from_secs(1), Duration::from_millis(500));
    let begin = Instant::now();
    let report = load(&Config {
        url: server.url(),
        rate: Profile::constant(UNREACHABLE),
        duration: Some(duration),
        connections: NonZeroUsize::new(50),
        timeout,
        ..Config::default()
    });
    // A second of tolerance, and more for a busy machine.
    assert!(begin.elapsed() < duration + timeout + Duration::from_secs(5), "{:?}", begin.elapsed());
    assert!(report.missed.generator > 0, "{:?}\n{report}", report.missed);
    assert_eq!(report.bottleneck, Bottleneck::Generator, "{report}");
    // Skipped arrivals count as scheduled.
    let expected = UNREACHABLE * report.duration_s;
    let scheduled = report.requests.scheduled as f64;
    assert!((scheduled / expected - 1.0).abs() < 0.01, "{scheduled} {expected}");
}

#[test]
fn a_stop_interrupts_an_unreachable_rate() {
    let server = Server::start(|_| Behaviour::Reply);
    let config = Config {
        url: server.url(),
        rate: Profile::constant(UNREACHABLE),
        duration: Some(Duration::from_secs(3600)),
        timeout: Duration::from_secs(3600),
        connections: NonZeroUsize::new(50),
        ..Config::default()
    };
    let stop = StopSignal::new();
    let (report, delay) = thread::scope(|scope| {
        let load = scope.spawn(|| run(&config, &mut (), &stop).unwrap());
        server.until(|server| server.replies() >= 100);
        let raised = Instant::now();
        stop.raise();
        (load.join().unwrap(), raised.elapsed())
    });
    assert_sums(&report);
    assert!(!report.complete);
    assert!(delay < Duration::from_secs(3), "{delay:?}");
}

/// Checks that the queue does not cause a collapse: requests that have expired, or are about to,
/// must not take the connections of others. 4 connections to a server with a delay of 50 ms carry
/// 80 requests per second.
#[test]
fn waiting_requests_do_not_reduce_the_reply_rate() {
    for queue in [QueueOrder::Lifo, QueueOrder::Fifo] {
        let server = delayed(50);
        let report = load(&Config {
            url: server.url(),
            rate: Profile::constant(200.0),
            arrivals: Arrivals::Constant,
            duration: Some(Duration::from_secs(3)),
            connections: NonZeroUsize::new(4),
            timeout: Duration::from_millis(500),
            queue,
            ..Config::default()
        });
        // Half of the capacity, because the machine may be busy.
        assert!(report.requests.replies > 120, "{queue:?} {report}");
        let late: u64 = report.intervals[1..].iter().map(|interval| interval.replies).sum();
        assert!(late > 60, "{queue:?} {report}");
        assert_eq!(report.errors, Errors::default(), "{queue:?} {report}");
        assert!(report.missed.no_connection > 100, "{queue:?} {report}");
        assert_eq!(report.bottleneck, Bottleneck::Connections, "{report}");
        assert_eq!((report.connections, report.peak_connections), (4, 4));
    }
}

/// Checks that arrivals do not wait for connections by default.
#[test]
fn connections_are_opened_as_requests_need_them() {
    let server = delayed(300);
    let report = load(&Config {
        url: server.url(),
        rate: Profile::constant(300.0),
        arrivals: Arrivals::Constant,
        duration: Some(Duration::from_secs(1)),
        ..Config::default()
    });
    assert_eq!((report.requests.replies, report.requests.queued), (300, 0), "{report}");
    assert!(report.peak_connections > 60, "{report}");
    assert_ne!(report.connections_limited_by, ConnectionLimit::Settings, "{report}");
}

/// Checks that the ratio of replies to requests is not affected by a latency that is a large part of
/// the duration, but by a lack of connections.
#[test]
fn the_rate_ratio_counts_requests_that_could_be_answered() {
    let objectives: Objectives = "rate>=99%".parse().unwrap();
    let server = delayed(100);
    let run = |connections| {
        let report = load(&Config {
            url: server.url(),
            rate: Profile::constant(100.0),
            arrivals: Arrivals::Constant,
            duration: Some(Duration::from_secs(1)),
            connections: NonZeroUsize::new(connections),
            ..Config::default()
        });
        let results = objectives.evaluate(&report);
        (results[0].passed, report)
    };
    let (passed, report) = run(50);
    // All replies come in time, unless the machine is so busy that the server is late.
    assert!(passed || report.service_ns.p99 > 105_000_000, "{:?} {report}", report.requests);
    let (passed, report) = run(5);
    assert!(!passed, "{:?} {report}", report.requests);
}

/// Checks that skipped arrivals of a trace skip their requests, so that the times of the others
/// match.
#[test]
fn skipped_arrivals_skip_their_requests() {
    let server = Server::start(|_| Behaviour::Reply);
    let mut file = NamedTempFile::new().unwrap();
    let count = 3_000_000;
    let lines: String =
        (0..count).map(|number| format!("0.{number:09} /{}\n", number % 2)).collect();
    file.write_all(lines.as_bytes()).unwrap();
    writeln!(file, "2.5 /last").unwrap();
    let report = load(&Config {
        url: server.url(),
        source: Source::Trace(file.path().to_owned()),
        connections: NonZeroUsize::new(2),
        timeout: Duration::from_millis(200),
        ..Config::default()
    });
    assert_eq!(report.requests.scheduled, count + 1, "{report}");
    assert!(report.missed.total() > count / 2, "{:?}", report.missed);
    assert!(server.targets().concat().contains(&"/last".to_owned()));
}
