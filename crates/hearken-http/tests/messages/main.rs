//! Parsing and writing of messages: requests, responses, bodies, paths, ranges, preconditions, dates.
//!
//! `smuggling` contains messages that two parsers could interpret differently, with the expected status.
//! Run all cases: `cargo test -p hearken-http --test messages`
//! Run a single case: `cargo test -p hearken-http --test messages bodies::accepts_only_valid_chunks`

mod bodies;
mod paths;
mod ranges_and_preconditions;
mod requests;
mod responses;
mod smuggling;
mod writing;
