//! Text summary of a report.

use std::fmt;

use crate::report::{
    ConnectionLimit, Handshakes, Http2, Idle, Model, Quantiles, Report, Sessions, Timeouts,
};

mod lines;
mod remedy;

pub(crate) use lines::write_line;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.url)?;
        let has_requests = self.offered_rate > 0.0 || self.model == Model::Closed;
        if has_requests {
            self.write_load(f)?;
        } else {
            let kind = match (&self.websocket, &self.slow_clients) {
                (None, None) => "idle connections only",
                _ => "connections on the side only",
            };
            let load = format!("{kind}, for {:.1} s", self.duration_s);
            write_line(f, "load", &load)?;
        }
        let labels = self.labels.iter().map(|(key, value)| format!("{key}={value}"));
        write_list(f, "labels", &labels.collect::<Vec<_>>())?;
        // A reader must know these before the figures.
        for warning in &self.warnings {
            write_line(f, "warning", warning)?;
        }
        if has_requests {
            self.write_problems(f)?;
            self.write_replies(f)?;
            self.write_times(f)?;
        }
        self.write_idle(f)?;
        self.write_side(f)?;
        let [received, sent] = [self.bytes.received, self.bytes.sent].map(HumanBytes);
        write_line(f, "bytes", &format!("{received} received, {sent} sent"))?;
        if let Some(server) = &self.server {
            write!(f, "{}", server.summary(self.requests.replies))?;
        }
        if !self.parts.is_empty() {
            let of = self.parts[0].size;
            let [parts, of] = [self.parts.len() as u64, of.into()].map(Grouped);
            write_line(f, "merged", &format!("{parts} of {of} parts"))?;
        }
        for judgement in &self.objectives {
            write_line(f, "objective", &judgement.to_string())?;
        }
        Ok(())
    }
}

