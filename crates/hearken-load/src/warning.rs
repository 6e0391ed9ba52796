//! Warnings about the validity of results.

use crate::bottleneck::MAX_CPU_UTILISATION;
use crate::report::{ConnectionLimit, Model, Report};
use crate::summary::{Grouped, HumanDuration};
use crate::threads::RESERVED_DESCRIPTORS;

/// Share of a quantile of the latency that the generator's lateness may have at the same quantile.
const MAX_LATENESS_SHARE: f64 = 0.1;

/// Minimum number of latencies, so that a quantile does not depend on single ones.
const MIN_LATENCIES: u64 = 20;

/// Returns all warnings for `report`. `missing` is the number of idle connections that were missing
/// at the start. `descriptors` is the limit of open files.
pub(crate) fn all(report: &Report, missing: u64, descriptors: u64) -> Vec<String> {
    let Report { requests, errors, idle, .. } = report;
    let mut warnings = Vec::new();
    if !report.complete {
        warnings.push("the load was stopped early".to_owned());
    }
    warnings.extend(lateness(report));
    warnings.extend(generator(report));
    warnings.extend(nothing_scheduled(report));
    let by_settings = report.connections_limited_by == ConnectionLimit::Settings;
    if by_settings && requests.queued * 10 > requests.scheduled {
        warnings.push(format!(
            "{} of {} requests waited for an available connection; use more connections if the server \
             can handle more concurrent requests",
            Grouped(requests.queued),
            Grouped(requests.scheduled),
        ));
    }
    let total_failure = report.total_failure();
    warnings.extend(first_errors(report, total_failure.as_deref().unwrap_or_default()));
    warnings.extend(total_failure);
    let idle_here = if idle.descriptor_tables > 0 { 0 } else { idle.requested };
    if idle_here + RESERVED_DESCRIPTORS > descriptors || errors.fd_unavail > 0 {
        warnings.push(format!(
            "the load needs more descriptors than the limit of {} open files; raise the limit \
             (ulimit -n) or use fewer connections",
            Grouped(descriptors),
        ));
    }
    if errors.addr_unavail > 0 {
        warnings.push(
            "local ports ran out; use persistent connections, more source addresses or a wider \
             net.ipv4.ip_local_port_range"
                .to_owned(),
        );
    }
    if missing > 0 {
        warnings.push(format!(
            "{} of {} idle connections were missing at the start of the load; check the connection \
             limit of the server",
            Grouped(missing),
            Grouped(idle.requested),
        ));
    }
    if idle.lost > 0 {
        warnings.push(format!(
            "{} idle connections were lost and opened again, which adds load; check the idle \
             timeout of the server",
            Grouped(idle.lost),
        ));
    }
    warnings
}

/// Returns a warning if the lateness of the generator is a relevant part of the latency. The
/// quantile with the largest part is named.
fn lateness(report: &Report) -> Option<String> {
    let (lateness, latency) = (&report.lateness_ns, &report.latency_ns);
    // A quantile needs at least one latency beyond it.
    let quantiles = [
        ("p50", lateness.p50, latency.p50, MIN_LATENCIES),
        ("p99", lateness.p99, latency.p99, 100),
        ("p99.9", lateness.p999, latency.p999, 1000),
    ];
    let shares = quantiles
        .into_iter()
        .filter(|&(_, _, latency_ns, min_count)| latency_ns > 0 && latency.count >= min_count);
    let shares = shares.map(|(name, late_ns, latency_ns, _)| {
        (name, late_ns, latency_ns, late_ns as f64 / latency_ns as f64)
    });
    let (name, late_ns, latency_ns, share) = shares.max_by(|a, b| a.3.total_cmp(&b.3))?;
    (share > MAX_LATENESS_SHARE).then(|| {
        format!(
            "the generator was late: its lateness is {} at {name}, {:.0} % of the latency of {}; \
             reduce the rate or use a dedicated processor",
            HumanDuration(late_ns),
            share * 100.0,
            HumanDuration(latency_ns),
        )
    })
}

/// Returns the warnings about a generator that was too slow for the load.
fn generator(report: &Report) -> Vec<String> {
    let mut warnings = Vec::new();
    if report.missed.generator > 0 {
        warnings.push(format!(
            "the generator skipped {} of {} requests because it could not keep up with the schedule; \
             reduce the rate, or use more threads or machines",
            Grouped(report.missed.generator),
            Grouped(report.requests.scheduled),
        ));
    }
    if report.generator_cpu_utilisation >= MAX_CPU_UTILISATION {
        warnings.push(format!(
            "the generator used {:.0} % of a processor, so its own delays may be part of the latency; \
             use more threads or a lower rate",
            report.generator_cpu_utilisation * 100.0,
        ));
    }
    warnings
}

