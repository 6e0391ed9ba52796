//! Each request ends once, with a reply or an error, for every behaviour of the server. The report
//! agrees with the counts of the server.

use std::io::Write;
use std::num::{NonZeroU32, NonZeroUsize};
use std::thread;
use std::time::Duration;

use crate::server::assertions::assert_conserved;
use crate::server::{Behaviour, Server, refusing};
use hearken::io::{find, names};
use hearken_load::{
    Arrivals, Bottleneck, Config, Count, Distribution, Errors, Model, Profile, Report,
    RequestTemplate, Source, StopSignal, run,
};
use proptest::prelude::*;
use tempfile::NamedTempFile;

/// Number of requests of a run with [`config`].
const ALL: u64 = 32;

fn config(url: String, events: &str) -> Config {
    Config {
        url,
        rate: Profile::constant(400.0),
        duration: Some(Duration::from_millis(80)),
        arrivals: Arrivals::Constant,
        connections: NonZeroUsize::new(8),
        timeout: Duration::from_secs(10),
        report_interval: Duration::from_millis(30),
        mechanism: events.to_owned(),
        ..Config::default()
    }
}

fn load(config: &Config) -> Report {
    run(config, &mut (), &StopSignal::new()).unwrap()
}

fn each(requests: Option<u32>) -> Option<Count> {
    requests.and_then(NonZeroU32::new).map(Count::exactly)
}

/// Checks the outcome of a behaviour with one mechanism.
fn check(behaviour: Behaviour, events: &str, per_connection: Option<u32>) {
    let server = Server::start(move |_| behaviour);
    let mut config = config(server.url(), events);
    config.requests_per_connection = each(per_connection);
    if per_connection.is_some() {
        config.connections = None;
    }
    if behaviour.never_completes() {
        config.timeout = Duration::from_millis(100);
    }
    let report = load(&config);
    let context = format!("{behaviour:?} {events} {per_connection:?}\n{report}");
    assert_conserved(&report);
    assert_eq!(report.mechanism, events);
    assert_eq!(report.requests.scheduled, ALL, "{context}");
    let (all, none) = (report.requests.scheduled, Errors::default());
    match behaviour {
        // A request may be sent while the server closes its connection.
        Behaviour::ThenClose => {
            assert_eq!(report.errors, Errors { conn_reset: report.errors.conn_reset, ..none });
            assert_eq!(report.requests.replies, server.replies(), "{context}");
            assert!(report.requests.replies > 0, "{context}");
        }
        Behaviour::Missing => {
            assert_eq!(report.errors, Errors { status: all, ..none }, "{context}");
        }
        _ if behaviour.is_error() => {
            assert_eq!(report.errors, Errors { surplus: all, ..none }, "{context}");
        }
        _ if behaviour.replies() => {
            assert_eq!(report.errors, none, "{context}");
            assert_eq!(report.requests.replies, all, "{context}");
            assert_eq!(server.replies(), all, "{context}");
            assert_eq!(report.bytes.sent % all, 0, "{context}");
        }
        Behaviour::Garbage | Behaviour::EndlessHead => {
            assert_eq!(report.errors, Errors { other: all, ..none }, "{context}");
        }
        _ if behaviour.never_completes() => {
            // A generator without CPU time misses the others, even all of them.
            let client_timo = all - report.requests.missed;
            assert_eq!(report.errors, Errors { client_timo, ..none }, "{context}");
        }
        _ => {
            assert_eq!(report.errors, Errors { conn_reset: all, ..none }, "{context}");
            assert_eq!(server.requests(), all, "{context}");
        }
    }
    match behaviour {
        Behaviour::Interim => assert_eq!(report.status.interim, all, "{context}"),
        Behaviour::Flood => assert_eq!(report.status.interim, 100 * all, "{context}"),
        Behaviour::Missing => assert_eq!(report.status.client_error, all, "{context}"),
        // Requests that time out in the queue need no connection.
        _ if behaviour.never_completes() => {}
        _ if per_connection == Some(1) => {
            assert_eq!(report.connections_opened, all, "{context}");
            // Connections of timed-out requests may still wait to be accepted.
            server.until(|server| server.accepted() == all);
        }
        _ if behaviour.keeps_connection() && per_connection.is_none() => {
            assert_eq!(report.connections_opened, 8, "{context}");
        }
        _ => {}
    }
}

