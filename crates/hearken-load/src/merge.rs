//! The results of several generators of one load, made one: counts are added, and distributions
//! bucket by bucket, never their quantiles.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::failure::Errors;
use crate::report::{
    Bytes, Handshakes, Histograms, Idle, Report, Requests, SCHEMA, Samples, Sessions, Status,
    Timeouts,
};
use crate::slo::ObjectiveResult;

mod error;
mod grid;
mod ranks;
mod warnings;

pub use error::MergeError;

use grid::Grid;
use ranks::Ranks;

/// How far apart the parts may start, and by how much a clock may be wrong, without a warning.
pub const DEFAULT_START_TOLERANCE: Duration = Duration::from_millis(50);

/// One result of several, in any order. Intervals are put together by the time at which they were, to
/// the nearest of the part that started first.
///
/// ```
/// use hearken_load::{Report, SCHEMA, merge};
///
/// let mut part = Report { schema: SCHEMA.to_owned(), ..Report::default() };
/// part.requests.intended = 500;
/// assert_eq!(merge(&[part.clone(), part])?.requests.intended, 1000);
/// # Ok::<(), hearken_load::MergeError>(())
/// ```
///
/// # Errors
/// No results, results of different loads, the same part twice, and what no generator can have made.
pub fn merge(parts: &[Report]) -> Result<Report, MergeError> {
    merge_within(parts, DEFAULT_START_TOLERANCE)
}

/// As [`merge`], with another bound.
///
/// # Errors
/// As there.
pub fn merge_within(parts: &[Report], bound: Duration) -> Result<Report, MergeError> {
    let Some(asked) = parts.first() else { return Err(MergeError::Empty) };
    for (at, part) in parts.iter().enumerate() {
        part.check().map_err(|source| MergeError::Invalid { at, source })?;
        check_same_load(at, asked, part)?;
        if ranks::parts_of(part).next().is_some() && part.rate != asked.rate {
            let (one, other) = (asked.rate.clone(), part.rate.clone());
            return Err(MergeError::FieldMismatch { at, what: "rate", one, other });
        }
        check_histograms(at, part)?;
    }
    let ranks = Ranks::from_reports(parts)?;
    let grid = Grid::from_parts(parts)?;
    // So that what is kept of one part only does not depend on the order in which they are given.
    let mut parts: Vec<&Report> = parts.iter().collect();
    parts.sort_by_key(|part| (ranks::lowest_rank(part), part.started_unix_ns));
    let mut whole = sum(&parts, grid.started_unix_ns);
    whole.intervals = grid.intervals();
    whole.reply_rate_samples = Samples::of_reply_rate(&whole.intervals);
    whole.warnings = warnings::merge_warnings(&parts, &ranks, bound);
    whole.parts = ranks.into_parts();
    whole.objectives = objectives(&parts, &whole);
    Ok(whole)
}

/// An error if another load was asked of one part than of the first.
fn check_same_load(at: usize, first: &Report, part: &Report) -> Result<(), MergeError> {
    let closed = |report: &Report| report.rate.is_empty().then_some("closed loop");
    for (what, one, other) in [
        ("url", first.url.clone(), part.url.clone()),
        ("workload", first.workload.clone(), part.workload.clone()),
        ("model", format!("{:?}", first.model), format!("{:?}", part.model)),
        ("arrivals", first.arrivals.to_string(), part.arrivals.to_string()),
        ("per_connection", told(&first.per_connection), told(&part.per_connection)),
        (
            "rate",
            closed(first).unwrap_or("open loop").into(),
            closed(part).unwrap_or("open loop").into(),
        ),
    ] {
        if one != other {
            return Err(MergeError::FieldMismatch { at, what, one, other });
        }
    }
    Ok(())
}

fn told(text: &Option<String>) -> String {
    text.clone().unwrap_or_else(|| "none".to_owned())
}

/// An error if a distribution is not that of which the quantiles tell: one cannot add those.
fn check_histograms(at: usize, part: &Report) -> Result<(), MergeError> {
    let Histograms { latency, service, connect, lateness } = &part.histograms;
    for (what, has, told) in [
        ("latency", latency.len(), part.latency_ns.count),
        ("service", service.len(), part.service_ns.count),
        ("connect", connect.len(), part.connect_ns.count),
        ("lateness", lateness.len(), part.lateness_ns.count),
    ] {
        if has != told {
            return Err(MergeError::HistogramMismatch { at, what, has, told });
        }
    }
    Ok(())
}

/// A structure whose fields are the sums of the parts'.
macro_rules! total {
    ($parts:expr, $field:ident, $of:ident { $($name:ident),* }) => {
        $of { $($name: add($parts, |part| part.$field.$name)),* }
    };
}