/// Returns a warning if a complete load offered requests but scheduled none.
fn nothing_scheduled(report: &Report) -> Option<String> {
    let (rate, seconds) = (report.offered_rate, report.duration_s);
    let offered = rate > 0.0 && report.model != Model::Closed && report.complete;
    (offered && report.requests.scheduled == 0).then(|| {
        format!(
            "no requests were scheduled: {rate}/s for {seconds:.1} s is {:.2} on average; use a higher \
             rate or a longer duration",
            rate * seconds,
        )
    })
}

/// Returns a warning with the first error of each kind, unless `known` contains it.
fn first_errors(report: &Report, known: &str) -> Vec<String> {
    let errors = &report.errors;
    let kinds = [
        ("status", errors.status, "replies have status 400 or above"),
        ("check", errors.check, "replies failed a check"),
        ("surplus", errors.surplus, "replies were followed by surplus bytes"),
        ("other", errors.other, "other errors"),
    ];
    let described = kinds.into_iter().filter_map(|(kind, count, text)| {
        let reason = report.first_errors.get(kind).filter(|reason| !known.contains(*reason))?;
        Some(format!("{} {text}; first: {reason}", Grouped(count)))
    });
    described.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a result with the same latency and lateness at each quantile.
    fn report(count: u64, latency_ns: u64, lateness_ns: u64) -> Report {
        let mut report = Report { complete: true, offered_rate: 10.0, ..Report::default() };
        (report.requests.scheduled, report.requests.replies) = (count, count);
        for (of, ns) in
            [(&mut report.latency_ns, latency_ns), (&mut report.lateness_ns, lateness_ns)]
        {
            of.count = count;
            (of.p50, of.p99, of.p999) = (ns, ns, ns);
        }
        report
    }

    fn warnings(report: &Report) -> Vec<String> {
        all(report, 0, u64::MAX)
    }

    #[test]
    fn lateness_is_judged_by_the_latency_at_the_same_quantile() {
        assert_eq!(warnings(&report(10_000, 40_000_000, 2_000_000)), [""; 0]);
        let late = warnings(&report(10_000, 1_000_000, 150_000));
        assert!(late[0].contains("150 us at p"), "{late:?}");
        assert!(late[0].contains("15 % of the latency of 1.00 ms"), "{late:?}");
        // Lateness of rare requests does not concern the median, but the reported tail.
        let mut tail = report(10_000, 1_000_000, 10_000);
        tail.lateness_ns.p999 = 900_000;
        assert!(warnings(&tail)[0].contains("900 us at p99.9, 90 %"), "{:?}", warnings(&tail));
        // 999 latencies have no 99.9th percentile.
        tail.latency_ns.count = 999;
        assert_eq!(warnings(&tail), [""; 0]);
        tail.latency_ns.count = 0;
        assert_eq!(warnings(&tail), [""; 0]);
    }

    #[test]
    fn a_busy_generator_is_reported() {
        let mut busy = report(10_000, 1_000_000, 1_000);
        busy.missed.generator = 12;
        busy.generator_cpu_utilisation = 0.97;
        let found = warnings(&busy);
        assert!(found[0].starts_with("the generator skipped 12 of 10,000 requests"), "{found:?}");
        assert!(found[1].starts_with("the generator used 97 % of a processor"), "{found:?}");
    }

    #[test]
    fn a_load_without_requests_names_the_product_of_rate_and_duration() {
        let mut empty = report(0, 0, 0);
        (empty.offered_rate, empty.duration_s) = (0.1, 2.0);
        let found = warnings(&empty);
        let expected = "no requests were scheduled: 0.1/s for 2.0 s is 0.20 on average";
        assert!(found.len() == 1 && found[0].starts_with(expected), "{found:?}");
        empty.complete = false;
        assert_eq!(warnings(&empty), ["the load was stopped early"]);
    }

    #[test]
    fn first_errors_are_listed_unless_the_total_failure_names_them() {
        let mut some = report(100, 1_000_000, 1_000);
        (some.errors.check, some.errors.other) = (7, 2);
        for (kind, reason) in [("check", "found 503"), ("other", "malformed")] {
            some.first_errors.insert(kind.to_owned(), reason.to_owned());
        }
        let expected =
            ["7 replies failed a check; first: found 503", "2 other errors; first: malformed"];
        assert_eq!(warnings(&some), expected);
        some.requests.replies = 0;
        let found = warnings(&some);
        assert_eq!(found[0], expected[1]);
        assert!(found.len() == 2 && found[1].contains("first: found 503"), "{found:?}");
    }
}
