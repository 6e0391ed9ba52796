//! Metrics that are compared.

use serde::{Deserialize, Serialize};

/// A metric of a load test. Its discriminant is its index in [`Metric::ALL`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// Replies per second while requests were sent.
    ReplyRate,
    /// Ratio of failed requests to all requests.
    ErrorShare,
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

impl Quantity {
    /// All metrics.
    pub const ALL: [Quantity; 8] = [
        Quantity::ReplyRate,
        Quantity::ErrorShare,
        Quantity::LatencyMean,
        Quantity::LatencyP50,
        Quantity::LatencyP90,
        Quantity::LatencyP99,
        Quantity::LatencyP999,
        Quantity::CpuPerReply,
    ];

    /// Returns the name with its unit.
    pub fn name(self) -> &'static str {
        match self {
            Quantity::ReplyRate => "replies/s",
            Quantity::ErrorShare => "errors",
            Quantity::LatencyMean => "latency mean, µs",
            Quantity::LatencyP50 => "latency p50, µs",
            Quantity::LatencyP90 => "latency p90, µs",
            Quantity::LatencyP99 => "latency p99, µs",
            Quantity::LatencyP999 => "latency p99.9, µs",
            Quantity::CpuPerReply => "server CPU/reply, µs",
        }
    }

    /// Returns whether higher values are better.
    pub fn more_is_better(self) -> bool {
        self == Quantity::ReplyRate
    }

    /// Returns the quantile of a latency percentile.
    pub(super) fn quantile(self) -> Option<f64> {
        match self {
            Quantity::LatencyP50 => Some(0.5),
            Quantity::LatencyP90 => Some(0.9),
            Quantity::LatencyP99 => Some(0.99),
            Quantity::LatencyP999 => Some(0.999),
            _ => None,
        }
    }
}