/// Returns the event mechanisms available on this machine.
fn available_mechanisms() -> Vec<&'static str> {
    names().filter(|name| find(name).unwrap().probe().is_ok()).collect()
}

/// Returns one mechanism of each kind: level-triggered, edge-triggered, completions.
fn representative_mechanisms() -> Vec<&'static str> {
    let representative = |name: &&str| ["epoll-edge", "poll", "uring"].contains(name);
    available_mechanisms().into_iter().filter(representative).collect()
}

/// Runs `check` for all pairs of behaviours and mechanisms, concurrently per mechanism.
fn for_all_pairs(mechanisms: &[&str], check: impl Fn(Behaviour, &str) + Sync) {
    for name in mechanisms {
        thread::scope(|scope| {
            for behaviour in Behaviour::ALL {
                let check = &check;
                scope.spawn(move || check(behaviour, name));
            }
        });
    }
}

/// Runs `check` for each behaviour and each available mechanism at min once, all concurrently.
/// `shift` selects different pairs.
fn for_some_pairs(shift: usize, check: impl Fn(Behaviour, &str) + Sync) {
    let mechanisms = available_mechanisms();
    thread::scope(|scope| {
        for (index, behaviour) in Behaviour::ALL.into_iter().enumerate() {
            let (check, name) = (&check, mechanisms[(index + shift) % mechanisms.len()]);
            scope.spawn(move || check(behaviour, name));
        }
    });
}

#[test]
fn accounts_for_requests_over_persistent_connections() {
    for_some_pairs(0, |behaviour, mechanism| check(behaviour, mechanism, None));
}

#[test]
fn accounts_for_requests_over_a_connection_each() {
    for_some_pairs(2, |behaviour, mechanism| check(behaviour, mechanism, Some(1)));
}

#[test]
fn accounts_for_requests_over_connections_for_three() {
    for_some_pairs(4, |behaviour, mechanism| check(behaviour, mechanism, Some(3)));
}

#[test]
#[ignore = "full product, which takes about 10 s; the tests above run a part"]
fn accounts_for_requests_over_all_mechanisms() {
    for requests in [None, Some(1)] {
        let all = available_mechanisms();
        for_all_pairs(&all, |behaviour, mechanism| check(behaviour, mechanism, requests));
    }
    let some = representative_mechanisms();
    for_all_pairs(&some, |behaviour, mechanism| check(behaviour, mechanism, Some(3)));
}

/// Creates a list of sessions: one request; a request and a burst of three; two requests with a
/// pause.
fn sessions() -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(b"/a\n\n/b\n /c\n /d\n /e\n\n/f think=0.005\n/g\n").unwrap();
    file
}

/// Asserts that no more connections are opened than necessary. A connection is opened ahead of the
/// requests, for a queued request or for an arrival. It may also replace one that has carried a
/// reply, or be a retry after 100 ms.
fn assert_no_spin(report: &Report, connections: u64) {
    let Report { requests, sessions, .. } = report;
    let retries = connections * (2 + (report.duration_s * 10.0) as u64);
    let max = match report.model {
        Model::Requests => connections + requests.scheduled + requests.replies,
        Model::Connections | Model::Sessions => sessions.started + requests.sent,
        Model::Closed => connections + requests.sent + retries,
    };
    assert!(report.connections_opened <= max, "{report}");
}

