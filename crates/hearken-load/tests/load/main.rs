//! Runs loads against test servers on loopback, and compares the reports with what the servers saw.
//!
//! One module per topic: request accounting, arrivals, timeouts, TLS, idle connections and so on.
//! Run a case with `cargo test -p hearken-load --test load -- timeouts::connect`.
//! Run the full products of cases with `cargo test -p hearken-load --test load -- --include-ignored`.

#![allow(missing_docs, reason = "test executable")]

mod accounting;
mod checks;
mod cookies;
mod descriptor_tables;
mod edge_cases;
mod file_set;
mod finite_workloads;
mod har;
mod http2;
mod idle;
mod lockstep;
mod number;
mod open_loop;
mod overload;
mod progress;
mod ranks;
mod server;
mod simulation;
mod slow_clients;
mod stall;
mod timeouts;
mod tls;
mod unix_socket;
mod websocket;

use std::thread;

use hearken_load::{Config, Report, StopSignal, run};
use proptest::prelude::ProptestConfig;

/// Returns a configuration with `default` cases, or with the number in `PROPTEST_CASES`.
pub(crate) fn cases(default: u32) -> ProptestConfig {
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => ProptestConfig::default(),
        None => ProptestConfig::with_cases(default),
    }
}

/// Runs `config` concurrently with `watch`, and stops it when `watch` returns.
pub(crate) fn while_running(config: &Config, watch: impl FnOnce()) -> Report {
    let stop = StopSignal::new();
    let report = thread::scope(|scope| {
        let load = scope.spawn(|| run(config, &mut (), &stop));
        watch();
        stop.raise();
        load.join().unwrap().unwrap()
    });
    report.validate().unwrap();
    report
}
