//! Merging of the results of several generators of one load. Counts and histograms are added;
//! quantiles are calculated from the merged histograms.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::bottleneck::Bottleneck;
use crate::failure::Errors;
use crate::report::{
    Bytes, Handshakes, Histograms, Http2, Idle, Missed, Report, Requests, SCHEMA, Samples,
    Sessions, Status, Timeouts,
};
use crate::slo::ObjectiveResult;
use crate::slow_clients::SlowClients;
use crate::websocket::WebSockets;

mod error;
mod grid;
mod ranks;
mod warnings;

pub use error::MergeError;

use grid::Grid;
use ranks::Ranks;

/// Default limit for the time between the starts of the parts, and for clock errors, above which a
/// warning is added.
pub const DEFAULT_START_TOLERANCE: Duration = Duration::from_millis(50);

/// Merges the results of the parts of a load, in any order. Intervals are aligned by time with the
/// intervals of the part that started first.
///
/// ```
/// use hearken_load::{Report, SCHEMA, merge};
///
/// let mut part = Report { schema: SCHEMA.to_owned(), ..Report::default() };
/// part.requests.scheduled = 500;
/// assert_eq!(merge(&[part.clone(), part])?.requests.scheduled, 1000);
/// # Ok::<(), hearken_load::MergeError>(())
/// ```
///
/// # Errors
/// No results, results of different loads, duplicate parts and invalid results.
pub fn merge(parts: &[Report]) -> Result<Report, MergeError> {
    merge_within(parts, DEFAULT_START_TOLERANCE)
}

/// Merges results like [`merge`], with the tolerance `bound` for differences between start times.
///
/// # Errors
/// The same as for [`merge`].
pub fn merge_within(parts: &[Report], bound: Duration) -> Result<Report, MergeError> {
    let Some(first) = parts.first() else { return Err(MergeError::Empty) };
    for (index, part) in parts.iter().enumerate() {
        part.validate().map_err(|source| MergeError::Invalid { index, source })?;
        check_same_load(index, first, part)?;
        if ranks::parts_of(part).next().is_some() && part.rate != first.rate {
            let (expected, found) = (first.rate.clone(), part.rate.clone());
            return Err(MergeError::FieldMismatch { index, field: "rate", expected, found });
        }
        check_histograms(index, part)?;
    }
    let ranks = Ranks::from_reports(parts)?;
    let grid = Grid::from_parts(parts)?;
    // Sort, so that fields copied from one part do not depend on the order of arguments.
    let mut parts: Vec<&Report> = parts.iter().collect();
    parts.sort_by_key(|part| (ranks::lowest_rank(part), part.started_unix_ns));
    let mut whole = sum(&parts, grid.started_unix_ns);
    whole.intervals = grid.intervals();
    whole.reply_rate_samples = Samples::from_intervals(&whole.intervals);
    whole.warnings = warnings::merge_warnings(&parts, &ranks, bound);
    whole.parts = ranks.into_parts();
    whole.bottleneck = Bottleneck::of(&whole);
    whole.objectives = objectives(&parts, &whole);
    Ok(whole)
}

/// Returns an error if `part` belongs to another load than the first part.
fn check_same_load(index: usize, first: &Report, part: &Report) -> Result<(), MergeError> {
    let closed = |report: &Report| report.rate.is_empty().then_some("closed loop");
    let mode = |report: &Report| {
        report.websocket.as_ref().map_or("none".to_owned(), |of| of.mode.to_string())
    };
    let streams =
        |report: &Report| report.http2.map_or("none".to_owned(), |http2| http2.streams.to_string());
    for (field, expected, found) in [
        ("url", first.url.clone(), part.url.clone()),
        ("workload", first.workload.clone(), part.workload.clone()),
        ("model", format!("{:?}", first.model), format!("{:?}", part.model)),
        ("arrivals", first.arrivals.to_string(), part.arrivals.to_string()),
        (
            "requests_per_connection",
            or_none(&first.requests_per_connection),
            or_none(&part.requests_per_connection),
        ),
        ("http2.streams", streams(first), streams(part)),
        ("websocket.mode", mode(first), mode(part)),
        (
            "rate",
            closed(first).unwrap_or("open loop").into(),
            closed(part).unwrap_or("open loop").into(),
        ),
    ] {
        if expected != found {
            return Err(MergeError::FieldMismatch { index, field, expected, found });
        }
    }
    Ok(())
}

fn or_none(text: &Option<String>) -> String {
    text.clone().unwrap_or_else(|| "none".to_owned())
}

/// Returns an error if a histogram does not match its quantiles, because quantiles cannot be added.
fn check_histograms(index: usize, part: &Report) -> Result<(), MergeError> {
    let Histograms { latency, service, connect, lateness } = &part.histograms;
    let websockets =
        part.websocket.as_ref().map_or((0, 0), |of| (of.latency.len(), of.latency_ns.count));
    for (field, found, expected) in [
        ("latency", latency.len(), part.latency_ns.count),
        ("service", service.len(), part.service_ns.count),
        ("connect", connect.len(), part.connect_ns.count),
        ("lateness", lateness.len(), part.lateness_ns.count),
        ("websocket.latency", websockets.0, websockets.1),
    ] {
        if found != expected {
            return Err(MergeError::HistogramMismatch { index, field, found, expected });
        }
    }
    Ok(())
}

