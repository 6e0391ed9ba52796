//! Claims of the papers as data: statement, experiment, tests and tolerances.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::error::LabError;
use crate::experiment::{Experiment, Template, position};
use crate::plan::{AGAIN, Cell};

/// The claims of each paper.
const FILES: [(&str, &str); 4] = [
    ("bmd99.toml", include_str!("../claims/bmd99.toml")),
    ("cm01.toml", include_str!("../claims/cm01.toml")),
    ("gb04.toml", include_str!("../claims/gb04.toml")),
    ("lc.toml", include_str!("../claims/lc.toml")),
];

/// A file of claims.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    claims: Vec<Claim>,
}

/// A claim of a paper.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Claim {
    /// Paper, and figure, table or section: `GB04-F5a`.
    pub id: String,
    /// Figure, table or section of the paper.
    pub reference: String,
    /// Statement of the paper.
    pub statement: String,
    /// Workload in the paper.
    pub workload: String,
    /// Quantity in the paper.
    pub quantity: String,
    /// Expected value or relation.
    pub expected: String,
    /// Tolerance.
    pub tolerance: String,
    /// Remarks about a repetition of the experiment today.
    #[serde(default)]
    pub note: String,
    /// Reason why a result today may differ from that of the paper.
    #[serde(default)]
    pub reason: String,
    /// Experiment that settles the claim; none if there is none.
    #[serde(default)]
    pub experiment: Option<String>,
    /// Reason why no experiment settles the claim.
    #[serde(default)]
    pub not_run: Option<String>,
    /// Tests, all of which must hold.
    #[serde(default)]
    pub tests: Vec<Test>,
}

/// A statement about metrics that data can confirm or refute. Bounds are included.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "kind", deny_unknown_fields, rename_all = "kebab-case")]
pub enum Test {
    /// A ratio of two selections is from `low` to `high`.
    Ratio {
        /// Metric.
        metric: String,
        /// Numerator.
        of: Selection,
        /// Denominator.
        to: Selection,
        /// Lower bound.
        low: Option<f64>,
        /// Upper bound.
        high: Option<f64>,
    },
    /// The ratio of two selections differs from 1 by at most the tolerance.
    Equivalence {
        /// Metric.
        metric: String,
        /// Numerator.
        of: Selection,
        /// Denominator.
        to: Selection,
        /// Tolerance as a fraction.
        tolerance: f64,
    },
    /// The selections have ascending values.
    Order {
        /// Metric.
        metric: String,
        /// Selections with ascending values.
        ascending: Vec<Selection>,
    },
    /// The relative change along an axis, by least squares, is from `low` to `high`.
    Slope {
        /// Metric.
        metric: String,
        /// Selection, without the axis.
        of: Selection,
        /// Numeric axis.
        over: String,
        /// Lower bound of the change over the whole axis, relative to its start.
        low: Option<f64>,
        /// Upper bound.
        high: Option<f64>,
    },
    /// No value along an axis differs from the first by more than the tolerance.
    Flatness {
        /// Metric.
        metric: String,
        /// Selection, without the axis.
        of: Selection,
        /// Axis.
        over: String,
        /// Tolerance as a fraction.
        tolerance: f64,
    },
    /// The values along an axis rise. No value is below its predecessor by more than the tolerance.
    Monotonicity {
        /// Metric.
        metric: String,
        /// Selection, without the axis.
        of: Selection,
        /// Axis.
        over: String,
        /// Whether the values fall instead.
        #[serde(default)]
        falling: bool,
        /// Tolerance as a fraction.
        tolerance: f64,
    },
    /// The ratio of two selections is below 1 at one value of an axis and above 1 at a later one.
    Crossover {
        /// Metric.
        metric: String,
        /// Numerator, without the axis.
        of: Selection,
        /// Denominator, without the axis.
        to: Selection,
        /// Axis.
        over: String,
        /// Value at which the ratio is below 1.
        below: Template,
        /// Value at which the ratio is above 1.
        above: Template,
    },
    /// A line explains at least this share of the variance of the values along an axis.
    Linearity {
        /// Metric.
        metric: String,
        /// Selection, without the axis.
        of: Selection,
        /// Numeric axis.
        over: String,
        /// Lower bound of R².
        r2: f64,
    },
    /// A value is from `low` to `high`.
    Level {
        /// Metric.
        metric: String,
        /// Selection.
        of: Selection,
        /// Lower bound.
        low: Option<f64>,
        /// Upper bound.
        high: Option<f64>,
    },
    /// A count has this value in every repetition.
    Exact {
        /// Metric.
        metric: String,
        /// Selection.
        of: Selection,
        /// Value.
        value: f64,
    },
}

/// A server and values of axes. An axis without a value has the first of the experiment.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Selection {
    /// Name of the server.
    pub server: String,
    /// Values by axis.
    #[serde(default)]
    pub at: BTreeMap<String, Template>,
    /// Axis along which the highest value of each repetition counts.
    #[serde(default)]
    pub max_over: Option<String>,
    /// Values of the axis of the test, or of `max-over` [default: all].
    #[serde(default)]
    pub along: Vec<Template>,
}

