//! Whether a load met an objective.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Comparison, Figure, Objective, Statistic, Times, Unit};
use crate::histogram::Histogram;
use crate::report::Report;
use crate::summary::Human;

/// What came of one objective.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Judgement {
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
    No(NoValue),
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
    pub fn judge(&self, report: &Report) -> Judgement {
        let limit = self.limit();
        let measured = self.measure(report);
        let met = match measured {
            Measured::Value(value) => self.comparison.holds(value, limit),
            Measured::No(NoValue::Failed) => self.comparison.holds(f64::INFINITY, limit),
            Measured::No(NoValue::Nothing) => false,
        };
        Judgement { objective: *self, measured, limit, met }
    }

    fn measure(&self, report: &Report) -> Measured {
        let requests = &report.requests;
        match self.figure {
            Figure::Times(of, statistic) => {
                let errors = &report.errors;
                let unmade = errors.conn_refused
                    + errors.fd_unavail
                    + errors.addr_unavail
                    + report.timeouts.connect
                    + report.tls.failed;
                let (times, failed) = match of {
                    Times::Latency => (&report.histograms.latency, requests.failed),
                    Times::Service => (&report.histograms.service, requests.failed),
                    Times::Connect => (&report.histograms.connect, unmade),
                };
                time(times, failed, statistic)
            }
            Figure::Errors => {
                share(requests.failed.saturating_add(requests.unfinished), requests.intended)
            }
            Figure::Rate if self.unit == Unit::PerSecond => match requests.intended {
                0 => Measured::No(NoValue::Nothing),
                _ => Measured::Value(report.reply_rate),
            },
            // Of those that were made: a Poisson process makes some more or fewer than its mean.
            Figure::Rate if requests.intended > 0 && report.duration_s > 0.0 => {
                Measured::Value(report.reply_rate * report.duration_s / requests.intended as f64)
            }
            Figure::Rate => Measured::No(NoValue::Nothing),
            Figure::Idle => share(report.idle.held, report.idle.asked),
        }
    }
}

fn share(part: u64, whole: u64) -> Measured {
    match whole {
        0 => Measured::No(NoValue::Nothing),
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
        _ if known == 0 && failed == 0 => Measured::No(NoValue::Nothing),
        _ if rank > known => Measured::No(NoValue::Failed),
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
    fn holds(self, value: f64, limit: f64) -> bool {
        let slack = limit * 1e-12;
        match self {
            Comparison::Less => value < limit - slack,
            Comparison::AtMost => value <= limit + slack,
            Comparison::More => value > limit + slack,
            Comparison::AtLeast => value >= limit - slack,
        }
    }
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Objective { figure, comparison, number, unit } = self.objective;
        let met = if self.met { "met" } else { "not met" };
        let space = if unit == Unit::Share { "" } else { " " };
        write!(f, "{figure} {comparison} {number}{space}{unit}: {met}, ")?;
        match self.measured {
            Measured::No(NoValue::Failed) => f.write_str("requests that failed"),
            Measured::No(NoValue::Nothing) => f.write_str("nothing was measured"),
            Measured::Value(value) => match unit {
                Unit::Percent => write!(f, "{} %", digits(value * 100.0)),
                Unit::Share => write!(f, "{}", digits(value)),
                Unit::PerSecond => write!(f, "{value:.1} /s"),
                _ => write!(f, "{}", Human(value as u64)),
            },
        }
    }
}

/// With what matters of it, and no zeros at its end.
fn digits(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}