impl Report {
    /// Writes the lines about the offered load.
    fn write_load(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rate, seconds, seed) = (self.offered_rate, self.duration_s, self.seed);
        let unit = match self.model {
            Model::Requests => "requests",
            Model::Connections => "connections",
            Model::Sessions => "sessions",
            Model::Closed => "",
        };
        if self.model == Model::Closed {
            let connections = Grouped(self.connections);
            let load = format!("closed loop of {connections} connections for {seconds:.1} s");
            write_line(f, "load", &load)?;
        } else {
            let arrivals = self.arrivals;
            let load =
                format!("{rate:.1} {unit}/s offered for {seconds:.1} s, {arrivals} (seed {seed})");
            write_line(f, "load", &load)?;
        }
        // The average already shows a constant rate.
        if !self.rate.is_empty() && self.rate.parse::<f64>().is_err() {
            write_line(f, "profile", &self.rate)?;
        }
        // The first line contains the URL.
        if !matches!(self.workload.as_str(), "" | "one URL") {
            write_line(f, "workload", &self.workload)?;
        }
        let mut over = self.describe_connections();
        if self.threads > 1 {
            over += &format!("; {} threads", Grouped(self.threads));
        }
        write_line(f, "over", &format!("{over}; events by {}", self.mechanism))
    }

    /// Describes the connections that carried the requests.
    fn describe_connections(&self) -> String {
        let [opened, peak, limit] =
            [self.connections_opened, self.peak_connections, self.connections].map(Grouped);
        let each = match self.requests_per_connection.as_deref() {
            None => String::new(),
            Some("1") => ", one per request".to_owned(),
            Some(count) => format!(", one per {count} requests"),
        };
        let origin = match self.connections_limited_by {
            ConnectionLimit::Settings => "",
            ConnectionLimit::Descriptors => ", by the limit of open files",
            ConnectionLimit::Ports => ", by local ports",
            ConnectionLimit::Memory => ", by memory",
        };
        let mut text = format!("{opened} connections{each}");
        if self.peak_connections > 0 {
            text += &format!(", at most {peak} at once");
        }
        if self.connections > 0 {
            text += &format!(" (limit {limit}{origin})");
        }
        if let Some(Http2 { streams, resent }) = self.http2 {
            text += &format!("; HTTP/2, up to {} streams each", Grouped(streams.into()));
            if resent > 0 {
                text += &format!(", {} requests sent again", Grouped(resent));
            }
        }
        text
    }

    /// Writes the lines about requests without a valid reply, and the bottleneck.
    fn write_problems(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.requests.scheduled;
        write_shares(f, "errors", &self.errors.by_name(), all)?;
        let Timeouts { connect, first_byte, reply } = self.timeouts;
        let kinds = [
            (connect, "while connecting"),
            (first_byte, "before the first byte"),
            (reply, "before the end of the reply"),
        ];
        let kinds = kinds.into_iter().filter(|(count, _)| *count > 0);
        let kinds = kinds.map(|(count, phase)| format!("{} {phase}", Grouped(count)));
        write_list(f, "timeouts", &kinds.collect::<Vec<_>>())?;
        write_shares(f, "missed", &self.missed.by_cause(), all)?;
        if self.requests.unfinished > 0 {
            write_line(f, "unfinished", &Grouped(self.requests.unfinished).to_string())?;
        }
        match remedy::remedy(self) {
            Some(text) => write_line(f, "bottleneck", &text),
            None => Ok(()),
        }
    }

    /// Writes the lines about replies.
    fn write_replies(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [replies, scheduled] = [self.requests.replies, self.requests.scheduled].map(Grouped);
        let replies = match self.requests.scheduled {
            0 => "none, because no requests were scheduled".to_owned(),
            _ => format!("{replies} of {scheduled}: {:.1} per second", self.reply_rate),
        };
        write_line(f, "replies", &replies)?;
        let of = &self.reply_rate_samples;
        if of.count > 1 {
            let rates = format!("min {:.1} avg {:.1} max {:.1}", of.min, of.mean, of.max);
            let deviation = format!("stddev {:.1} ({} samples)", of.stddev, Grouped(of.count));
            write_line(f, "reply rate", &format!("{rates} {deviation}"))?;
        }
        write_counts(f, "status", &self.status.by_class())?;
        if self.model == Model::Sessions {
            let Sessions { started, completed, failed } = self.sessions;
            let [started, completed, failed] = [started, completed, failed].map(Grouped);
            let sessions = format!("{completed} of {started} completed, {failed} failed");
            write_line(f, "sessions", &sessions)?;
        }
        let Handshakes { full, resumed, failed } = self.tls;
        write_counts(f, "TLS", &[("full", full), ("resumed", resumed), ("failed", failed)])
    }

    /// Writes the table of times.
    fn write_times(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = [
            ("latency", &self.latency_ns, "latency from the scheduled time"),
            ("service", &self.service_ns, "service from the time of sending"),
            ("connect", &self.connect_ns, "connect to open a connection"),
            ("lateness", &self.lateness_ns, "lateness of the generator"),
        ];
        let rows = rows.into_iter().filter(|(_, times, _)| times.count > 0);
        let rows: Vec<_> = rows.collect();
        if rows.is_empty() {
            return Ok(());
        }
        write_quantile_header(f)?;
        for &(title, times, _) in &rows {
            write_quantiles(f, title, times)?;
        }
        write_list(f, "", &rows.iter().map(|&(_, _, legend)| legend).collect::<Vec<_>>())?;
        writeln!(f)?;
        self.write_steps(f)
    }

    fn write_idle(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Idle { requested, open, lost, reestablished, requests, replies, descriptor_tables } =
            self.idle;
        if requested > 0 {
            let [requested, open, lost, reestablished, tables] =
                [requested, open, lost, reestablished, descriptor_tables].map(Grouped);
            let mut idle = format!(
                "{open} of {requested} connections open at the end, {lost} lost, {reestablished} \
                 re-established"
            );
            if descriptor_tables > 0 {
                idle += &format!(", in {tables} descriptor tables");
            }
            write_line(f, "idle", &idle)?;
        }
        if requests > 0 {
            let [requests, replies] = [requests, replies].map(Grouped);
            write_line(f, "", &format!("{replies} replies to {requests} requests on them"))?;
        }
        Ok(())
    }
}

/// Writes an empty line and the header of the table.
pub(crate) fn write_quantile_header(f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "\n             {:>10} {:>10} {:>10}", "p50", "p90", "p95")?;
    writeln!(f, " {:>10} {:>10} {:>10}", "p99", "p99.9", "max")
}

/// Writes a line of the table.
pub(crate) fn write_quantiles(
    f: &mut fmt::Formatter<'_>,
    title: &str,
    of: &Quantiles,
) -> fmt::Result {
    write!(f, "  {title:<10} ")?;
    for (index, nanos) in [of.p50, of.p90, of.p95, of.p99, of.p999, of.max].into_iter().enumerate()
    {
        let space = if index > 0 { " " } else { "" };
        write!(f, "{space}{:>10}", HumanDuration(nanos).to_string())?;
    }
    writeln!(f)
}

