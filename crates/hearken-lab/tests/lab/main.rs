//! Tests of the public interface of the lab. They cover experiments with simulated measurements, the HTML
//! reports of a load test and of a sweep, and watching servers.
//!
//! Run a single test: `cargo test -p hearken-lab --test lab run::ratios_are_paired`.

mod judge;
mod load_report;
mod run;
mod simulated;
mod sweep_report;
mod watch;
