//! What is compared.

use serde::{Deserialize, Serialize};

/// A figure of a load. Its number is its place in [`Quantity::ALL`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// Replies per second while requests were made.
    ReplyRate,
    /// The part of the requests that failed.
    ErrorShare,
    /// Mean latency, in nanoseconds.
    LatencyMean,
    /// The median, in nanoseconds.
    LatencyP50,
    /// The 90th percentile, in nanoseconds.
    LatencyP90,
    /// The 99th, in nanoseconds.
    LatencyP99,
    /// The 99.9th, in nanoseconds.
    LatencyP999,
    /// CPU time of the server for each reply, in nanoseconds.
    CpuPerReply,
}

impl Quantity {
    /// All of them.
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

    /// With its unit, for people.
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

    /// Is more of it better?
    pub fn more_is_better(self) -> bool {
        self == Quantity::ReplyRate
    }

    /// Of a percentile of latency, its quantile.
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
