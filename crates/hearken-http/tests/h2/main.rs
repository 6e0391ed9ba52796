//! HTTP/2 connections: translation of heads, conformance, limits, and the `h2` crate as peer.
//!
//! Run all cases: `cargo test -p hearken-http --test h2`
//! Run a single case: `cargo test -p hearken-http --test h2 limits::rapid_resets_end_the_connection`

mod compression;
mod conformance;
mod flow_control;
mod limits;
mod messages;
mod peers;
mod pieces;
mod raw;
mod smuggling;
mod upgrades;
