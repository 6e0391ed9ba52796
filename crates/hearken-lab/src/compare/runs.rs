//! Runs of a side, divided into the segments that are resampled.

use std::collections::BTreeMap;

use hearken_load::{Histogram, Interval, Report, Server};

use super::{Metric, SideSummary};

/// Maximum number of segments of a side. If there are more, neighbouring segments are merged.
const MAX_SEGMENTS: usize = 1000;
/// Maximum number of segments of a run.
const MAX_SEGMENTS_PER_RUN: usize = 240;
/// Histogram buckets per doubling of latency. Quantiles are interpolated within a bucket.
const BUCKETS_PER_DOUBLING: f64 = 128.0;
/// Minimum length of an interval that starts a segment, relative to the longest interval.
const MIN_LENGTH_RATIO: f64 = 0.75;
/// Minimum number of samples beyond a percentile.
const MIN_SAMPLES_BEYOND: f64 = 5.0;

/// One or more successive intervals.
#[derive(Clone, Debug, Default)]
pub(super) struct Segment {
    pub(super) seconds: f64,
    pub(super) scheduled: u64,
    pub(super) failed: u64,
    /// Replies received while requests were sent.
    pub(super) replies: u64,
    pub(super) cpu_ns: f64,
    /// Latency counts by value in nanoseconds. A map needs less memory than a histogram here.
    latencies: BTreeMap<u64, u64>,
    /// Number of latencies, and their sum in nanoseconds.
    pub(super) count: f64,
    pub(super) sum: f64,
    /// Cumulative number of latencies by bucket.
    pub(super) cumulative: Vec<f64>,
}

/// One run.
#[derive(Clone, Debug, Default)]
pub(super) struct Run {
    pub(super) segments: Vec<Segment>,
    has_cpu_time: bool,
}

/// All runs of a side.
#[derive(Clone, Debug, Default)]
pub(super) struct Side {
    pub(super) runs: Vec<Run>,
    /// First bucket of [`Segment::cumulative`].
    pub(super) min_bucket: usize,
    total: Segment,
    latency: Histogram,
}

impl Segment {
    fn add(&mut self, other: &Segment) {
        self.seconds += other.seconds;
        self.scheduled = self.scheduled.saturating_add(other.scheduled);
        self.failed = self.failed.saturating_add(other.failed);
        self.replies = self.replies.saturating_add(other.replies);
        self.cpu_ns += other.cpu_ns;
        for (&latency, &count) in &other.latencies {
            *self.latencies.entry(latency).or_default() += count;
        }
    }

    fn from_interval(interval: &Interval, latency: &Histogram, server: Option<&Server>) -> Segment {
        let end = interval.offset_s + interval.duration_s;
        let cpu = |server| Some(cpu_at(server, end)? - cpu_at(server, interval.offset_s)?);
        Segment {
            // Replies received while draining do not count towards the reply rate.
            seconds: if interval.draining { 0.0 } else { interval.duration_s },
            replies: if interval.draining { 0 } else { interval.replies },
            scheduled: interval.scheduled,
            failed: interval.failed,
            cpu_ns: server.and_then(cpu).unwrap_or(0.0),
            latencies: latency
                .as_hdr()
                .iter_recorded()
                .map(|value| (value.value_iterated_to(), value.count_at_value()))
                .collect(),
            ..Segment::default()
        }
    }
}

/// Returns the CPU time of the server at a time, interpolated between samples.
fn cpu_at(server: &Server, at_s: f64) -> Option<f64> {
    let samples = &server.samples;
    let after = samples.partition_point(|sample| sample.offset_s < at_s);
    let cpu = |index: usize| samples[index].cpu_ns.map(|ns| ns as f64);
    if after == 0 || after == samples.len() {
        return cpu(after.min(samples.len().checked_sub(1)?));
    }
    let (low, high) = (cpu(after - 1)?, cpu(after)?);
    let (from, to) = (samples[after - 1].offset_s, samples[after].offset_s);
    Some(low + (high - low) * ((at_s - from) / (to - from)).clamp(0.0, 1.0))
}

impl Run {
    /// Divides a report into at most `max` segments and adds all latencies to `all`.
    ///
    /// An interval that is shorter than the others, and the intervals of draining, are merged into
    /// the segment before.
    fn from_report(report: &Report, max: usize, all: &mut Histogram) -> Run {
        let server = report.server.as_ref();
        let longest = report.intervals.iter().filter(|interval| !interval.draining);
        let longest = longest.map(|interval| interval.duration_s).fold(0.0, f64::max);
        let (mut segments, mut merged) = (Vec::<Segment>::new(), 0);
        let is_full = |i: &Interval| !i.draining && i.duration_s >= longest * MIN_LENGTH_RATIO;
        let full_intervals = report.intervals.iter().filter(|interval| is_full(interval)).count();
        let group_size = full_intervals.div_ceil(max.max(1)).max(1);
        for interval in &report.intervals {
            let latency = interval.histogram().unwrap_or_default();
            all.add(&latency);
            let segment = Segment::from_interval(interval, &latency, server);
            let full = is_full(interval);
            match segments.last_mut() {
                Some(last) if !full || merged < group_size => last.add(&segment),
                _ => {
                    segments.push(segment);
                    merged = 0;
                }
            }
            merged += usize::from(full);
        }
        // The last of several merged segments may be much shorter than the others.
        if group_size > 1
            && merged < group_size
            && segments.len() > 1
            && let Some(rest) = segments.pop()
            && let Some(last) = segments.last_mut()
        {
            last.add(&rest);
        }
        let has_cpu_time =
            server.is_some_and(|server| server.total.cpu_ns.is_some_and(|ns| ns > 0));
        Run { segments, has_cpu_time }
    }
}

