//! Connections that are held beside a workload, by a process of their own.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::kind::Kind;
use super::participant::{Ground, Running};
use crate::error::LabError;
use crate::executor::{HOLD, LOAD_EVENTS, parse, words};
use crate::machine::cpu_set;
use crate::process::Guard;

/// How many are begun in a second with a proxy: few are in flight at a time, so that it needs no more
/// connections to the origin than it has, whose memory is not the idle ones'.
const PROXY_RATE: u64 = 2000;
/// How often it is looked whether the server still works on them.
const LOOK: Duration = Duration::from_millis(50);
/// How long a server has to accept who says nothing; one that never does is waited for as long.
const ACCEPTED: Duration = Duration::from_secs(5);

/// What they do before they are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum First {
    /// Each makes a request, and is kept after the reply.
    Asks,
    /// Nothing: the server has accepted them, no more.
    IsSilent,
}

/// Connections that are held.
#[derive(Debug)]
pub(super) struct Held {
    holder: Option<Guard>,
    result: PathBuf,
    /// How many.
    pub(super) count: u64,
}

impl Held {
    /// Opens so many, and returns when the server has them all.
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
            // By the time that it is held, each has been accepted and answered.
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

    /// Ends them, and tells how many the server did not keep.
    pub(super) fn end(self) -> u64 {
        let Some(holder) = self.holder else { return 0 };
        holder.terminate();
        let output = std::fs::read_to_string(&self.result).unwrap_or_default();
        // Not to be taken for the result of the next one.
        let _ = std::fs::remove_file(&self.result);
        match parse(String::new(), &output) {
            Ok(said) => said.idle.lost.max(self.count.saturating_sub(said.idle.held)),
            Err(_) => self.count,
        }
    }
}

/// Whether the server has so many descriptors, or gets them soon: what connects is established before it
/// is accepted, and on a busy machine long before.
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

/// Waits until the server has nothing to do: what connects is established before it is accepted.
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
            return Err(running.guard.failed("was still busy with connections that say nothing"));
        }
        before = now;
    }
}
