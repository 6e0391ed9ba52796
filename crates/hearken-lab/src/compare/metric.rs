//! Metrics that are compared.

use serde::{Deserialize, Serialize};

/// A metric of a load test. Its discriminant is its index in [`Metric::ALL`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Metric {
    /// Replies per second while requests were sent.
    ReplyRate,
    /// Ratio of failed requests to all requests.
    ErrorRatio,
    /// Mean latency, in nanoseconds.
    LatencyMean,
    /// Median latency, in nanoseconds.
    LatencyP50,
    /// 90th percentile of latency, in nanoseconds.
    LatencyP90,
    /// 99th percentile of latency, in nanoseconds.
    LatencyP99,
    /// 99.9th percentile of latency, in nanoseconds.
    LatencyP999,
    /// CPU time of the server per reply, in nanoseconds.
    CpuPerReply,
}

impl Metric {
    /// All metrics.
    pub const ALL: [Metric; 8] = [
        Metric::ReplyRate,
        Metric::ErrorRatio,
        Metric::LatencyMean,
        Metric::LatencyP50,
        Metric::LatencyP90,
        Metric::LatencyP99,
        Metric::LatencyP999,
        Metric::CpuPerReply,
    ];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Metric::ReplyRate => "replies/s",
            Metric::ErrorRatio => "errors",
            Metric::LatencyMean => "latency mean",
            Metric::LatencyP50 => "latency p50",
            Metric::LatencyP90 => "latency p90",
            Metric::LatencyP99 => "latency p99",
            Metric::LatencyP999 => "latency p99.9",
            Metric::CpuPerReply => "server CPU/reply",
        }
    }

    /// Returns whether higher values are better.
    pub fn higher_is_better(self) -> bool {
        self == Metric::ReplyRate
    }

    /// Returns the quantile of a latency percentile.
    pub(super) fn quantile(self) -> Option<f64> {
        match self {
            Metric::LatencyP50 => Some(0.5),
            Metric::LatencyP90 => Some(0.9),
            Metric::LatencyP99 => Some(0.99),
            Metric::LatencyP999 => Some(0.999),
            _ => None,
        }
    }
}
