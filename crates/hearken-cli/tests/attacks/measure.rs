//! Measures what attacks cost the server.

use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::SHARED_MEMORY;
use super::attacker::{Attacker, Sent};
use super::server::{Client, Server};
use super::table::{ATTACKS, Attack, End, REQUESTS, Target, Then};

/// Number of threads that attack.
const THREADS: usize = 2;
/// Maximum number of open connections per thread.
const MAX_OPEN: usize = 50;
/// Time between two requests of the other client.
const INTERVAL: Duration = Duration::from_millis(10);
/// Maximum CPU time in nanoseconds for a byte of an attack.
const MAX_BYTE_NS: f64 = 400.0;
/// Maximum CPU time in nanoseconds for a connection of an attack, without TLS and with a handshake.
const MAX_CONNECTION_NS: f64 = 150_000.0;
const MAX_HANDSHAKE_NS: f64 = 2_000_000.0;
/// Maximum CPU time in nanoseconds for a request of an attack whose connections are kept.
const MAX_REQUEST_NS: f64 = 80_000.0;

/// The amount that an attack has sent.
#[derive(Clone, Copy, Default)]
struct Sum {
    connections: u64,
    bytes: u64,
    /// Number of requests on connections that are kept.
    requests: u64,
    /// Maximum number of open connections.
    open: u64,
}

/// The requests of the other client.
#[derive(Default)]
struct Others {
    latencies: Vec<Duration>,
    failed: u64,
}

impl Others {
    fn percentile(&self, share: f64) -> f64 {
        let last = self.latencies.len().saturating_sub(1);
        let latency = self.latencies.get((last as f64 * share) as usize);
        latency.map_or(f64::NAN, |latency| latency.as_secs_f64() * 1e3)
    }
}

/// Prints the table of costs. `scripts/attack` runs it with the release build.
#[test]
#[ignore = "takes minutes, and measures"]
fn table_of_costs() {
    let seconds = std::env::var("ATTACK_SECONDS").ok().and_then(|value| value.parse().ok());
    let duration = Duration::from_secs(seconds.unwrap_or(10));
    let selected = std::env::var("ATTACKS").unwrap_or_default();
    let mut failed = Vec::new();
    println!(
        "{:<23}{:>9}{:>9}{:>7}{:>9}{:>9}{:>11}{:>8}{:>8}{:>8}{:>8}  verdict",
        "attack",
        "conns",
        "MB sent",
        "CPU %",
        "ns/byte",
        "us/conn",
        "KiB/conn",
        "others",
        "p50 ms",
        "p99 ms",
        "max ms"
    );
    for attack in [&REQUESTS].into_iter().chain(ATTACKS) {
        if selected.is_empty() || selected.split(',').any(|name| name == attack.name) {
            let (line, problems) = measure(attack, duration);
            println!("{line}");
            failed
                .extend(problems.into_iter().map(|problem| format!("{}: {problem}", attack.name)));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

/// Returns a line of the table, and the criteria that are not met.
fn measure(attack: &Attack, duration: Duration) -> (String, Vec<&'static str>) {
    let server = Server::start(attack.server, "");
    server.connect().unwrap().get().unwrap();
    let (memory, cpu) = (server.peak_memory(), server.cpu_time());
    let ends = Instant::now() + duration;
    let is_over = AtomicBool::new(false);
    let (sum, others) = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..THREADS).map(|_| scope.spawn(|| run(attack, &server, ends, &is_over))).collect();
        let others = scope.spawn(|| use_as_intended(&server, &is_over));
        thread::sleep(duration);
        is_over.store(true, Ordering::Relaxed);
        let mut sum = Sum::default();
        for thread in threads {
            let of_thread = thread.join().unwrap();
            sum.connections += of_thread.connections;
            sum.bytes += of_thread.bytes;
            sum.requests += of_thread.requests;
            sum.open += of_thread.open;
        }
        (sum, others.join().unwrap())
    });
    let cpu = (server.cpu_time() - cpu).as_nanos() as f64;
    let grown = server.peak_memory().saturating_sub(memory);
    let per_connection = match attack.server {
        Target::Tls => MAX_HANDSHAKE_NS,
        Target::Files | Target::Proxy => MAX_CONNECTION_NS,
    };
    let allowed = sum.connections as f64 * per_connection
        + sum.bytes as f64 * MAX_BYTE_NS
        + sum.requests as f64 * MAX_REQUEST_NS
        // The other client uses a new connection for every second request.
        + (others.latencies.len() as f64) * per_connection;
    let mut problems = Vec::new();
    if others.failed > 0 || others.latencies.is_empty() {
        problems.push("another client lost requests");
    }
    if grown > SHARED_MEMORY + sum.open * attack.memory {
        problems.push("too much memory");
    }
    if cpu > allowed {
        problems.push("too much CPU time");
    }
    let verdict = if problems.is_empty() { "passes".to_owned() } else { problems.join(", ") };
    let mut line = String::new();
    let _ = write!(
        line,
        "{:<23}{:>9}{:>9.1}{:>7.1}{:>9.1}{:>9.1}{:>11.1}{:>8}{:>8.2}{:>8.2}{:>8.2}  {verdict}",
        attack.name,
        sum.connections,
        sum.bytes as f64 / 1e6,
        cpu / duration.as_nanos() as f64 * 100.0,
        cpu / sum.bytes.max(1) as f64,
        cpu / 1e3 / sum.connections.max(1) as f64,
        grown as f64 / 1024.0 / sum.open.max(1) as f64,
        others.latencies.len(),
        others.percentile(0.5),
        others.percentile(0.99),
        others.percentile(1.0),
    );
    (line, problems)
}

