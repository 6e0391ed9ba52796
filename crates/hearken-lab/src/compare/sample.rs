//! The metrics of one run.

use hearken_load::Report;

use super::Metric;

/// Minimum number of latencies beyond a percentile of a run.
const MIN_SAMPLES_BEYOND: f64 = 5.0;

/// The value of a metric in one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    /// Value as displayed.
    pub(super) value: f64,
    /// Logarithm of the value; none if it is not finite, or if the run has too little data.
    pub(super) log: Option<f64>,
    /// Variance of the logarithm that follows from the number of events that were counted.
    pub(super) counting_variance: f64,
}

/// The metrics of one run, by the discriminant of [`Metric`]; none if a metric was not measured.
pub(super) type Samples = [Option<Sample>; Metric::ALL.len()];

impl Sample {
    /// Creates a sample of a metric that is not a count of rare events.
    pub(super) fn new(value: f64) -> Sample {
        let log = Some(value.ln()).filter(|log| log.is_finite());
        Sample { value, log, counting_variance: 0.0 }
    }

    /// Creates a sample of an error ratio. With the Haldane-Anscombe correction, its logarithm is finite.
    fn errors(failed: f64, scheduled: f64) -> Sample {
        let log = Some(((failed + 0.5) / (scheduled + 1.0)).ln());
        Sample { value: failed / scheduled, log, counting_variance: (failed + 0.5).recip() }
    }
}

/// Returns the metrics of a report.
pub(super) fn samples(report: &Report) -> Samples {
    Metric::ALL.map(|metric| sample(report, metric))
}

fn sample(report: &Report, metric: Metric) -> Option<Sample> {
    let latency = &report.histograms.latency;
    let replies = report.requests.replies as f64;
    match metric {
        Metric::ReplyRate => (report.duration_s > 0.0).then(|| Sample::new(report.reply_rate)),
        Metric::ErrorRatio => {
            let scheduled = report.requests.scheduled as f64;
            (scheduled > 0.0).then(|| Sample::errors(report.requests.failed as f64, scheduled))
        }
        Metric::CpuPerReply => {
            let cpu_ns = report.server.as_ref()?.total.cpu_ns.filter(|ns| *ns > 0)?;
            (replies > 0.0).then(|| Sample::new(cpu_ns as f64 / replies))
        }
        _ if latency.is_empty() => None,
        Metric::LatencyMean => Some(Sample::new(latency.as_hdr().mean())),
        _ => {
            let quantile = metric.quantile()?;
            let sample = Sample::new(latency.value_at_quantile(quantile) as f64);
            let beyond = latency.len() as f64 * (1.0 - quantile);
            let log = sample.log.filter(|_| beyond >= MIN_SAMPLES_BEYOND - 1e-6);
            Some(Sample { log, ..sample })
        }
    }
}
