//! Whether a load met an objective.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Comparison, Metric, Objective, Statistic, TimeMetric, Unit};
use crate::histogram::Histogram;
use crate::report::Report;
use crate::summary::HumanDuration;

/// What came of one objective.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct ObjectiveResult {
    /// Which.
    pub objective: Objective,
    /// What was measured: nanoseconds, a share from 0 to 1, or replies per second.
    pub measured: Measured,
    /// Its limit, in the same unit.
    pub limit: f64,
    /// Whether it was met. What could not be measured was not.
    pub met: bool,
}

/// A figure of a load.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Measured {
    /// Its value.
    Value(f64),
    /// It has none.
    Missing(NoValue),
}

/// Why a figure has no value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoValue {
    /// It lies among requests that failed: longer than every limit.
    Failed,
    /// There was nothing to measure.
    Nothing,
}

impl Objective {
    /// Whether a load that gave `report` met it.
    pub fn evaluate(&self, report: &Report) -> ObjectiveResult {
        let limit = self.limit();
        let measured = self.measure(report);
        let met = match measured {
            Measured::Value(value) => self.comparison.compare(value, limit),
            Measured::Missing(NoValue::Failed) => self.comparison.compare(f64::INFINITY, limit),
            Measured::Missing(NoValue::Nothing) => false,
        };
        ObjectiveResult { objective: *self, measured, limit, met }
    }

    fn measure(&self, report: &Report) -> Measured {
        let requests = &report.requests;
        match self.metric {
            Metric::Time(of, statistic) => {
                let errors = &report.errors;
                let unmade = errors.conn_refused
                    + errors.fd_unavail
                    + errors.addr_unavail
                    + report.timeouts.connect
                    + report.tls.failed;
                let (times, failed) = match of {
                    TimeMetric::Latency => (&report.histograms.latency, requests.failed),
                    TimeMetric::Service => (&report.histograms.service, requests.failed),
                    TimeMetric::Connect => (&report.histograms.connect, unmade),
                };
                time(times, failed, statistic)
            }
            Metric::Errors => {
                ratio(requests.failed.saturating_add(requests.unfinished), requests.intended)
            }
            Metric::Rate if self.unit == Unit::PerSecond => match requests.intended {
                0 => Measured::Missing(NoValue::Nothing),
                _ => Measured::Value(report.reply_rate),
            },
            // Of those that were made: a Poisson process makes some more or fewer than its mean.
            Metric::Rate if requests.intended > 0 && report.duration_s > 0.0 => {
                Measured::Value(report.reply_rate * report.duration_s / requests.intended as f64)
            }
            Metric::Rate => Measured::Missing(NoValue::Nothing),
            Metric::Idle => ratio(report.idle.held, report.idle.asked),
        }
    }
}

fn ratio(part: u64, whole: u64) -> Measured {
    match whole {
        0 => Measured::Missing(NoValue::Nothing),
        _ => Measured::Value(part as f64 / whole as f64),
    }
}

/// Of `times`, and of others that are longer than all.
fn time(times: &Histogram, failed: u64, statistic: Statistic) -> Measured {
    let known = times.len();
    let rank = match statistic {
        Statistic::Percentile(percentile) => percentile.rank(known.saturating_add(failed)),
        Statistic::Mean | Statistic::Max => known.saturating_add(failed),
    };
    match statistic {
        _ if known == 0 && failed == 0 => Measured::Missing(NoValue::Nothing),
        _ if rank > known => Measured::Missing(NoValue::Failed),
        Statistic::Mean => Measured::Value(times.as_hdr().mean()),
        Statistic::Max => Measured::Value(times.as_hdr().max() as f64),
        // In the middle of the rank, where rounding does not matter.
        Statistic::Percentile(_) => {
            Measured::Value(times.at((rank as f64 - 0.5) / known as f64) as f64)
        }
    }
}

impl Comparison {
    /// True if `value` stands so to `limit`; the two are the same where only rounding tells them
    /// apart.
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
        let met = if self.met { "met" } else { "not met" };
        let space = if unit == Unit::Ratio { "" } else { " " };
        write!(f, "{figure} {comparison} {number}{space}{unit}: {met}, ")?;
        match self.measured {
            Measured::Missing(NoValue::Failed) => f.write_str("requests that failed"),
            Measured::Missing(NoValue::Nothing) => f.write_str("nothing was measured"),
            Measured::Value(value) => match unit {
                Unit::Percent => write!(f, "{} %", digits(value * 100.0)),
                Unit::Ratio => write!(f, "{}", digits(value)),
                Unit::PerSecond => write!(f, "{value:.1} /s"),
                _ => write!(f, "{}", HumanDuration(value as u64)),
            },
        }
    }
}

/// With what matters of it, and no zeros at its end.
fn digits(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}
