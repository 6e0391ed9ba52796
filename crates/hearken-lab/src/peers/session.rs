//! A session: a newly started server with idle connections.

use std::sync::atomic::AtomicBool;

use super::driver::{Driver, DriverConfig};
use super::idle::{IdleConnections, IdleState, reaches_descriptors, wait_until_idle};
use super::kind::Kind;
use super::participant::{Environment, Participant, RunningServer};
use super::plan::Trial;
use crate::error::LabError;
use crate::warning::Warning;

/// A running server with idle connections.
#[derive(Debug)]
pub(super) struct Session {
    server: String,
    idle: u64,
    repetition: u32,
    started: StartedServer,
    /// Memory per unused connection, if it was measured.
    pub(super) rss_per_unused_bytes: Option<f64>,
}

/// A running server that has served requests and then received idle connections.
#[derive(Debug)]
struct StartedServer {
    running: RunningServer,
    idle_connections: IdleConnections,
    /// Whether the server has accepted all connections.
    all_accepted: bool,
    rss_start_bytes: u64,
    rss_bytes: u64,
}

impl Session {
    /// Starts the server of a trial and opens the idle connections.
    pub(super) fn start(
        environment: &Environment,
        participant: &Participant,
        trial: &Trial,
        batch: u64,
        stop: &AtomicBool,
    ) -> Result<Session, LabError> {
        let rss_per_unused_bytes = match (environment.kind, trial.idle) {
            // In a separate start, because idle connections would reuse the freed memory.
            (Kind::Proxy, 1..) => {
                let unused = StartedServer::new(
                    environment,
                    participant,
                    trial,
                    batch,
                    IdleState::BeforeRequest,
                    stop,
                )?;
                // A server that always defers accepting leaves these connections to the kernel.
                let per_connection = unused.per_connection().filter(|_| unused.all_accepted);
                match unused.stop(participant) {
                    0 => per_connection,
                    _ => None,
                }
            }
            _ => None,
        };
        Ok(Session {
            server: trial.server.clone(),
            idle: trial.idle,
            repetition: trial.repetition,
            started: StartedServer::new(
                environment,
                participant,
                trial,
                batch,
                IdleState::AfterRequest,
                stop,
            )?,
            rss_per_unused_bytes,
        })
    }

    /// Returns whether the trial belongs to this session.
    pub(super) fn matches(&self, trial: &Trial) -> bool {
        (&self.server, self.idle, self.repetition) == (&trial.server, trial.idle, trial.repetition)
    }

    pub(super) fn running(&self) -> &RunningServer {
        &self.started.running
    }

    /// Returns the number of open idle connections.
    pub(super) fn idle_connections(&self) -> u64 {
        self.started.idle_connections.count
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
    pub(super) fn finish(self, participants: &[Participant]) -> Option<Warning> {
        let is_participant = |p: &&Participant| p.recipe.name == self.server;
        // Without a recipe, the server is killed.
        let lost = match participants.iter().find(is_participant) {
            Some(participant) => self.started.stop(participant),
            None => self.started.idle_connections.close(),
        };
        let server = self.server;
        (lost > 0).then_some(Warning::IdleClosed { server, connections: lost })
    }
}

impl StartedServer {
    fn new(
        environment: &Environment,
        participant: &Participant,
        trial: &Trial,
        batch: u64,
        state: IdleState,
        stop: &AtomicBool,
    ) -> Result<StartedServer, LabError> {
        let running = participant.start(environment, stop)?;
        let baseline = running.tree.count_descriptors()?;
        // Allocations of the first requests must not be attributed to the idle connections.
        let config = DriverConfig::new(&running, &trial.workload, batch)?;
        let warm_up = config.workload.warm_up(batch);
        Driver::start(environment, &config, warm_up, &running, stop)?.finish(stop)?;
        if state == IdleState::BeforeRequest {
            // The descriptors of the driver must be closed before they are counted.
            wait_until_idle(&running, stop)?;
        }
        let rss_start_bytes = running.tree.rss_bytes()?;
        let max_idle = participant.max_idle(trial.idle, environment);
        let connections = IdleConnections::open(environment, &running, max_idle, state, stop)?;
        // The baseline may include connections of the readiness check.
        let expected = connections.count - connections.count / 10;
        let all_accepted = reaches_descriptors(&running, baseline + expected)?;
        let rss_bytes = running.tree.rss_bytes()?;
        Ok(StartedServer {
            running,
            idle_connections: connections,
            all_accepted,
            rss_start_bytes,
            rss_bytes,
        })
    }

    /// Returns the growth of resident memory per connection.
    fn per_connection(&self) -> Option<f64> {
        let added = self.rss_bytes.saturating_sub(self.rss_start_bytes) as f64;
        (self.idle_connections.count > 0).then(|| added / self.idle_connections.count as f64)
    }

    /// Stops the server and returns the number of idle connections that it did not keep open.
    fn stop(self, participant: &Participant) -> u64 {
        let lost = self.idle_connections.close();
        self.running.guard.stop(participant.recipe.stop.signal());
        lost
    }
}
