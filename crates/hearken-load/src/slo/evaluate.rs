//! Evaluation of objectives.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Comparison, Metric, Objective, Statistic, TimeMetric, Unit};
use crate::histogram::Histogram;
use crate::report::Report;
use crate::summary::HumanDuration;

/// The result of an objective.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ObjectiveResult {
    /// The objective.
    pub objective: Objective,
    /// Measured value: nanoseconds, a ratio from 0 to 1, or replies per second.
    pub measured: Measured,
    /// Limit in the same unit.
    pub limit: f64,
    /// Whether the objective was met. An objective without a measured value was not.
    pub passed: bool,
}

/// A measured value.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Measured {
    /// The value.
    Value(f64),
    /// No value.
    Missing(NoValue),
}

/// The reason why there is no value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum NoValue {
    /// The statistic lies among failed requests, which count as longer than every limit.
    Failed,
    /// No data.
    NoData,
}

impl Objective {
    /// Evaluates the objective against `report`.
    pub fn evaluate(&self, report: &Report) -> ObjectiveResult {
        let limit = self.limit();
        let measured = self.measure(report);
        let passed = match measured {
            Measured::Value(value) => self.comparison.compare(value, limit),
            Measured::Missing(NoValue::Failed) => self.comparison.compare(f64::INFINITY, limit),
            Measured::Missing(NoValue::NoData) => false,
        };
        ObjectiveResult { objective: *self, measured, limit, passed }
    }

    fn measure(&self, report: &Report) -> Measured {
        let requests = &report.requests;
        match self.metric {
            Metric::Time(of, statistic) => {
                let errors = &report.errors;
                let failed_connects = errors.conn_refused
                    + errors.fd_unavail
                    + errors.addr_unavail
                    + report.timeouts.connect
                    + report.tls.failed;
                let (times, failed) = match of {
                    TimeMetric::Latency => (
                        &report.histograms.latency,
                        requests.failed.saturating_add(requests.missed),
                    ),
                    TimeMetric::Service => (&report.histograms.service, requests.failed),
                    TimeMetric::Connect => (&report.histograms.connect, failed_connects),
                };
                time(times, failed, statistic)
            }
            Metric::Errors => {
                ratio(requests.failed.saturating_add(requests.unfinished), requests.scheduled)
            }
            Metric::Missed => ratio(requests.missed, requests.scheduled),
            Metric::Rate if self.unit == Unit::PerSecond => match requests.scheduled {
                0 => Measured::Missing(NoValue::NoData),
                _ => Measured::Value(report.reply_rate),
            },
            // Use the actual number of requests, which differs from the mean of a Poisson process.
            Metric::Rate if requests.answerable > 0 && report.duration_s > 0.0 => {
                Measured::Value(report.reply_rate * report.duration_s / requests.answerable as f64)
            }
            Metric::Rate => Measured::Missing(NoValue::NoData),
            Metric::Idle => ratio(report.idle.open, report.idle.requested),
        }
    }
}

fn ratio(part: u64, total: u64) -> Measured {
    match total {
        0 => Measured::Missing(NoValue::NoData),
        _ => Measured::Value(part as f64 / total as f64),
    }
}

/// Returns a statistic of `times` together with `failed` values that are longer than all recorded
/// ones.
fn time(times: &Histogram, failed: u64, statistic: Statistic) -> Measured {
    let known = times.len();
    let rank = match statistic {
        Statistic::Percentile(percentile) => percentile.rank(known.saturating_add(failed)),
        Statistic::Mean | Statistic::Max => known.saturating_add(failed),
    };
    match statistic {
        _ if known == 0 && failed == 0 => Measured::Missing(NoValue::NoData),
        _ if rank > known => Measured::Missing(NoValue::Failed),
        Statistic::Mean => Measured::Value(times.as_hdr().mean()),
        Statistic::Max => Measured::Value(times.as_hdr().max() as f64),
        // Use the middle of the rank, where rounding does not matter.
        Statistic::Percentile(_) => {
            Measured::Value(times.value_at_quantile((rank as f64 - 0.5) / known as f64) as f64)
        }
    }
}

impl Comparison {
    /// Returns whether `value` fulfils the comparison with `limit`. Values that differ only by
    /// rounding are equal.
    fn compare(self, value: f64, limit: f64) -> bool {
        let slack = limit * 1e-12;
        match self {
            Comparison::Less => value < limit - slack,
            Comparison::AtMost => value <= limit + slack,
            Comparison::More => value > limit + slack,
            Comparison::AtLeast => value >= limit - slack,
        }
    }
}

impl fmt::Display for ObjectiveResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Objective { metric: figure, comparison, number, unit } = self.objective;
        let met = if self.passed { "met" } else { "not met" };
        let space = if unit == Unit::Ratio { "" } else { " " };
        write!(f, "{figure} {comparison} {number}{space}{unit}: {met}, ")?;
        match self.measured {
            Measured::Missing(NoValue::Failed) => f.write_str("a failed request"),
            Measured::Missing(NoValue::NoData) => f.write_str("no data"),
            Measured::Value(value) => match unit {
                Unit::Percent => write!(f, "{} %", digits(value * 100.0)),
                Unit::Ratio => write!(f, "{}", digits(value)),
                Unit::PerSecond => write!(f, "{value:.1} /s"),
                _ => write!(f, "{}", HumanDuration(value as u64)),
            },
        }
    }
}

/// Rounds to four decimals.
fn digits(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}
