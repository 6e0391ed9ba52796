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
mod summary;
