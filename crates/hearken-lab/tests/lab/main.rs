//! Tests of the public interface of the lab. They cover the quick experiment and the comparison with
//! other servers (with simulated measurements or fake processes), the HTML reports of a load test and of a sweep, and
//! watching servers.
//!
//! Run a single test: `cargo test -p hearken-lab --test lab quick::json_round_trips`.

mod load_report;
mod peers;
mod quick;
mod quick_processes;
mod sweep_report;
mod watch;
