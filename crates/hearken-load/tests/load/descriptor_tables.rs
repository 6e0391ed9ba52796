//! Idle connections beyond the capacity of one descriptor table. The loads run in child processes
//! with a low limit of open files, which are this test executable with another argument.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::server::{Behaviour, Server};
use hearken::mechanism::TABLE;
use hearken_load::{Config, Profile, Progress, Report, StopSignal, run};
use rustix::process::{Resource, Rlimit, setrlimit};

const LIMIT: u64 = 64;
const IDLE: usize = 150;
const URL: &str = "HEARKEN_TEST_URL";
const EVENTS: &str = "HEARKEN_TEST_EVENTS";
const RATE: &str = "HEARKEN_TEST_RATE";
const IDLE_RATE: &str = "HEARKEN_TEST_IDLE_RATE";

/// Runs a load in a child process with a low limit, and returns its output.
fn run_child(server: &Server, events: &str, rate: f64) -> String {
    run_child_at(server, events, rate, "")
}

fn run_child_at(server: &Server, events: &str, rate: f64, idle_rate: &str) -> String {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "descriptor_tables::child_process", "--nocapture", "--test-threads=1"])
        .env(URL, server.url())
        .env(EVENTS, events)
        .env(RATE, rate.to_string())
        .env(IDLE_RATE, idle_rate)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{events}");
    String::from_utf8(output.stdout).unwrap()
}

/// Ends the load once all idle connections are established.
struct Until<'a>(&'a StopSignal);

impl Progress for Until<'_> {
    fn on_idle_open(&mut self, connections: u64) {
        assert_eq!(connections, IDLE as u64);
        self.0.raise();
    }
}

/// Runs the load of a child process. It does nothing as a test.
#[test]
fn child_process() {
    let Ok(url) = std::env::var(URL) else { return };
    let limit = Rlimit { current: Some(LIMIT), maximum: Some(LIMIT) };
    setrlimit(Resource::Nofile, limit).unwrap();
    let rate: f64 = std::env::var(RATE).unwrap().parse().unwrap();
    let config = Config {
        url,
        rate: Profile::constant(rate),
        duration: (rate > 0.0).then_some(Duration::from_millis(100)),
        connections: std::num::NonZeroUsize::new(5),
        idle_connections: IDLE,
        idle_sends_request: true,
        idle_rate: std::env::var(IDLE_RATE).unwrap().parse().ok(),
        mechanism: std::env::var(EVENTS).unwrap(),
        ..Config::default()
    };
    let stop = StopSignal::new();
    let report = if rate > 0.0 {
        run(&config, &mut (), &stop)
    } else {
        run(&config, &mut Until(&stop), &stop)
    };
    print(&report.unwrap());
}

fn print(report: &Report) {
    let idle = report.idle;
    println!(
        "idle {} of {}, {} lost, {} tables",
        idle.open, idle.requested, idle.lost, idle.descriptor_tables
    );
    println!("bytes for idle ones: {}", report.bytes.received > 0 && report.bytes.sent > 0);
    println!("replies missing: {}", report.requests.scheduled - report.requests.replies);
    report.warnings.iter().for_each(|warning| println!("{warning}"));
}

#[test]
fn idle_threads_have_descriptor_tables_of_their_own() {
    thread::scope(|scope| {
        for entry in TABLE.iter().filter(|entry| entry.spec().probe().is_ok()) {
            if entry.spec().needs_privileges() {
                continue; // The mechanism requires a single table.
            }
            scope.spawn(|| {
                let server = Server::start(|_| Behaviour::Reply);
                let output = run_child(&server, entry.name, 0.0);
                assert!(output.contains("idle 150 of 150, 0 lost, 4 tables"), "{output}");
                assert!(output.contains("bytes for idle ones: true"), "{output}");
                assert_eq!(server.requests(), IDLE as u64);
            });
        }
    });
}

#[test]
fn idle_threads_run_concurrently_with_requests() {
    let server = Server::start(|_| Behaviour::Reply);
    let output = run_child(&server, "auto", 200.0);
    assert!(output.contains("idle 150 of 150, 0 lost, 4 tables"), "{output}");
    assert!(output.contains("replies missing: 0"), "{output}");
}

/// Checks that the connection rate applies to all threads together.
#[test]
fn idle_threads_share_the_connection_rate() {
    let server = Server::start(|_| Behaviour::Reply);
    let began = Instant::now();
    let output = run_child_at(&server, "auto", 0.0, "300");
    assert!(output.contains("idle 150 of 150, 0 lost, 4 tables"), "{output}");
    // Each of the four threads opens its first connection immediately.
    let min_seconds = 146.0 / 300.0;
    assert!(began.elapsed().as_secs_f64() >= min_seconds, "{:?}", began.elapsed());
}
