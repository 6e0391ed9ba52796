//! Finite workloads: each request is sent exactly once by any number of threads.

use std::io::Write;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use crate::server::assertions::assert_conserved;
use crate::server::{Behaviour, Server};
use hearken_load::{
    Arrivals, Config, Count, Model, Profile, QueueOrder, Report, Source, StopSignal, run,
};
use proptest::prelude::*;
use tempfile::NamedTempFile;

fn file(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn path(file: &NamedTempFile) -> PathBuf {
    file.path().to_owned()
}

fn config(server: &Server, source: Source, threads: usize) -> Config {
    Config {
        url: server.url(),
        source,
        rate: Profile::constant(2000.0),
        arrivals: Arrivals::Constant,
        threads: NonZeroUsize::new(threads).unwrap(),
        connections: NonZeroUsize::new(6),
        // Requests keep their order while they wait.
        queue: QueueOrder::Fifo,
        timeout: Duration::from_secs(20),
        idle_connections: 5,
        ..Config::default()
    }
}

/// Runs a load, and checks that all requests get replies and idle connections stay open to the end.
fn load(config: &Config) -> Report {
    let report = run(config, &mut (), &StopSignal::new()).unwrap();
    assert_conserved(&report);
    assert_eq!(report.requests.failed, 0, "{report}");
    let idle = report.idle;
    assert_eq!((idle.open, idle.lost), (5, 0), "{report}");
    let sessions = report.sessions;
    assert_eq!((sessions.started, sessions.failed), (sessions.completed, 0), "{report}");
    report
}

fn sorted(mut all: Vec<String>) -> Vec<String> {
    all.sort_by_key(|target| (target.len(), target.clone()));
    all
}

/// Returns the targets of all requests.
fn targets(server: &Server) -> Vec<String> {
    sorted(server.targets().concat())
}

fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("/{number}")).collect()
}

/// Returns the number in a target, which is its position in the list.
fn position(target: &str) -> usize {
    target[1..].parse().unwrap()
}

proptest! {
    #![proptest_config(crate::cases(8))]

    /// Checks a list with each model.
    #[test]
    fn sends_each_request_of_a_list_once(
        count in 1..60usize,
        threads in 1..4usize,
        model in prop::sample::select(&[Model::Requests, Model::Connections, Model::Closed][..]),
        per_connection in 1..7u32,
        pipeline in prop::sample::select(&[1, 3][..]),
        persistent in any::<bool>(),
        behaviour in prop::sample::select(&[Behaviour::Reply, Behaviour::AnnouncedClose][..]),
    ) {
        let server = Server::start(move |_| behaviour);
        let list = file(&numbered(count).join("\0"));
        let bursts = model != Model::Requests && behaviour == Behaviour::Reply;
        let report = load(&Config {
            model: Some(model),
            requests_per_connection: if persistent { None } else { NonZeroU32::new(per_connection).map(Count::exactly) },
            pipeline: NonZeroUsize::new(if bursts { pipeline } else { 1 }).unwrap(),
            ..config(&server, Source::Wlog { path: path(&list), repeat: false }, threads)
        });
        prop_assert_eq!(targets(&server), numbered(count));
        prop_assert_eq!(report.requests.replies, count as u64);
        // Each thread processes its part in order.
        for connection in server.targets() {
            let places: Vec<_> = connection.iter().map(|target| position(target)).collect();
            prop_assert!(places.is_sorted(), "{:?}", places);
            prop_assert!(places.windows(2).all(|two| (two[1] - two[0]) % threads == 0));
        }
    }

    #[test]
    fn sends_each_session_once(count in 1..25u64, threads in 1..4usize, closed in any::<bool>(), by_one in any::<bool>()) {
        let server = Server::start(|_| Behaviour::Reply);
        let list = file("/a0\n /a1\n /a2\n/a3 think=0.001\n/a4\n\n/b0\n\n/c0\n/c1\n");
        let source = Source::Wsesslog { sessions: Some(count), think: Duration::ZERO, path: path(&list) };
        let model = match (closed, by_one) {
            (true, _) => Some(Model::Closed),
            (false, true) => Some(Model::Requests),
            (false, false) => None,
        };
        let report = load(&Config { model, ..config(&server, source, threads) });
        let all = [&["/a0", "/a1", "/a2", "/a3", "/a4"][..], &["/b0"], &["/c0", "/c1"]];
        let each: Vec<_> = (0..count as usize).map(|number| all[number % 3]).collect();
        let strings = |all: &[&str]| all.iter().map(|&of| of.to_owned()).collect::<Vec<_>>();
        prop_assert_eq!(targets(&server), sorted(strings(&each.concat())));
        if report.model == Model::Requests {
            return Ok(());
        }
        prop_assert_eq!(report.sessions.completed, count);
        // Each session has a connection of its own, with its requests in order.
        let mut seen: Vec<_> = server.targets().into_iter().filter(|of| !of.is_empty()).collect();
        seen.sort();
        let mut expected: Vec<_> = each.iter().map(|of| strings(of)).collect();
        expected.sort();
        prop_assert_eq!(seen, expected);
    }

    #[test]
    fn replays_traces_and_logs(
        gaps in prop::collection::vec(0..4u32, 1..40),
        threads in 1..4usize,
        log in any::<bool>(),
    ) {
        let server = Server::start(|_| Behaviour::Reply);
        let (mut text, mut at) = (String::new(), 1_700_000_000_000u64);
        for (number, gap) in gaps.iter().enumerate() {
            at += u64::from(*gap);
            let seconds = format!("{}.{:03}", at / 1000, at % 1000);
            text += &match log {
                true => format!("{{\"time\": {seconds}, \"method\": \"GET\", \"path\": \"/{number}\"}}\n"),
                false => format!("{seconds} /{number}\n"),
            };
        }
        let list = file(&text);
        let source = match log {
            true => Source::AccessLog { path: path(&list), speed: 2.0, skip_invalid: false },
            false => Source::Trace(path(&list)),
        };
        let report = load(&config(&server, source, threads));
        prop_assert_eq!(targets(&server), numbered(gaps.len()));
        prop_assert_eq!(report.arrivals, Arrivals::Trace);
        let took: u32 = gaps[1..].iter().sum();
        let min_seconds = f64::from(took) / 1e3 / if log { 2.0 } else { 1.0 };
        // Requests are not sent before their times.
        prop_assert!(report.duration_s >= min_seconds - 1e-6, "{} {}", report.duration_s, min_seconds);
    }
}

