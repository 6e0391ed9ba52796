//! Idle connections that a separate process keeps open during a workload.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::kind::Kind;
use super::participant::{Environment, RunningServer};
use crate::error::LabError;
use crate::executor::{LOAD_EVENTS, OPEN_TIMEOUT, parse, to_strings};
use crate::machine::cpu_set;
use crate::process::ChildGuard;

/// Connections opened per second to a proxy. A low rate limits concurrent requests. Otherwise the
/// proxy would open more origin connections, whose memory would be attributed to the idle connections.
const PROXY_RATE: u64 = 2000;
/// Interval at which the server is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Time limit for a server to accept connections without a request.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(5);

/// State of the idle connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdleState {
    /// Each has completed one request.
    AfterRequest,
    /// The server has accepted them, but no request was sent.
    BeforeRequest,
}

/// A group of idle connections.
#[derive(Debug)]
pub(super) struct IdleConnections {
    process: Option<ChildGuard>,
    result: PathBuf,
    /// Number of connections.
    pub(super) count: u64,
}

impl IdleConnections {
    /// Opens connections and returns after the server has accepted them.
    pub(super) fn open(
        environment: &Environment,
        running: &RunningServer,
        count: u64,
        state: IdleState,
        stop: &AtomicBool,
    ) -> Result<IdleConnections, LabError> {
        let result = environment.scratch.join("idle.json");
        if count == 0 {
            return Ok(IdleConnections { process: None, result, count });
        }
        let mut arguments = to_strings(&[
            "load",
            &format!("{}/{}", running.url, environment.kind.default_workload().document),
            "--rate",
            "0",
            "--idle",
            &count.to_string(),
            "--events",
            LOAD_EVENTS,
            "--json",
            &result.display().to_string(),
            "--exit-with-parent",
        ]);
        if state == IdleState::AfterRequest {
            // Each connection is accepted and has its reply before the process reports it as open.
            arguments.push("--idle-request".into());
        }
        let mut limit = OPEN_TIMEOUT;
        if environment.kind == Kind::Proxy {
            arguments.extend(to_strings(&["--idle-rate", &PROXY_RATE.to_string()]));
            limit += Duration::from_secs(count / PROXY_RATE);
        }
        let stderr = environment.scratch.join("idle.stderr");
        let cpus = cpu_set(&environment.others);
        let mut process = ChildGuard::spawn(&environment.hearken, &arguments, &cpus, stderr)?;
        let opened = process.wait_for_line("holding ", limit, stop);
        running.guard.check_running()?;
        opened?;
        if state == IdleState::BeforeRequest {
            wait_until_idle(running, stop)?;
        }
        Ok(IdleConnections { process: Some(process), result, count })
    }

    /// Closes the connections and returns the number that the server did not keep open.
    pub(super) fn close(self) -> u64 {
        let Some(process) = self.process else { return 0 };
        process.terminate();
        let output = std::fs::read_to_string(&self.result).unwrap_or_default();
        // The next process must not find this result.
        let _ = std::fs::remove_file(&self.result);
        match parse(String::new(), &output) {
            Ok(result) => result.idle.lost.max(self.count.saturating_sub(result.idle.open)),
            Err(_) => self.count,
        }
    }
}

/// Returns whether the server reaches the given number of descriptors in time. The kernel establishes
/// connections before the server accepts them, on a busy machine much earlier.
pub(super) fn reaches_descriptors(running: &RunningServer, count: u64) -> Result<bool, LabError> {
    let deadline = Instant::now() + ACCEPT_TIMEOUT;
    while running.tree.count_descriptors()? < count {
        if Instant::now() > deadline {
            return Ok(false);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(true)
}

/// Waits until the server is idle. The kernel establishes connections before the server accepts them.
pub(super) fn wait_until_idle(running: &RunningServer, stop: &AtomicBool) -> Result<(), LabError> {
    let deadline = Instant::now() + OPEN_TIMEOUT;
    let mut before = running.tree.usage()?;
    loop {
        std::thread::sleep(POLL_INTERVAL);
        let now = running.tree.usage()?;
        if Duration::from_nanos(now.since(&before).cpu_ns) < POLL_INTERVAL / 50 {
            return Ok(());
        }
        if stop.load(Ordering::Relaxed) {
            return Err(LabError::Interrupted);
        }
        if Instant::now() > deadline {
            return Err(running.guard.error("did not become idle after accepting the connections"));
        }
        before = now;
    }
}
