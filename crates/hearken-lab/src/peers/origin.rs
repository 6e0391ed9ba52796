//! The server behind the proxies: one for the whole run, so that it is the same for all of them.

use std::sync::atomic::AtomicBool;

use super::kind::Kind;
use super::participant::{Ground, Participant, Running};
use super::recipe::Recipe;
use super::results;
use crate::error::LabError;

/// No recipe has such a name, so nobody else has its directory.
const PLACE: &str = ".origin";

/// A server that proxies ask. It is started as any other is, on the processor that proxy and driver
/// share: all replies of a round are then there before the proxy looks for them, and what it does for
/// one repeats. Its own cost is not counted.
#[derive(Debug)]
pub(super) struct Origin {
    participant: Participant,
    running: Running,
}

impl Origin {
    /// Starts it. Without it no proxy can be measured, so that whatever is wrong ends the run.
    pub(super) fn start(
        recipe: Option<&Recipe>,
        ground: &Ground,
        stop: &AtomicBool,
    ) -> Result<Origin, LabError> {
        let unfit = |why: String| LabError::Config(format!("no origin for the proxies: {why}"));
        let recipe = recipe.ok_or_else(|| unfit("name one".into()))?;
        if recipe.kind != Kind::Server {
            return Err(unfit(format!("{} is a {}", recipe.name, recipe.kind.name())));
        }
        let prepared = Participant::prepare_at(PLACE, recipe, ground);
        let participant = prepared.map_err(|why| unfit(why.to_string()))?;
        let running = participant.start(ground, stop)?;
        Ok(Origin { participant, running })
    }

    /// Where it listens.
    pub(super) fn address(&self) -> String {
        self.running.url.trim_start_matches("http://").to_owned()
    }

    /// An error that quotes it, if it has ended.
    pub(super) fn check(&self) -> Result<(), LabError> {
        self.running.guard.check()
    }

    pub(super) fn describe(&self) -> results::Participant {
        self.participant.describe()
    }
}
