//! Checks of the report of a load against what the workers and the target observed.

use std::time::Duration;

use hearken::timer::Time;
use hearken_load::{Config, Model, Report};

use super::model::{Expected, Limits};
use super::observed::Observations;
use super::target::TargetRecord;
use crate::report;
use crate::swarm::{FaultLevel, Swarm};

/// Resolution of deadlines: a tick of the timer wheel, and one more for a deadline between two.
const TICKS: Duration = Duration::from_nanos(2 << 20);
/// Time for which a load may be behind its schedule at its end.
const MAX_DELAY: Duration = Duration::from_millis(250);

/// The facts about a history after its end.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    pub(super) report: Report,
    pub(super) config: &'a Config,
    /// Arrivals per second, if requests arrive at a constant rate.
    pub(super) rate: Option<f64>,
    pub(super) has_side: bool,
    pub(super) stop_after: Option<Duration>,
    pub(super) began: Time,
    /// Difference between the time of day and the clock in nanoseconds.
    pub(super) unix_offset: u64,
    pub(super) observations: &'a Observations,
    pub(super) target: &'a TargetRecord,
    /// The access log of the real server, if that is the target.
    pub(super) log: Option<Vec<u8>>,
    pub(super) swarm: &'a Swarm,
    /// Maximum time by which a program continued after the end of its wait.
    pub(super) max_lateness: Duration,
}