fn check_model(behaviour: Behaviour, model: Model, pipeline: usize, events: &str) {
    let server = Server::start(move |_| behaviour);
    let file = sessions();
    let report = load(&Config {
        model: Some(model),
        rate: Profile::constant(if model == Model::Requests { 400.0 } else { 200.0 }),
        source: match model {
            Model::Sessions => Source::Wsesslog {
                sessions: None,
                think: Duration::ZERO,
                path: file.path().to_owned(),
            },
            _ => Source::Url,
        },
        connections: if model == Model::Closed { NonZeroUsize::new(8) } else { None },
        requests_per_connection: each((model != Model::Sessions).then_some(5)),
        pipeline: NonZeroUsize::new(pipeline).unwrap(),
        timeout: if behaviour.never_completes() {
            Duration::from_millis(50)
        } else {
            Duration::from_secs(10)
        },
        ..config(server.url(), events)
    });
    let context = format!("{behaviour:?} {model:?} {pipeline} {events}\n{report}");
    assert_conserved(&report);
    assert_no_spin(&report, report.peak_connections.max(8));
    assert!(report.requests.replies <= server.replies(), "{context}");
    assert!(server.requests() <= report.requests.sent, "{context}");
    assert!(report.requests.scheduled > 0 || model == Model::Closed, "{context}");
    let pipelined = pipeline > 1 || model == Model::Sessions;
    if behaviour.keeps_connection() {
        assert_eq!(report.errors, Errors::default(), "{context}");
        assert_eq!(report.sessions.failed, 0, "{context}");
        assert_eq!(report.requests.replies, server.replies(), "{context}");
    } else if behaviour.is_error() {
        // Surplus bytes are taken for the next pipelined reply.
        assert!(report.requests.replies == 0 || pipelined, "{context}");
    } else if !behaviour.replies() {
        assert_eq!(report.requests.replies, 0, "{context}");
        assert_eq!(report.sessions.failed, report.sessions.started, "{context}");
    }
    // An announced close fails no request, unless others are in flight behind it.
    if behaviour == Behaviour::AnnouncedClose && !pipelined {
        assert_eq!(report.errors, Errors::default(), "{context}");
    }
}

const MODELS: [(Model, usize); 5] = [
    (Model::Connections, 1),
    (Model::Connections, 4),
    (Model::Sessions, 1),
    (Model::Closed, 1),
    (Model::Closed, 4),
];

#[test]
fn accounts_for_connections_sessions_and_closed_loops() {
    for (shift, (model, pipeline)) in MODELS.into_iter().enumerate() {
        for_some_pairs(shift, |behaviour, mechanism| {
            check_model(behaviour, model, pipeline, mechanism);
        });
    }
}

#[test]
#[ignore = "full product, which takes about 10 s; the test above runs a part"]
fn accounts_for_connections_sessions_and_closed_loops_in_full() {
    for (model, pipeline) in MODELS {
        for_all_pairs(&representative_mechanisms(), |behaviour, mechanism| {
            check_model(behaviour, model, pipeline, mechanism);
        });
    }
}

#[test]
fn counts_refused_connections() {
    for (index, name) in available_mechanisms().into_iter().enumerate() {
        let requests_per_connection = each([None, Some(1)][index % 2]);
        let (url, _held) = refusing();
        let report = load(&Config { requests_per_connection, ..config(url, name) });
        assert_conserved(&report);
        assert_eq!(report.errors.conn_refused, ALL, "{report}");
        assert_eq!(report.connections_opened, 0, "{report}");
        assert!(
            report.warnings.iter().any(|text| text.contains("connections were refused")),
            "{report}"
        );
    }
}

#[test]
fn a_body_after_a_head_request_ends_the_connection() {
    let server = Server::start(|_| Behaviour::Reply);
    let template = RequestTemplate { method: "HEAD".to_owned(), ..RequestTemplate::default() };
    // The body that this server sends nevertheless desynchronises the connection.
    let report = load(&Config { template, ..config(server.url(), "auto") });
    assert_conserved(&report);
    assert!(report.errors.surplus > 0, "{report}");
}

