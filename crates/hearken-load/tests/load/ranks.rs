//! Loads that several processes generate together.

use std::io::Write;
use std::num::NonZeroUsize;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::server::assertions::assert_conserved;
use crate::server::{Behaviour, Server};
use hearken_load::{Arrivals, Config, Model, Profile, Rank, Report, Source, StopSignal, run};
use tempfile::NamedTempFile;

fn load(config: &Config) -> Report {
    let report = run(config, &mut (), &StopSignal::new()).unwrap();
    assert_conserved(&report);
    assert_eq!(report.requests.failed, 0, "{report}");
    report
}

/// Runs three parts of a load concurrently.
fn three(config: &Config) -> Vec<Report> {
    thread::scope(|scope| {
        let parts: Vec<_> = (0..3)
            .map(|rank| {
                let rank = Rank::new(rank, 3).unwrap();
                scope.spawn(move || load(&Config { rank, ..config.clone() }))
            })
            .collect();
        parts.into_iter().map(|part| part.join().unwrap()).collect()
    })
}

fn sum(parts: &[Report], of: impl Fn(&Report) -> u64) -> u64 {
    parts.iter().map(of).sum()
}

fn list(count: usize) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    let all: Vec<_> = (0..count).map(|number| format!("/{number}")).collect();
    file.write_all(all.join("\0").as_bytes()).unwrap();
    file
}

#[test]
fn parts_add_up_to_the_full_load() {
    for threads in [1, 2] {
        let server = Server::start(|_| Behaviour::Reply);
        let config = Config {
            url: server.url(),
            rate: "100..700@100ms,500@50ms".parse().unwrap(),
            duration: Some(Duration::from_millis(150)),
            arrivals: Arrivals::Constant,
            connections: NonZeroUsize::new(8),
            threads: NonZeroUsize::new(threads).unwrap(),
            timeout: Duration::from_secs(20),
            idle_connections: 10,
            seed: Some(5),
            ..Config::default()
        };
        let whole = load(&config);
        let parts = three(&config);
        assert_eq!(sum(&parts, |of| of.requests.scheduled), whole.requests.scheduled);
        assert_eq!(sum(&parts, |of| of.requests.replies), whole.requests.replies);
        assert_eq!((whole.connections, sum(&parts, |of| of.connections)), (8, 8));
        assert_eq!((whole.connections_opened, sum(&parts, |of| of.connections_opened)), (8, 8));
        assert_eq!((whole.idle.open, sum(&parts, |of| of.idle.open)), (10, 10));
        assert_eq!(sum(&parts, |of| of.idle.requested), 10);
        let offered: f64 = parts.iter().map(|of| of.offered_rate).sum();
        assert!((offered / whole.offered_rate - 1.0).abs() < 0.01, "{offered}");
        assert!(parts.iter().all(|of| of.seed == 5));
    }
}

/// Checks that the parts process a list or a list of sessions once together.
#[test]
fn parts_share_a_list() {
    let server = Server::start(|_| Behaviour::Reply);
    let (paths, mut sessions) = (list(50), NamedTempFile::new().unwrap());
    sessions.write_all(b"/a\n/b\n\n/c\n").unwrap();
    let base = Config {
        url: server.url(),
        rate: Profile::constant(2000.0),
        threads: NonZeroUsize::new(2).unwrap(),
        seed: Some(1),
        ..Config::default()
    };
    for model in [Model::Requests, Model::Connections, Model::Closed] {
        let source = Source::Wlog { path: paths.path().to_owned(), repeat: false };
        three(&Config { model: Some(model), source, ..base.clone() });
        let mut targets = server.targets().concat();
        targets.sort();
        targets.dedup();
        assert_eq!(targets.len(), 50, "{model:?}");
        assert_eq!(server.requests(), 50, "{model:?}");
        server.counts.targets.lock().unwrap().clear();
        server.counts.requests.store(0, std::sync::atomic::Ordering::SeqCst);
    }
    let path = sessions.path().to_owned();
    let source = Source::Wsesslog { sessions: Some(10), think: Duration::ZERO, path };
    let parts = three(&Config { source, ..base });
    assert_eq!(sum(&parts, |of| of.sessions.completed), 10);
    assert_eq!(server.requests(), 15);
}

/// Checks that random arrivals differ between parts.
#[test]
fn random_arrivals_of_parts_are_independent() {
    let server = Server::start(|_| Behaviour::Reply);
    let parts = three(&Config {
        url: server.url(),
        rate: Profile::constant(3000.0),
        duration: Some(Duration::from_millis(200)),
        seed: Some(9),
        ..Config::default()
    });
    let all = sum(&parts, |of| of.requests.scheduled);
    // Six standard deviations.
    assert!((450..750).contains(&all), "{all}");
    let first = parts[0].requests.scheduled;
    assert!(parts.iter().any(|of| of.requests.scheduled != first), "{first}");
}

fn from_now(by: Duration) -> (SystemTime, u64) {
    let at = SystemTime::now() + by;
    (at, u64::try_from(at.duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap())
}

#[test]
fn starts_at_the_scheduled_time() {
    let server = Server::start(|_| Behaviour::Reply);
    let (at, unix_ns) = from_now(Duration::from_secs(1));
    let report = load(&Config {
        url: server.url(),
        duration: Some(Duration::from_millis(20)),
        start_at: Some(at),
        ..Config::default()
    });
    // Limited by the resolution of the clocks.
    assert!(report.started_unix_ns.abs_diff(unix_ns) < 100_000, "{}", report.started_unix_ns);
    assert!(SystemTime::now() >= at + Duration::from_millis(20));
    assert!(!report.warnings.iter().any(|text| text.contains("started")), "{report}");
}

#[test]
fn warns_about_a_start_time_in_the_past() {
    let server = Server::start(|_| Behaviour::Reply);
    let (at, _) = from_now(Duration::ZERO);
    let report = load(&Config {
        url: server.url(),
        duration: Some(Duration::from_millis(20)),
        start_at: Some(at - Duration::from_secs(5)),
        ..Config::default()
    });
    let warning = report.warnings.iter().find(|text| text.contains("started")).unwrap();
    assert!(warning.contains(" ms after its scheduled start"), "{warning}");
    assert!(report.requests.replies > 0);
}
