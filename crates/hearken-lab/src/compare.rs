//! Comparison of two load tests: the ratio of each metric, its confidence interval and a verdict.
//!
//! Each side consists of several runs. Runs vary more than the intervals within a run suggest, so the run
//! is the unit of replication: each run contributes one value of each metric, and a single run per side
//! allows no verdict.
//!
//! If the runs of both sides alternate, each pair of neighbouring runs is a block, and Student's t
//! interval applies to the logarithms of the ratios of the pairs, from which a drift of the machine
//! cancels out. Otherwise Welch's interval applies to the difference of the mean logarithms. The
//! intervals are widened for the number of metrics (Bonferroni), so their joint confidence level is 95 %.
//!
//! Student's interval is valid for few runs. If the values of runs have heavy tails, it is wider than
//! necessary. Two runs that agree by chance would have a short interval, so the standard deviation between
//! runs is never taken to be less than 0.5 %.

use std::fmt;

use hearken_load::Report;
use serde::{Deserialize, Serialize};

use crate::table::{Table, aligned};
use crate::units::{duration, number};

mod design;
mod interval;
mod metric;
mod results;
mod sample;
mod verdict;
mod warnings;

pub use metric::Metric;
pub use results::{
    ExperimentComparison, RESULT_SCHEMA, Relation, ResultComparison, RowComparison, compare_results,
};
pub use verdict::Verdict;

use design::Design;
use interval::LogRatio;
use sample::{Sample, Samples};

/// Value of [`Comparison::schema`].
pub const SCHEMA: &str = "hearken-compare/3";
/// Joint confidence level of all intervals.
const CONFIDENCE: f64 = 0.95;
/// Description of the method for the JSON output.
const METHOD: &str = "ratios of B to A of the geometric means over runs; intervals on the logarithms by \
    Student's t over pairs of neighbouring runs, or by Welch's over runs that do not alternate, widened for \
    the number of metrics (Bonferroni) to a joint confidence level of 95 %";

/// Options of a comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Smallest relative difference that is reported as better or worse, as a fraction of 1.
    pub threshold: f64,
}

impl Default for Options {
    fn default() -> Options {
        Options { threshold: 0.02 }
    }
}

/// The result of a comparison. Serialises to JSON; displays as a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// [`SCHEMA`].
    pub schema: String,
    /// Runs of the first side, the baseline.
    pub a: SideSummary,
    /// Runs of the second side, which is judged.
    pub b: SideSummary,
    /// Whether the runs alternate, so that neighbouring runs are compared as pairs.
    pub paired: bool,
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
    /// URL of the first run.
    pub url: String,
    /// Offered requests per second, mean of the runs.
    pub offered_rate: f64,
}

/// Comparison of one metric.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetricComparison {
    /// Metric that is compared.
    pub metric: Metric,
    /// Geometric mean over the runs of the first side; the arithmetic mean of error ratios.
    pub a: f64,
    /// The same of the second side.
    pub b: f64,
    /// Second value divided by the first; none if the ratio is undefined. The ratio of errors is finite,
    /// because half an error is added to each run; it is none if neither side has errors.
    pub ratio: Option<f64>,
    /// Lower end of the confidence interval of the ratio; none if there is too little data.
    pub low: Option<f64>,
    /// Upper end of the confidence interval of the ratio.
    pub high: Option<f64>,
    /// Verdict for this metric.
    pub verdict: Verdict,
}

/// Compares `b` with `a`. Each side consists of runs of the same load.
///
/// The reports are not validated here: see [`Report::validate`].
pub fn compare(a: &[Report], b: &[Report], options: &Options) -> Comparison {
    let starts = [a, b].map(|side| side.iter().map(|r| r.started_unix_ns).collect::<Vec<_>>());
    let pairs = Design { a: &starts[0], b: &starts[1] }.pairs();
    let sides = [a, b].map(|side| side.iter().map(sample::samples).collect::<Vec<_>>());
    let metrics = compare_samples(&sides[0], &sides[1], pairs.as_deref(), options);
    let verdict = Verdict::combine(metrics.iter().map(|figure| figure.verdict));
    Comparison {
        schema: SCHEMA.to_owned(),
        a: SideSummary::from_reports(a),
        b: SideSummary::from_reports(b),
        paired: pairs.is_some(),
        threshold: options.threshold,
        confidence: CONFIDENCE,
        method: METHOD.to_owned(),
        summary: verdict::summary(verdict, &metrics, options.threshold, a.len().min(b.len())),
        metrics,
        verdict,
        warnings: warnings::warnings(a, b),
    }
}

