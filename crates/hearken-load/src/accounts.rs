//! The accounts of a report: each request, reply and connection is counted once, and all parts of
//! the report agree.

use std::fmt::Display;

use crate::histogram::Histogram;
use crate::report::{Model, Report, Requests};
use crate::slow_clients::SlowClients;

/// Maximum difference between the end of an interval and the start of the next, in seconds.
const MAX_GAP: f64 = 1e-6;

impl Report {
    /// Checks the accounts of a report that [`run`](crate::run) has returned: each request has one
    /// outcome, and totals, intervals and histograms agree.
    ///
    /// # Errors
    /// Describes the first contradiction. It is a bug of the generator.
    pub fn check_accounts(&self) -> Result<(), String> {
        self.check_requests()?;
        self.check_connections()?;
        self.check_side()?;
        self.check_histograms()?;
        self.check_intervals()
    }

    /// Checks that each request has one outcome.
    fn check_requests(&self) -> Result<(), String> {
        let Report { requests, errors, timeouts, missed, sessions, status, .. } = self;
        let Requests { scheduled, sent, replies, failed, unfinished, .. } = *requests;
        let outcomes = replies + failed + requests.missed + unfinished;
        equal("scheduled requests", scheduled, "requests by outcome", outcomes)?;
        equal("failed requests", failed, "errors by kind", errors.total())?;
        equal("missed requests", requests.missed, "missed requests by cause", missed.total())?;
        let timed_out = timeouts.connect + timeouts.first_byte + timeouts.reply;
        equal("client timeouts", errors.client_timo, "timeouts by kind", timed_out)?;
        let complete = replies + errors.check + errors.status + errors.surplus;
        let by_class = status.by_class().iter().skip(1).map(|(_, count)| count).sum();
        equal("complete replies", complete, "replies by status", by_class)?;
        at_most("complete replies", complete, "sent requests", sent)?;
        at_most("sent requests", sent, "scheduled requests", scheduled)?;
        let sent_or_failed = replies + failed + missed.end_of_run + unfinished;
        at_most("sent requests", sent, "requests that may have been sent", sent_or_failed)?;
        at_most("answerable requests", requests.answerable, "scheduled requests", scheduled)?;
        at_most("queued requests", requests.queued, "scheduled requests", scheduled)?;
        if self.complete {
            equal("unfinished requests of a complete load", unfinished, "none", 0)?;
        }
        let ended = sessions.completed + sessions.failed;
        at_most("ended sessions", ended, "started sessions", sessions.started)?;
        // Each failed session ended with a failed or missed request.
        let unsuccessful = failed + requests.missed;
        at_most("failed sessions", sessions.failed, "failed and missed requests", unsuccessful)?;
        if self.model == Model::Requests {
            equal("sessions of a load of requests", sessions.started, "none", 0)?;
        }
        Ok(())
    }

    /// Checks the connections that carry requests, and their bytes.
    fn check_connections(&self) -> Result<(), String> {
        let Report { requests, bytes, .. } = self;
        at_most("peak connections", self.peak_connections, "connections", self.connections)?;
        // Each request has a method, a target and a version, each reply a version and a status. In
        // HTTP/2, each has a frame header, and each field at least one byte.
        let (sent, received) = if self.http2.is_some() { (12, 10) } else { (16, 12) };
        at_most("bytes of requests", sent * requests.sent, "sent bytes", bytes.sent)?;
        at_most("bytes of replies", received * requests.replies, "received bytes", bytes.received)
    }

    /// Checks the connections at the side of the load.
    fn check_side(&self) -> Result<(), String> {
        let idle = &self.idle;
        at_most("open idle connections", idle.open, "requested ones", idle.requested)?;
        at_most("reestablished idle connections", idle.reestablished, "lost ones", idle.lost)?;
        at_most("replies on idle connections", idle.replies, "their requests", idle.requests)?;
        if let Some(of) = &self.websocket {
            at_most("open WebSocket connections", of.open, "requested ones", of.requested)?;
            at_most("reestablished WebSocket connections", of.reestablished, "lost ones", of.lost)?;
        }
        for (name, group) in self.slow_clients.iter().flat_map(SlowClients::groups) {
            at_most(format!("open slow {name}"), group.open, "requested ones", group.requested)?;
            let ended = group.completed + group.refused + group.closed_by_server + group.timed_out;
            at_most(format!("outcomes of slow {name}"), ended, "their requests", group.requests)?;
        }
        Ok(())
    }