#[test]
fn descriptors_limit_connections() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    const URL: &str = "HEARKEN_TEST_URL";
    // Runs in a child process, because the limit applies to the process.
    let Ok(url) = std::env::var(URL) else {
        let server = Server::start(|_| Behaviour::Never);
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "accounting::descriptors_limit_connections", "--nocapture"])
            .env(URL, server.url())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        return;
    };
    let limit = Rlimit { current: Some(20), maximum: Some(20) };
    setrlimit(Resource::Nofile, limit).unwrap();
    let timeout = Duration::from_secs(1);
    let config =
        Config { requests_per_connection: each(Some(1)), timeout, ..config(url, "epoll-edge") };
    let refused = run(&config, &mut (), &StopSignal::new()).unwrap_err().to_string();
    assert!(refused.contains("8 connections exceed the limit of 4 by open files"), "{refused}");
    let report = load(&Config { connections: None, ..config });
    assert_conserved(&report);
    assert_eq!((report.connections, report.peak_connections), (4, 4), "{report}");
    assert_eq!(report.bottleneck, Bottleneck::Descriptors, "{report}");
    assert!(report.missed.no_connection > 0 && report.errors.client_timo > 0, "{report}");
}

fn models() -> impl Strategy<Value = Model> {
    prop::sample::select(
        [Model::Requests, Model::Connections, Model::Sessions, Model::Closed].as_slice(),
    )
}

proptest! {
    #![proptest_config(crate::cases(8))]

    #[test]
    fn accounts_for_requests_with_random_settings(
        behaviours in prop::collection::vec(prop::sample::select(Behaviour::ALL.as_slice()), 1..12),
        mechanism in prop::sample::select(available_mechanisms()),
        (model, threads) in (models(), 1..4usize),
        connections in 3..20usize,
        (per_connection, pipeline) in (prop::option::of(1..4u32), prop::sample::select(&[1, 4][..])),
        (think, lasts) in (prop::option::of(0..20u64), prop::option::of(0..60u64)),
        (connect, first_byte) in (any::<bool>(), any::<bool>()),
        rate in 100.0..1500.0f64,
        poisson in any::<bool>(),
        idle_connections in 0..10usize,
    ) {
        let server = Server::start(move |number| behaviours[number as usize % behaviours.len()]);
        let file = sessions();
        let from_file = model == Model::Sessions;
        let bursts = !from_file && model != Model::Requests;
        let about = |ms: u64| format!("exp:{}ms", ms.max(1)).parse::<Distribution>().unwrap();
        let report = load(&Config {
            model: Some(model),
            source: match from_file {
                true => Source::Wsesslog {
                    sessions: None,
                    think: Duration::from_millis(think.unwrap_or(0)),
                    path: file.path().to_owned(),
                },
                false => Source::Url,
            },
            rate: Profile::constant(if model == Model::Requests { rate } else { rate / 3.0 }),
            duration: Some(Duration::from_millis(100)),
            arrivals: if poisson { Arrivals::Poisson } else { Arrivals::Constant },
            connections: NonZeroUsize::new(connections),
            requests_per_connection: if from_file { None } else { each(per_connection) },
            pipeline: NonZeroUsize::new(if bursts { pipeline } else { 1 }).unwrap(),
            think_time: think.filter(|_| bursts).map(about),
            connection_lifetime: lasts.map(about),
            timeout: Duration::from_millis(150),
            connect_timeout: connect.then_some(Duration::from_millis(100)),
            first_byte_timeout: first_byte.then_some(Duration::from_millis(20)),
            threads: NonZeroUsize::new(threads).unwrap(),
            idle_connections,
            ..config(server.url(), mechanism)
        });
        assert_conserved(&report);
        assert_no_spin(&report, connections as u64);
        prop_assert!(report.requests.replies <= server.replies());
        prop_assert!(report.requests.sent >= server.requests());
        prop_assert_eq!(report.idle.open, idle_connections as u64);
    }
}
