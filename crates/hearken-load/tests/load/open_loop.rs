//! Arrivals are independent of the server, and latency includes all delays that the server causes.

use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use crate::server::{Behaviour, Server};
use hearken_load::{
    Arrivals, Config, LoadError, Profile, Report, RequestTemplate, StopSignal, run,
};

const NANOS_PER_MS: u64 = 1_000_000;

fn load(config: &Config) -> Report {
    run(config, &mut (), &StopSignal::new()).unwrap()
}

/// Stalls the server for 300 ms. Of 200 requests in a second, 60 become due during the stall, and
/// only the first few are sent while it lasts.
#[test]
fn a_stall_delays_all_requests_scheduled_during_it() {
    const STALL: Duration = Duration::from_millis(300);
    let gate = Mutex::new(());
    let server = Server::start(move |number| {
        let _held = gate.lock().unwrap();
        if number == 50 {
            thread::sleep(STALL);
        }
        Behaviour::Reply
    });
    let report = load(&Config {
        url: server.url(),
        rate: Profile::constant(200.0),
        duration: Some(Duration::from_secs(1)),
        arrivals: Arrivals::Constant,
        connections: NonZeroUsize::new(4),
        timeout: Duration::from_secs(30),
        ..Config::default()
    });
    assert_eq!(report.requests.replies, 200, "{report}");
    // A tenth of the requests waited longer than 300 ms minus 20 gaps of 5 ms.
    assert!(report.latency_ns.max >= 300 * NANOS_PER_MS, "{report}");
    assert!(report.latency_ns.p99 >= 280 * NANOS_PER_MS, "{report}");
    assert!(report.latency_ns.p90 >= 190 * NANOS_PER_MS, "{report}");
    assert!(report.requests.queued >= 50, "{report}");
}

#[test]
fn replies_do_not_shift_arrivals() {
    let scheduled =
        [Behaviour::Reply, Behaviour::Slow, Behaviour::Close, Behaviour::Never].map(|behaviour| {
            let server = Server::start(move |_| behaviour);
            let report = load(&Config {
                url: server.url(),
                rate: Profile::constant(1000.0),
                duration: Some(Duration::from_millis(200)),
                connections: NonZeroUsize::new(2),
                timeout: Duration::from_millis(100),
                seed: Some(42),
                ..Config::default()
            });
            assert_eq!(report.seed, 42);
            report.requests.scheduled
        });
    assert!(scheduled[0] > 100, "{scheduled:?}");
    assert!(scheduled.iter().all(|&count| count == scheduled[0]), "{scheduled:?}");
}

#[test]
fn steps_shorter_than_an_interval_have_intervals_of_their_own() {
    let server = Server::start(|_| Behaviour::Reply);
    let report = load(&Config {
        url: server.url(),
        rate: Profile::steps("200,400@150ms").unwrap(),
        arrivals: Arrivals::Constant,
        report_interval: Duration::from_secs(1),
        ..Config::default()
    });
    let steps = report.steps();
    let sending: Vec<_> = steps.iter().filter(|step| !step.draining).collect();
    let lengths: Vec<_> = sending.iter().map(|step| step.duration_s).collect();
    assert_eq!(lengths, [0.15, 0.15], "{report}");
    assert_eq!(sending.iter().map(|step| step.rate()).collect::<Vec<_>>(), ["200", "400"]);
    assert_eq!(steps.iter().map(|step| step.scheduled).sum::<u64>(), 90);
    assert_eq!(steps.iter().map(|step| step.replies).sum::<u64>(), 90);
}

#[test]
fn a_stopped_run_reports_unfinished_requests() {
    let server = Server::start(|_| Behaviour::Reply);
    let config = Config {
        url: server.url(),
        rate: Profile::constant(200.0),
        duration: Some(Duration::from_secs(3600)),
        ..Config::default()
    };
    let stop = StopSignal::new();
    let report = thread::scope(|scope| {
        let load = scope.spawn(|| run(&config, &mut (), &stop));
        server.until(|server| server.replies() >= 20);
        stop.raise();
        load.join().unwrap().unwrap()
    });
    let requests = report.requests;
    assert!(!report.complete);
    assert!(requests.scheduled >= 20, "{report}");
    assert_eq!(requests.scheduled, requests.replies + requests.failed + requests.unfinished);
    assert!(report.duration_s < 3600.0);
}

#[test]
fn rejects_invalid_settings() {
    let error = |config: Config| match run(&config, &mut (), &StopSignal::new()) {
        Err(error) => error.to_string(),
        Ok(report) => panic!("{report}"),
    };
    let base = Config::default;
    assert!(error(Config { rate: Profile::constant(0.0), ..base() }).contains("rate"));
    assert!(error(Config { timeout: Duration::ZERO, ..base() }).contains("timeout"));
    assert!(error(Config { mechanism: "psychic".into(), ..base() }).contains("epoll-edge"));
    assert!(
        error(Config { source_addresses: vec!["::1".parse().unwrap()], ..base() }).contains("IPv6")
    );
    let result = run(
        &Config {
            template: RequestTemplate { headers: vec!["x".into()], ..RequestTemplate::default() },
            ..base()
        },
        &mut (),
        &StopSignal::new(),
    );
    assert!(matches!(result, Err(LoadError::Header { .. })));
}
