//! Forwarding of messages, with an example for every rule.
//!
//! `heads` covers requests, responses and upgrades; `bodies` covers framing and trailer fields.
//! Run all cases: `cargo test -p hearken-http --test forwarding`
//! Run a single case: `cargo test -p hearken-http --test forwarding heads::removes_hop_by_hop_fields`

mod bodies;
mod heads;
