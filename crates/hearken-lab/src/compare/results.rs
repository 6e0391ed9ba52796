//! Comparison of two results of the lab, cell by cell.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::CONFIDENCE;
use super::interval::LogRatio;
use super::sample::Sample;
use crate::experiment::Experiment;
use crate::results::{ExperimentReport, Report};
use crate::table::{Table, aligned};
use crate::units::number;

/// Value of [`ResultComparison::schema`].
pub const RESULT_SCHEMA: &str = "hearken-lab-compare/1";

/// The comparison of two results of the lab. Serialises to JSON; displays as tables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResultComparison {
    /// [`RESULT_SCHEMA`].
    pub schema: String,
    /// Start of both runs, RFC 3339.
    pub dates: [String; 2],
    /// Joint confidence level of all intervals.
    pub confidence: f64,
    /// Experiments that both runs contain.
    pub experiments: Vec<ExperimentComparison>,
    /// Reasons to doubt the comparison, as sentences.
    pub warnings: Vec<String>,
}

/// The comparison of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExperimentComparison {
    /// Name.
    pub name: String,
    /// Cells and metrics that both runs contain.
    pub rows: Vec<RowComparison>,
    /// Number of cells that only one of the runs contains.
    pub unpaired: usize,
}

/// The comparison of a metric in a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RowComparison {
    /// Name of the server.
    pub server: String,
    /// Values by axis.
    pub values: BTreeMap<String, String>,
    /// Name of the metric.
    pub metric: String,
    /// Geometric means of both runs.
    pub means: [f64; 2],
    /// Mean of the second run divided by that of the first.
    pub ratio: f64,
    /// Lower end of the confidence interval; none for single repetitions.
    pub low: Option<f64>,
    /// Upper end of the confidence interval.
    pub high: Option<f64>,
    /// Ratio of two instances of the same server, by which the interval is widened on both sides.
    pub noise_floor: f64,
    /// Relation of the second run to the first.
    pub relation: Relation,
}

/// Relation of a value to an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Relation {
    /// The interval lies above 1.
    Higher,
    /// The interval lies below 1.
    Lower,
    /// The interval contains 1.
    NoDifferenceDetected,
    /// A run has fewer than two repetitions.
    InsufficientData,
}

/// A pair of cells, before the number of intervals is known.
struct Pair {
    row: RowComparison,
    ratio: Option<LogRatio>,
}

/// Compares the result `b` with the result `a`.
///
/// The runs did not alternate, so Welch's interval applies. It does not contain a drift of the machine between the
/// runs; the interval is therefore widened by the difference between two instances of the reference, if they were
/// measured.
pub fn compare_results(a: &Report, b: &Report) -> ResultComparison {
    let mut compared: Vec<(ExperimentComparison, Vec<Pair>)> = Vec::new();
    let mut warnings = machine_warnings(a, b);
    for first in &a.experiments {
        let Some(second) = b.experiments.iter().find(|second| second.name == first.name) else {
            warnings.push(format!("Experiment '{}' is missing in B.", first.name));
            continue;
        };
        if first.definition != second.definition {
            warnings.push(format!("Experiment '{}' has changed between the runs.", first.name));
        }
        compared.extend(first.experiment().map(|definition| pairs(&definition, first, second)));
    }
    let count = compared.iter().flat_map(|(_, pairs)| pairs).filter(|p| p.ratio.is_some()).count();
    let level = (1.0 - CONFIDENCE) / count.max(1) as f64;
    let finish = |(mut experiment, pairs): (ExperimentComparison, Vec<Pair>)| {
        experiment.rows = pairs.into_iter().map(|pair| pair.with_interval(level)).collect();
        experiment
    };
    ResultComparison {
        schema: RESULT_SCHEMA.to_owned(),
        dates: [a.date.clone(), b.date.clone()],
        confidence: CONFIDENCE,
        experiments: compared.into_iter().map(finish).collect(),
        warnings,
    }
}

fn machine_warnings(a: &Report, b: &Report) -> Vec<String> {
    let mut warnings = Vec::new();
    if a.machine != b.machine {
        warnings.push("The runs took place on different machines or kernels.".to_owned());
    }
    if a.placement != b.placement {
        warnings.push("The runs used different processors.".to_owned());
    }
    for (side, report) in [("A", a), ("B", b)] {
        if !report.complete {
            warnings.push(format!("Run {side} is incomplete."));
        }
    }
    warnings
}

