//! Active health checks, in a separate thread.
//!
//! One loop over [`Io`] performs all checks, so a slow server does not delay the checks of others.
//! The results are passed to [`Servers`].

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hearken::descriptors::Table;
use hearken::io::readiness::{Policy, ReadinessIo};
use hearken::io::{Completion, Io};
use hearken::mechanism::{self, Mechanism};
use hearken::timer::{Time, Wheel};
use hearken::{Waker, Wakeups};
use hearken_http::head;
use hearken_tls::{ClientTls, TlsIo, TlsLimits};

use super::balance::hash;
use super::config::{HealthCheck, Protocol, ProxyProtocol, Upstreams};
use super::servers::{Endpoints, Servers};

mod probe;

use probe::{Failure, Probe};

/// Maximum time over which the first checks are spread.
const MAX_INITIAL_SPREAD: Duration = Duration::from_secs(1);
/// Pause after a wait that failed, for example for lack of memory.
const RETRY_DELAY: Duration = Duration::from_millis(100);
/// Size of a receive buffer in bytes. One is in use at a time.
const BUFFER_SIZE: usize = 4096;

/// The thread that checks servers. Dropping it ends the thread immediately.
#[derive(Debug)]
pub struct HealthChecker {
    stop: Arc<AtomicBool>,
    /// `None` if no checks are enabled.
    thread: Option<(JoinHandle<io::Result<()>>, Waker)>,
}

impl HealthChecker {
    /// Starts the checks if `config` enables them. `tls` contains the settings of the servers with TLS,
    /// and `seed` determines the jitter. The result must be
    /// dropped in the descriptor table in which it was created.
    ///
    /// # Errors
    /// The thread or its descriptors cannot be created.
    pub fn start(
        config: &Upstreams,
        servers: Arc<Servers>,
        tls: Arc<[ClientTls]>,
        seed: u64,
    ) -> io::Result<HealthChecker> {
        let stop = Arc::<AtomicBool>::default();
        let Some(active) = config.health.clone() else {
            return Ok(HealthChecker { stop, thread: None });
        };
        let (ready, started) = mpsc::sync_channel(1);
        let start = ThreadStart {
            active,
            preface: config.send_proxy_protocol,
            servers,
            tls,
            seed,
            stop: Arc::clone(&stop),
            ready,
        };
        let thread = thread::Builder::new().name("checker".to_owned());
        let thread = Table::Shared.spawn(thread, start, run_thread)?;
        // If the thread has ended, dropping the checker joins it.
        let checker = HealthChecker { stop, thread: Some(thread) };
        started.recv().map_err(io::Error::other)??;
        Ok(checker)
    }
}

impl Drop for HealthChecker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some((thread, waker)) = self.thread.take() {
            waker.wake();
            // The thread itself has reported a panic.
            let _ = thread.join();
        }
    }
}

/// The parameters of the thread.
struct ThreadStart {
    active: HealthCheck,
    preface: Option<ProxyProtocol>,
    servers: Arc<Servers>,
    tls: Arc<[ClientTls]>,
    seed: u64,
    stop: Arc<AtomicBool>,
    /// Receives the result of the start.
    ready: mpsc::SyncSender<io::Result<()>>,
}

/// Runs the thread.
fn run_thread(start: ThreadStart, wakeups: Wakeups) -> io::Result<()> {
    let ThreadStart { active, preface, servers, tls, seed, stop, ready } = start;
    let mut io = match open(wakeups) {
        Ok(io) => TlsIo::new(io, TlsLimits::default()),
        Err(error) => {
            drop(ready.send(Err(error)));
            return Ok(());
        }
    };
    io.set_profiles(tls);
    drop(ready.send(Ok(())));
    let mut checks = Checks::new(active, preface, servers, seed, io.now());
    while checks.run(&mut io, &stop).is_err() {
        thread::sleep(RETRY_DELAY);
    }
    Ok(())
}

/// Opens the operations over epoll, or over poll(2) if epoll is unavailable.
fn open(wakeups: Wakeups) -> io::Result<ReadinessIo<Box<dyn Mechanism>>> {
    let open =
        |name| mechanism::find(name).map_err(io::Error::other)?.open().map_err(io::Error::other);
    let mechanism = open("epoll-level").or_else(|_| open("poll"))?;
    let mut policy = Policy::default();
    (policy.buffers, policy.buffer_size) = (1, BUFFER_SIZE);
    ReadinessIo::with_wakeups(mechanism, policy, wakeups)
}

/// Returns the request that checks a server.
fn format_request(
    active: &HealthCheck,
    preface: Option<ProxyProtocol>,
    authority: &str,
) -> Vec<u8> {
    // The proxy checks on its own behalf, so the header contains no client address.
    let mut out = match preface {
        None => Vec::new(),
        Some(ProxyProtocol::V1) => b"PROXY UNKNOWN\r\n".to_vec(),
        Some(ProxyProtocol::V2) => b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0".to_vec(),
    };
    head::request_line(&mut out, "GET", &active.path);
    head::field(&mut out, "Host", active.host.as_deref().unwrap_or(authority));
    head::field(&mut out, "User-Agent", "hearken-check");
    head::field(&mut out, "Connection", "close");
    head::end(&mut out);
    out
}

