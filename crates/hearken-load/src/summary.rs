//! Text summary of a report.

use std::fmt;

use crate::report::{Handshakes, Idle, Model, Quantiles, Report, Sessions, Timeouts};

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  load       ", self.url)?;
        if self.offered_rate > 0.0 || self.model == Model::Closed {
            self.write_load(f)?;
            self.write_requests(f)?;
        } else {
            writeln!(f, "idle connections only, for {:.1} s", self.duration_s)?;
        }
        self.write_idle(f)?;
        let [received, sent] = [self.bytes.received, self.bytes.sent].map(HumanBytes);
        writeln!(f, "  bytes      {received} received, {sent} sent")?;
        if let Some(server) = &self.server {
            write!(f, "{}", server.summary(self.requests.replies))?;
        }
        if !self.parts.is_empty() {
            let of = self.parts[0].size;
            let [parts, of] = [self.parts.len() as u64, of.into()].map(Grouped);
            writeln!(f, "  merged     {parts} of {of} parts")?;
        }
        for judgement in &self.objectives {
            writeln!(f, "  objective  {judgement}")?;
        }
        for warning in &self.warnings {
            writeln!(f, "  warning    {warning}")?;
        }
        Ok(())
    }
}

impl Report {
    /// Writes the line about the offered load.
    fn write_load(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rate, seconds, seed) = (self.offered_rate, self.duration_s, self.seed);
        let what = match self.model {
            Model::Requests => "requests",
            Model::Connections => "connections",
            Model::Sessions => "sessions",
            Model::Closed => {
                let connections = Grouped(self.connections);
                write!(f, "closed loop of {connections} connections for {seconds:.1} s")?;
                return self.write_workload(f);
            }
        };
        write!(f, "{rate:.1} {what}/s offered for {seconds:.1} s, {}", self.arrivals)?;
        write!(f, " (seed {seed})")?;
        // The average already shows a constant rate.
        if !self.rate.is_empty() && self.rate.parse::<f64>().is_err() {
            write!(f, "\n  profile    {}", self.rate)?;
        }
        self.write_workload(f)
    }

    /// Writes the description of the requests, and ends the line.
    fn write_workload(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.workload.as_str() {
            // The first line contains the URL.
            "" | "one URL" => writeln!(f),
            workload => writeln!(f, "\n  workload   {workload}"),
        }
    }

    fn write_requests(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let requests = &self.requests;
        let [scheduled, replies, opened] =
            [requests.scheduled, requests.replies, self.connections_opened].map(Grouped);
        let over = match self.requests_per_connection.as_deref() {
            Some("1") => format!("{opened} connections, one per request"),
            Some(count) => format!("{opened} connections, one per {count} requests"),
            None => {
                let persistent = Grouped(self.connections);
                format!("{persistent} persistent connections ({opened} opened)")
            }
        };
        write!(f, "  over       {over}; ")?;
        if self.threads > 1 {
            write!(f, "{} threads, ", Grouped(self.threads))?;
        }
        writeln!(f, "events by {}", self.mechanism)?;
        writeln!(f, "  replies    {replies} of {scheduled}: {:.1} per second", self.reply_rate)?;
        let of = &self.reply_rate_samples;
        if of.count > 1 {
            write!(f, "  reply rate min {:.1} avg {:.1} max {:.1}", of.min, of.mean, of.max)?;
            writeln!(f, " stddev {:.1} ({} samples)", of.stddev, Grouped(of.count))?;
        }
        write_counts(f, "status", &self.status.by_class())?;
        write_counts(f, "errors", &self.errors.by_name())?;
        let Timeouts { connect, first_byte, reply } = self.timeouts;
        let kinds = [("connect", connect), ("first byte", first_byte), ("reply", reply)];
        write_counts(f, "timeouts", &kinds)?;
        if requests.unfinished > 0 {
            writeln!(f, "  unfinished {}", Grouped(requests.unfinished))?;
        }
        if self.model == Model::Sessions {
            let Sessions { started, completed, failed } = self.sessions;
            let [started, completed, failed] = [started, completed, failed].map(Grouped);
            writeln!(f, "  sessions   {completed} of {started} completed, {failed} failed")?;
        }
        let Handshakes { full, resumed, failed } = self.tls;
        write_counts(f, "TLS", &[("full", full), ("resumed", resumed), ("failed", failed)])?;
        write_quantile_header(f)?;
        write_quantiles(f, "latency", &self.latency_ns, "from the scheduled time")?;
        write_quantiles(f, "service", &self.service_ns, "from the time of sending")?;
        write_quantiles(f, "connect", &self.connect_ns, "to open a connection")?;
        write_quantiles(f, "lateness", &self.lateness_ns, "of the generator")?;
        writeln!(f)?;
        self.write_steps(f)
    }

    fn write_idle(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Idle { requested, open, lost, reestablished, requests, replies, descriptor_tables } =
            self.idle;
        if requested > 0 {
            let [requested, open, lost, reestablished] =
                [requested, open, lost, reestablished].map(Grouped);
            write!(f, "  idle       {open} of {requested} connections open at the end, ")?;
            write!(f, "{lost} lost, {reestablished} re-established")?;
            match descriptor_tables {
                0 => writeln!(f)?,
                tables => writeln!(f, ", in {} descriptor tables", Grouped(tables))?,
            }
        }
        if requests > 0 {
            let [requests, replies] = [requests, replies].map(Grouped);
            writeln!(f, "             {replies} replies to {requests} requests on them")?;
        }
        Ok(())
    }
}