/// Attacks until the end.
fn run(attack: &Attack, server: &Server, ends: Instant, is_over: &AtomicBool) -> Sum {
    let mut sum = Sum::default();
    let mut held: Vec<Attacker> = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        if held.len() >= MAX_OPEN {
            // Those that the server has ended make room.
            held.retain(|attacker| !attacker.wait_end(Duration::ZERO));
            thread::sleep(Duration::from_millis(10));
            continue;
        }
        let mut attacker = Attacker::connect(attack, server.port, &server.certificate);
        sum.connections += 1;
        match attack.then {
            Then::Continue | Then::Ignore => {
                while !is_over.load(Ordering::Relaxed) && attacker.send_rounds(100) == Sent::All {}
                if !matches!(attack.end, End::Open) {
                    attacker.receive_end(ends.saturating_duration_since(Instant::now()));
                }
            }
            Then::Hold(rounds) => {
                attacker.send_rounds(rounds);
                sum.requests += u64::from(rounds);
            }
            Then::Leave(rounds) => {
                attacker.send_rounds(rounds);
                attacker.receive_first(Duration::from_millis(100));
            }
        }
        sum.bytes += attacker.sent;
        sum.open = sum.open.max(held.len() as u64 + 1);
        if matches!(attack.then, Then::Hold(_)) {
            held.push(attacker);
        }
    }
    sum
}

/// Requests a file at a fixed rate, over one connection and over new ones in turn.
fn use_as_intended(server: &Server, is_over: &AtomicBool) -> Others {
    let mut others = Others::default();
    let mut kept: Option<Client> = None;
    let mut due = Instant::now();
    while !is_over.load(Ordering::Relaxed) {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let mut client = kept.take().map_or_else(|| server.connect(), Ok);
        let result =
            client.as_mut().map_err(|_| ()).and_then(|client| client.get().map_err(|_| ()));
        let result =
            result.and_then(|()| server.connect().and_then(|mut new| new.get()).map_err(|_| ()));
        match result {
            Ok(()) => {
                others.latencies.push(due.elapsed());
                kept = client.ok();
            }
            Err(()) => others.failed += 1,
        }
        due += INTERVAL;
    }
    others.latencies.sort_unstable();
    others
}
