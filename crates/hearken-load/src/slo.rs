//! Objectives: what a server is held to, read from text, and whether a load met it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::config::Config;
use crate::report::{Model, Report};

mod evaluate;
mod metric;

pub use evaluate::{Measured, NoValue, ObjectiveResult};
pub use metric::{Metric, Percentile, Statistic, TimeMetric, Unit};

/// No line of objectives needs more.
const MAX_OBJECTIVES: usize = 64;

/// What a load is to meet, such as `p99<5ms,errors<0.1%,rate>=99%`. Displays as it is read.
///
/// | figure | of what | limits |
/// |---|---|---|
/// | `p50`, `p99`, `p99.9`, any `pN`; `mean`, `max` | latency, from the intended time | `ns`, `us`, `ms`, `s` |
/// | `service.p99` and so on | from the time when it was sent | the same |
/// | `connect.p99` and so on | how long it took to connect | the same |
/// | `errors` | requests that failed or are unfinished, of those intended | `0.1%` or `0.001` |
/// | `rate` | replies per second, or their share of the requests that were intended | `990/s`; `99%` or `0.99` |
/// | `idle` | idle connections that were held at the end, of those asked for | `99%` or `0.99` |
///
/// Compared with `<`, `<=`, `>` or `>=`.
///
/// **A request that failed counts as longer than every limit.** A server that drops half of its
/// requests answers the rest fast, and a percentile of the replies alone would be met by it. So
/// `p99` is that of replies and failures together, and with a single failure `mean` and `max` have
/// no value that could meet a limit. For `connect`, failures are connections that were refused, timed
/// out, failed in their TLS handshake, or had no descriptor or port.
///
/// `rate` as a share counts replies that came while requests were still being made: over a run of 3 s,
/// a latency of 30 ms is 1 % that came later.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Objectives(Vec<Objective>);

/// One of them.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Objective {
    metric: Metric,
    comparison: Comparison,
    number: f64,
    unit: Unit,
}

/// How a figure is compared with its limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Comparison {
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    More,
    /// `>=`
    AtLeast,
}

/// Why an objective cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("cannot use the objective {text:?}: {reason}")]
pub struct ObjectiveError {
    text: String,
    reason: String,
}

impl Objectives {
    /// Each objective of a load that gave `report`, in order.
    pub fn judge(&self, report: &Report) -> Vec<ObjectiveResult> {
        self.0.iter().map(|objective| objective.evaluate(report)).collect()
    }

    /// Refuses those that a load cannot be judged by, as it has no requests or no idle connections.
    ///
    /// # Errors
    /// Says which, and why.
    pub fn measurable(&self, config: &Config) -> Result<(), ObjectiveError> {
        let silent = config.is_silent() && config.model != Some(Model::Closed);
        let missing = |of: &&Objective| match of.metric {
            Metric::Idle => config.idle == 0,
            _ => silent,
        };
        match self.0.iter().find(missing) {
            None => Ok(()),
            Some(of) => Err(ObjectiveError {
                text: of.to_string(),
                reason: match of.metric {
                    Metric::Idle => "there are no idle connections to be held".to_owned(),
                    _ => "no requests are made".to_owned(),
                },
            }),
        }
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &Objective> {
        self.0.iter()
    }
}

impl Objective {
    /// What it is about.
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// How that is compared with the limit.
    pub fn comparison(&self) -> Comparison {
        self.comparison
    }

    /// The limit, in nanoseconds, as a share from 0 to 1, or in replies per second.
    pub fn limit(&self) -> f64 {
        self.unit.to_base(self.number)
    }
}

impl FromStr for Objectives {
    type Err = ObjectiveError;

    fn from_str(text: &str) -> Result<Objectives, ObjectiveError> {
        let wrong = |reason: String| ObjectiveError { text: truncated(text), reason };
        if text.trim().is_empty() {
            return Err(wrong("it is empty; write one such as p99<5ms".to_owned()));
        }
        if text.split(',').count() > MAX_OBJECTIVES {
            return Err(wrong(format!("these are more than {MAX_OBJECTIVES}")));
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

/// What an error repeats of it.
fn truncated(text: &str) -> String {
    text.chars().take(80).collect()
}

fn read(text: &str) -> Result<Objective, String> {
    if text.trim().is_empty() {
        return Err("there is nothing between two commas, or after the last".to_owned());
    }
    let Some(at) = text.find(['<', '>']) else {
        return Err("it has no comparison; write one of <, <=, >, >=, as in p99<5ms".to_owned());
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
        return Err("nothing is less than 0; write <=0 to allow none".to_owned());
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