impl Selection {
    /// Returns whether a value of the axis of the test takes part.
    pub(crate) fn includes(&self, value: &str) -> bool {
        self.along.is_empty() || self.along.iter().any(|along| along.as_str() == value)
    }
}

impl Test {
    /// Returns the metric.
    pub fn metric(&self) -> &str {
        match self {
            Test::Ratio { metric, .. }
            | Test::Equivalence { metric, .. }
            | Test::Order { metric, .. }
            | Test::Slope { metric, .. }
            | Test::Flatness { metric, .. }
            | Test::Monotonicity { metric, .. }
            | Test::Crossover { metric, .. }
            | Test::Linearity { metric, .. }
            | Test::Level { metric, .. }
            | Test::Exact { metric, .. } => metric,
        }
    }

    /// Returns the selections, and the axis of which they need all values.
    pub(crate) fn selections(&self) -> (Vec<&Selection>, Option<&str>) {
        match self {
            Test::Ratio { of, to, .. } | Test::Equivalence { of, to, .. } => (vec![of, to], None),
            Test::Crossover { of, to, over, .. } => (vec![of, to], Some(over)),
            Test::Order { ascending, .. } => (ascending.iter().collect(), None),
            Test::Slope { of, over, .. }
            | Test::Flatness { of, over, .. }
            | Test::Monotonicity { of, over, .. }
            | Test::Linearity { of, over, .. } => (vec![of], Some(over)),
            Test::Level { of, .. } | Test::Exact { of, .. } => (vec![of], None),
        }
    }
}

impl Claim {
    /// Returns the identifier of the paper.
    pub fn paper(&self) -> &str {
        self.id.split('-').next().unwrap_or_default()
    }

    /// Returns whether the claim needs a cell of its experiment. The second instance of the reference is
    /// needed where the reference is.
    pub fn needs(&self, experiment: &Experiment, cell: &Cell) -> bool {
        if self.experiment.as_ref() != Some(&experiment.name) {
            return false;
        }
        let server = cell.server.strip_suffix(AGAIN).unwrap_or(&cell.server);
        self.tests.iter().any(|test| {
            let (selections, over) = test.selections();
            let is_reference = server == experiment.reference;
            selections.iter().any(|selection| {
                let axes = experiment.axes.iter();
                let mut free = [over, selection.max_over.as_deref()].into_iter().flatten();
                (selection.server == server || is_reference)
                    && axes.into_iter().all(|axis| {
                        let own = cell.values.get(&axis.name).map_or("", String::as_str);
                        let is_free = free.clone().any(|free| free == axis.name);
                        if is_free {
                            selection.includes(own)
                        } else {
                            value(selection, axis) == Some(own)
                        }
                    })
                    && free.all(|axis| experiment.axis(axis).is_some())
            })
        })
    }

    /// Checks that the tests refer to axes, values, servers and metrics of the experiment.
    ///
    /// # Errors
    /// A description of the first wrong reference.
    pub fn check(&self, experiment: &Experiment, servers: &[&str]) -> Result<(), String> {
        for test in &self.tests {
            let metric = test.metric();
            if experiment.metric(metric).is_none() {
                return Err(format!("{}: unknown metric '{metric}'", self.id));
            }
            let (selections, over) = test.selections();
            for selection in selections {
                let server = &selection.server;
                if !servers.contains(&server.as_str()) {
                    return Err(format!("{}: unknown server '{server}'", self.id));
                }
                let named = selection.at.keys().map(String::as_str);
                for axis in named.chain(over).chain(selection.max_over.as_deref()) {
                    let Some(axis) = experiment.axis(axis) else {
                        return Err(format!("{}: unknown axis '{axis}'", self.id));
                    };
                    let is_named = |name: &str| selection.at.contains_key(name);
                    let at = selection.at.get(&axis.name).into_iter();
                    let along = selection.along.iter().filter(|_| !is_named(&axis.name));
                    let mut wanted = at.chain(along).map(Template::as_str);
                    if wanted.any(|at| axis.values.iter().all(|value| value.name != at)) {
                        return Err(format!("{}: unknown value of '{}'", self.id, axis.name));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Returns the value of an axis in a selection.
fn value<'a>(selection: &'a Selection, axis: &'a crate::experiment::Axis) -> Option<&'a str> {
    let first = || axis.values.first().map(|value| value.name.as_str());
    selection.at.get(&axis.name).map(Template::as_str).or_else(first)
}

/// Returns the claims of all papers.
///
/// # Errors
/// A built-in file is invalid, which tests exclude.
pub fn all() -> Result<Vec<Claim>, LabError> {
    let mut claims = Vec::new();
    for (name, text) in FILES {
        let file: File = toml::from_str(text)
            .map_err(|error| LabError::Config(position::describe(name, text, &error)))?;
        claims.extend(file.claims);
    }
    Ok(claims)
}
