//! More idle connections than one table of descriptors holds. In processes of their own, with a low
//! limit of open files: this test binary once more.

mod server;

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use hearken::mechanism::TABLE;
use hearken_load::{Config, Profile, Progress, Report, Stop, run};
use rustix::process::{Resource, Rlimit, setrlimit};
use server::{Act, Server};

const LIMIT: u64 = 64;
const IDLE: usize = 150;
const URL: &str = "HEARKEN_TEST_URL";
const EVENTS: &str = "HEARKEN_TEST_EVENTS";
const RATE: &str = "HEARKEN_TEST_RATE";
const IDLE_RATE: &str = "HEARKEN_TEST_IDLE_RATE";

/// What a load tells that ran with a low limit, as it displays it.
fn told(server: &Server, events: &str, rate: f64) -> String {
    told_at(server, events, rate, "")
}

fn told_at(server: &Server, events: &str, rate: f64, idle_rate: &str) -> String {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture", "--test-threads=1"])
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

/// Ends the load once all are held.
struct Until<'a>(&'a Stop);

impl Progress for Until<'_> {
    fn holding(&mut self, connections: u64) {
        assert_eq!(connections, IDLE as u64);
        self.0.raise();
    }
}

/// Not a test by itself: what [`told`] runs.
#[test]
fn child() {
    let Ok(url) = std::env::var(URL) else { return };
    let limit = Rlimit { current: Some(LIMIT), maximum: Some(LIMIT) };
    setrlimit(Resource::Nofile, limit).unwrap();
    let rate: f64 = std::env::var(RATE).unwrap().parse().unwrap();
    let config = Config {
        url,
        rate: Profile::constant(rate),
        duration: (rate > 0.0).then_some(Duration::from_millis(100)),
        connections: 5.try_into().unwrap(),
        idle: IDLE,
        idle_request: true,
        idle_rate: std::env::var(IDLE_RATE).unwrap().parse().ok(),
        events: std::env::var(EVENTS).unwrap(),
        ..Config::default()
    };
    let stop = Stop::new();
    let report = if rate > 0.0 {
        run(&config, &mut (), &stop)
    } else {
        run(&config, &mut Until(&stop), &stop)
    };
    print(&report.unwrap());
}

fn print(report: &Report) {
    let idle = report.idle;
    println!("idle {} of {}, {} lost, {} tables", idle.held, idle.asked, idle.lost, idle.tables);
    println!("bytes for idle ones: {}", report.bytes.received > 0 && report.bytes.sent > 0);
    println!("replies missing: {}", report.requests.intended - report.requests.replies);
    report.warnings.iter().for_each(|warning| println!("{warning}"));
}

#[test]
fn holders_have_tables_of_their_own() {
    thread::scope(|scope| {
        for entry in TABLE.iter().filter(|entry| entry.spec().probe().is_ok()) {
            if entry.spec().needs_privileges() {
                continue; // One table for all.
            }
            scope.spawn(|| {
                let server = Server::start(|_| Act::Reply);
                let told = told(&server, entry.name, 0.0);
                assert!(told.contains("idle 150 of 150, 0 lost, 4 tables"), "{told}");
                assert!(told.contains("bytes for idle ones: true"), "{told}");
                assert_eq!(server.requests(), IDLE as u64);
            });
        }
    });
}

#[test]
fn beside_requests() {
    let server = Server::start(|_| Act::Reply);
    let told = told(&server, "auto", 200.0);
    assert!(told.contains("idle 150 of 150, 0 lost, 4 tables"), "{told}");
    assert!(told.contains("replies missing: 0"), "{told}");
}

#[test]
fn who_cannot_be_had_is_told() {
    // A server that closes each.
    let server = Server::start(|_| Act::Close);
    let config = Config {
        url: server.url(),
        rate: Profile::constant(0.0),
        idle: 3,
        idle_request: true,
        duration: Some(Duration::from_millis(50)),
        timeout: Duration::from_millis(200),
        ..Config::default()
    };
    let report = run(&config, &mut (), &Stop::new()).unwrap();
    let told = report.warnings.iter().find(|text| text.contains("could not be had"));
    assert!(told.is_some_and(|text| text.contains("closes it")), "{report}");
}

/// However many threads hold them, they are begun at the rate of all.
#[test]
fn holders_share_the_rate() {
    let server = Server::start(|_| Act::Reply);
    let began = Instant::now();
    let told = told_at(&server, "auto", 0.0, "300");
    assert!(told.contains("idle 150 of 150, 0 lost, 4 tables"), "{told}");
    // Four of them begin with one at once.
    let least = 146.0 / 300.0;
    assert!(began.elapsed().as_secs_f64() >= least, "{:?}", began.elapsed());
}
