//! A session: a newly started server with idle connections.

use std::sync::atomic::AtomicBool;

use super::idle::{IdleConnections, IdleState, reaches_descriptors, wait_until_idle};
use super::pass::{self, PassContext};
use crate::error::LabError;
use crate::experiment::Experiment;
use crate::participant::{Environment, Participant, RunningServer, StartContext};
use crate::recipe::Kind;
use crate::warning::Warning;

/// A running server with idle connections.
#[derive(Debug)]
pub(super) struct Session {
    /// Number of the session in the plan.
    pub(super) number: usize,
    server: String,
    stop_signal: rustix::process::Signal,
    started: StartedServer,
    /// Memory per unused connection, if it was measured.
    rss_per_unused_bytes: Option<f64>,
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

/// Everything that a session needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct SessionContext<'a> {
    pub(super) environment: &'a Environment,
    pub(super) experiment: &'a Experiment,
    pub(super) participant: &'a Participant,
    pub(super) start: &'a StartContext,
    pub(super) stop: &'a AtomicBool,
}

impl Session {
    /// Starts the server and opens the idle connections.
    pub(super) fn start(number: usize, context: SessionContext<'_>) -> Result<Session, LabError> {
        let stop_signal = context.participant.recipe.stop.signal();
        let idle = context.experiment.idle.as_ref();
        let rss_per_unused_bytes = match idle {
            // In a separate start, because idle connections would reuse the freed memory.
            Some(idle) if idle.unused && context.start.idle > 0 => {
                let unused = StartedServer::new(context, IdleState::BeforeRequest)?;
                // A server that always defers accepting leaves these connections to the kernel.
                let per_connection = unused.per_connection().filter(|_| unused.all_accepted);
                match unused.stop(stop_signal) {
                    0 => per_connection,
                    _ => None,
                }
            }
            _ => None,
        };
        let state = match idle {
            Some(idle) if idle.request => IdleState::AfterRequest,
            _ => IdleState::BeforeRequest,
        };
        Ok(Session {
            number,
            server: context.participant.name.clone(),
            stop_signal,
            started: StartedServer::new(context, state)?,
            rss_per_unused_bytes,
        })
    }

    pub(super) fn running(&self) -> &RunningServer {
        &self.started.running
    }

    /// Returns a figure of the session.
    pub(super) fn figure(&self, name: &str) -> Option<f64> {
        match name {
            "rss_start_bytes" => Some(self.started.rss_start_bytes as f64),
            "rss_bytes" => Some(self.started.rss_bytes as f64),
            "rss_end_bytes" => self.started.running.tree.rss_bytes().ok().map(|bytes| bytes as f64),
            "rss_per_idle_bytes" => self.started.per_connection(),
            "rss_per_unused_bytes" => self.rss_per_unused_bytes,
            "idle_connections" => Some(self.started.idle_connections.count as f64),
            _ => None,
        }
    }

    /// Ends the session. Returns a warning if the server closed idle connections.
    pub(super) fn finish(self) -> Option<Warning> {
        let lost = self.started.stop(self.stop_signal);
        let server = self.server;
        (lost > 0).then_some(Warning::IdleClosed { server, connections: lost })
    }
}

impl StartedServer {
    fn new(context: SessionContext<'_>, state: IdleState) -> Result<StartedServer, LabError> {
        let SessionContext { environment, experiment, participant, start, stop } = context;
        let running = participant.start(environment, start, stop)?;
        let baseline = running.tree.count_descriptors()?;
        if let Some(load) = &experiment.warm_up {
            // Allocations of the first requests must not be attributed to the idle connections.
            let context = PassContext { environment, start, running: &running, experiment, stop };
            pass::warm_up(load, &context)?;
            if state == IdleState::BeforeRequest {
                // The descriptors of the driver must be closed before they are counted.
                wait_until_idle(&running, stop)?;
            }
        }
        let rss_start_bytes = running.tree.rss_bytes()?;
        let count = participant.max_idle(start, environment);
        let url = match &experiment.idle {
            Some(idle) => format!("{}{}", running.url, idle.path.fill(&start.variables)),
            None => running.url.clone(),
        };
        let is_proxy = experiment.kind() == Kind::Proxy;
        let connections =
            IdleConnections::open(environment, &running, &url, count, state, is_proxy, stop)?;
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
    fn stop(self, signal: rustix::process::Signal) -> u64 {
        let lost = self.idle_connections.close();
        self.running.guard.stop(signal);
        lost
    }
}
