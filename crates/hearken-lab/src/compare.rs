//! Comparison of two load tests: the ratio of each metric, its confidence interval and a verdict.
//!
//! Neighbouring intervals of a run are correlated, so standard errors come from a circular block
//! bootstrap over successive intervals (Künsch, "The jackknife and the bootstrap for general
//! stationary observations", Annals of Statistics 17, 1989). If a side has several runs, the runs
//! are resampled too. This gives the standard error of the logarithm of each metric.
//!
//! The confidence interval of a ratio is Student's, with Welch's degrees of freedom, because there
//! may be few blocks. The intervals are widened for the number of metrics (Bonferroni), so their
//! joint confidence level is 95 %.

use std::fmt;

use hearken_load::Report;
use serde::{Deserialize, Serialize};

use crate::stats::student_t_beyond;
use crate::table::{Table, aligned};
use crate::units::{micros, number};

mod bootstrap;
mod metric;
mod runs;
mod verdict;
mod warnings;

pub use metric::Metric;
pub use verdict::Verdict;

use bootstrap::{LogVariance, log_variances};
use runs::Side;

/// Value of [`Comparison::schema`].
pub const SCHEMA: &str = "hearken-compare/2";
/// Joint confidence level of all intervals.
const CONFIDENCE: f64 = 0.95;
/// Description of the method for the JSON output.
const METHOD: &str = "ratios of B to A; standard errors of their logarithms by a circular block \
    bootstrap over intervals (and over runs, if there are several); intervals by Student's t with \
    Welch's degrees of degrees_of_freedom, widened for the number of metrics (Bonferroni) to a joint confidence \
    level of 95 %";

/// Options of a comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Smallest relative difference that is reported as better or worse, as a fraction of 1.
    pub threshold: f64,
    /// Seed of the bootstrap.
    pub seed: u64,
    /// Number of bootstrap resamples.
    pub resamples: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options { threshold: 0.02, seed: 1, resamples: 1000 }
    }
}

/// The result of a comparison. Serialises to JSON; displays as a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// [`SCHEMA`].
    pub schema: String,
    /// Runs and intervals of the first side, the baseline.
    pub a: SideSummary,
    /// Runs and intervals of the second side, which is judged.
    pub b: SideSummary,
    /// Smallest relative difference that is reported as better or worse, as a fraction of 1.
    pub threshold: f64,
    /// Joint confidence level of all intervals.
    pub confidence: f64,
    /// Description of the statistical method.
    pub method: String,
    /// Comparison of each metric.
    pub metrics: Vec<MetricComparison>,
    /// Overall verdict.
    pub verdict: Verdict,
    /// Overall verdict as a sentence.
    pub summary: String,
    /// Reasons to doubt the comparison, as sentences.
    pub warnings: Vec<String>,
}

/// Summary of the input of one side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SideSummary {
    /// Number of runs.
    pub runs: usize,
    /// Number of intervals in all runs.
    pub intervals: usize,
    /// Offered requests per second, mean of the runs.
    pub offered_rate: f64,
}

/// Comparison of one metric.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetricComparison {
    /// Metric that is compared.
    pub metric: Metric,
    /// Value on the first side.
    pub a: f64,
    /// Value on the second side.
    pub b: f64,
    /// Second value divided by the first; none if the ratio is undefined.
    pub ratio: Option<f64>,
    /// Lower end of the confidence interval of the ratio; none if there is too little data.
    pub low: Option<f64>,
    /// Upper end of the confidence interval of the ratio.
    pub high: Option<f64>,
    /// Verdict for this metric.
    pub verdict: Verdict,
}

/// Compares `b` with `a`. Each side is one run or several runs of the same load.
///
/// The reports are not validated here: see [`Report::validate`].
pub fn compare(a: &[Report], b: &[Report], options: &Options) -> Comparison {
    let mut sides = [Side::from_reports(a), Side::from_reports(b)];
    let present = |metric: &Metric| sides.iter().all(|side| side.has_metric(*metric));
    let metrics: Vec<Metric> = Metric::ALL.into_iter().filter(present).collect();
    runs::fill_buckets(&mut sides);
    let [variances_a, variances_b] =
        [0, 1].map(|side| log_variances(&sides[side], options, side as u64));
    let compare_metric = |&metric: &Metric| {
        let variances = (variances_a[metric as usize], variances_b[metric as usize]);
        MetricComparison::new(metric, &sides, variances, metrics.len(), options.threshold)
    };
    let metrics: Vec<MetricComparison> = metrics.iter().map(compare_metric).collect();
    let verdict = Verdict::combine(metrics.iter().map(|figure| figure.verdict));
    Comparison {
        schema: SCHEMA.to_owned(),
        a: sides[0].summary(a),
        b: sides[1].summary(b),
        threshold: options.threshold,
        confidence: CONFIDENCE,
        method: METHOD.to_owned(),
        summary: verdict::summary(verdict, &metrics, options.threshold),
        metrics,
        verdict,
        warnings: warnings::warnings(a, b),
    }
}

