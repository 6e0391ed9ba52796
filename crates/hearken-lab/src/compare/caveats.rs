//! What casts doubt on a comparison.

use hearken_load::Report;

use crate::units::number;

/// The generator's lateness, at the 99th percentile, that is too much to be passed over.
const LATE_NS: u64 = 1_000_000;
/// Of what was offered, so much is replied to by a server that keeps up.
const KEPT_UP: f64 = 0.95;
/// Offered rates within this part are the same.
const SAME: f64 = 0.01;
/// Two runs that began within this time are of the same time.
const SAME_TIME_NS: u64 = 3_600_000_000_000;

/// Sentences, the gravest first.
pub(super) fn caveats(a: &[Report], b: &[Report]) -> Vec<String> {
    let mut said = Vec::new();
    let all = || a.iter().chain(b);
    let Some(first) = all().next() else { return vec!["there is nothing to compare".to_owned()] };
    let mut differ = |what: &str, of: fn(&Report) -> String| {
        if let Some(other) = all().find(|report| of(report) != of(first)) {
            said.push(format!(
                "{what} differ: \"{}\" and \"{}\"; they were not asked the same",
                of(first),
                of(other)
            ));
        }
    };
    differ("what was asked for", |report| report.url.clone());
    differ("the workloads", |report| report.workload.clone());
    differ("what arrives", |report| format!("{:?}", report.model).to_lowercase());
    differ("the arrivals", |report| report.arrivals.to_string());
    differ("the rates", |report| report.rate.clone());
    differ("the connections", |report| report.connections.to_string());
    differ("the requests on a connection", |r| r.per_connection.clone().unwrap_or_default());
    differ("the idle connections", |report| report.idle.asked.to_string());
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
            "the generators did not run on the same machine, or not with all of its processors"
                .to_owned(),
        );
    }
    let starts = all().map(|report| report.started_unix_ns);
    let (earliest, latest) = (starts.clone().min().unwrap_or(0), starts.max().unwrap_or(0));
    if latest - earliest > SAME_TIME_NS {
        said.push(format!(
            "the runs began up to {} hours apart: what else the machines did may have changed",
            number((latest - earliest) as f64 / 3.6e12)
        ));
    }
    if a.len() < 2 || b.len() < 2 {
        said.push(
            "one run tells nothing of how runs differ from each other; give several of each, taken \
             in turn"
                .to_owned(),
        );
    }
    said
}

fn of_side(side: &str, reports: &[Report], said: &mut Vec<String>) {
    if reports.iter().any(|report| !report.complete) {
        said.push(format!("{side} was stopped before its time"));
    }
    let late = reports.iter().map(|report| report.lateness_ns.p99).max().unwrap_or(0);
    if late > LATE_NS {
        said.push(format!(
            "the generator itself was late in {side}: 1 % of the requests were made {} ms or more \
             after their time",
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
            "{side} was saturated: fewer than {:.0} % of its requests had a reply in time, and latency \
             is only of those that had one",
            KEPT_UP * 100.0
        ));
    }
}