/// Writes a line with the counts that are not zero, if there are any.
pub(crate) fn write_counts(
    f: &mut fmt::Formatter<'_>,
    title: &str,
    counts: &[(&str, u64)],
) -> fmt::Result {
    write_list(f, title, &nonzero(counts))
}

/// Writes a line like [`write_counts`], with the share of the sum in `all` requests.
fn write_shares(
    f: &mut fmt::Formatter<'_>,
    title: &str,
    counts: &[(&str, u64)],
    all: u64,
) -> fmt::Result {
    let mut list = nonzero(counts);
    let sum = counts.iter().fold(0_u64, |sum, (_, count)| sum.saturating_add(*count));
    if let (Some(last), true) = (list.last_mut(), all > 0) {
        let percent = 100.0 * sum as f64 / all as f64;
        let percent =
            if percent < 0.01 { "less than 0.01".to_owned() } else { format!("{percent:.2}") };
        *last += &format!(" ({percent} % of the requests)");
    }
    write_list(f, title, &list)
}

/// Returns the counts that are not zero, with their names.
fn nonzero(counts: &[(&str, u64)]) -> Vec<String> {
    let counts = counts.iter().filter(|(_, count)| *count > 0);
    counts.map(|&(name, count)| format!("{name} {}", Grouped(count))).collect()
}

/// Writes a line with the items of a list, if there are any.
pub(crate) fn write_list(
    f: &mut fmt::Formatter<'_>,
    title: &str,
    list: &[impl AsRef<str>],
) -> fmt::Result {
    if list.is_empty() {
        return Ok(());
    }
    let list: Vec<&str> = list.iter().map(AsRef::as_ref).collect();
    write_line(f, title, &list.join(", "))
}

/// A time in nanoseconds, displayed with three digits and a unit.
pub(crate) struct HumanDuration(pub(crate) u64);

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.0 {
            nanos @ 0..1_000 => return write!(f, "{nanos} ns"),
            nanos @ 1_000..1_000_000 => (nanos as f64 / 1e3, "us"),
            nanos @ 1_000_000..1_000_000_000 => (nanos as f64 / 1e6, "ms"),
            nanos @ 1_000_000_000..10_000_000_000_000 => (nanos as f64 / 1e9, "s"),
            nanos => (nanos as f64 / 3.6e12, "h"),
        };
        let digits = match value {
            ..10.0 => 2,
            ..100.0 => 1,
            _ => 0,
        };
        write!(f, "{value:.digits$} {unit}")
    }
}

/// A number, displayed with thousands separators.
///
/// ```
/// assert_eq!(hearken_load::Grouped(1234567).to_string(), "1,234,567");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Grouped(pub u64);

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index).is_multiple_of(3) {
                f.write_str(",")?;
            }
            write!(f, "{digit}")?;
        }
        Ok(())
    }
}

/// A number of bytes, displayed with a unit.
pub(crate) struct HumanBytes(pub(crate) u64);

impl fmt::Display for HumanBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes @ 0..1_000 => write!(f, "{bytes} B"),
            bytes @ 1_000..1_000_000 => write!(f, "{:.1} kB", bytes as f64 / 1e3),
            bytes @ 1_000_000..1_000_000_000 => write!(f, "{:.1} MB", bytes as f64 / 1e6),
            bytes @ 1_000_000_000..1_000_000_000_000 => write!(f, "{:.1} GB", bytes as f64 / 1e9),
            bytes => write!(f, "{:.1} TB", bytes as f64 / 1e12),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Grouped, HumanBytes, HumanDuration};

    #[test]
    fn formats_times_counts_and_bytes() {
        for (nanos, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_500, "1.50 us"),
            (45_678, "45.7 us"),
            (123_456_789, "123 ms"),
            (61_000_000_000, "61.0 s"),
            (u64::MAX, "5124096 h"),
        ] {
            assert_eq!(HumanDuration(nanos).to_string(), text);
        }
        for (count, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(Grouped(count).to_string(), text);
        }
        for (bytes, text) in [
            (999, "999 B"),
            (9_999, "10.0 kB"),
            (12_345, "12.3 kB"),
            (1_234_567, "1.2 MB"),
            (5_100_000_000, "5.1 GB"),
            (u64::MAX, "18446744.1 TB"),
        ] {
            assert_eq!(HumanBytes(bytes).to_string(), text);
        }
    }
}
