//! Tests of the lab through its public interface: the quick experiment with simulated and with fake
//! processes, the comparison with other servers, the HTML report of a load test, and watching servers.
//! No test generates network load.
//!
//! Run a single test: `cargo test -p hearken-lab --test lab quick::json_round_trips`.

mod load_report;
mod peers;
mod quick;
mod quick_processes;
mod watch;
