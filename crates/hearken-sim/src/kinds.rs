//! The kinds of histories.

use std::fmt::Debug;

use crate::history::Simulation;

mod chain;
mod load;
mod proxy;
mod server;
mod service;
mod worker;

/// A kind of histories: the programs that take part, and the invariants.
///
/// To add one, implement this trait in a file of its own and list it in [`all`].
pub trait Kind: Debug + Sync {
    /// Returns the name used on the command line and in files.
    fn name(&self) -> &'static str;

    /// Draws the configuration and starts the programs. Returns the checks to perform after all
    /// programs have ended, which report to [`Simulation::report`].
    fn start(&self, simulation: &mut Simulation) -> Check;
}

/// The checks at the end of a history.
pub type Check = Box<dyn FnOnce(&Simulation)>;

/// Returns all kinds.
pub fn all() -> &'static [&'static dyn Kind] {
    &[&server::Server, &proxy::Proxy, &load::Load, &chain::Chain]
}

/// Returns the kind with a name.
pub fn find(name: &str) -> Option<&'static dyn Kind> {
    all().iter().copied().find(|kind| kind.name() == name)
}