macro_rules! total {
    ($parts:expr, $field:ident, $of:ident { $($name:ident),* }) => {
        $of { $($name: add($parts, |part| part.$field.$name)),* }
    };
}

/// Adds everything that does not depend on the start times. All fields are listed, so that none is
/// forgotten.
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
        connections_limited_by: first.connections_limited_by,
        peak_connections: add(parts, |part| part.peak_connections),
        queue: first.queue,
        requests_per_connection: first.requests_per_connection.clone(),
        http2: first.http2.map(|http2| Http2 {
            resent: add(parts, |part| part.http2.map_or(0, |http2| http2.resent)),
            ..http2
        }),
        threads: add(parts, |part| part.threads),
        seed: first.seed,
        mechanism: join_distinct(parts, ", ", |part| &part.mechanism),
        requests: total!(
            parts,
            requests,
            Requests { scheduled, sent, replies, failed, missed, unfinished, queued, answerable }
        ),
        missed: total!(parts, missed, Missed { no_connection, generator, end_of_run }),
        bottleneck: Bottleneck::default(),
        generator_cpu_utilisation: parts
            .iter()
            .map(|part| part.generator_cpu_utilisation)
            .fold(0.0, f64::max),
        sessions: total!(parts, sessions, Sessions { started, completed, failed }),
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
                stream_refused,
                stream_reset,
                fd_unavail,
                addr_unavail,
                status,
                check,
                surplus,
                other
            }
        ),
        first_errors: first_errors(parts),
        timeouts: total!(parts, timeouts, Timeouts { connect, first_byte, reply }),
        connections_opened: add(parts, |part| part.connections_opened),
        idle: total!(
            parts,
            idle,
            Idle { requested, open, lost, reestablished, requests, replies, descriptor_tables }
        ),
        tls: total!(parts, tls, Handshakes { full, resumed, failed }),
        bytes: total!(parts, bytes, Bytes { received, sent }),
        intervals: Vec::new(),
        histograms,
        websocket: sections(parts, |part| part.websocket.as_ref(), WebSockets::add),
        slow_clients: sections(parts, |part| part.slow_clients.as_ref(), SlowClients::add),
        objectives: Vec::new(),
        server: server(parts, started_unix_ns),
        labels: first.labels.clone(),
        command: first.command.clone(),
        machine: join_distinct(parts, "; ", |part| &part.machine),
        part: None,
        parts: Vec::new(),
        warnings: Vec::new(),
    }
}

/// Returns the first description of each kind of error.
fn first_errors(parts: &[&Report]) -> BTreeMap<String, String> {
    let all = parts.iter().rev().flat_map(|part| part.first_errors.clone());
    all.collect()
}

/// Adds a section that parts may lack.
fn sections<'a, T: Default + 'a>(
    parts: &[&'a Report],
    section: fn(&'a Report) -> Option<&'a T>,
    add: fn(&mut T, &T),
) -> Option<T> {
    parts.iter().filter_map(|part| section(part)).fold(None, |mut sum, part| {
        add(sum.get_or_insert_default(), part);
        sum
    })
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

/// Joins the distinct texts.
fn join_distinct<'a>(parts: &[&'a Report], by: &str, text: fn(&'a Report) -> &'a String) -> String {
    let all: BTreeSet<&str> = parts.iter().flat_map(|part| text(part).split(by)).collect();
    all.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(by)
}

/// Returns the total offered rate. Parts with a rank contain the rate of the full load. Otherwise
/// numbers are added, and other profiles are listed with their counts.
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

/// Evaluates the distinct objectives of the parts against the merged result.
fn objectives(parts: &[&Report], whole: &Report) -> Vec<ObjectiveResult> {
    let (mut seen, mut judged) = (BTreeSet::new(), Vec::new());
    for ObjectiveResult { objective, .. } in parts.iter().flat_map(|part| &part.objectives) {
        if seen.insert(objective.to_string()) {
            judged.push(objective.evaluate(whole));
        }
    }
    judged
}

/// Returns the server usage as recorded by the first part that monitored it. Several records would
/// count the server several times.
fn server(parts: &[&Report], started_unix_ns: u64) -> Option<crate::server::Server> {
    let (part, mut server) = parts.iter().find_map(|p| Some((p, p.server.clone()?)))?;
    let later = part.started_unix_ns.saturating_sub(started_unix_ns) as f64 / 1e9;
    if later > 0.0 {
        server.samples.iter_mut().for_each(|sample| sample.offset_s += later);
        server.exited_at_s.iter_mut().for_each(|at| *at += later);
    }
    Some(server)
}
