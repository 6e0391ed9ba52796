//! A result for other programs: its intervals as CSV, and as an HdrHistogram interval log.

use std::fmt::Write;
use std::time::{Duration, SystemTime};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::IntervalLogWriterBuilder;

use crate::report::{Interval, Report};

/// What the standard tools take for the unit of the values, as they show them in milliseconds.
const NANOS_PER_MILLI: f64 = 1e6;
/// The first line and the one above the columns, as HdrHistogram's own writer has them.
const VERSION: &str = "[Histogram log format version 1.3]";
const LEGEND: &str =
    "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n";

/// The columns of [`csv`].
const COLUMNS: &str = "at_s,length_s,draining,intended,sent,replies,failed,connections_opened,\
    idle_held,reply_rate,latency_count,latency_mean_ns,latency_stddev_ns,latency_min_ns,\
    latency_p50_ns,latency_p90_ns,latency_p95_ns,latency_p99_ns,latency_p999_ns,latency_max_ns";

/// The intervals, one a line, under a line of headings (RFC 4180). Latencies of an interval without a
/// reply are empty, not zero.
pub fn csv(report: &Report) -> String {
    let mut text = format!("{COLUMNS}\r\n");
    for interval in &report.intervals {
        // Writing to a String does not fail.
        let _ = line(&mut text, interval);
    }
    text
}

fn line(text: &mut String, interval: &Interval) -> std::fmt::Result {
    let Interval { at_s, length_s, draining, intended, sent, replies, failed, .. } = interval;
    let Interval { connections_opened, idle_held, latency_ns: of, .. } = interval;
    write!(text, "{at_s},{length_s},{draining},{intended},{sent},{replies},{failed}")?;
    write!(text, ",{connections_opened},{idle_held},")?;
    if *length_s > 0.0 {
        write!(text, "{:.3}", *replies as f64 / length_s)?;
    }
    write!(text, ",{},", of.count)?;
    if of.count == 0 {
        return write!(text, ",,,,,,,,\r\n");
    }
    write!(text, "{:.0},{:.0},{},{}", of.mean, of.stddev, of.min, of.p50)?;
    write!(text, ",{},{},{},{},{}\r\n", of.p90, of.p95, of.p99, of.p999, of.max)
}

/// The latencies of the intervals as an HdrHistogram interval log, format 1.3, as its standard tools
/// read it: values in nanoseconds, the greatest of each in milliseconds, times from the start of the
/// run.
///
/// # Errors
/// A sentence that says which interval's latencies cannot be read.
pub fn hlog(report: &Report) -> Result<Vec<u8>, String> {
    let unwritten = |error: &dyn std::fmt::Display| format!("the interval log: {error}");
    let mut text = Vec::new();
    let started = SystemTime::UNIX_EPOCH + Duration::from_nanos(report.started_unix_ns);
    let mut serializer = V2DeflateSerializer::new();
    // Both, so that no reader has to guess whether times are from the start or from 1970.
    IntervalLogWriterBuilder::new()
        .add_comment(VERSION)
        .add_comment(&format!("Latency of the replies in nanoseconds: {}", report.url))
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
        let [at, length] = [interval.at_s, interval.length_s].map(|seconds| {
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