/// All but what depends on when the parts started. Every field is named: a new one is not forgotten.
fn sum(parts: &[&Report], started_unix_ns: u64) -> Report {
    let first = parts[0];
    let rates = |rate: fn(&Report) -> f64| parts.iter().map(|part| rate(part)).sum();
    let histograms = histograms(parts);
    Report {
        schema: SCHEMA.to_owned(),
        complete: parts.iter().all(|part| part.complete),
        started_unix_ns,
        url: first.url.clone(),
        workload: first.workload.clone(),
        model: first.model,
        rate: rate(parts),
        offered_rate: rates(|part| part.offered_rate),
        duration_s: parts.iter().map(|part| part.duration_s).fold(0.0, f64::max),
        arrivals: first.arrivals,
        connections: add(parts, |part| part.connections),
        per_connection: first.per_connection.clone(),
        threads: add(parts, |part| part.threads),
        seed: first.seed,
        events: join_distinct(parts, ", ", |part| &part.events),
        requests: total!(
            parts,
            requests,
            Requests { intended, sent, replies, failed, unfinished, waited }
        ),
        sessions: total!(parts, sessions, Sessions { begun, completed, failed }),
        status: total!(
            parts,
            status,
            Status { interim, success, redirection, client_error, server_error }
        ),
        reply_rate: rates(|part| part.reply_rate),
        reply_rate_samples: Samples::default(),
        latency_ns: histograms.latency.quantiles(),
        service_ns: histograms.service.quantiles(),
        connect_ns: histograms.connect.quantiles(),
        lateness_ns: histograms.lateness.quantiles(),
        errors: total!(
            parts,
            errors,
            Errors {
                client_timo,
                socket_timo,
                conn_refused,
                conn_reset,
                fd_unavail,
                addr_unavail,
                check,
                other
            }
        ),
        timeouts: total!(parts, timeouts, Timeouts { connect, first_byte, reply }),
        connections_opened: add(parts, |part| part.connections_opened),
        idle: total!(
            parts,
            idle,
            Idle { asked, held, lost, re_established, requests, replies, tables }
        ),
        tls: total!(parts, tls, Handshakes { full, resumed, failed }),
        bytes: total!(parts, bytes, Bytes { received, sent }),
        intervals: Vec::new(),
        histograms,
        objectives: Vec::new(),
        server: server(parts, started_unix_ns),
        command: first.command.clone(),
        machine: join_distinct(parts, "; ", |part| &part.machine),
        part: None,
        parts: Vec::new(),
        warnings: Vec::new(),
    }
}

fn add(parts: &[&Report], count: impl Fn(&Report) -> u64) -> u64 {
    parts.iter().fold(0, |sum, part| sum.saturating_add(count(part)))
}

fn histograms(parts: &[&Report]) -> Histograms {
    let mut sum = Histograms::default();
    for part in parts {
        sum.latency.add(&part.histograms.latency);
        sum.service.add(&part.histograms.service);
        sum.connect.add(&part.histograms.connect);
        sum.lateness.add(&part.histograms.lateness);
    }
    sum
}

/// The texts that there are, each once.
fn join_distinct<'a>(parts: &[&'a Report], by: &str, text: fn(&'a Report) -> &'a String) -> String {
    let all: BTreeSet<&str> = parts.iter().flat_map(|part| text(part).split(by)).collect();
    all.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(by)
}

/// What all parts offered. Those that know their rank tell what was asked for of all of them; else
/// numbers are added, and other profiles told with how many had them.
fn rate(parts: &[&Report]) -> String {
    if ranks::lowest_rank(parts[0]).is_some() {
        return parts[0].rate.clone();
    }
    let (mut number, mut profiles) = (None, BTreeMap::<&str, u64>::new());
    for term in parts.iter().flat_map(|part| part.rate.split(" + ")).filter(|t| !t.is_empty()) {
        if let Some(rate) = term.parse::<f64>().ok().filter(|rate| rate.is_finite()) {
            *number.get_or_insert(0.0) += rate;
            continue;
        }
        let (times, profile) = match term.split_once(" x ") {
            Some((times, profile)) => (times.parse().unwrap_or(1), profile),
            None => (1, term),
        };
        let sum = profiles.entry(profile).or_default();
        *sum = sum.saturating_add(times);
    }
    let profiles = profiles.into_iter().map(|(profile, times)| match times {
        1 => profile.to_owned(),
        _ => format!("{times} x {profile}"),
    });
    number
        .map(|rate: f64| rate.to_string())
        .into_iter()
        .chain(profiles)
        .collect::<Vec<_>>()
        .join(" + ")
}

/// The objectives of the parts, each once, judged by the whole.
fn objectives(parts: &[&Report], whole: &Report) -> Vec<ObjectiveResult> {
    let (mut seen, mut judged) = (BTreeSet::new(), Vec::new());
    for ObjectiveResult { objective, .. } in parts.iter().flat_map(|part| &part.objectives) {
        if seen.insert(objective.to_string()) {
            judged.push(objective.evaluate(whole));
        }
    }
    judged
}

/// The server as the first that watched it saw it; several would count it several times.
fn server(parts: &[&Report], started_unix_ns: u64) -> Option<crate::server::Server> {
    let (part, mut server) = parts.iter().find_map(|p| Some((p, p.server.clone()?)))?;
    let later = part.started_unix_ns.saturating_sub(started_unix_ns) as f64 / 1e9;
    if later > 0.0 {
        server.samples.iter_mut().for_each(|sample| sample.at_s += later);
        server.gone_at_s.iter_mut().for_each(|at| *at += later);
    }
    Some(server)
}
