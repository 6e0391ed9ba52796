//! Re-exports the fixtures of the `report` tests for the tests of other crates.

#[path = "../report/fixtures.rs"]
mod fixtures;

pub(crate) use fixtures::*;
