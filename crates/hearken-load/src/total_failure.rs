//! The cause of a load in which nothing succeeded.

use crate::report::{Missed, Report, Timeouts};
use crate::summary::Grouped;

impl Report {
    /// Returns the most common cause of failure if nothing succeeded: no request had a valid reply,
    /// or no idle connection was established. Returns `None` if something succeeded, if nothing was
    /// attempted, or if the load was stopped before anything failed.
    ///
    /// ```
    /// use hearken_load::Report;
    ///
    /// let mut report = Report { complete: true, ..Report::default() };
    /// assert_eq!(report.total_failure(), None);
    /// report.requests.scheduled = 5;
    /// report.errors.conn_refused = 5;
    /// assert!(report.total_failure().is_some_and(|cause| cause.contains("refused")));
    /// ```
    pub fn total_failure(&self) -> Option<String> {
        let (requests, idle) = (&self.requests, &self.idle);
        if requests.scheduled > 0 {
            let failed = self.errors.total() + self.missed.total() > 0;
            return (requests.replies == 0 && (failed || self.complete))
                .then(|| format!("no request succeeded: {}", self.most_common_failure()));
        }
        let held = idle.open + idle.lost > 0;
        (idle.requested > 0 && !held && self.complete).then(|| {
            let reason = self.first_errors.get("idle").map(|reason| format!(" ({reason})"));
            format!(
                "none of {} idle connections could be opened{}; check that a server listens at {}",
                Grouped(idle.requested),
                reason.unwrap_or_default(),
                self.url
            )
        })
    }

    /// Describes the kind of failure that most requests had, and its remedy.
    fn most_common_failure(&self) -> String {
        let all = Grouped(self.requests.scheduled);
        let url = &self.url;
        let (errors, Timeouts { connect, first_byte, reply }) = (&self.errors, self.timeouts);
        let Missed { no_connection, generator, end_of_run } = self.missed;
        // The first of equally frequent kinds is named, so the more specific ones come first.
        let kinds = [
            (
                errors.status,
                format!("requests had an error status{}; check the URL {url}", self.first("status")),
            ),
            (errors.check, format!("replies failed a check{}", self.first("check"))),
            (
                errors.conn_refused,
                format!("connections were refused; check that a server listens at {url}"),
            ),
            (errors.other, format!("requests failed{}", self.first("other"))),
            (
                connect,
                format!(
                    "requests timed out while connecting; check that a server listens at {url} and \
                     that no firewall drops packets"
                ),
            ),
            (
                first_byte,
                "requests timed out before the first byte of the reply; check the server, or allow \
                 more time with --timeout"
                    .to_owned(),
            ),
            (
                reply,
                "requests timed out before the end of the reply; check the server, or allow more \
                 time with --timeout"
                    .to_owned(),
            ),
            (
                errors.conn_reset,
                format!(
                    "requests lost their connection before the reply was complete; check the server, \
                     and whether it expects http or https at {url}"
                ),
            ),
            (
                errors.stream_refused,
                "requests were refused by the server; reduce the rate or --streams".to_owned(),
            ),
            (
                errors.stream_reset,
                format!("requests had their stream reset{}", self.first("stream-reset")),
            ),
            (
                errors.socket_timo,
                format!(
                    "requests had no answer from the network; check the address and the route to {url}"
                ),
            ),
            (
                errors.surplus,
                format!("requests had more bytes than their reply{}", self.first("surplus")),
            ),
            (
                errors.fd_unavail,
                "requests had no descriptor for a connection; raise the limit of open files \
                 (ulimit -n)"
                    .to_owned(),
            ),
            (
                errors.addr_unavail,
                "requests had no local port for a connection; use persistent connections or more \
                 source addresses (--sources)"
                    .to_owned(),
            ),
            (
                no_connection,
                "requests found no free connection; check the server, or raise --connections"
                    .to_owned(),
            ),
            (
                generator,
                "requests were skipped because the generator could not keep up; reduce the rate"
                    .to_owned(),
            ),
            (end_of_run, "requests were not sent before the end of the run".to_owned()),
        ];
        let other = (self.requests.unfinished, "requests had no reply".to_owned());
        // The last of several maximums is returned.
        let most = kinds.into_iter().rev().max_by_key(|(count, _)| *count);
        let (count, text) = most.filter(|(count, _)| *count > 0).unwrap_or(other);
        format!("{} of {all} {text}", Grouped(count))
    }

    /// Returns the description of the first error of this kind as an addition to a sentence.
    fn first(&self, kind: &str) -> String {
        self.first_errors.get(kind).map(|reason| format!("; first: {reason}")).unwrap_or_default()
    }
}
