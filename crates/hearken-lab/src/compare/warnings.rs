//! Warnings about a comparison.

use std::collections::BTreeSet;

use hearken_load::Report;

use super::design::Design;
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
    // The port distinguishes the servers of a comparison, not their loads.
    check_equal("the URLs", |report| split_url(&report.url).without_host());
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
    let starts = |reports: &[Report]| reports.iter().map(|r| r.started_unix_ns).collect::<Vec<_>>();
    let (starts_a, starts_b) = (starts(a), starts(b));
    if a.len().min(b.len()) >= 2 && (Design { a: &starts_a, b: &starts_b }).is_sequential() {
        warnings.push(
            "all runs of one side were made before those of the other, so a change of the machine \
             looks like a difference; hearken load ab alternates them"
                .to_owned(),
        );
    }
    mechanism_warnings(a, b, &mut warnings);
    for (side, reports) in [("A", a), ("B", b)] {
        side_warnings(side, reports, &mut warnings);
    }
    let host = |report: &Report| split_url(&report.url).host.to_owned();
    if let Some(other) = all().find(|report| host(report) != host(first)) {
        warnings.push(format!(
            "the servers have different hosts ('{}' and '{}'), so their machines and networks may differ",
            host(first),
            host(other)
        ));
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
    warnings
}

/// Adds a warning if generators used different event mechanisms: within a run, a side, or between sides.
fn mechanism_warnings(a: &[Report], b: &[Report], warnings: &mut Vec<String>) {
    // A merged result names the mechanisms of all its parts.
    let used = |reports: &[Report]| -> BTreeSet<String> {
        let names = reports.iter().flat_map(|report| report.mechanism.split(", "));
        names.map(str::to_owned).collect()
    };
    let (used_a, used_b) = (used(a), used(b));
    if used_a.len() <= 1 && used_a == used_b {
        return;
    }
    let list = |names: BTreeSet<String>| names.into_iter().collect::<Vec<_>>().join(", ");
    warnings.push(format!(
        "the generators used different event mechanisms (A: {}; B: {}), which changes latency; select \
         one with --events",
        list(used_a),
        list(used_b)
    ));
}

/// The parts of a URL that a comparison distinguishes.
struct UrlParts<'a> {
    scheme: &'a str,
    host: &'a str,
    path: &'a str,
}

impl UrlParts<'_> {
    fn without_host(&self) -> String {
        format!("{}://.../{}", self.scheme, self.path)
    }
}

/// Splits a URL, without its port. A text without a scheme is all path.
fn split_url(url: &str) -> UrlParts<'_> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return UrlParts { scheme: "", host: "", path: url };
    };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    // The colons of an IPv6 address are in brackets.
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => host,
        _ => authority,
    };
    UrlParts { scheme, host, path }
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
