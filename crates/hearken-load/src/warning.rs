//! What casts doubt on the numbers, and what to do about it.

use std::time::Duration;

use crate::report::Report;
use crate::summary::{Grouped, HumanDuration};
use crate::threads::RESERVED_DESCRIPTORS;

/// Lateness of the generator, at the 99th percentile, that is too much to be passed over.
pub(crate) const MAX_LATENESS: Duration = Duration::from_millis(1);

/// All warnings that `report` deserves. `missing` idle connections there were at the start, `descriptors` is how many files may be open, `other` the
/// first error that has no name.
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
            "the generator itself was late: 1 % of the requests were made {} or more after their \
             time, which counts as latency; offer less, or give the generator a processor of its own",
            HumanDuration(lateness_ns.p99),
        ));
    }
    if requests.waited * 10 > requests.intended {
        warnings.push(format!(
            "{} of {} requests found no free connection and waited for one; where the server could \
             do more at a time, use more connections",
            Grouped(requests.waited),
            Grouped(requests.intended),
        ));
    }
    if requests.intended > 0 && requests.replies + errors.check == 0 {
        warnings
            .push(format!("there was no reply at all; does a server listen at {}?", report.url));
    }
    let idle_here = if idle.tables > 0 { 0 } else { idle.asked };
    let wanted = idle_here
        + RESERVED_DESCRIPTORS
        + report.per_connection.as_ref().map_or(report.connections, |_| 0);
    if wanted > descriptors || errors.fd_unavail > 0 {
        warnings.push(format!(
            "this process may have {} files open, and the load asks for more; raise the limit \
             (ulimit -n), or use fewer connections",
            Grouped(descriptors),
        ));
    }
    if errors.addr_unavail > 0 {
        warnings.push(
            "ports ran short; use connections for more requests each, more source addresses, or a \
             wider net.ipv4.ip_local_port_range"
                .to_owned(),
        );
    }
    if let Some(other) = other {
        let counts = (Grouped(errors.check), Grouped(errors.other));
        warnings.push(match counts {
            (Grouped(0), all) => format!("{all} other errors; the first: {other}"),
            (all, Grouped(0)) => format!("{all} replies failed a check; the first: {other}"),
            (checks, all) => {
                format!(
                    "{checks} replies failed a check, and {all} other errors; the first: {other}"
                )
            }
        });
    }
    if missing > 0 {
        warnings.push(format!(
            "{} of {} idle connections were missing when the first request was due; how many does \
             the server take?",
            Grouped(missing),
            Grouped(idle.asked),
        ));
    }
    if idle.lost > 0 {
        warnings.push(format!(
            "{} idle connections were lost and had to be made again, which is load, too; does the \
             server close idle connections?",
            Grouped(idle.lost),
        ));
    }
    if !report.complete {
        warnings.push("it was stopped before its time".to_owned());
    }
    warnings
}
