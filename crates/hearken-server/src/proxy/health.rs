//! Active health checks, in a separate thread.
//!
//! One event queue handles all checks, so a slow server does not delay the checks of others. The
//! results are passed to [`Servers`].

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use hearken::timer::{Time, Wheel};
use hearken_http::head;

use super::config::{HealthCheck, ProxyProtocol, Upstreams};
use super::servers::{Endpoints, Servers};
use crate::runtime::queue_thread::{self, QueueThread};

mod probe;

use probe::{Failure, Probe};

/// Maximum time over which the first checks are spread.
const MAX_INITIAL_SPREAD: Duration = Duration::from_secs(1);
/// Pause after a wait that failed, for example for lack of memory.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// An event queue with the index of the server as payload.
type Queue = queue_thread::Queue<usize>;

/// The thread that checks servers. Dropping it ends the thread immediately.
#[derive(Debug)]
pub struct HealthChecker {
    _thread: Option<QueueThread>,
}

impl HealthChecker {
    /// Starts the checks if `config` enables them. The result must be dropped in the descriptor table
    /// in which it was created.
    ///
    /// # Errors
    /// The thread or its descriptors cannot be created.
    pub fn start(config: &Upstreams, servers: Arc<Servers>) -> io::Result<HealthChecker> {
        let Some(active) = config.health.clone() else {
            return Ok(HealthChecker { _thread: None });
        };
        let preface = config.send_proxy_protocol;
        let thread = QueueThread::start("checker", move |queue| {
            Ok(move || Checks::new(active, preface, servers).run(&queue))
        })?;
        Ok(HealthChecker { _thread: Some(thread) })
    }
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

/// The state of the thread.
struct Checks {
    config: HealthCheck,
    servers: Arc<Servers>,
    /// One timer per server, for the start of its next check or the timeout of the current one.
    timers: Wheel,
    checks: Vec<Check>,
}

impl Checks {
    fn new(active: HealthCheck, preface: Option<ProxyProtocol>, servers: Arc<Servers>) -> Checks {
        let now = Time::now();
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
        Checks { config: active, servers, timers, checks }
    }

    /// Runs until the queue is woken.
    fn run(mut self, queue: &Queue) {
        loop {
            let now = Time::now();
            while let Some(server) = self.timers.pop_expired(now) {
                let server = server as usize;
                match &self.checks[server].probe {
                    None => self.start_check(queue, server, now),
                    Some(probe) => {
                        let failure = probe.timed_out(self.config.timeout);
                        self.finish_check(server, Err(failure));
                    }
                }
            }
            let timeout = self.timers.next_deadline().map(|next| next.duration_since(Time::now()));
            match queue.next_events(64, timeout) {
                Ok(events) if events.woken() => return,
                Ok(events) => events.for_each(|event| self.resume(event.token)),
                Err(_) => thread::sleep(RETRY_DELAY),
            }
        }
    }

    fn start_check(&mut self, queue: &Queue, server: usize, now: Time) {
        let check = &mut self.checks[server];
        check.next_start = now + self.config.interval.max(Duration::from_millis(1));
        let endpoints = self.servers.endpoints(server);
        if matches!(&endpoints, Endpoints::Inet(addresses) if addresses.is_empty()) {
            // The server is down because its name has no address.
            return self.timers.arm(server as u32, check.next_start);
        }
        check.turn = check.turn.wrapping_add(1);
        match Probe::start(queue, server, &endpoints, check.turn, &check.request) {
            Ok(probe) => {
                check.probe = Some(probe);
                self.timers.arm(server as u32, now + self.config.timeout);
            }
            Err(failure) => self.finish_check(server, Err(failure)),
        }
    }

    fn resume(&mut self, server: usize) {
        if let Some(probe) = &mut self.checks[server].probe
            && let Some(result) = probe.resume(self.config.status)
        {
            self.finish_check(server, result);
        }
    }

    fn finish_check(&mut self, server: usize, result: Result<(), Failure>) {
        let now = Time::now();
        let check = &mut self.checks[server];
        check.probe = None;
        // Jitter of up to 5 %, so that checks do not stay synchronised.
        let twentieth = self.config.interval / 20;
        let part = (now.as_nanos() as u32).wrapping_mul(0x9e37_79b9) >> 16;
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
            self.servers.set_down(server, !is_healthy);
        }
    }
}
