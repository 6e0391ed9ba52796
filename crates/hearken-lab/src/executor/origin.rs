//! The origin server of the proxies, the same for the whole run.

use std::sync::atomic::AtomicBool;

use crate::error::LabError;
use crate::experiment::Variables;
use crate::participant::{Environment, Participant, RunningServer, StartContext};
use crate::plan::Server;
use crate::recipe::Recipe;
use crate::results;

/// The origin server. It runs on the processor of the proxy. All replies of a round are therefore
/// available when the proxy polls, and the work of the proxy is repeatable. The cost of the origin is
/// not measured.
#[derive(Debug)]
pub(super) struct Origin {
    participant: Participant,
    running: RunningServer,
}

impl Origin {
    /// Starts the origin. Every error ends the run, because proxies cannot be measured without an origin.
    pub(super) fn start(
        directory: &str,
        recipe: &Recipe,
        context: &StartContext,
        environment: &Environment,
        stop: &AtomicBool,
    ) -> Result<Origin, LabError> {
        let server = Server {
            name: recipe.name.clone(),
            recipe: recipe.clone(),
            arguments: Vec::new(),
            only: Vec::new(),
            variables: Variables::new(),
        };
        let participant = Participant::prepare(directory, &server, environment)
            .map_err(|reason| LabError::Config(format!("cannot start the origin: {reason}")))?;
        let running = participant.start(environment, context, stop)?;
        Ok(Origin { participant, running })
    }

    /// Returns the address and port.
    pub(super) fn address(&self) -> String {
        self.running.url.trim_start_matches("http://").to_owned()
    }

    /// Returns an error if the origin has exited.
    pub(super) fn check(&self) -> Result<(), LabError> {
        self.running.guard.check_running()
    }

    pub(super) fn describe(&self) -> results::Participant {
        self.participant.describe()
    }
}
