//! Every request ends once, by its reply or by one error, however the server misbehaves; and the
//! report agrees with what the server counted.

mod server;

use std::io::Write;
use std::num::{NonZeroU32, NonZeroUsize};
use std::thread;
use std::time::Duration;

use hearken::io::{find, names};
use hearken_load::{
    Arrivals, Asking, Config, Count, Distribution, Errors, Model, Profile, Report, Source, Stop,
    run,
};
use proptest::prelude::*;
use server::conserved::assert_conserved;
use server::{Act, Server, refusing};
use tempfile::NamedTempFile;

/// Requests of a run by [`config`].
const ALL: u64 = 32;

fn config(url: String, events: &str) -> Config {
    Config {
        url,
        rate: Profile::constant(400.0),
        duration: Some(Duration::from_millis(80)),
        arrivals: Arrivals::Constant,
        connections: NonZeroUsize::new(8).unwrap(),
        timeout: Duration::from_secs(10),
        interval: Duration::from_millis(30),
        events: events.to_owned(),
        ..Config::default()
    }
}

fn load(config: &Config) -> Report {
    run(config, &mut (), &Stop::new()).unwrap()
}

fn each(requests: Option<u32>) -> Option<Count> {
    requests.and_then(NonZeroU32::new).map(Count::exactly)
}

/// Everything that may come of `act`, over one mechanism.
fn check(act: Act, events: &str, per_connection: Option<u32>) {
    let server = Server::start(move |_| act);
    let mut config = config(server.url(), events);
    config.per_connection = each(per_connection);
    if act.is_endless() {
        config.timeout = Duration::from_millis(100);
    }
    let report = load(&config);
    let context = format!("{act:?} {events} {per_connection:?}\n{report}");
    assert_conserved(&report);
    assert_eq!(report.events, events);
    assert_eq!(report.requests.intended, ALL, "{context}");
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
        Act::Garbage | Act::EndlessHead => {
            assert_eq!(report.errors, Errors { other: all, ..none }, "{context}");
        }
        _ if act.is_endless() => {
            assert_eq!(report.errors, Errors { client_timo: all, ..none }, "{context}");
        }
        _ => {
            assert_eq!(report.errors, Errors { conn_reset: all, ..none }, "{context}");
            assert_eq!(server.requests(), all, "{context}");
        }
    }
    match act {
        Act::Interim => assert_eq!(report.status.interim, all, "{context}"),
        Act::Flood => assert_eq!(report.status.interim, 100 * all, "{context}"),
        Act::Missing => assert_eq!(report.status.client_error, all, "{context}"),
        // One that is already given up when the generator gets to it is not connected for.
        _ if act.is_endless() => {}
        _ if per_connection == Some(1) => {
            assert_eq!(report.connections_opened, all, "{context}");
            // What was given up may still wait to be accepted.
            server.until(|server| server.accepted() == all);
        }
        _ if act.keeps() && per_connection.is_none() => {
            assert_eq!(report.connections_opened, 8, "{context}");
        }
        _ => {}
    }
}

/// The mechanisms that can be had here.
fn here() -> Vec<&'static str> {
    names().filter(|name| find(name).unwrap().probe().is_ok()).collect()
}

/// One of each kind.
fn some() -> Vec<&'static str> {
    here().into_iter().filter(|name| ["epoll-edge", "poll", "uring"].contains(name)).collect()
}

fn check_all(mechanisms: &[&str], per_connection: Option<u32>) {
    for name in mechanisms {
        thread::scope(|scope| {
            for act in Act::ALL {
                scope.spawn(move || check(act, name, per_connection));
            }
        });
    }
}

#[test]
fn over_keep_alive_connections() {
    check_all(&here(), None);
}

#[test]
fn over_a_connection_for_each_request() {
    check_all(&here(), Some(1));
}

#[test]
fn over_a_connection_for_three_requests() {
    check_all(&some(), Some(3));
}

/// Sessions of one, of three at once after the first, and of two with a pause between them.
fn sessions() -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(b"/a\n\n/b\n /c\n /d\n /e\n\n/f think=0.005\n/g\n").unwrap();
    file
}

/// What no more connections are opened than: each is opened ahead of the requests, or for one that
/// waits, or for a session or a connection that arrives, or takes the place of one that was of use,
/// or is tried again ten times a second.
fn assert_no_spin(report: &Report, connections: u64) {
    let Report { requests, sessions, .. } = report;
    let retries = connections * (2 + (report.duration_s * 10.0) as u64);
    let most = match report.model {
        Model::Requests => connections + requests.intended + requests.replies,
        Model::Connections | Model::Sessions => sessions.begun + requests.sent,
        Model::Closed => connections + requests.sent + retries,
    };
    assert!(report.connections_opened <= most, "{report}");
}

