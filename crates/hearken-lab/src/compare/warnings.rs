//! Warnings about a comparison.

use hearken_load::Report;

use crate::units::number;

/// The 99th percentile of generator lateness, in nanoseconds, above which a warning is issued.
const MAX_LATENESS_NS: u64 = 1_000_000;
/// Minimum ratio of replies to offered requests of a server that is not saturated.
const MIN_REPLY_RATIO: f64 = 0.95;
/// Relative difference of offered rates that is tolerated.
const MAX_RATE_DIFFERENCE: f64 = 0.01;
/// Maximum time between the starts of comparable runs, in nanoseconds.
const MAX_START_DIFFERENCE_NS: u64 = 3_600_000_000_000;

/// Returns the warnings, the most serious first.
pub(super) fn warnings(a: &[Report], b: &[Report]) -> Vec<String> {
    let mut warnings = Vec::new();
    let all = || a.iter().chain(b);
    let Some(first) = all().next() else { return vec!["there is nothing to compare".to_owned()] };
    let mut check_equal = |subject: &str, of: fn(&Report) -> String| {
        if let Some(other) = all().find(|report| of(report) != of(first)) {
            warnings.push(format!(
                "{subject} differ ('{}' and '{}'), so the runs did not measure the same load",
                of(first),
                of(other)
            ));
        }
    };
    check_equal("the URLs", |report| report.url.clone());
    check_equal("the workloads", |report| report.workload.clone());
    check_equal("the arrival models", |report| format!("{:?}", report.model).to_lowercase());
    check_equal("the arrival processes", |report| report.arrivals.to_string());
    check_equal("the rates", |report| report.rate.clone());
    check_equal("the numbers of connections", |report| report.connections.to_string());
    check_equal("the requests per connection", |r| {
        r.requests_per_connection.clone().unwrap_or_default()
    });
    check_equal("the numbers of idle connections", |report| report.idle.requested.to_string());
    let (min, max) = all().fold((f64::INFINITY, 0.0f64), |(min, max), report| {
        (min.min(report.offered_rate), max.max(report.offered_rate))
    });
    if max > min * (1.0 + MAX_RATE_DIFFERENCE) {
        warnings.push(format!(
            "the offered rates differ: {} and {} per second",
            number(min),
            number(max)
        ));
    }
    for (side, reports) in [("A", a), ("B", b)] {
        side_warnings(side, reports, &mut warnings);
    }
    if all().any(|report| report.machine != first.machine) {
        warnings.push(
            "the load generators ran on different machines or with different processors".to_owned(),
        );
    }
    let starts = all().map(|report| report.started_unix_ns);
    let (earliest, latest) = (starts.clone().min().unwrap_or(0), starts.max().unwrap_or(0));
    if latest - earliest > MAX_START_DIFFERENCE_NS {
        warnings.push(format!(
            "the runs started up to {} hours apart, so the machines may have changed in between",
            number((latest - earliest) as f64 / 3.6e12)
        ));
    }
    if a.len() < 2 || b.len() < 2 {
        warnings.push(
            "a single run does not show the variation between runs; give several runs of each \
             side, measured alternately"
                .to_owned(),
        );
    }
    warnings
}

/// Adds the warnings about one side.
fn side_warnings(side: &str, reports: &[Report], warnings: &mut Vec<String>) {
    if reports.iter().any(|report| !report.complete) {
        warnings.push(format!("{side} was interrupted"));
    }
    let late = reports.iter().map(|report| report.lateness_ns.p99).max().unwrap_or(0);
    if late > MAX_LATENESS_NS {
        warnings.push(format!(
            "the load generator was late in {side}: it sent 1 % of the requests {} ms or more \
             after their scheduled time",
            number(late as f64 / 1e6)
        ));
    }
    let saturated = |report: &&Report| {
        let of = &report.requests;
        let in_time = report.reply_rate * report.duration_s;
        of.scheduled > 0 && in_time.min(of.replies as f64) < of.scheduled as f64 * MIN_REPLY_RATIO
    };
    if reports.iter().any(|report| saturated(&report)) {
        warnings.push(format!(
            "{side} was saturated: fewer than {:.0} % of its requests received a reply in time, and \
             latency covers only those that did",
            MIN_REPLY_RATIO * 100.0
        ));
    }
}
