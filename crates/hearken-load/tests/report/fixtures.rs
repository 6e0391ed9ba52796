//! Results made by hand, which tests merge, export and display.
#![allow(dead_code)]

use std::time::Duration;

use hearken_load::{Histogram, Interval, Part, Report, SCHEMA, Samples};

/// Start of the runs in nanoseconds since 1970.
pub(crate) const STARTED: u64 = 1_700_000_000_000_000_000;

/// The outcome of an interval.
#[derive(Clone, Debug, Default)]
pub(crate) struct Piece {
    /// Latencies of the replies in nanoseconds.
    pub(crate) latencies: Vec<u64>,
    /// Number of failed requests.
    pub(crate) failed: u64,
    /// Whether the interval follows the last scheduled request.
    pub(crate) draining: bool,
}

/// Returns the histogram of `times`.
pub(crate) fn histogram(times: &[u64]) -> Histogram {
    let mut histogram = Histogram::new();
    times.iter().for_each(|&time| histogram.record(Duration::from_nanos(time)));
    histogram
}

/// Creates a result with intervals of one second.
pub(crate) fn report(pieces: &[Piece]) -> Report {
    let all: Vec<u64> = pieces.iter().flat_map(|piece| piece.latencies.clone()).collect();
    let sending = pieces.iter().filter(|piece| !piece.draining).count();
    let mut report = Report {
        schema: SCHEMA.to_owned(),
        complete: true,
        started_unix_ns: STARTED,
        url: "http://127.0.0.1:8080/".to_owned(),
        rate: "100".to_owned(),
        offered_rate: 100.0,
        duration_s: sending as f64,
        connections: 50,
        threads: 1,
        mechanism: "epoll-edge".to_owned(),
        ..Report::default()
    };
    let failed = pieces.iter().map(|piece| piece.failed).sum();
    report.requests.replies = all.len() as u64;
    report.requests.failed = failed;
    report.requests.scheduled = all.len() as u64 + failed;
    report.requests.sent = report.requests.scheduled;
    report.requests.answerable = report.requests.scheduled;
    report.status.success = all.len() as u64;
    report.errors.client_timo = failed;
    report.timeouts.reply = failed;
    report.bytes.received = 100 * all.len() as u64;
    report.idle.requested = 10;
    report.intervals = pieces.iter().enumerate().map(interval).collect();
    let in_time: u64 = report.intervals.iter().filter(|i| !i.draining).map(|i| i.replies).sum();
    report.reply_rate = if sending > 0 { in_time as f64 / sending as f64 } else { 0.0 };
    report.reply_rate_samples = Samples::from_intervals(&report.intervals);
    report.histograms.latency = histogram(&all);
    report.histograms.service = report.histograms.latency.clone();
    report.latency_ns = report.histograms.latency.quantiles();
    report.service_ns = report.latency_ns;
    report.connect_ns = Histogram::new().quantiles();
    report.lateness_ns = Histogram::new().quantiles();
    report
}

fn interval((index, piece): (usize, &Piece)) -> Interval {
    let latency = histogram(&piece.latencies);
    let replies = piece.latencies.len() as u64;
    Interval {
        offset_s: index as f64,
        duration_s: 1.0,
        draining: piece.draining,
        scheduled: if piece.draining { 0 } else { replies + piece.failed },
        sent: if piece.draining { 0 } else { replies + piece.failed },
        replies,
        failed: piece.failed,
        missed: 0,
        connections_opened: 0,
        idle_open: 10,
        latency_ns: latency.quantiles(),
        latency: latency.encode(),
    }
}

/// Makes a result the part of a load with rank `rank`.
pub(crate) fn part(rank: u32, size: u32, report: Report) -> Report {
    Report { part: Some(Part { rank, size, ..Part::default() }), ..report }
}