/// Compares all metrics that both sides have measured.
fn compare_samples(
    a: &[Samples],
    b: &[Samples],
    pairs: Option<&[(usize, usize)]>,
    options: &Options,
) -> Vec<MetricComparison> {
    let of = |side: &[Samples], metric: Metric| -> Vec<Option<Sample>> {
        side.iter().map(|run| run[metric as usize]).collect()
    };
    let measured = |runs: &[Option<Sample>]| runs.iter().any(Option::is_some);
    let columns = Metric::ALL.map(|metric| (metric, of(a, metric), of(b, metric)));
    let columns = columns.into_iter().filter(|(_, a, b)| measured(a) && measured(b));
    let estimated: Vec<_> = columns
        .map(|(metric, a, b)| {
            let ratio = LogRatio::new(&a, &b, pairs);
            let figure = MetricComparison::without_interval(metric, &a, &b, ratio.is_some());
            (figure, ratio)
        })
        .collect();
    // Metrics without a ratio or an interval cannot cause a false verdict.
    let judged = |(figure, ratio): &&(MetricComparison, Option<LogRatio>)| {
        figure.ratio.is_some() && ratio.is_some()
    };
    let level = (1.0 - CONFIDENCE) / estimated.iter().filter(judged).count().max(1) as f64;
    let threshold = options.threshold;
    let judge = |(figure, ratio): (MetricComparison, Option<LogRatio>)| match ratio {
        Some(ratio) if figure.ratio.is_some() => figure.with_interval(&ratio, level, threshold),
        _ => figure,
    };
    estimated.into_iter().map(judge).collect()
}

impl SideSummary {
    fn from_reports(reports: &[Report]) -> SideSummary {
        let offered: f64 = reports.iter().map(|report| report.offered_rate).sum();
        SideSummary {
            runs: reports.len(),
            url: reports.first().map(|report| report.url.clone()).unwrap_or_default(),
            offered_rate: offered / reports.len().max(1) as f64,
        }
    }
}

impl MetricComparison {
    /// Creates the comparison of a metric from the values alone. `judged` tells whether there is enough
    /// data for a verdict.
    fn without_interval(
        metric: Metric,
        a: &[Option<Sample>],
        b: &[Option<Sample>],
        judged: bool,
    ) -> MetricComparison {
        let mean = |runs: &[Option<Sample>], of: fn(&Sample) -> f64| {
            let runs = runs.iter().flatten();
            runs.clone().map(of).sum::<f64>() / runs.count() as f64
        };
        let (verdict, low, high) = (Verdict::InsufficientData, None, None);
        if metric == Metric::ErrorRatio {
            let [a_mean, b_mean] = [a, b].map(|runs| mean(runs, |sample| sample.value));
            let none = a_mean == 0.0 && b_mean == 0.0;
            let log = |runs| mean(runs, |sample| sample.log.unwrap_or(f64::NAN));
            let ratio = (!none).then(|| (log(b) - log(a)).exp());
            let verdict = if none && judged { Verdict::NoDifferenceDetected } else { verdict };
            return MetricComparison { metric, a: a_mean, b: b_mean, ratio, low, high, verdict };
        }
        let [a, b] = [a, b].map(|runs| mean(runs, |sample| sample.value.ln()).exp());
        let ratio = Some(b / a).filter(|ratio| ratio.is_finite() && *ratio > 0.0);
        MetricComparison { metric, a, b, ratio, low, high, verdict }
    }

    /// Adds the confidence interval at a significance level, and the verdict.
    fn with_interval(self, ratio: &LogRatio, level: f64, threshold: f64) -> MetricComparison {
        let margin = ratio.margin(level);
        let (low, high) = ((ratio.mean - margin).exp(), (ratio.mean + margin).exp());
        let interval = Some((low, high)).filter(|(_, high)| high.is_finite());
        MetricComparison {
            low: interval.map(|(low, _)| low),
            high: interval.map(|(_, high)| high),
            verdict: Verdict::from_interval(self.metric, self.ratio, interval, threshold),
            ..self
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
                _ => duration(value),
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
    match value {
        v if v >= 9999.5 || (v > 0.0 && v < 0.0005) => format!("{v:.0e}"),
        v if v >= 100.0 => number(v),
        v => format!("{v:.3}"),
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for warning in &self.warnings {
            writeln!(f, "Warning: {warning}")?;
        }
        if !self.warnings.is_empty() {
            writeln!(f)?;
        }
        for (name, SideSummary { runs, url, offered_rate }) in [("A", &self.a), ("B", &self.b)] {
            let plural = if *runs == 1 { "" } else { "s" };
            writeln!(
                f,
                "{name}: {runs} run{plural} of {url}, {}/s offered",
                number(*offered_rate)
            )?;
        }
        write!(f, "\n{}", aligned(&self.table()))?;
        if self.metrics.iter().any(|figure| figure.low.is_some()) {
            writeln!(
                f,
                "\nThe {} have a joint confidence level of {:.0} %.\n\
                 Differences below {} % are not reported.",
                if self.paired { "intervals over pairs of runs" } else { "intervals over runs" },
                self.confidence * 100.0,
                self.threshold * 100.0
            )?;
        }
        writeln!(f, "\n{}", self.summary)
    }
}

#[cfg(test)]
mod tests;
