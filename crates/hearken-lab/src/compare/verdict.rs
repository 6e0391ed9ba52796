//! What a difference means.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Figure, Quantity};

/// An interval whose upper end is so many times its lower one tells of no difference.
const SAYS_NOTHING: f64 = 10.0;

/// What is to be thought of B, beside A.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It is better, and by so much that it matters.
    Better,
    /// It is worse, and by so much that it matters.
    Worse,
    /// Better in some figures and worse in others; only of all together.
    Mixed,
    /// It differs, but not by so much that it matters.
    TooSmallToMatter,
    /// The interval contains 1, and is not so wide that it says nothing.
    NoDifferenceSeen,
    /// There is too little to tell.
    TooFewIntervals,
}

impl Verdict {
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
            Verdict::Mixed => "better and worse",
            Verdict::TooSmallToMatter => "too small to matter",
            Verdict::NoDifferenceSeen => "no difference seen",
            Verdict::TooFewIntervals => "too few intervals to say",
        })
    }
}

/// The whole in a sentence.
pub(super) fn sentence(verdict: Verdict, figures: &[Figure], threshold: f64) -> String {
    let named = |wanted: Verdict| {
        let those = figures.iter().filter(|figure| figure.verdict == wanted);
        those.map(told).collect::<Vec<_>>().join(", ")
    };
    match verdict {
        Verdict::Better => format!("B is better: {}.", named(verdict)),
        Verdict::Worse => format!("B is worse: {}.", named(verdict)),
        Verdict::Mixed => format!(
            "B is better in some and worse in other figures. Better: {}. Worse: {}.",
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
                names => format!(" There are too few intervals to say of: {}.", names.join(", ")),
            };
            format!("No difference was seen between A and B.{unknown}")
        }
        Verdict::TooFewIntervals => {
            "There are too few intervals to say; measure for longer, or several times.".to_owned()
        }
    }
}

/// Without its unit.
fn name(figure: &Figure) -> &'static str {
    figure.quantity.name().split(',').next().unwrap_or_default()
}

fn told(figure: &Figure) -> String {
    let name = name(figure);
    let ratio = super::ratio(figure.ratio.unwrap_or(f64::NAN));
    match figure.low.zip(figure.high) {
        Some((low, high)) => {
            format!("{name} {ratio} times ({} to {})", super::ratio(low), super::ratio(high))
        }
        None => format!("{name} {ratio} times"),
    }
}
