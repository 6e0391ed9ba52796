//! A report, made up.

#![allow(unreachable_pub, missing_docs, reason = "tests use it")]

use std::time::Duration;

use hearken_load::{
    Arrivals, Errors, Histogram, Histograms, Idle, Model, Report, Requests, SCHEMA,
};

/// Of requests whose replies took so long, and of so many more that failed.
pub fn of(latencies_ms: &[u64], failed: u64) -> Report {
    let mut latency = Histogram::new();
    latencies_ms.iter().for_each(|&ms| latency.record(Duration::from_millis(ms)));
    let replies = latencies_ms.len() as u64;
    Report {
        schema: SCHEMA.to_owned(),
        complete: true,
        started_unix_ns: 0,
        url: String::new(),
        workload: String::new(),
        model: Model::Requests,
        rate: String::new(),
        offered_rate: (replies + failed) as f64,
        duration_s: 1.0,
        arrivals: Arrivals::Poisson,
        connections: 1,
        per_connection: None,
        threads: 1,
        seed: 0,
        events: String::new(),
        requests: Requests { intended: replies + failed, replies, failed, ..Requests::default() },
        sessions: Default::default(),
        status: Default::default(),
        reply_rate: replies as f64,
        reply_rate_samples: Default::default(),
        latency_ns: latency.quantiles(),
        service_ns: Default::default(),
        connect_ns: Default::default(),
        lateness_ns: Default::default(),
        errors: Errors { client_timo: failed, ..Errors::default() },
        timeouts: Default::default(),
        connections_opened: 1,
        idle: Idle::default(),
        tls: Default::default(),
        bytes: Default::default(),
        intervals: Vec::new(),
        histograms: Histograms { latency, ..Histograms::default() },
        server: None,
        objectives: Vec::new(),
        warnings: Vec::new(),
    }
}
