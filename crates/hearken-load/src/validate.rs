//! Validation of results that were read from files.

use thiserror::Error;

use crate::histogram::Histogram;
use crate::reasons::Reasons;
use crate::report::{Interval, Report, SCHEMA};
use crate::slow_clients::SlowClients;

/// Maximum count: integers up to 2^53 are exact in every JSON reader.
const MAX_COUNT: u64 = 1 << 53;
/// Maximum time in seconds, about 300 years.
const MAX_SECONDS: f64 = 1e10;

/// A reason why a result is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InvalidReport {
    /// The result has another version, or is not a result of a load.
    #[error(
        "schema '{0}' is not supported (expected '{SCHEMA}'); repeat the run with this version"
    )]
    Schema(String),
    /// A number is out of range.
    #[error("field '{0}' has the invalid value {1}")]
    Number(&'static str, String),
    /// The latency histogram of an interval is invalid.
    #[error("cannot decode the latency histogram of interval {0}: {1}")]
    Interval(usize, String),
    /// The intervals are not in chronological order.
    #[error("interval {0} begins before its predecessor")]
    Order(usize),
}

impl Report {
    /// Checks that the report is consistent: one read from a file may contain anything.
    ///
    /// # Errors
    /// Returns the first problem found.
    pub fn validate(&self) -> Result<(), InvalidReport> {
        if self.schema != SCHEMA {
            let printable = |c: &char| !c.is_control();
            return Err(InvalidReport::Schema(
                self.schema.chars().filter(printable).take(40).collect(),
            ));
        }
        self.validate_numbers()?;
        let mut before = 0.0;
        for (index, interval) in self.intervals.iter().enumerate() {
            interval.validate(index)?;
            if interval.offset_s < before {
                return Err(InvalidReport::Order(index));
            }
            before = interval.offset_s;
        }
        Ok(())
    }

    /// Replaces all control characters in texts, because a terminal would interpret them.
    pub fn sanitise(&mut self) {
        let named = [&mut self.url, &mut self.workload, &mut self.rate, &mut self.mechanism];
        let named =
            named.into_iter().chain([&mut self.machine]).chain(&mut self.requests_per_connection);
        let named = named.chain(self.first_errors.values_mut());
        named.chain(&mut self.command).chain(&mut self.warnings).for_each(sanitise);
        let labels = std::mem::take(&mut self.labels).into_iter();
        self.labels = labels
            .map(|(mut key, mut value)| {
                [&mut key, &mut value].into_iter().for_each(sanitise);
                (key, value)
            })
            .collect();
        if let Some(of) = &mut self.websocket {
            sanitise_reasons(&mut of.handshake_failures);
            sanitise_reasons(&mut of.loss_reasons);
        }
        if let Some(SlowClients { readers, senders }) = &mut self.slow_clients {
            let groups = readers.iter_mut().chain(senders);
            groups.for_each(|group| sanitise_reasons(&mut group.failures));
        }
        if let Some(server) = &mut self.server {
            sanitise(&mut server.target);
            server.unavailable.iter_mut().for_each(sanitise);
        }
    }

    fn validate_numbers(&self) -> Result<(), InvalidReport> {
        for (name, value) in [
            ("offered_rate", self.offered_rate),
            ("duration_s", self.duration_s),
            ("generator_cpu_utilisation", self.generator_cpu_utilisation),
            ("reply_rate", self.reply_rate),
            ("reply_rate_samples", self.reply_rate_samples.mean),
        ] {
            validate_value(name, value, 1e12)?;
        }
        let Report { requests, missed, sessions, idle, timeouts, tls, bytes, .. } = self;
        let named: [(&str, &[u64]); 11] = [
            (
                "connections",
                &[self.connections, self.peak_connections, self.threads, self.connections_opened],
            ),
            ("requests", &[requests.scheduled, requests.sent, requests.replies]),
            ("requests", &[requests.failed, requests.unfinished, requests.queued]),
            ("requests", &[requests.missed, requests.answerable]),
            ("missed", &[missed.no_connection, missed.generator, missed.end_of_run]),
            ("sessions", &[sessions.started, sessions.completed, sessions.failed]),
            ("idle", &[idle.requested, idle.open, idle.lost, idle.reestablished]),
            ("idle", &[idle.requests, idle.replies, idle.descriptor_tables]),
            ("timeouts", &[timeouts.connect, timeouts.first_byte, timeouts.reply]),
            ("tls", &[tls.full, tls.resumed, tls.failed]),
            ("bytes", &[bytes.received, bytes.sent]),
        ];
        if let Some(of) = &self.websocket {
            let reasons = of.handshake_failures.iter().chain(of.loss_reasons.iter());
            let counts = of.counts().into_iter().chain(reasons.map(|(_, count)| count));
            counts.into_iter().try_for_each(|value| validate_count("websocket", value))?;
        }
        for (_, group) in self.slow_clients.iter().flat_map(SlowClients::groups) {
            validate_value("slow_clients.rate", group.rate, 1e12)?;
            let counts = group.counts().into_iter();
            let counts = counts.chain(group.failures.iter().map(|(_, count)| count));
            counts.into_iter().try_for_each(|value| validate_count("slow_clients", value))?;
        }
        for (name, counts) in named {
            counts.iter().try_for_each(|&value| validate_count(name, value))?;
        }
        self.errors.by_name().iter().try_for_each(|&(_, value)| validate_count("errors", value))?;
        self.status.by_class().iter().try_for_each(|&(_, value)| validate_count("status", value))
    }
}

