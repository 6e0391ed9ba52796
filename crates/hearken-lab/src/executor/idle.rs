//! Idle connections that a separate process keeps open during the passes.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::error::LabError;
use crate::executor::pass::{LOAD_EVENTS, parse};
use crate::experiment::PlacementRule;
use crate::participant::{Environment, RunningServer};
use crate::process::ChildGuard;

/// Time limit for opening the connections.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);
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
    /// Opens connections to `url` and returns after the server has accepted them.
    pub(super) fn open(
        environment: &Environment,
        running: &RunningServer,
        url: &str,
        count: u64,
        state: IdleState,
        is_proxy: bool,
        stop: &AtomicBool,
    ) -> Result<IdleConnections, LabError> {
        let result = environment.scratch.join("idle.json");
        if count == 0 {
            return Ok(IdleConnections { process: None, result, count });
        }
        let (number, path) = (count.to_string(), result.display().to_string());
        // With `--json -`, the line awaited below would not appear on stdout.
        let mut arguments =
            ["load", url, "--rate", "0", "--idle", &number, "--events", LOAD_EVENTS]
                .map(String::from)
                .to_vec();
        arguments.extend(["--json".to_owned(), path]);
        arguments.extend(running.load_option());
        if state == IdleState::AfterRequest {
            // Each connection is accepted and has its reply before the process reports it as open.
            arguments.push("--idle-request".into());
        }
        let mut limit = OPEN_TIMEOUT;
        if is_proxy {
            arguments.extend(["--idle-rate".to_owned(), PROXY_RATE.to_string()]);
            limit += Duration::from_secs(count / PROXY_RATE);
        }
        let schedule = environment.load_schedule(PlacementRule::Apart);
        let mut process =
            environment.launch(&environment.hearken, &arguments, "idle", &schedule, false)?;
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
        match parse("", &output) {
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