/// Checks that threads that finish early wait for the others.
#[test]
fn threads_wait_for_each_other() {
    let server =
        Server::start(|number| if number == 0 { Behaviour::Slow } else { Behaviour::Reply });
    let list = file("/0\0/1\0");
    let source = Source::Wlog { path: path(&list), repeat: false };
    let config = Config { rate: Profile::constant(5.0), ..config(&server, source, 3) };
    let report = load(&config);
    assert_eq!(targets(&server), ["/0", "/1"]);
    assert_eq!(report.requests.replies, 2);
}

/// Checks that a repeated list lasts for the duration of the run.
#[test]
fn repeats_a_list() {
    let server = Server::start(|_| Behaviour::Reply);
    let list = file("/0\0/1\0/2\0");
    let source = Source::Wlog { path: path(&list), repeat: true };
    let config = Config { duration: Some(Duration::from_millis(50)), ..config(&server, source, 1) };
    let report = load(&config);
    assert_eq!(report.requests.replies, 100);
    let all = targets(&server);
    let of = |target: &str| all.iter().filter(|&other| other == target).count();
    assert_eq!([of("/0"), of("/1"), of("/2")], [34, 33, 33]);
}

/// Checks that a load ends if the server refuses all connections.
#[test]
fn ends_if_the_server_is_unreachable() {
    let (url, _held) = crate::server::refusing();
    let list = file(&numbered(7).join("\0"));
    for (model, threads) in
        [Model::Requests, Model::Connections, Model::Closed].into_iter().zip(1..)
    {
        let report = run(
            &Config {
                url: url.clone(),
                source: Source::Wlog { path: path(&list), repeat: false },
                model: Some(model),
                threads: NonZeroUsize::new(threads).unwrap(),
                connections: NonZeroUsize::new(3),
                ..Config::default()
            },
            &mut (),
            &StopSignal::new(),
        )
        .unwrap();
        assert_conserved(&report);
        assert_eq!(report.errors.conn_refused, 7, "{model:?} {report}");
    }
}