impl Side {
    pub(super) fn from_reports(reports: &[Report]) -> Side {
        // Histograms are decoded one at a time to limit memory use.
        let max = (MAX_SEGMENTS / reports.len().max(1)).clamp(1, MAX_SEGMENTS_PER_RUN);
        let mut latency = Histogram::new();
        let runs: Vec<Run> =
            reports.iter().map(|report| Run::from_report(report, max, &mut latency)).collect();
        let mut total = Segment::default();
        for segment in runs.iter().flat_map(|run| &run.segments) {
            total.add(&Segment { latencies: BTreeMap::new(), ..segment.clone() });
        }
        Side { runs, min_bucket: 0, total, latency }
    }

    /// Returns the summary for the report.
    pub(super) fn summary(&self, reports: &[Report]) -> SideSummary {
        let runs = self.runs.len();
        let offered: f64 = reports.iter().map(|report| report.offered_rate).sum();
        let intervals = reports.iter().map(|report| report.intervals.len()).sum();
        SideSummary { runs, intervals, offered_rate: offered / runs.max(1) as f64 }
    }

    /// Returns whether the metric was measured.
    pub(super) fn has_metric(&self, metric: Metric) -> bool {
        match metric {
            Metric::ReplyRate => self.total.seconds > 0.0,
            Metric::ErrorRatio => self.total.scheduled > 0,
            Metric::CpuPerReply => {
                !self.runs.is_empty()
                    && self.runs.iter().all(|run| run.has_cpu_time)
                    && self.total.replies > 0
            }
            _ => !self.latency.is_empty(),
        }
    }

    /// Returns whether enough latencies lie beyond a percentile to estimate it.
    pub(super) fn has_enough_samples(&self, metric: Metric) -> bool {
        let count = self.latency.len() as f64;
        metric
            .quantile()
            .is_none_or(|quantile| count * (1.0 - quantile) >= MIN_SAMPLES_BEYOND - 1e-6)
    }

    /// Returns the value over all runs.
    pub(super) fn value(&self, metric: Metric) -> f64 {
        let Segment { seconds, scheduled, failed, replies, cpu_ns, .. } = &self.total;
        match metric {
            Metric::ReplyRate => *replies as f64 / seconds,
            Metric::ErrorRatio => *failed as f64 / *scheduled as f64,
            Metric::LatencyMean => self.latency.as_hdr().mean(),
            Metric::CpuPerReply => cpu_ns / *replies as f64,
            _ => self.latency.value_at_quantile(metric.quantile().unwrap_or(0.5)) as f64,
        }
    }

    /// Returns the value used for the ratio: the error ratio is adjusted so that it is never 0.
    pub(super) fn adjusted_value(&self, metric: Metric) -> f64 {
        match metric {
            Metric::ErrorRatio => {
                error_ratio(self.total.failed as f64, self.total.scheduled as f64)
            }
            _ => self.value(metric),
        }
    }

    /// Returns the lower bound of the variance of the logarithm. Resampling cannot show the
    /// uncertainty of few errors, and percentiles have a resolution of three digits.
    pub(super) fn min_variance(&self, metric: Metric) -> f64 {
        match metric {
            Metric::ErrorRatio => (self.total.failed as f64 + 0.5).recip(),
            Metric::ReplyRate => 0.0,
            _ => 1e-6,
        }
    }
}

/// Returns the error ratio with the Haldane-Anscombe correction, which is never 0.
pub(super) fn error_ratio(failed: f64, scheduled: f64) -> f64 {
    (failed + 0.5) / (scheduled + 1.0)
}

fn bucket_index(nanos: u64) -> usize {
    (nanos.max(1) as f64).log2().mul_add(BUCKETS_PER_DOUBLING, 1e-6) as usize
}

/// Returns the start of a bucket in nanoseconds; `bucket` may have a fraction.
pub(super) fn bucket_start_ns(bucket: f64) -> f64 {
    (bucket / BUCKETS_PER_DOUBLING).exp2()
}

/// Counts the latencies of all segments of both sides in common buckets.
pub(super) fn fill_buckets(sides: &mut [Side; 2]) {
    let ends = sides.iter().filter(|side| !side.latency.is_empty());
    let ends: Vec<_> = ends.map(|side| side.latency.quantiles()).collect();
    let min_bucket = ends.iter().map(|of| bucket_index(of.min)).min().unwrap_or(0);
    let max_bucket = ends.iter().map(|of| bucket_index(of.max)).max().unwrap_or(0);
    for side in sides {
        side.min_bucket = min_bucket;
        let segments = side.runs.iter_mut().flat_map(|run| &mut run.segments);
        segments.for_each(|segment| segment.fill_buckets(min_bucket, max_bucket));
    }
}

impl Segment {
    fn fill_buckets(&mut self, min_bucket: usize, max_bucket: usize) {
        self.cumulative = vec![0.0; max_bucket.saturating_sub(min_bucket) + 1];
        let last = self.cumulative.len() - 1;
        for (nanos, count) in std::mem::take(&mut self.latencies) {
            let times = count as f64;
            self.cumulative[bucket_index(nanos).saturating_sub(min_bucket).min(last)] += times;
            self.count += times;
            self.sum += times * nanos as f64;
        }
        let mut sum = 0.0;
        for count in &mut self.cumulative {
            sum += *count;
            *count = sum;
        }
    }
}
