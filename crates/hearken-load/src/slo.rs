//! Objectives of a load: their text form and their evaluation.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::config::Config;
use crate::report::{Model, Report};

mod evaluate;
mod metric;

pub use evaluate::{Measured, NoValue, ObjectiveResult};
use metric::{Metric, Statistic, TimeMetric, Unit};

/// Maximum number of objectives.
const MAX_OBJECTIVES: usize = 64;

/// The objectives of a load, such as `p99<5ms,errors<0.1%,rate>=99%`. The displayed form is the
/// parsed form.
///
/// | metric | meaning | limits |
/// |---|---|---|
/// | `p50`, `p99`, `p99.9`, any `pN`; `mean`, `max` | latency, from the scheduled time | `ns`, `us`, `ms`, `s` |
/// | `service.p99` and so on | service time, from the time of sending | the same |
/// | `connect.p99` and so on | time to open a connection | the same |
/// | `errors` | failed or unfinished requests, as a ratio of scheduled ones | `0.1%` or `0.001` |
/// | `missed` | requests that the generator could not send, as a ratio of scheduled ones | `1%` or `0.01` |
/// | `rate` | replies per second, or as a ratio of answerable requests | `990/s`; `99%` or `0.99` |
/// | `idle` | idle connections at the end, as a ratio of those requested | `99%` or `0.99` |
///
/// Comparisons are `<`, `<=`, `>` and `>=`.
///
/// **A failed or missed request counts as longer than every limit.** A server that drops half of its requests
/// answers the rest quickly. A percentile of the replies alone would hide the failures. Therefore
/// `p99` covers replies and failures, and after a single failure `mean` and `max` meet no upper
/// limit. For `connect`, failures are connections that were refused, timed out, failed in the TLS
/// handshake, or lacked a descriptor or port.
///
/// As a ratio, `rate` counts only replies received before the end of the arrivals, and only requests
/// scheduled early enough for that: [`Requests::answerable`](crate::Requests::answerable).
///
/// ```
/// use hearken_load::{Objectives, Report};
///
/// let objectives: Objectives = "p99<5ms,errors<0.1%".parse()?;
/// let results = objectives.evaluate(&Report::default());
/// assert!(results.iter().all(|result| !result.passed));
/// # Ok::<(), hearken_load::ObjectiveError>(())
/// ```
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Objectives(Vec<Objective>);

/// A single objective.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Objective {
    metric: Metric,
    comparison: Comparison,
    number: f64,
    unit: Unit,
}

/// The comparison of a metric with its limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Comparison {
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    More,
    /// `>=`
    AtLeast,
}

/// An error in the text of an objective.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("invalid objective '{text}': {reason}")]
pub struct ObjectiveError {
    text: String,
    reason: String,
}

impl Objectives {
    /// Evaluates the objectives against `report`, in order.
    pub fn evaluate(&self, report: &Report) -> Vec<ObjectiveResult> {
        self.0.iter().map(|objective| objective.evaluate(report)).collect()
    }

    /// Checks that a load with `config` provides the metrics.
    ///
    /// # Errors
    /// Names an objective whose metric the load cannot provide, because it sends no requests or
    /// holds no idle connections.
    pub fn check_measurable(&self, config: &Config) -> Result<(), ObjectiveError> {
        let silent = config.is_silent() && config.model != Some(Model::Closed);
        let missing = |of: &&Objective| match of.metric {
            Metric::Idle => config.idle_connections == 0,
            _ => silent,
        };
        match self.0.iter().find(missing) {
            None => Ok(()),
            Some(of) => Err(ObjectiveError {
                text: of.to_string(),
                reason: match of.metric {
                    Metric::Idle => "the load has no idle connections".to_owned(),
                    _ => "the load sends no requests".to_owned(),
                },
            }),
        }
    }

    /// Returns an iterator over the objectives.
    pub fn iter(&self) -> impl Iterator<Item = &Objective> {
        self.0.iter()
    }
}

impl Objective {
    /// Returns the metric.
    pub(crate) fn metric(&self) -> Metric {
        self.metric
    }

    /// Returns the limit in nanoseconds, as a ratio from 0 to 1, or in replies per second.
    pub fn limit(&self) -> f64 {
        self.unit.to_base(self.number)
    }
}

impl FromStr for Objectives {
    type Err = ObjectiveError;

    fn from_str(text: &str) -> Result<Objectives, ObjectiveError> {
        let wrong = |reason: String| ObjectiveError { text: truncated(text), reason };
        if text.trim().is_empty() {
            return Err(wrong("empty text; expected an objective such as p99<5ms".to_owned()));
        }
        if text.split(',').count() > MAX_OBJECTIVES {
            return Err(wrong(format!("more than {MAX_OBJECTIVES} objectives")));
        }
        text.split(',').map(str::parse).collect::<Result<_, _>>().map(Objectives)
    }
}

impl FromStr for Objective {
    type Err = ObjectiveError;

    fn from_str(text: &str) -> Result<Objective, ObjectiveError> {
        read(text).map_err(|reason| ObjectiveError { text: truncated(text.trim()), reason })
    }
}

/// Truncates a text for an error message.
fn truncated(text: &str) -> String {
    text.chars().take(80).collect()
}

fn read(text: &str) -> Result<Objective, String> {
    if text.trim().is_empty() {
        return Err("empty objective between two commas or after the last".to_owned());
    }
    let Some(at) = text.find(['<', '>']) else {
        return Err("missing comparison; expected <, <=, > or >=, as in p99<5ms".to_owned());
    };
    let (figure, rest) = text.split_at(at);
    let (comparison, limit) = if let Some(limit) = rest.strip_prefix("<=") {
        (Comparison::AtMost, limit)
    } else if let Some(limit) = rest.strip_prefix('<') {
        (Comparison::Less, limit)
    } else if let Some(limit) = rest.strip_prefix(">=") {
        (Comparison::AtLeast, limit)
    } else {
        (Comparison::More, &rest[1..])
    };
    let figure: Metric = figure.trim().parse()?;
    let (number, unit) = figure.parse_limit(limit.trim())?;
    if number == 0.0 && comparison == Comparison::Less {
        return Err("no value is less than 0; use <=0".to_owned());
    }
    Ok(Objective { metric: figure, comparison, number, unit })
}

impl fmt::Display for Objectives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, objective) in self.0.iter().enumerate() {
            write!(f, "{}{objective}", if index > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}{}", self.metric, self.comparison, self.number, self.unit)
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Comparison::Less => "<",
            Comparison::AtMost => "<=",
            Comparison::More => ">",
            Comparison::AtLeast => ">=",
        })
    }
}

impl From<Objective> for String {
    fn from(objective: Objective) -> String {
        objective.to_string()
    }
}

impl TryFrom<String> for Objective {
    type Error = ObjectiveError;

    fn try_from(text: String) -> Result<Objective, ObjectiveError> {
        text.parse()
    }
}

impl From<Objectives> for String {
    fn from(objectives: Objectives) -> String {
        objectives.to_string()
    }
}

impl TryFrom<String> for Objectives {
    type Error = ObjectiveError;

    fn try_from(text: String) -> Result<Objectives, ObjectiveError> {
        match text.is_empty() {
            true => Ok(Objectives::default()),
            false => text.parse(),
        }
    }
}
