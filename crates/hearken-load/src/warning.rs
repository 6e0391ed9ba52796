//! Warnings about the validity of results.

use std::time::Duration;

use crate::report::Report;
use crate::summary::{Grouped, HumanDuration};
use crate::threads::RESERVED_DESCRIPTORS;

/// 99th percentile of the generator's lateness above which a warning is added.
pub(crate) const MAX_LATENESS: Duration = Duration::from_millis(1);

/// Returns all warnings for `report`. `missing` is the number of idle connections that were missing
/// at the start. `descriptors` is the limit of open files, `other` the first error without a name.
pub(crate) fn all(
    report: &Report,
    missing: u64,
    descriptors: u64,
    other: Option<&str>,
) -> Vec<String> {
    let Report { requests, errors, idle, lateness_ns, .. } = report;
    let mut warnings = Vec::new();
    if Duration::from_nanos(lateness_ns.p99) > MAX_LATENESS {
        warnings.push(format!(
            "the generator was late: 1 % of the requests were sent {} or more after their scheduled \
             time, which counts as latency; reduce the rate or use a dedicated processor",
            HumanDuration(lateness_ns.p99),
        ));
    }
    if requests.queued * 10 > requests.scheduled {
        warnings.push(format!(
            "{} of {} requests waited for an available connection; use more connections if the server \
             can handle more concurrent requests",
            Grouped(requests.queued),
            Grouped(requests.scheduled),
        ));
    }
    if requests.scheduled > 0 && requests.replies + errors.check == 0 {
        warnings.push(format!(
            "no replies were received; check that a server listens at {}",
            report.url
        ));
    }
    let idle_here = if idle.descriptor_tables > 0 { 0 } else { idle.requested };
    let wanted = idle_here
        + RESERVED_DESCRIPTORS
        + report.requests_per_connection.as_ref().map_or(report.connections, |_| 0);
    if wanted > descriptors || errors.fd_unavail > 0 {
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
    if let Some(other) = other {
        let counts = (Grouped(errors.check), Grouped(errors.other));
        warnings.push(match counts {
            (Grouped(0), all) => format!("{all} other errors; first: {other}"),
            (all, Grouped(0)) => format!("{all} replies failed a check; first: {other}"),
            (checks, all) => {
                format!("{checks} replies failed a check, {all} other errors; first: {other}")
            }
        });
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
    if !report.complete {
        warnings.push("the load was stopped early".to_owned());
    }
    warnings
}
