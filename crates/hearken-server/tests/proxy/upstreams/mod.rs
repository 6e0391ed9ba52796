//! The servers of a reverse proxy: balancing, health checks, name resolution.

mod descriptors;
mod fairness;
mod health;
mod passive;
mod resolver;
mod sharing;
mod states;
mod support;

/// The lists of all modules.
pub(crate) const TESTS: &[crate::Tests] = &[
    descriptors::TESTS,
    fairness::TESTS,
    health::TESTS,
    passive::TESTS,
    resolver::TESTS,
    sharing::TESTS,
    states::TESTS,
];