/// Writes an empty line and the header of the table.
pub(crate) fn write_quantile_header(f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "\n             {:>10} {:>10} {:>10}", "p50", "p90", "p95")?;
    writeln!(f, " {:>10} {:>10} {:>10}", "p99", "p99.9", "max")
}

/// Writes a line with the counts that are not zero, if there are any.
pub(crate) fn write_counts(
    f: &mut fmt::Formatter<'_>,
    title: &str,
    counts: &[(&str, u64)],
) -> fmt::Result {
    let counts = counts.iter().filter(|(_, count)| *count > 0);
    let text: Vec<_> = counts.map(|&(name, count)| format!("{name} {}", Grouped(count))).collect();
    if text.is_empty() {
        return Ok(());
    }
    writeln!(f, "  {title:<10} {}", text.join(", "))
}

pub(crate) fn write_quantiles(
    f: &mut fmt::Formatter<'_>,
    title: &str,
    of: &Quantiles,
    what: &str,
) -> fmt::Result {
    if of.count == 0 {
        return Ok(());
    }
    write!(f, "  {title:<10}")?;
    for nanos in [of.p50, of.p90, of.p95, of.p99, of.p999, of.max] {
        write!(f, " {:>10}", HumanDuration(nanos).to_string())?;
    }
    writeln!(f, "   {what}")
}

/// A time in nanoseconds, displayed with three digits and a unit.
pub(crate) struct HumanDuration(pub(crate) u64);

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.0 {
            nanos @ 0..1_000 => return write!(f, "{nanos} ns"),
            nanos @ 1_000..1_000_000 => (nanos as f64 / 1e3, "us"),
            nanos @ 1_000_000..1_000_000_000 => (nanos as f64 / 1e6, "ms"),
            nanos => (nanos as f64 / 1e9, "s"),
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
            bytes @ 0..10_000 => write!(f, "{} B", Grouped(bytes)),
            bytes @ 10_000..10_000_000 => write!(f, "{:.1} kB", bytes as f64 / 1e3),
            bytes @ 10_000_000..10_000_000_000 => write!(f, "{:.1} MB", bytes as f64 / 1e6),
            bytes => write!(f, "{:.1} GB", bytes as f64 / 1e9),
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
        ] {
            assert_eq!(HumanDuration(nanos).to_string(), text);
        }
        for (count, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(Grouped(count).to_string(), text);
        }
        assert_eq!(HumanBytes(9_999).to_string(), "9,999 B");
        assert_eq!(HumanBytes(12_345).to_string(), "12.3 kB");
    }
}