pub(in crate::kinds) type Checked = Result<(), (&'static str, String)>;

impl Facts<'_> {
    /// Reports the first contradiction, and the states that were reached.
    pub(super) fn check(&self, report: &report::Report) {
        self.cover(report);
        let checked = self.check_report().and_then(|()| self.check_ends(report));
        if let Err((kind, detail)) = checked {
            report.fail(kind, detail);
        }
    }

    fn ended_at(&self) -> Time {
        self.observations.ended_at.unwrap_or(self.began)
    }

    /// Returns the start of the load, if it started.
    fn start(&self) -> Option<Time> {
        let unix = self.report.started_unix_ns;
        (unix > 0).then(|| Time::from_nanos(unix.saturating_sub(self.unix_offset)))
    }

    /// Returns the time by which deadlines may be late.
    fn slack(&self) -> Duration {
        slack(self.observations, self.max_lateness)
    }

    fn check_report(&self) -> Checked {
        self.report.check_accounts().map_err(|text| ("the accounts do not balance", text))?;
        if !self.report.complete && self.stop_after.is_none() {
            return Err(("incomplete", "nothing stopped the load".to_owned()));
        }
        check_end(self.config, self.start(), self.ended_at(), self.slack())?;
        match &self.log {
            Some(log) => self.check_log(&String::from_utf8_lossy(log)),
            None => self.check_target().and_then(|()| self.check_model()),
        }
    }

    /// Compares totals with the target's record.
    fn check_target(&self) -> Checked {
        let received: u64 = self.target.connections.values().map(|of| of.received).sum();
        let seen: u64 = self.target.connections.values().map(|of| of.requests.len() as u64).sum();
        let sent: u64 = self.target.connections.values().map(|of| of.sent).sum();
        let Report { bytes, requests, idle, slow_clients, .. } = &self.report;
        let slow: u64 = slow_clients
            .iter()
            .flat_map(|of| [of.readers.as_ref(), of.senders.as_ref()])
            .flatten()
            .map(|of| of.requests)
            .sum();
        if self.target.is_ambiguous {
            return Ok(());
        }
        at_most("received bytes", bytes.received, "bytes that the target sent", sent)?;
        at_most("bytes that the target received", received, "sent bytes", bytes.sent)?;
        let all = requests.sent + idle.requests + slow;
        at_most("requests that the target received", seen, "sent requests", all)
    }

    /// Compares totals with the log of the real server.
    fn check_log(&self, log: &str) -> Checked {
        let Report { requests, status, idle, .. } = &self.report;
        if self.has_side {
            return Ok(());
        }
        let count = |class: &str| {
            let text = format!("\"status\":{class}");
            log.lines().filter(|line| line.contains(&text)).count() as u64
        };
        at_most("2xx", status.success, "those in the log", count("2"))?;
        at_most("4xx", status.client_error, "those in the log", count("4"))?;
        at_most("5xx", status.server_error, "those in the log", count("5"))?;
        let ended_well = requests.failed == self.report.errors.status && requests.unfinished == 0;
        if ended_well && requests.missed == 0 && self.swarm.level < FaultLevel::Any {
            let lines = log.lines().count() as u64;
            equal("requests in the log", lines, requests.sent + idle.requests)?;
        }
        Ok(())
    }

    /// Compares the report with the counts that follow from both records.
    fn check_model(&self) -> Checked {
        if self.has_side || self.target.is_ambiguous {
            return Ok(());
        }
        let Report { requests, errors, missed, timeouts, .. } = &self.report;
        let start = self.start();
        let config = self.config;
        let runs = match config.duration {
            Some(duration) if config.requests.is_none() => duration,
            _ => Duration::ZERO,
        };
        let limits = Limits {
            reply: config.timeout,
            first_byte: config.first_byte_timeout,
            cut_from: start.unwrap_or(self.began) + runs + config.timeout,
            slack: self.slack(),
            ended_at: self.ended_at(),
            opens_ahead: config.model != Some(Model::Requests)
                || config.requests_per_connection.is_none(),
        };
        let mut expected = Expected::new();
        for observed in &self.observations.connections {
            let target = observed.local.and_then(|local| self.target.connections.get(&local));
            expected.add(observed, target, &limits);
        }
        if let Some(text) = expected.contradiction.take() {
            return Err(("a connection contradicts the settings", text));
        }
        let status = self.report.status;
        for (name, count, should) in [
            ("sent requests", requests.sent, expected.sent),
            ("replies", requests.replies, expected.replies),
            ("1xx", status.interim, expected.status[0]),
            ("2xx", status.success, expected.status[1]),
            ("3xx", status.redirection, expected.status[2]),
            ("4xx", status.client_error, expected.status[3]),
            ("5xx", status.server_error, expected.status[4]),
            ("status errors", errors.status, expected.status_errors),
            ("surplus", errors.surplus, expected.surplus),
            ("opened connections", self.report.connections_opened, expected.opened),
            ("sent bytes", self.report.bytes.sent, expected.bytes_sent),
            ("received bytes", self.report.bytes.received, expected.bytes_received),
        ] {
            equal(name, count, should)?;
        }
        at_most("unfinished requests", expected.unfinished, "those reported", requests.unfinished)?;
        let expired = timeouts.first_byte + timeouts.reply;
        at_most("timeouts", expired, "expired requests", expected.expired)?;
        at_most(
            "expired requests",
            expected.expired,
            "timeouts and cut requests",
            expired + missed.end_of_run,
        )?;
        at_most("malformed responses", expected.malformed, "other errors", errors.other)?;
        if self.report.histograms.service != expected.service {
            let (reported, seen) = (self.report.service_ns, expected.service.quantiles());
            return Err(("service times", format!("{reported:?}, not {seen:?}")));
        }
        self.check_schedule(expected)
    }

    /// Checks that no request was sent before its time.
    fn check_schedule(&self, expected: Expected) -> Checked {
        let Expected { mut sent_at, last_issued, replied, .. } = expected;
        let Some(start) = self.start() else {
            return equal("requests before the start", sent_at.len() as u64, 0);
        };
        sent_at.sort_unstable();
        if let Some(first) = sent_at.first()
            && *first < start
        {
            return Err(("early request", format!("at {first:?}, start at {start:?}")));
        }
        if let Some(rate) = self.rate {
            for (number, at) in sent_at.iter().enumerate() {
                let after = at.duration_since(start);
                // The times of arrivals are rounded to nanoseconds.
                let arrived = ((after.as_secs_f64() + 2e-9) * rate).floor() as usize + 1;
                if number >= arrived {
                    let detail = format!("request {number} after {after:?}, {arrived} arrivals");
                    return Err(("early request", detail));
                }
            }
        }
        self.check_latency(start, replied)?;
        let lateness = Duration::from_nanos(self.report.lateness_ns.max);
        let latest = self.slack() + lateness / 100;
        if self.report.missed.generator == 0
            && self.config.model != Some(Model::Closed)
            && lateness > latest
        {
            return Err(("late requests", format!("{lateness:?}, explained: {latest:?}")));
        }
        if let (Some(duration), Some(Model::Closed)) = (self.config.duration, self.config.model)
            && let Some(last) = last_issued
            && last > start + duration + self.slack()
        {
            return Err(("request after the end", format!("{last:?}, start at {start:?}")));
        }
        Ok(())
    }

    /// Checks the latencies of a load at a constant rate all of whose requests were served in order.
    fn check_latency(&self, start: Time, mut replied: Vec<(u64, Time)>) -> Checked {
        let requests = &self.report.requests;
        let (Some(rate), 1) = (self.rate, self.report.threads) else { return Ok(()) };
        if requests.queued > 0
            || requests.replies != requests.scheduled
            || self.observations.unopened > 0
            || replied.is_empty()
        {
            return Ok(());
        }
        replied.sort_unstable();
        let latency = |(number, (_, at)): (usize, (u64, Time))| {
            at.duration_since(start + Duration::from_secs_f64(number as f64 / rate)).as_nanos()
        };
        let mut latencies: Vec<_> = replied.into_iter().enumerate().map(latency).collect();
        latencies.sort_unstable();
        let count = latencies.len();
        let reported = self.report.latency_ns;
        for (name, reported, seen) in [
            ("minimum", reported.min, latencies[0]),
            ("median", reported.p50, latencies[(count - 1) / 2]),
            ("maximum", reported.max, latencies[count - 1]),
        ] {
            // The histogram has three significant digits, and scheduled times are rounded.
            if (reported as f64 - seen as f64).abs() > seen as f64 / 500.0 + 5.0 {
                return Err(("latencies", format!("{name}: {reported} ns, not {seen} ns")));
            }
        }
        Ok(())
    }

    /// Checks that programs released all buffers. Sends of open connections may still use some.
    fn check_ends(&self, report: &report::Report) -> Checked {
        for end in report.ends() {
            if end.open == 0 && end.buffers > 0 {
                return Err(("buffers at the end of a program", format!("{end:?}")));
            }
        }
        Ok(())
    }

    fn cover(&self, report: &report::Report) {
        let Report { requests, errors, missed, timeouts, sessions, .. } = &self.report;
        let size = |count: u64| (64 - count.leading_zeros()).min(7) as u8;
        let model = match self.report.model {
            Model::Requests => 0,
            Model::Connections => 1,
            Model::Sessions => 2,
            Model::Closed => 3,
        };
        for (index, count) in [
            requests.replies,
            requests.failed,
            requests.missed,
            requests.unfinished,
            requests.queued,
            missed.no_connection,
            missed.generator,
            missed.end_of_run,
            timeouts.connect,
            timeouts.first_byte,
            timeouts.reply,
            sessions.completed,
            sessions.failed,
            self.report.connections_opened,
            self.report.idle.lost,
            self.report.idle.replies,
        ]
        .into_iter()
        .chain(errors.by_name().map(|(_, count)| count))
        .chain(self.report.status.by_class().map(|(_, count)| count))
        .enumerate()
        {
            if count > 0 {
                report.cover([100, index as u8, model, size(count)]);
            }
        }
    }
}

