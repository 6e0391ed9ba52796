//! Warnings about a comparison.

use hearken_load::Report;

use crate::units::number;

/// The 99th percentile of generator lateness, in nanoseconds, above which a warning is issued.
const LATE_NS: u64 = 1_000_000;
/// Minimum ratio of replies to offered requests of a server that is not saturated.
const KEPT_UP: f64 = 0.95;
/// Relative difference of offered rates that is tolerated.
const SAME: f64 = 0.01;
/// Maximum time between the starts of comparable runs, in nanoseconds.
const SAME_TIME_NS: u64 = 3_600_000_000_000;

/// Returns the warnings, the most serious first.
pub(super) fn caveats(a: &[Report], b: &[Report]) -> Vec<String> {
    let mut said = Vec::new();
    let all = || a.iter().chain(b);
    let Some(first) = all().next() else { return vec!["there is nothing to compare".to_owned()] };
    let mut differ = |what: &str, of: fn(&Report) -> String| {
        if let Some(other) = all().find(|report| of(report) != of(first)) {
            said.push(format!(
                "{what} differ ('{}' and '{}'), so the runs did not measure the same load",
                of(first),
                of(other)
            ));
        }
    };
    differ("the URLs", |report| report.url.clone());
    differ("the workloads", |report| report.workload.clone());
    differ("the arrival models", |report| format!("{:?}", report.model).to_lowercase());
    differ("the arrival processes", |report| report.arrivals.to_string());
    differ("the rates", |report| report.rate.clone());
    differ("the numbers of connections", |report| report.connections.to_string());
    differ("the requests per connection", |r| r.per_connection.clone().unwrap_or_default());
    differ("the numbers of idle connections", |report| report.idle.asked.to_string());
    let (least, most) = all().fold((f64::INFINITY, 0.0f64), |(least, most), report| {
        (least.min(report.offered_rate), most.max(report.offered_rate))
    });
    if most > least * (1.0 + SAME) {
        said.push(format!(
            "the offered rates differ: {} and {} per second",
            number(least),
            number(most)
        ));
    }
    for (side, reports) in [("A", a), ("B", b)] {
        of_side(side, reports, &mut said);
    }
    if all().any(|report| report.machine != first.machine) {
        said.push(
            "the load generators ran on different machines or with different processors"
                .to_owned(),
        );
    }
    let starts = all().map(|report| report.started_unix_ns);
    let (earliest, latest) = (starts.clone().min().unwrap_or(0), starts.max().unwrap_or(0));
    if latest - earliest > SAME_TIME_NS {
        said.push(format!(
            "the runs started up to {} hours apart, so the machines may have changed in between",
            number((latest - earliest) as f64 / 3.6e12)
        ));
    }
    if a.len() < 2 || b.len() < 2 {
        said.push(
            "a single run does not show the variation between runs; give several runs of each \
             side, measured alternately"
                .to_owned(),
        );
    }
    said
}

/// Adds the warnings about one side.
fn of_side(side: &str, reports: &[Report], said: &mut Vec<String>) {
    if reports.iter().any(|report| !report.complete) {
        said.push(format!("{side} was interrupted"));
    }
    let late = reports.iter().map(|report| report.lateness_ns.p99).max().unwrap_or(0);
    if late > LATE_NS {
        said.push(format!(
            "the load generator was late in {side}: it sent 1 % of the requests {} ms or more \
             after their scheduled time",
            number(late as f64 / 1e6)
        ));
    }
    let saturated = |report: &&Report| {
        let of = &report.requests;
        let in_time = report.reply_rate * report.duration_s;
        of.intended > 0 && in_time.min(of.replies as f64) < of.intended as f64 * KEPT_UP
    };
    if reports.iter().any(|report| saturated(&report)) {
        said.push(format!(
            "{side} was saturated: fewer than {:.0} % of its requests received a reply in time, and \
             latency covers only those that did",
            KEPT_UP * 100.0
        ));
    }
}
