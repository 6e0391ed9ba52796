//! The origin server of the proxies, the same for the whole run.

use std::sync::atomic::AtomicBool;

use super::kind::Kind;
use super::participant::{Environment, Participant, RunningServer};
use super::recipe::Recipe;
use super::results;
use crate::error::LabError;

/// Name of the directory and the log. No recipe has this name.
const DIRECTORY: &str = ".origin";

/// The origin server. It runs on the processor shared by proxy and driver. All replies of a round are
/// therefore available when the proxy polls, and the work of the proxy is repeatable. The cost of the
/// origin is not measured.
#[derive(Debug)]
pub(super) struct Origin {
    participant: Participant,
    running: RunningServer,
}

impl Origin {
    /// Starts the origin. Every error ends the run, because proxies cannot be measured without an origin.
    pub(super) fn start(
        recipe: Option<&Recipe>,
        environment: &Environment,
        stop: &AtomicBool,
    ) -> Result<Origin, LabError> {
        let config_error =
            |reason: String| LabError::Config(format!("cannot start the origin: {reason}"));
        let recipe = recipe.ok_or_else(|| config_error("no recipe is given".into()))?;
        if recipe.kind != Kind::Server {
            return Err(config_error(format!("'{}' is a {}", recipe.name, recipe.kind.name())));
        }
        let prepared = Participant::prepare_as(DIRECTORY, recipe, environment);
        let participant = prepared.map_err(|reason| config_error(reason.to_string()))?;
        let running = participant.start(environment, stop)?;
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
