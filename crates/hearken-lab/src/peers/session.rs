//! A session: a server that was started anew, and its idle connections.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use super::driver::{Drive, Driver};
use super::participant::{Ground, Participant, Running};
use super::plan::Case;
use super::workload::WORKLOADS;
use crate::error::LabError;
use crate::executor::{HOLD, LOAD_EVENTS, parse, words};
use crate::machine::cpu_set;
use crate::process::Guard;
use crate::warning::Warning;

/// A server that runs, with its idle connections.
#[derive(Debug)]
pub(super) struct Session {
    server: String,
    idle: u64,
    repetition: u32,
    /// How many idle connections it really has.
    pub(super) held: u64,
    pub(super) running: Running,
    holder: Option<Guard>,
    pub(super) rss_start_bytes: u64,
    pub(super) rss_bytes: u64,
}

impl Session {
    /// Starts the server of a case, and opens the idle connections.
    pub(super) fn begin(
        ground: &Ground,
        participant: &Participant,
        case: &Case,
        batch: u64,
        stop: &AtomicBool,
    ) -> Result<Session, LabError> {
        let running = participant.start(ground, stop)?;
        // What the first requests have it allocate is no connection's.
        let drive = Drive::new(&running, &case.workload, batch)?;
        let first = drive.workload.warm_up(batch);
        Driver::start(ground, &drive, first, &running, stop)?.end(stop)?;
        let rss_start_bytes = running.tree.resident()?;
        let held = participant.most_idle(case.idle, ground);
        let holder = hold(ground, &running, held, stop)?;
        let rss_bytes = running.tree.resident()?;
        Ok(Session {
            server: case.server.clone(),
            idle: case.idle,
            repetition: case.repetition,
            held,
            running,
            holder,
            rss_start_bytes,
            rss_bytes,
        })
    }

    /// Whether the case is measured in it.
    pub(super) fn is_for(&self, case: &Case) -> bool {
        (&self.server, self.idle, self.repetition) == (&case.server, case.idle, case.repetition)
    }

    /// Ends it, and tells if the server closed idle connections meanwhile.
    pub(super) fn end(self, ground: &Ground, participants: &[Participant]) -> Option<Warning> {
        let lost = self.holder.map_or(0, |holder| {
            holder.terminate();
            let output = std::fs::read_to_string(result(ground)).unwrap_or_default();
            // Not to be taken for the result of the next one.
            let _ = std::fs::remove_file(result(ground));
            match parse(String::new(), &output) {
                Ok(said) => said.idle.lost.max(self.held.saturating_sub(said.idle.held)),
                Err(_) => self.held,
            }
        });
        let named = |p: &&Participant| p.recipe.name == self.server;
        if let Some(participant) = participants.iter().find(named) {
            self.running.guard.end(participant.recipe.stop.signal());
        }
        let server = self.server;
        (lost > 0).then_some(Warning::IdleClosed { server, connections: lost })
    }
}

/// Where the holder of the idle connections writes what became of them.
fn result(ground: &Ground) -> PathBuf {
    ground.scratch.join("idle.json")
}

fn hold(
    ground: &Ground,
    running: &Running,
    idle: u64,
    stop: &AtomicBool,
) -> Result<Option<Guard>, LabError> {
    if idle == 0 {
        return Ok(None);
    }
    let arguments = words(&[
        "load",
        &format!("{}/{}", running.url, WORKLOADS[0].document),
        "--rate",
        "0",
        "--idle",
        &idle.to_string(),
        // By the time that it is held, each has been accepted and answered.
        "--idle-request",
        "--events",
        LOAD_EVENTS,
        "--json",
        &result(ground).display().to_string(),
        "--exit-with-parent",
    ]);
    let stderr = ground.scratch.join("idle.stderr");
    let mut holder = Guard::spawn(&ground.hearken, &arguments, &cpu_set(&ground.others), stderr)?;
    let held = holder.wait_for_line("holding ", HOLD, stop);
    running.guard.check()?;
    held?;
    Ok(Some(holder))
}
