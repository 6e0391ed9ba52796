//! Verdicts on differences between metrics.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Metric, MetricComparison};

/// Ratio of the ends of an interval above which it contains too little information.
const MAX_INTERVAL_RATIO: f64 = 10.0;

/// Verdict on side B relative to side A.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Verdict {
    /// Better by at least the threshold.
    Better,
    /// Worse by at least the threshold.
    Worse,
    /// Better in some metrics and worse in others. Only used as the overall verdict.
    Mixed,
    /// A difference smaller than the threshold.
    BelowThreshold,
    /// The confidence interval contains 1 and is reasonably narrow.
    NoDifferenceDetected,
    /// Too little data for a verdict.
    InsufficientData,
}

impl Verdict {
    /// Judges a ratio by its confidence interval.
    pub(super) fn from_interval(
        metric: Metric,
        ratio: Option<f64>,
        interval: Option<(f64, f64)>,
        threshold: f64,
    ) -> Verdict {
        let (Some(ratio), Some((low, high))) = (ratio, interval) else {
            return Verdict::InsufficientData;
        };
        if low <= 1.0 && 1.0 <= high && high > low * MAX_INTERVAL_RATIO {
            Verdict::InsufficientData
        } else if low <= 1.0 && 1.0 <= high {
            Verdict::NoDifferenceDetected
        } else if (ratio - 1.0).abs() < threshold {
            Verdict::BelowThreshold
        } else if (ratio > 1.0) == metric.higher_is_better() {
            Verdict::Better
        } else {
            Verdict::Worse
        }
    }

    /// Combines the verdicts on all metrics.
    pub(super) fn combine(verdicts: impl Iterator<Item = Verdict>) -> Verdict {
        let verdicts: Vec<Verdict> = verdicts.collect();
        let any = |verdict| verdicts.contains(&verdict);
        match (any(Verdict::Better), any(Verdict::Worse)) {
            (true, true) => Verdict::Mixed,
            (true, false) => Verdict::Better,
            (false, true) => Verdict::Worse,
            _ if any(Verdict::BelowThreshold) => Verdict::BelowThreshold,
            _ if any(Verdict::NoDifferenceDetected) => Verdict::NoDifferenceDetected,
            _ => Verdict::InsufficientData,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::Mixed => "mixed",
            Verdict::BelowThreshold => "below threshold",
            Verdict::NoDifferenceDetected => "no difference",
            Verdict::InsufficientData => "too little data",
        })
    }
}

/// Explanation of a comparison with a single run on a side.
const SINGLE_RUN: &str = "One run of a side cannot tell a difference from the variation between \
    runs, so there is no verdict. Measure both sides several times, alternately: hearken load ab A B";

/// Returns the overall verdict as a sentence. `runs` is the smaller number of runs of a side.
pub(super) fn summary(
    verdict: Verdict,
    figures: &[MetricComparison],
    threshold: f64,
    runs: usize,
) -> String {
    if runs == 1 {
        return SINGLE_RUN.to_owned();
    }
    let list = |wanted: Verdict| {
        let selected = figures.iter().filter(|figure| figure.verdict == wanted);
        selected.map(describe).collect::<Vec<_>>().join(", ")
    };
    match verdict {
        Verdict::Better => format!("B is better: {}.", list(verdict)),
        Verdict::Worse => format!("B is worse: {}.", list(verdict)),
        Verdict::Mixed => format!(
            "B is better in some metrics and worse in others. Better: {}. Worse: {}.",
            list(Verdict::Better),
            list(Verdict::Worse)
        ),
        Verdict::BelowThreshold => {
            format!("A and B differ by less than {} %.", threshold * 100.0)
        }
        Verdict::NoDifferenceDetected => {
            let unknown = figures.iter().filter(|f| f.verdict == Verdict::InsufficientData);
            let unknown: Vec<_> = unknown.map(|figure| figure.metric.name()).collect();
            let unknown = match &unknown[..] {
                [] => String::new(),
                names => format!(" Insufficient data for: {}.", names.join(", ")),
            };
            format!("No difference detected between A and B.{unknown}")
        }
        Verdict::InsufficientData => {
            "Insufficient data: measure for longer or more often.".to_owned()
        }
    }
}

/// Formats the ratio of a metric and its confidence interval.
fn describe(figure: &MetricComparison) -> String {
    let name = figure.metric.name();
    let ratio = super::format_ratio(figure.ratio.unwrap_or(f64::NAN));
    match figure.low.zip(figure.high) {
        Some((low, high)) => {
            format!(
                "{name} {ratio} times (95 % CI {} to {})",
                super::format_ratio(low),
                super::format_ratio(high)
            )
        }
        None => format!("{name} {ratio} times"),
    }
}
