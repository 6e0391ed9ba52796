//! Bootstrap estimates of the sampling variance of each metric.

use fastrand::Rng;

use super::runs::{Run, Segment, Side, bucket_start_ns, error_ratio};
use super::{Metric, Options};

/// Minimum number of segments of a single run.
const MIN_SEGMENTS: usize = 8;
/// Number of metrics.
const METRICS: usize = Metric::ALL.len();

/// The variance of the logarithm of a metric and its degrees of freedom.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogVariance {
    pub(super) variance: f64,
    pub(super) degrees_of_freedom: f64,
}

impl LogVariance {
    /// Returns the variance of a difference and its Welch-Satterthwaite degrees of freedom.
    pub(super) fn combine(&self, other: &LogVariance) -> (f64, f64) {
        let sum = self.variance + other.variance;
        let parts = |s: &LogVariance| s.variance * s.variance / s.degrees_of_freedom;
        let freedom = sum * sum / (parts(self) + parts(other));
        (
            sum,
            if freedom.is_finite() {
                freedom
            } else {
                self.degrees_of_freedom.min(other.degrees_of_freedom)
            },
        )
    }
}

/// Estimates the variance of each metric of a side; none if there is too little data.
pub(super) fn log_variances(
    side: &Side,
    options: &Options,
    salt: u64,
) -> [Option<LogVariance>; METRICS] {
    let runs: Vec<&Run> = side.runs.iter().filter(|run| !run.segments.is_empty()).collect();
    let Some(units) = independent_units(&runs) else { return [None; METRICS] };
    let mut random = Rng::with_seed(options.seed.wrapping_mul(2).wrapping_add(salt));
    let mut logs = [const { Vec::new() }; METRICS];
    for _ in 0..options.resamples.max(2) {
        let sample = resample(&runs, &mut random);
        for (logs, value) in logs.iter_mut().zip(compute_metrics(&sample, side.min_bucket)) {
            logs.push(value.ln());
        }
    }
    // Resampling n units underestimates the variance by the factor (n - 1) / n.
    let correction = units / (units - 1.0);
    Metric::ALL.map(|metric| {
        let logs = &logs[metric as usize];
        if !side.has_enough_samples(metric) || !logs.iter().all(|log| log.is_finite()) {
            return None;
        }
        let count = logs.len() as f64;
        let mean = logs.iter().sum::<f64>() / count;
        let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let variance = (variance * correction).max(side.min_variance(metric));
        Some(LogVariance { variance, degrees_of_freedom: units - 1.0 })
    })
}

/// Returns the number of independent units: runs, or blocks of a single run.
fn independent_units(runs: &[&Run]) -> Option<f64> {
    match runs {
        [] => None,
        [run] if run.segments.len() < MIN_SEGMENTS => None,
        [run] => Some(run.segments.len() as f64 / block_length(run) as f64),
        runs => Some(runs.len() as f64),
    }
}

/// Returns the number of segments in a block. Longer runs get longer blocks, to cover longer
/// correlations (the cube root of the number of segments).
fn block_length(run: &Run) -> usize {
    (run.segments.len() as f64).cbrt().round().max(1.0) as usize
}

/// Draws as many runs as there are, and from each as many segments as it has, in circular blocks.
fn resample<'a>(runs: &[&'a Run], random: &mut Rng) -> Vec<&'a Segment> {
    let mut sample = Vec::new();
    for index in 0..runs.len() {
        let run = if runs.len() == 1 { runs[index] } else { runs[random.usize(..runs.len())] };
        let (count, block) = (run.segments.len(), block_length(run));
        let mut remaining = count;
        while remaining > 0 {
            let from = random.usize(..count);
            let length = block.min(remaining);
            sample.extend((from..from + length).map(|at| &run.segments[at % count]));
            remaining -= length;
        }
    }
    sample
}

/// Computes each metric of a resample.
fn compute_metrics(sample: &[&Segment], min_bucket: usize) -> [f64; METRICS] {
    let sum = |of: fn(&Segment) -> f64| sample.iter().map(|segment| of(segment)).sum::<f64>();
    let replies = sum(|segment| segment.replies as f64);
    Metric::ALL.map(|metric| match metric {
        Metric::ReplyRate => replies / sum(|segment| segment.seconds),
        Metric::ErrorRatio => error_ratio(
            sum(|segment| segment.failed as f64),
            sum(|segment| segment.scheduled as f64),
        ),
        Metric::LatencyMean => sum(|segment| segment.sum) / sum(|segment| segment.count),
        Metric::CpuPerReply => sum(|segment| segment.cpu_ns) / replies,
        _ => percentile(sample, min_bucket, metric.quantile().unwrap_or(0.5)),
    })
}

/// Returns a quantile of the latency of a resample, in nanoseconds.
fn percentile(sample: &[&Segment], min_bucket: usize, quantile: f64) -> f64 {
    let below =
        |bucket: usize| sample.iter().map(|segment| segment.cumulative[bucket]).sum::<f64>();
    let Some(buckets) = sample.first().map(|segment| segment.cumulative.len()) else {
        return f64::NAN;
    };
    let wanted = below(buckets - 1) * quantile;
    if wanted <= 0.0 {
        return f64::NAN;
    }
    let (mut low, mut high) = (0, buckets - 1);
    while low < high {
        let middle = usize::midpoint(low, high);
        if below(middle) < wanted { low = middle + 1 } else { high = middle }
    }
    let below_bucket = if low > 0 { below(low - 1) } else { 0.0 };
    let share = (wanted - below_bucket) / (below(low) - below_bucket);
    bucket_start_ns((min_bucket + low) as f64 + share.clamp(0.0, 1.0))
}