    /// Checks that each histogram contains each of its events once.
    fn check_histograms(&self) -> Result<(), String> {
        let Report { histograms, requests, sessions, missed, .. } = self;
        for (name, histogram, quantiles, count) in [
            ("latency", &histograms.latency, &self.latency_ns, requests.replies),
            ("service", &histograms.service, &self.service_ns, requests.replies),
            ("connect", &histograms.connect, &self.connect_ns, self.connections_opened),
        ] {
            equal(format!("{name} times"), histogram.len(), "their events", count)?;
            equal(format!("{name} times in quantiles"), quantiles.count, "their events", count)?;
        }
        let arrivals = match self.model {
            Model::Closed => return Ok(()),
            Model::Requests => requests.scheduled,
            Model::Connections | Model::Sessions => sessions.started,
        };
        let lateness = histograms.lateness.len();
        equal("arrivals", arrivals, "late and skipped arrivals", lateness + missed.generator)
    }

    /// Checks that the intervals follow each other and add up to the totals.
    fn check_intervals(&self) -> Result<(), String> {
        let mut latency = Histogram::new();
        let (mut sums, mut end) = ([0; 6], 0.0);
        for (index, interval) in self.intervals.iter().enumerate() {
            let histogram = interval
                .histogram()
                .map_err(|reason| format!("invalid histogram of interval {index}: {reason}"))?;
            let name = format!("replies of interval {index}");
            equal(&name, interval.replies, "its latencies", histogram.len())?;
            equal(&name, interval.replies, "latencies in quantiles", interval.latency_ns.count)?;
            latency.add(&histogram);
            if (interval.offset_s - end).abs() > MAX_GAP {
                let start = interval.offset_s;
                return Err(format!("interval {index} starts at {start} s, not at {end} s"));
            }
            end = interval.offset_s + interval.duration_s;
            let counts = [
                interval.scheduled,
                interval.sent,
                interval.replies,
                interval.failed,
                interval.missed,
                interval.connections_opened,
            ];
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        let Requests { scheduled, sent, replies, failed, missed, .. } = self.requests;
        for ((name, total), sum) in [
            ("scheduled requests", scheduled),
            ("sent requests", sent),
            ("replies", replies),
            ("failed requests", failed),
            ("missed requests", missed),
            ("opened connections", self.connections_opened),
        ]
        .into_iter()
        .zip(sums)
        {
            equal(name, total, "sum of the intervals", sum)?;
        }
        match latency == self.histograms.latency {
            true => Ok(()),
            false => Err("the latencies of the intervals differ from those of the load".to_owned()),
        }
    }
}

fn equal(name: impl Display, count: u64, other: &str, expected: u64) -> Result<(), String> {
    match count == expected {
        true => Ok(()),
        false => Err(format!("{name} ({count}) differ from {other} ({expected})")),
    }
}

fn at_most(name: impl Display, count: u64, other: &str, max: u64) -> Result<(), String> {
    match count <= max {
        true => Ok(()),
        false => Err(format!("{name} ({count}) exceed {other} ({max})")),
    }
}

#[cfg(test)]
mod tests {
    use crate::report::{Report, Requests};

    #[test]
    fn reports_a_request_without_an_outcome() {
        assert_eq!(Report::default().check_accounts(), Ok(()));
        let requests = Requests { scheduled: 1, ..Requests::default() };
        let report = Report { requests, ..Report::default() };
        assert_eq!(
            report.check_accounts().unwrap_err(),
            "scheduled requests (1) differ from requests by outcome (0)"
        );
    }
}
