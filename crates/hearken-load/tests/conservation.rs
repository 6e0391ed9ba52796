//! Every request ends once, by its reply or by one error, however the server misbehaves; and the
//! report agrees with what the server counted.

mod server;

use std::num::{NonZeroU32, NonZeroUsize};
use std::thread;
use std::time::Duration;

use hearken::io::{find, names};
use hearken_load::{Arrivals, Asking, Config, Count, Errors, Profile, Report, Stop, run};
use proptest::prelude::*;
use server::{Act, Server, refusing};

fn config(url: String, events: &str) -> Config {
    Config {
        url,
        rate: Profile::constant(400.0),
        duration: Some(Duration::from_millis(150)),
        arrivals: Arrivals::Constant,
        connections: NonZeroUsize::new(8).unwrap(),
        timeout: Duration::from_secs(10),
        events: events.to_owned(),
        ..Config::default()
    }
}

fn load(config: &Config) -> Report {
    run(config, &mut (), &Stop::new()).unwrap()
}

/// What holds for every report of a run that was not stopped.
fn assert_conserved(report: &Report) {
    let requests = report.requests;
    assert!(report.complete, "{report}");
    assert_eq!(requests.unfinished, 0, "{report}");
    assert_eq!(requests.intended, requests.replies + requests.failed, "{report}");
    assert_eq!(requests.failed, report.errors.total(), "{report}");
    assert!(requests.sent <= requests.intended, "{report}");
    let final_replies: u64 = report.status.by_class()[1..].iter().map(|(_, count)| count).sum();
    assert_eq!(final_replies, requests.replies, "{report}");
    assert_eq!(report.latency_ns.count, requests.replies, "{report}");
    assert_eq!(report.service_ns.count, requests.replies, "{report}");
    assert_eq!(report.lateness_ns.count, requests.intended, "{report}");
}

/// Everything that may come of `act`, over one mechanism.
fn each(requests: Option<u32>) -> Option<Count> {
    requests.and_then(NonZeroU32::new).map(Count::exactly)
}

fn check(act: Act, events: &str, per_connection: Option<u32>) {
    let server = Server::start(move |_| act);
    let mut config = config(server.url(), events);
    config.per_connection = each(per_connection);
    if act == Act::Never {
        config.timeout = Duration::from_millis(100);
    }
    let report = load(&config);
    let context = format!("{act:?} {events} {per_connection:?}\n{report}");
    assert_conserved(&report);
    assert_eq!(report.events, events);
    assert_eq!(report.requests.intended, 60, "{context}");
    let (all, none) = (report.requests.intended, Errors::default());
    match act {
        // A request may meet the unannounced close of its connection.
        Act::ThenClose => {
            assert_eq!(report.errors, Errors { conn_reset: report.errors.conn_reset, ..none });
            assert_eq!(report.requests.replies, server.replies(), "{context}");
            assert!(report.requests.replies > 0, "{context}");
        }
        _ if act.replies() => {
            assert_eq!(report.errors, none, "{context}");
            assert_eq!(report.requests.replies, all, "{context}");
            assert_eq!(server.replies(), all, "{context}");
            assert_eq!(report.bytes.sent % all, 0, "{context}");
        }
        Act::Close | Act::Reset | Act::Partial => {
            assert_eq!(report.errors, Errors { conn_reset: all, ..none }, "{context}");
            assert_eq!(server.requests(), all, "{context}");
        }
        Act::Garbage => assert_eq!(report.errors, Errors { other: all, ..none }, "{context}"),
        _ => assert_eq!(report.errors, Errors { client_timo: all, ..none }, "{context}"),
    }
    match act {
        Act::Interim => assert_eq!(report.status.interim, all, "{context}"),
        Act::Missing => assert_eq!(report.status.client_error, all, "{context}"),
        // One that is already given up when the generator gets to it is not connected for.
        Act::Never => {}
        _ if per_connection == Some(1) => {
            assert_eq!(report.connections_opened, all, "{context}");
            // What was given up may still wait to be accepted.
            server.until(|server| server.accepted() == all);
        }
        Act::Reply if per_connection.is_none() => {
            assert_eq!(report.connections_opened, 8, "{context}");
        }
        _ => {}
    }
}

/// The mechanisms that can be had here.
fn here() -> Vec<&'static str> {
    names().filter(|name| find(name).unwrap().probe().is_ok()).collect()
}

fn check_all(per_connection: Option<u32>) {
    for name in here() {
        thread::scope(|scope| {
            for act in Act::ALL {
                scope.spawn(move || check(act, name, per_connection));
            }
        });
    }
}

#[test]
fn over_keep_alive_connections() {
    check_all(None);
}

#[test]
fn over_a_connection_for_each_request() {
    check_all(Some(1));
}

#[test]
fn over_a_connection_for_three_requests() {
    check_all(Some(3));
}

#[test]
fn refused() {
    for name in here() {
        for per_connection in [None, each(Some(1))] {
            let (url, _held) = refusing();
            let report = load(&Config { per_connection, ..config(url, name) });
            assert_conserved(&report);
            assert_eq!(report.errors.conn_refused, 60, "{report}");
            assert_eq!(report.connections_opened, 0, "{report}");
            assert!(report.warnings.iter().any(|text| text.contains("no reply")), "{report}");
        }
    }
}

#[test]
fn head_has_no_body() {
    let server = Server::start(|_| Act::Reply);
    let asking = Asking { method: "HEAD".to_owned(), ..Asking::default() };
    // The body that this server sends all the same leaves the connection out of step.
    let report = load(&Config { asking, ..config(server.url(), "auto") });
    assert_conserved(&report);
    assert!(report.requests.replies > 0);
}

#[test]
fn no_descriptors_is_counted_and_not_fatal() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    const URL: &str = "HEARKEN_TEST_URL";
    // In a process of its own, as the limit is the process's.
    let Ok(url) = std::env::var(URL) else {
        let server = Server::start(|_| Act::Never);
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "no_descriptors_is_counted_and_not_fatal", "--nocapture"])
            .env(URL, server.url())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        return;
    };
    let limit = Rlimit { current: Some(20), maximum: Some(20) };
    setrlimit(Resource::Nofile, limit).unwrap();
    let timeout = Duration::from_secs(1);
    let config = Config { per_connection: each(Some(1)), timeout, ..config(url, "auto") };
    let report = load(&config);
    assert_conserved(&report);
    assert!(report.errors.fd_unavail >= 40, "{report}");
    assert!(report.errors.client_timo > 0, "{report}");
    assert!(report.warnings.iter().any(|text| text.contains("ulimit")), "{report}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_server_does(
        acts in prop::collection::vec(prop::sample::select(Act::ALL.as_slice()), 1..12),
        mechanism in prop::sample::select(here()),
        connections in 1..20usize,
        per_connection in prop::option::of(1..4u32),
        rate in 100.0..2000.0f64,
        poisson in any::<bool>(),
        idle in 0..10usize,
    ) {
        let server = Server::start(move |number| acts[number as usize % acts.len()]);
        let report = load(&Config {
            rate: Profile::constant(rate),
            duration: Some(Duration::from_millis(100)),
            arrivals: if poisson { Arrivals::Poisson } else { Arrivals::Constant },
            connections: NonZeroUsize::new(connections).unwrap(),
            per_connection: each(per_connection),
            timeout: Duration::from_millis(150),
            idle,
            ..config(server.url(), mechanism)
        });
        assert_conserved(&report);
        prop_assert!(report.requests.replies <= server.replies());
        prop_assert!(report.requests.sent >= server.requests());
        prop_assert_eq!(report.idle.held, idle as u64);
    }
}