fn check_model(act: Act, model: Model, pipeline: usize, events: &str) {
    let server = Server::start(move |_| act);
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
        per_connection: each((model != Model::Sessions).then_some(5)),
        pipeline: NonZeroUsize::new(pipeline).unwrap(),
        timeout: if act.is_endless() { Duration::from_millis(50) } else { Duration::from_secs(10) },
        ..config(server.url(), events)
    });
    let context = format!("{act:?} {model:?} {pipeline} {events}\n{report}");
    assert_conserved(&report);
    assert_no_spin(&report, 8);
    assert!(report.requests.replies <= server.replies(), "{context}");
    assert!(server.requests() <= report.requests.sent, "{context}");
    assert!(report.requests.intended > 0 || model == Model::Closed, "{context}");
    if act.keeps() {
        assert_eq!(report.errors, Errors::default(), "{context}");
        assert_eq!(report.sessions.failed, 0, "{context}");
        assert_eq!(report.requests.replies, server.replies(), "{context}");
    } else if !act.replies() {
        assert_eq!(report.requests.replies, 0, "{context}");
        assert_eq!(report.sessions.failed, report.sessions.begun, "{context}");
    }
    // What is announced costs no request, unless others are under way behind it.
    if act == Act::AnnouncedClose && pipeline == 1 && model != Model::Sessions {
        assert_eq!(report.errors, Errors::default(), "{context}");
    }
}

#[test]
fn connections_and_sessions_that_arrive_and_a_closed_loop() {
    for (model, pipeline) in [
        (Model::Connections, 1),
        (Model::Connections, 4),
        (Model::Sessions, 1),
        (Model::Closed, 1),
        (Model::Closed, 4),
    ] {
        for events in some() {
            thread::scope(|scope| {
                for act in Act::ALL {
                    scope.spawn(move || check_model(act, model, pipeline, events));
                }
            });
        }
    }
}

#[test]
fn refused() {
    for name in here() {
        for per_connection in [None, each(Some(1))] {
            let (url, _held) = refusing();
            let report = load(&Config { per_connection, ..config(url, name) });
            assert_conserved(&report);
            assert_eq!(report.errors.conn_refused, ALL, "{report}");
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
    assert!(report.errors.fd_unavail >= ALL - 20, "{report}");
    assert!(report.errors.client_timo > 0, "{report}");
    assert!(report.warnings.iter().any(|text| text.contains("ulimit")), "{report}");
}

fn models() -> impl Strategy<Value = Model> {
    prop::sample::select(
        [Model::Requests, Model::Connections, Model::Sessions, Model::Closed].as_slice(),
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_server_does(
        acts in prop::collection::vec(prop::sample::select(Act::ALL.as_slice()), 1..12),
        mechanism in prop::sample::select(here()),
        (model, threads) in (models(), 1..4usize),
        connections in 3..20usize,
        (per_connection, pipeline) in (prop::option::of(1..4u32), prop::sample::select(&[1, 4][..])),
        (think, lasts) in (prop::option::of(0..20u64), prop::option::of(0..60u64)),
        (connect, first_byte) in (any::<bool>(), any::<bool>()),
        rate in 100.0..1500.0f64,
        poisson in any::<bool>(),
        idle in 0..10usize,
    ) {
        let server = Server::start(move |number| acts[number as usize % acts.len()]);
        let file = sessions();
        let of_file = model == Model::Sessions;
        let bursts = !of_file && model != Model::Requests;
        let about = |ms: u64| format!("exp:{}ms", ms.max(1)).parse::<Distribution>().unwrap();
        let report = load(&Config {
            model: Some(model),
            source: match of_file {
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
            connections: NonZeroUsize::new(connections).unwrap(),
            per_connection: if of_file { None } else { each(per_connection) },
            pipeline: NonZeroUsize::new(if bursts { pipeline } else { 1 }).unwrap(),
            think: think.filter(|_| bursts).map(about),
            connection_time: lasts.map(about),
            timeout: Duration::from_millis(150),
            connect_timeout: connect.then_some(Duration::from_millis(100)),
            first_byte_timeout: first_byte.then_some(Duration::from_millis(20)),
            threads: NonZeroUsize::new(threads).unwrap(),
            idle,
            ..config(server.url(), mechanism)
        });
        assert_conserved(&report);
        assert_no_spin(&report, connections as u64);
        prop_assert!(report.requests.replies <= server.replies());
        prop_assert!(report.requests.sent >= server.requests());
        prop_assert_eq!(report.idle.held, idle as u64);
    }
}