/// Pairs the cells of two runs. Metrics without a heading are left out, as in tables.
fn pairs(
    definition: &Experiment,
    a: &ExperimentReport,
    b: &ExperimentReport,
) -> (ExperimentComparison, Vec<Pair>) {
    let key = |sample: &crate::results::Sample| (sample.server.clone(), sample.values.clone());
    let cells = |report: &ExperimentReport| report.samples.iter().map(key).collect::<BTreeSet<_>>();
    let (cells_a, cells_b) = (cells(a), cells(b));
    let mut pairs = Vec::new();
    for metric in definition.metrics.iter().filter(|metric| metric.heading.is_some()) {
        let noise = a.noise_floor(&metric.name).max(b.noise_floor(&metric.name));
        for (server, values) in cells_a.intersection(&cells_b) {
            let of = |report: &ExperimentReport| -> Vec<Option<Sample>> {
                let own = report
                    .samples
                    .iter()
                    .filter(|sample| sample.server == *server && sample.values == *values);
                let values = own.filter_map(|sample| sample.metrics.get(&metric.name));
                values
                    .filter(|value| **value > 0.0)
                    .map(|&value| Some(Sample::new(value)))
                    .collect()
            };
            let sides = [of(a), of(b)];
            if sides.iter().any(Vec::is_empty) {
                continue;
            }
            let means = sides.each_ref().map(|side| {
                let logs = side.iter().flatten().filter_map(|sample| sample.log);
                (logs.sum::<f64>() / side.len() as f64).exp()
            });
            pairs.push(Pair {
                ratio: LogRatio::new(&sides[0], &sides[1], None),
                row: RowComparison {
                    server: server.clone(),
                    values: values.clone(),
                    metric: metric.name.clone(),
                    means,
                    ratio: means[1] / means[0],
                    low: None,
                    high: None,
                    noise_floor: noise.exp(),
                    relation: Relation::InsufficientData,
                },
            });
        }
    }
    let unpaired = cells_a.symmetric_difference(&cells_b).count();
    (ExperimentComparison { name: a.name.clone(), rows: Vec::new(), unpaired }, pairs)
}

impl Pair {
    fn with_interval(self, level: f64) -> RowComparison {
        let Some(ratio) = self.ratio else { return self.row };
        let margin = ratio.margin(level) + self.row.noise_floor.ln();
        let (low, high) = ((ratio.mean - margin).exp(), (ratio.mean + margin).exp());
        let relation = match (low > 1.0, high < 1.0) {
            (true, _) => Relation::Higher,
            (_, true) => Relation::Lower,
            _ => Relation::NoDifferenceDetected,
        };
        RowComparison { low: Some(low), high: Some(high), relation, ..self.row }
    }
}

impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Relation::Higher => "higher",
            Relation::Lower => "lower",
            Relation::NoDifferenceDetected => "no difference",
            Relation::InsufficientData => "too little data",
        })
    }
}

impl ExperimentComparison {
    fn table(&self) -> Table {
        let axes: BTreeSet<&String> = self.rows.iter().flat_map(|row| row.values.keys()).collect();
        let is_varied = |axis: &&String| {
            let values: BTreeSet<_> = self.rows.iter().map(|row| row.values.get(*axis)).collect();
            values.len() > 1
        };
        let axes: Vec<&String> = axes.into_iter().filter(is_varied).collect();
        let mut head = vec!["metric".to_owned(), "server".to_owned()];
        head.extend(axes.iter().map(|axis| (*axis).clone()));
        head.extend(["A", "B", "B/A", "95 % interval", "B is"].map(String::from));
        let row = |row: &RowComparison| {
            let mut cells = vec![row.metric.clone(), row.server.clone()];
            cells
                .extend(axes.iter().map(|axis| row.values.get(*axis).cloned().unwrap_or_default()));
            let interval = row.low.zip(row.high);
            let interval = interval.map(|(l, h)| format!("{} to {}", number(l), number(h)));
            cells.extend(row.means.map(number));
            cells.extend([
                number(row.ratio),
                interval.unwrap_or_default(),
                row.relation.to_string(),
            ]);
            cells
        };
        Table { head, rows: self.rows.iter().map(row).collect() }
    }
}

impl fmt::Display for ResultComparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for warning in &self.warnings {
            writeln!(f, "Warning: {warning}")?;
        }
        writeln!(f, "A: {}\nB: {}", self.dates[0], self.dates[1])?;
        for experiment in &self.experiments {
            writeln!(f, "\n{}\n\n{}", experiment.name, aligned(&experiment.table()))?;
            if experiment.unpaired > 0 {
                writeln!(f, "{} cells are in one of the runs only.", experiment.unpaired)?;
            }
        }
        writeln!(
            f,
            "The intervals have a joint confidence level of {:.0} % and include the noise floor. They do not \
             include differences of the machine between the runs.",
            self.confidence * 100.0
        )
    }
}
