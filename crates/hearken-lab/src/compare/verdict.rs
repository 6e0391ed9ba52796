//! Verdicts on differences between metrics.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Figure, Quantity};

/// Ratio of the ends of an interval above which it contains too little information.
const SAYS_NOTHING: f64 = 10.0;

/// Verdict on side B relative to side A.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Better by at least the threshold.
    Better,
    /// Worse by at least the threshold.
    Worse,
    /// Better in some metrics and worse in others. Only used as the overall verdict.
    Mixed,
    /// A difference smaller than the threshold.
    TooSmallToMatter,
    /// The confidence interval contains 1 and is reasonably narrow.
    NoDifferenceSeen,
    /// Too little data for a verdict.
    TooFewIntervals,
}

impl Verdict {
    /// Judges a ratio by its confidence interval.
    pub(super) fn of(
        quantity: Quantity,
        ratio: Option<f64>,
        interval: Option<(f64, f64)>,
        threshold: f64,
    ) -> Verdict {
        let (Some(ratio), Some((low, high))) = (ratio, interval) else {
            return Verdict::TooFewIntervals;
        };
        if low <= 1.0 && 1.0 <= high && high > low * SAYS_NOTHING {
            Verdict::TooFewIntervals
        } else if low <= 1.0 && 1.0 <= high {
            Verdict::NoDifferenceSeen
        } else if (ratio - 1.0).abs() < threshold {
            Verdict::TooSmallToMatter
        } else if (ratio > 1.0) == quantity.more_is_better() {
            Verdict::Better
        } else {
            Verdict::Worse
        }
    }

    /// Combines the verdicts on all metrics.
    pub(super) fn of_all(each: impl Iterator<Item = Verdict>) -> Verdict {
        let each: Vec<Verdict> = each.collect();
        let any = |verdict| each.contains(&verdict);
        match (any(Verdict::Better), any(Verdict::Worse)) {
            (true, true) => Verdict::Mixed,
            (true, false) => Verdict::Better,
            (false, true) => Verdict::Worse,
            _ if any(Verdict::TooSmallToMatter) => Verdict::TooSmallToMatter,
            _ if any(Verdict::NoDifferenceSeen) => Verdict::NoDifferenceSeen,
            _ => Verdict::TooFewIntervals,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::Mixed => "mixed",
            Verdict::TooSmallToMatter => "below threshold",
            Verdict::NoDifferenceSeen => "no difference detected",
            Verdict::TooFewIntervals => "insufficient data",
        })
    }
}

/// Returns the overall verdict as a sentence.
pub(super) fn sentence(verdict: Verdict, figures: &[Figure], threshold: f64) -> String {
    let named = |wanted: Verdict| {
        let those = figures.iter().filter(|figure| figure.verdict == wanted);
        those.map(told).collect::<Vec<_>>().join(", ")
    };
    match verdict {
        Verdict::Better => format!("B is better: {}.", named(verdict)),
        Verdict::Worse => format!("B is worse: {}.", named(verdict)),
        Verdict::Mixed => format!(
            "B is better in some metrics and worse in others. Better: {}. Worse: {}.",
            named(Verdict::Better),
            named(Verdict::Worse)
        ),
        Verdict::TooSmallToMatter => {
            format!("A and B differ by less than {} %.", threshold * 100.0)
        }
        Verdict::NoDifferenceSeen => {
            let unknown = figures.iter().filter(|f| f.verdict == Verdict::TooFewIntervals);
            let unknown: Vec<_> = unknown.map(name).collect();
            let unknown = match &unknown[..] {
                [] => String::new(),
                names => format!(" Insufficient data for: {}.", names.join(", ")),
            };
            format!("No difference detected between A and B.{unknown}")
        }
        Verdict::TooFewIntervals => {
            "Insufficient data: measure for longer or repeat the runs.".to_owned()
        }
    }
}

/// Returns the name of a metric without its unit.
fn name(figure: &Figure) -> &'static str {
    figure.quantity.name().split(',').next().unwrap_or_default()
}

/// Formats the ratio of a metric and its confidence interval.
fn told(figure: &Figure) -> String {
    let name = name(figure);
    let ratio = super::ratio(figure.ratio.unwrap_or(f64::NAN));
    match figure.low.zip(figure.high) {
        Some((low, high)) => {
            format!(
                "{name} {ratio} times (95 % CI {} to {})",
                super::ratio(low),
                super::ratio(high)
            )
        }
        None => format!("{name} {ratio} times"),
    }
}
