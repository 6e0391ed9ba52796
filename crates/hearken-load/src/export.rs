//! Export of a result: intervals as CSV and as an HdrHistogram interval log.

use std::fmt::Write;
use std::time::{Duration, SystemTime};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::IntervalLogWriterBuilder;

use crate::report::{Interval, Report};

/// Nanoseconds per millisecond. The standard tools display values in milliseconds.
const NANOS_PER_MILLI: f64 = 1e6;
/// The version line, as HdrHistogram's own writer formats it.
const VERSION: &str = "[Histogram log format version 1.3]";
/// The line above the columns, as HdrHistogram's own writer formats it.
const LEGEND: &str =
    "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n";

/// The columns of [`csv`].
const COLUMNS: &str = "offset_s,duration_s,draining,scheduled,sent,replies,failed,missed,connections_opened,\
    idle_open,reply_rate,latency_count,latency_mean_ns,latency_stddev_ns,latency_min_ns,\
    latency_p50_ns,latency_p90_ns,latency_p95_ns,latency_p99_ns,latency_p999_ns,latency_max_ns";

/// Formats the intervals as CSV (RFC 4180), one per line after a header line. Latencies of an
/// interval without replies are empty, not zero.
pub fn csv(report: &Report) -> String {
    let mut text = format!("{COLUMNS}\r\n");
    for interval in &report.intervals {
        // Writing to a String does not fail.
        let _ = line(&mut text, interval);
    }
    text
}

fn line(text: &mut String, interval: &Interval) -> std::fmt::Result {
    let Interval { offset_s, duration_s, draining, scheduled, sent, replies, failed, .. } =
        interval;
    let Interval { missed, connections_opened, idle_open, latency_ns: of, .. } = interval;
    write!(text, "{offset_s},{duration_s},{draining},{scheduled},{sent},{replies},{failed}")?;
    write!(text, ",{missed},{connections_opened},{idle_open},")?;
    if *duration_s > 0.0 {
        write!(text, "{:.3}", *replies as f64 / duration_s)?;
    }
    write!(text, ",{},", of.count)?;
    if of.count == 0 {
        return write!(text, ",,,,,,,,\r\n");
    }
    write!(text, "{:.0},{:.0},{},{}", of.mean, of.stddev, of.min, of.p50)?;
    write!(text, ",{},{},{},{},{}\r\n", of.p90, of.p95, of.p99, of.p999, of.max)
}

/// Formats the latencies of the intervals as an HdrHistogram interval log, format 1.3. Values are
/// in nanoseconds, the maximum of each interval in milliseconds. Times are in seconds from the
/// start.
///
/// # Errors
/// Returns a description that names the interval whose latencies are invalid.
pub fn hlog(report: &Report) -> Result<Vec<u8>, String> {
    let unwritten =
        |error: &dyn std::fmt::Display| format!("cannot write the interval log: {error}");
    let mut text = Vec::new();
    let started = SystemTime::UNIX_EPOCH + Duration::from_nanos(report.started_unix_ns);
    let mut serializer = V2DeflateSerializer::new();
    // Write both, so that readers know that times are relative to the start.
    IntervalLogWriterBuilder::new()
        .add_comment(VERSION)
        .add_comment(&format!("Latency of replies in nanoseconds: {}", report.url))
        .with_start_time(started)
        .with_base_time(started)
        .begin_log_with(&mut text, &mut serializer)
        .map_err(|error| unwritten(&error))?;
    text.extend_from_slice(LEGEND.as_bytes());
    let mut pieces = Vec::new();
    let mut writer = IntervalLogWriterBuilder::new()
        .with_max_value_divisor(NANOS_PER_MILLI)
        .begin_log_with(&mut pieces, &mut serializer)
        .map_err(|error| unwritten(&error))?;
    for (index, interval) in report.intervals.iter().enumerate() {
        let latency =
            interval.histogram().map_err(|reason| format!("interval {index}: {reason}"))?;
        let [at, length] = [interval.offset_s, interval.duration_s].map(|seconds| {
            Duration::try_from_secs_f64(seconds)
                .map_err(|error| format!("interval {index}: {error}"))
        });
        writer
            .write_histogram(latency.as_hdr(), at?, length?, None)
            .map_err(|error| unwritten(&error))?;
    }
    drop(writer);
    text.extend(pieces);
    Ok(text)
}
