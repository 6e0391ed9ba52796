//! The programs `dispatch` and `recorder` as processes, with short runs on loopback.
//!
//! The tests check results and error messages but no durations.
//! Run all cases: `cargo test -p hearken-bench --test bench`
//! Run a single case: `cargo test -p hearken-bench --test bench dispatch::tracing_counts_system_calls`

mod dispatch;
mod recorder;
