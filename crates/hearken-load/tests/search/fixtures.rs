//! Results made by hand, with objectives to evaluate.

#![allow(missing_docs, reason = "tests use it")]

use std::time::Duration;

use hearken_load::{Errors, Histogram, Histograms, Report, Requests, SCHEMA};

/// Creates the result of requests with the given latencies and of `failed` further requests.
pub(crate) fn report(latencies_ms: &[u64], failed: u64) -> Report {
    let mut latency = Histogram::new();
    latencies_ms.iter().for_each(|&ms| latency.record(Duration::from_millis(ms)));
    let replies = latencies_ms.len() as u64;
    let scheduled = replies + failed;
    Report {
        schema: SCHEMA.to_owned(),
        complete: true,
        offered_rate: (replies + failed) as f64,
        duration_s: 1.0,
        connections: 1,
        threads: 1,
        requests: Requests {
            scheduled,
            replies,
            failed,
            answerable: scheduled,
            ..Requests::default()
        },
        reply_rate: replies as f64,
        latency_ns: latency.quantiles(),
        errors: Errors { client_timo: failed, ..Errors::default() },
        connections_opened: 1,
        histograms: Histograms { latency, ..Histograms::default() },
        ..Report::default()
    }
}