/// The checks of one server.
struct Check {
    request: Vec<u8>,
    /// Start time of the next check.
    next_start: Time,
    /// Index of the next address to check, modulo the number of addresses.
    turn: usize,
    is_down: bool,
    /// Number of consecutive results that contradict `is_down`.
    contrary_results: u32,
    /// The check in progress.
    probe: Option<Probe>,
}

/// The checks of all servers.
pub(super) struct Checks {
    config: HealthCheck,
    servers: Arc<Servers>,
    /// One timer per server, for the start of its next check or the timeout of the current one.
    timers: Wheel,
    checks: Vec<Check>,
    /// Servers by the slots of the tokens of their connections.
    slots: Vec<usize>,
    /// State of the random numbers.
    random: u64,
}

impl Checks {
    /// Creates the checks, which start at `now`. `seed` determines their jitter.
    pub(super) fn new(
        active: HealthCheck,
        preface: Option<ProxyProtocol>,
        servers: Arc<Servers>,
        seed: u64,
        now: Time,
    ) -> Checks {
        let apart = active.interval.min(MAX_INITIAL_SPREAD)
            / u32::try_from(servers.len()).unwrap_or(u32::MAX).max(1);
        let mut timers = Wheel::new(now);
        let check = |server: usize| {
            timers.arm(server as u32, now + apart.saturating_mul(server as u32));
            Check {
                request: format_request(&active, preface, servers.authority(server)),
                next_start: now,
                turn: 0,
                is_down: false,
                contrary_results: 0,
                probe: None,
            }
        };
        let checks = (0..servers.len()).map(check).collect();
        Checks { config: active, servers, timers, checks, slots: Vec::new(), random: seed }
    }

    /// Runs until it is woken after `stop` is set, and then closes its connections.
    ///
    /// # Errors
    /// Errors of [`Io::wait`]. The caller may call this function again.
    pub(super) fn run(&mut self, io: &mut impl Io, stop: &AtomicBool) -> io::Result<()> {
        while !stop.load(Ordering::Acquire) {
            let now = io.now();
            while let Some(server) = self.timers.pop_expired(now) {
                let server = server as usize;
                match &self.checks[server].probe {
                    None => self.start_check(io, server),
                    Some(probe) => {
                        let failure = probe.timed_out(self.config.timeout);
                        self.finish_check(io, server, Err(failure));
                    }
                }
            }
            io.wait(self.timers.next_deadline())?;
            while let Some(completion) = io.next() {
                self.resume(io, completion);
            }
        }
        for probe in self.checks.iter_mut().filter_map(|check| check.probe.take()) {
            io.close(probe.token());
        }
        Ok(())
    }

    fn start_check(&mut self, io: &mut impl Io, server: usize) {
        let now = io.now();
        let check = &mut self.checks[server];
        check.next_start = now + self.config.interval.max(Duration::from_millis(1));
        let endpoints = self.servers.endpoints(server);
        if matches!(&endpoints, Endpoints::Inet(addresses) if addresses.is_empty()) {
            // The server is down because its name has no address.
            return self.timers.arm(server as u32, check.next_start);
        }
        check.turn = check.turn.wrapping_add(1);
        let is_http2 = self.servers.protocol(server) == Protocol::Http2;
        match Probe::start(io, &endpoints, check.turn, (self.servers.tls(server), is_http2)) {
            Ok(probe) => {
                let slot = probe.token().slot() as usize;
                if slot >= self.slots.len() {
                    self.slots.resize(slot + 1, 0);
                }
                self.slots[slot] = server;
                check.probe = Some(probe);
                self.timers.arm(server as u32, now + self.config.timeout);
            }
            Err(failure) => self.finish_check(io, server, Err(failure)),
        }
    }

    fn resume(&mut self, io: &mut impl Io, Completion { token, kind }: Completion) {
        let Some(&server) = self.slots.get(token.slot() as usize) else { return };
        let check = &mut self.checks[server];
        if let Some(probe) = &mut check.probe
            && probe.token() == token
            && let Some(result) = probe.resume(io, kind, &check.request, self.config.status)
        {
            self.finish_check(io, server, result);
        }
    }

    fn finish_check(&mut self, io: &mut impl Io, server: usize, result: Result<(), Failure>) {
        let now = io.now();
        let check = &mut self.checks[server];
        if let Some(probe) = check.probe.take() {
            io.close(probe.token());
        }
        // Jitter of up to 5 %, so that checks do not stay synchronised.
        let twentieth = self.config.interval / 20;
        let part = hash::below(&mut self.random, 1 << 16) as u32;
        check.next_start =
            (check.next_start + twentieth.mul_f64(f64::from(part) / 65536.0)).max(now);
        self.timers.arm(server as u32, check.next_start);
        let result = match result {
            // The failure is local and does not affect the state of the server.
            Err(Failure::Local(reason)) => return self.servers.set_last_failure(server, reason),
            Err(Failure::Server(reason)) => Err(reason),
            Ok(()) => Ok(()),
        };
        let is_healthy = result.is_ok();
        self.servers.record_check(server, result);
        if is_healthy != check.is_down {
            check.contrary_results = 0;
            return;
        }
        check.contrary_results += 1;
        let enough = if is_healthy { self.config.rise } else { self.config.fall };
        if check.contrary_results >= enough.get() {
            check.contrary_results = 0;
            check.is_down = !is_healthy;
            self.servers.set_down(server, !is_healthy, now);
        }
    }
}
