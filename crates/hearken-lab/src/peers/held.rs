//! Idle connections that a separate process keeps open during a workload.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::kind::Kind;
use super::participant::{Ground, Running};
use crate::error::LabError;
use crate::executor::{HOLD, LOAD_EVENTS, parse, words};
use crate::machine::cpu_set;
use crate::process::Guard;

/// Connections opened per second to a proxy. The rate is low to limit concurrent requests, so that the
/// proxy needs no more origin connections, whose memory would be attributed to the idle connections.
const PROXY_RATE: u64 = 2000;
/// Interval at which the server is polled.
const LOOK: Duration = Duration::from_millis(50);
/// Time limit for a server to accept connections without a request.
const ACCEPTED: Duration = Duration::from_secs(5);

/// State of the idle connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum First {
    /// Each has completed one request.
    Asks,
    /// The server has accepted them, but no request was sent.
    IsSilent,
}

/// A group of idle connections.
#[derive(Debug)]
pub(super) struct Held {
    holder: Option<Guard>,
    result: PathBuf,
    /// Number of connections.
    pub(super) count: u64,
}

impl Held {
    /// Opens connections and returns after the server has accepted all of them.
    pub(super) fn open(
        ground: &Ground,
        running: &Running,
        count: u64,
        first: First,
        stop: &AtomicBool,
    ) -> Result<Held, LabError> {
        let result = ground.scratch.join("idle.json");
        if count == 0 {
            return Ok(Held { holder: None, result, count });
        }
        let mut arguments = words(&[
            "load",
            &format!("{}/{}", running.url, ground.kind.first().document),
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
        if first == First::Asks {
            // Each connection is accepted and has its reply before the process reports it as open.
            arguments.push("--idle-request".into());
        }
        let mut limit = HOLD;
        if ground.kind == Kind::Proxy {
            arguments.extend(words(&["--idle-rate", &PROXY_RATE.to_string()]));
            limit += Duration::from_secs(count / PROXY_RATE);
        }
        let stderr = ground.scratch.join("idle.stderr");
        let cpus = cpu_set(&ground.others);
        let mut holder = Guard::spawn(&ground.hearken, &arguments, &cpus, stderr)?;
        let held = holder.wait_for_line("holding ", limit, stop);
        running.guard.check()?;
        held?;
        if first == First::IsSilent {
            settle(running, stop)?;
        }
        Ok(Held { holder: Some(holder), result, count })
    }

    /// Closes the connections and returns the number that the server did not keep open.
    pub(super) fn end(self) -> u64 {
        let Some(holder) = self.holder else { return 0 };
        holder.terminate();
        let output = std::fs::read_to_string(&self.result).unwrap_or_default();
        // The next process must not find this result.
        let _ = std::fs::remove_file(&self.result);
        match parse(String::new(), &output) {
            Ok(said) => said.idle.lost.max(self.count.saturating_sub(said.idle.held)),
            Err(_) => self.count,
        }
    }
}

/// Returns whether the server reaches the given number of descriptors in time. The kernel establishes
/// connections before the server accepts them, on a busy machine much earlier.
pub(super) fn has_descriptors(running: &Running, count: u64) -> Result<bool, LabError> {
    let deadline = Instant::now() + ACCEPTED;
    while running.tree.descriptors()? < count {
        if Instant::now() > deadline {
            return Ok(false);
        }
        std::thread::sleep(LOOK);
    }
    Ok(true)
}

/// Waits until the server is idle. The kernel establishes connections before the server accepts them.
pub(super) fn settle(running: &Running, stop: &AtomicBool) -> Result<(), LabError> {
    let deadline = Instant::now() + HOLD;
    let mut before = running.tree.usage()?;
    loop {
        std::thread::sleep(LOOK);
        let now = running.tree.usage()?;
        if Duration::from_nanos(now.since(&before).cpu_ns) < LOOK / 50 {
            return Ok(());
        }
        if stop.load(Ordering::Relaxed) {
            return Err(LabError::Interrupted);
        }
        if Instant::now() > deadline {
            return Err(running.guard.failed("did not become idle after accepting the connections"));
        }
        before = now;
    }
}