impl MetricComparison {
    fn new(
        metric: Metric,
        sides: &[Side; 2],
        variances: (Option<LogVariance>, Option<LogVariance>),
        count: usize,
        threshold: f64,
    ) -> MetricComparison {
        let [a, b] = [0, 1].map(|side: usize| sides[side].value(metric));
        if a == 0.0 && b == 0.0 && variances.0.and(variances.1).is_some() {
            let verdict = Verdict::NoDifferenceDetected;
            return MetricComparison { metric, a, b, ratio: None, low: None, high: None, verdict };
        }
        let adjusted = [0, 1].map(|side: usize| sides[side].adjusted_value(metric));
        let ratio = adjusted[1] / adjusted[0];
        let ratio = (ratio.is_finite() && ratio > 0.0).then_some(ratio);
        let margin = variances.0.zip(variances.1).map(|(a, b)| {
            let (variance, degrees_of_freedom) = a.combine(&b);
            let level = (1.0 - CONFIDENCE) / count.max(1) as f64;
            student_t_beyond(level, degrees_of_freedom) * variance.sqrt()
        });
        let interval = ratio
            .zip(margin)
            .map(|(ratio, margin)| (ratio * (-margin).exp(), ratio * margin.exp()));
        let interval = interval.filter(|(_, high)| high.is_finite());
        MetricComparison {
            metric,
            a,
            b,
            ratio,
            low: interval.map(|(low, _)| low),
            high: interval.map(|(_, high)| high),
            verdict: Verdict::from_interval(metric, ratio, interval, threshold),
        }
    }
}

impl Comparison {
    /// Returns one row for each metric.
    pub fn table(&self) -> Table {
        let head = ["metric", "A", "B", "B/A", "95 % interval", "verdict"].map(String::from);
        let row = |figure: &MetricComparison| {
            let formatted = |value| match figure.metric {
                Metric::ReplyRate => number(value),
                Metric::ErrorRatio => format!("{:.3} %", value * 100.0),
                _ => number(micros(value)),
            };
            let interval = figure.low.zip(figure.high);
            vec![
                figure.metric.name().to_owned(),
                formatted(figure.a),
                formatted(figure.b),
                figure.ratio.map(format_ratio).unwrap_or_default(),
                interval
                    .map(|(l, h)| format!("{} to {}", format_ratio(l), format_ratio(h)))
                    .unwrap_or_default(),
                figure.verdict.to_string(),
            ]
        };
        Table { head: head.to_vec(), rows: self.metrics.iter().map(row).collect() }
    }
}

/// Formats a ratio with three decimals, so that differences of one per cent are visible.
fn format_ratio(value: f64) -> String {
    if value < 100.0 { format!("{value:.3}") } else { number(value) }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, side) in [("A", &self.a), ("B", &self.b)] {
            let (runs, intervals) = (side.runs, side.intervals);
            let plural = if runs == 1 { "" } else { "s" };
            let rate = number(side.offered_rate);
            writeln!(f, "{name}: {runs} run{plural}, {intervals} intervals, {rate}/s offered")?;
        }
        write!(f, "\n{}", aligned(&self.table()))?;
        writeln!(
            f,
            "\nThe intervals have a joint confidence level of {:.0} % (Bonferroni, {} metrics). \
             Differences below {} % are not reported.",
            self.confidence * 100.0,
            self.metrics.len(),
            self.threshold * 100.0
        )?;
        for warning in &self.warnings {
            writeln!(f, "Warning: {warning}")?;
        }
        writeln!(f, "\n{}", self.summary)
    }
}

#[cfg(test)]
mod tests;