impl Interval {
    fn validate(&self, index: usize) -> Result<(), InvalidReport> {
        validate_value("intervals.offset_s", self.offset_s, MAX_SECONDS)?;
        validate_value("intervals.duration_s", self.duration_s, MAX_SECONDS)?;
        for value in [
            self.scheduled,
            self.sent,
            self.replies,
            self.failed,
            self.missed,
            self.connections_opened,
            self.idle_open,
        ] {
            validate_count("intervals", value)?;
        }
        self.histogram().map(drop).map_err(|reason| InvalidReport::Interval(index, reason))
    }

    /// Decodes the latency histogram of the interval. Returns an empty histogram if there is none.
    ///
    /// # Errors
    /// Returns a description of the problem.
    pub fn histogram(&self) -> Result<Histogram, String> {
        if self.latency.is_empty() {
            return Ok(Histogram::new());
        }
        Histogram::decode(&self.latency)
    }
}

fn sanitise(text: &mut String) {
    if text.contains(char::is_control) {
        *text = text.replace(char::is_control, "?");
    }
}

fn sanitise_reasons(reasons: &mut Reasons) {
    reasons.rename(|reason| reason.replace(char::is_control, "?"));
}

fn validate_count(name: &'static str, value: u64) -> Result<(), InvalidReport> {
    if value <= MAX_COUNT { Ok(()) } else { Err(InvalidReport::Number(name, value.to_string())) }
}

fn validate_value(name: &'static str, value: f64, max: f64) -> Result<(), InvalidReport> {
    if (0.0..=max).contains(&value) {
        Ok(())
    } else {
        Err(InvalidReport::Number(name, format!("{value:e}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn valid() -> Report {
        Report { schema: SCHEMA.into(), ..Report::default() }
    }

    #[test]
    fn replaces_control_characters() {
        let mut report = valid();
        report.url = "http://a/\x1b[2J".into();
        report.warnings = vec!["a\nb".into()];
        report.requests_per_connection = Some("\u{9b}".into());
        report.sanitise();
        assert_eq!((&*report.url, &*report.warnings[0]), ("http://a/?[2J", "a?b"));
        assert_eq!(report.requests_per_connection.as_deref(), Some("?"));
    }

    #[test]
    fn reports_the_first_invalid_field() {
        assert_eq!(valid().validate(), Ok(()));
        let mut report = valid();
        report.schema = "hearken-load/1".into();
        assert!(report.validate().unwrap_err().to_string().contains("hearken-load/1"));
        let mut report = valid();
        report.errors.other = u64::MAX;
        assert!(report.validate().unwrap_err().to_string().contains("errors"));
        for (offset_s, duration_s) in [(f64::NAN, 1.0), (-1.0, 1.0), (0.0, 1e300)] {
            let mut report = valid();
            report.intervals = vec![Interval { offset_s, duration_s, ..Interval::default() }];
            assert!(matches!(report.validate(), Err(InvalidReport::Number(_, _))));
        }
        let mut report = valid();
        report.intervals = vec![Interval { latency: "x".into(), ..Interval::default() }];
        assert!(matches!(report.validate(), Err(InvalidReport::Interval(0, _))));
        let two = [3.0, 1.0].map(|offset_s| Interval { offset_s, ..Interval::default() });
        report.intervals = two.to_vec();
        assert_eq!(report.validate(), Err(InvalidReport::Order(1)));
    }
}