/// Returns the time by which deadlines of a load may be late.
pub(in crate::kinds) fn slack(observations: &Observations, max_lateness: Duration) -> Duration {
    TICKS + observations.max_overshoot * 2 + max_lateness
}

/// Checks that the load ended by its deadlines.
pub(in crate::kinds) fn check_end(
    config: &Config,
    start: Option<Time>,
    ended: Time,
    slack: Duration,
) -> Checked {
    let Some((start, duration)) = start.zip(config.duration) else { return Ok(()) };
    let latest = start + duration + MAX_DELAY + config.timeout + slack * 4;
    match ended > latest {
        true => {
            let late = ended.duration_since(latest);
            Err(("the load ended late", format!("by {late:?}")))
        }
        false => Ok(()),
    }
}

pub(in crate::kinds) fn equal(name: &str, count: u64, expected: u64) -> Checked {
    match count == expected {
        true => Ok(()),
        false => {
            Err(("the report contradicts the records", format!("{name}: {count}, not {expected}")))
        }
    }
}

pub(in crate::kinds) fn at_most(name: &str, count: u64, other: &str, max: u64) -> Checked {
    match count <= max {
        true => Ok(()),
        false => Err((
            "the report contradicts the records",
            format!("{name} ({count}) exceed {other} ({max})"),
        )),
    }
}
