//! Evaluates objectives and searches for the knee of simulated servers and sweeps them, without network traffic.
//!
//! The modules `knee` and `sweep` also compare the JSON fields with docs/knee-result.md and
//! docs/sweep-result.md.
//! Run a case with
//! `cargo test -p hearken-load --test search -- knee::finds_a_capacity_below_the_start_rate`.

#![allow(missing_docs, reason = "test executable")]

mod fixtures;
mod knee;
mod objectives;
mod sweep;

use proptest::prelude::ProptestConfig;

/// Returns a configuration with `default` cases, or with the number in `PROPTEST_CASES`.
pub(crate) fn cases(default: u32) -> ProptestConfig {
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => ProptestConfig::default(),
        None => ProptestConfig::with_cases(default),
    }
}
