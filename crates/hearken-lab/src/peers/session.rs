//! A session: a newly started server with idle connections.

use std::sync::atomic::AtomicBool;

use super::driver::{Drive, Driver};
use super::held::{First, Held, has_descriptors, settle};
use super::kind::Kind;
use super::participant::{Ground, Participant, Running};
use super::plan::Case;
use crate::error::LabError;
use crate::warning::Warning;

/// A running server with idle connections.
#[derive(Debug)]
pub(super) struct Session {
    server: String,
    idle: u64,
    repetition: u32,
    started: Started,
    /// Memory per unused connection, if it was measured.
    pub(super) rss_per_silent_bytes: Option<f64>,
}

/// A running server that has served requests and then received idle connections.
#[derive(Debug)]
struct Started {
    running: Running,
    held: Held,
    /// Whether the server has accepted all of them.
    has_all: bool,
    rss_start_bytes: u64,
    rss_bytes: u64,
}

impl Session {
    /// Starts the server of a case and opens the idle connections.
    pub(super) fn begin(
        ground: &Ground,
        participant: &Participant,
        case: &Case,
        batch: u64,
        stop: &AtomicBool,
    ) -> Result<Session, LabError> {
        let rss_per_silent_bytes = match (ground.kind, case.idle) {
            // In a separate start, because idle connections would reuse the freed memory.
            (Kind::Proxy, 1..) => {
                let silent = Started::new(ground, participant, case, batch, First::IsSilent, stop)?;
                // A server that always defers accepting leaves these connections to the kernel.
                let per_connection = silent.per_connection().filter(|_| silent.has_all);
                match silent.end(participant) {
                    0 => per_connection,
                    _ => None,
                }
            }
            _ => None,
        };
        Ok(Session {
            server: case.server.clone(),
            idle: case.idle,
            repetition: case.repetition,
            started: Started::new(ground, participant, case, batch, First::Asks, stop)?,
            rss_per_silent_bytes,
        })
    }

    /// Returns whether the case belongs to this session.
    pub(super) fn is_for(&self, case: &Case) -> bool {
        (&self.server, self.idle, self.repetition) == (&case.server, case.idle, case.repetition)
    }

    pub(super) fn running(&self) -> &Running {
        &self.started.running
    }

    /// Returns the number of open idle connections.
    pub(super) fn held(&self) -> u64 {
        self.started.held.count
    }

    /// Returns the resident memory in bytes before and after the idle connections were opened.
    pub(super) fn rss_bytes(&self) -> (u64, u64) {
        (self.started.rss_start_bytes, self.started.rss_bytes)
    }

    /// Returns the growth of resident memory per idle connection, in bytes; none without any.
    pub(super) fn rss_per_idle_bytes(&self) -> Option<f64> {
        self.started.per_connection()
    }

    /// Ends the session. Returns a warning if the server closed idle connections.
    pub(super) fn end(self, participants: &[Participant]) -> Option<Warning> {
        let named = |p: &&Participant| p.recipe.name == self.server;
        // Without a recipe, the server is killed.
        let lost = match participants.iter().find(named) {
            Some(participant) => self.started.end(participant),
            None => self.started.held.end(),
        };
        let server = self.server;
        (lost > 0).then_some(Warning::IdleClosed { server, connections: lost })
    }
}

impl Started {
    fn new(
        ground: &Ground,
        participant: &Participant,
        case: &Case,
        batch: u64,
        first: First,
        stop: &AtomicBool,
    ) -> Result<Started, LabError> {
        let running = participant.start(ground, stop)?;
        let at_rest = running.tree.descriptors()?;
        // Allocations of the first requests must not be attributed to the idle connections.
        let drive = Drive::new(&running, &case.workload, batch)?;
        let warm_up = drive.workload.warm_up(batch);
        Driver::start(ground, &drive, warm_up, &running, stop)?.end(stop)?;
        if first == First::IsSilent {
            // The descriptors of the driver must be closed before they are counted.
            settle(&running, stop)?;
        }
        let rss_start_bytes = running.tree.resident()?;
        let most = participant.most_idle(case.idle, ground);
        let held = Held::open(ground, &running, most, first, stop)?;
        // The baseline may include connections of the readiness check.
        let nearly_all = held.count - held.count / 10;
        let has_all = has_descriptors(&running, at_rest + nearly_all)?;
        let rss_bytes = running.tree.resident()?;
        Ok(Started { running, held, has_all, rss_start_bytes, rss_bytes })
    }

    /// Returns the growth of resident memory per connection.
    fn per_connection(&self) -> Option<f64> {
        let added = self.rss_bytes.saturating_sub(self.rss_start_bytes) as f64;
        (self.held.count > 0).then(|| added / self.held.count as f64)
    }

    /// Stops the server and returns the number of idle connections that it did not keep open.
    fn end(self, participant: &Participant) -> u64 {
        let lost = self.held.end();
        self.running.guard.end(participant.recipe.stop.signal());
        lost
    }
}
