//! The servers of a reverse proxy: balancing, health checks, name resolution.

mod descriptors;
mod fairness;
mod health;
mod passive;
mod resolver;
mod sharing;
mod states;
mod support;

pub(crate) const TESTS: &[&[(&str, fn())]] = &[
    descriptors::TESTS,
    fairness::TESTS,
    health::TESTS,
    passive::TESTS,
    resolver::TESTS,
    sharing::TESTS,
    states::TESTS,
];
