//! Processes results without a server: merging, export, text summary and ranks.
//!
//! The module `documentation` compares the JSON fields with docs/load-result.md.
//! Run a case with
//! `cargo test -p hearken-load --test report -- merge::rejects_duplicate_ranks`.

#![allow(missing_docs, reason = "test executable")]

mod documentation;
mod export;
mod fixtures;
mod merge;
mod rank;
mod side;
mod steps;
mod summary;
mod total_failure;

use proptest::prelude::ProptestConfig;

/// Returns a configuration with `default` cases, or with the number in `PROPTEST_CASES`.
pub(crate) fn cases(default: u32) -> ProptestConfig {
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => ProptestConfig::default(),
        None => ProptestConfig::with_cases(default),
    }
}
