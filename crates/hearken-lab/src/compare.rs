//! Two loads compared: each figure as a ratio with its confidence interval, and a verdict by it.
//!
//! A run is resampled in blocks of successive intervals, since what one interval is like tells of the
//! next (Künsch, "The jackknife and the bootstrap for general stationary observations", Annals of
//! Statistics 17, 1989); where a side has several runs, they are resampled too. That gives the
//! standard error of the logarithm of each figure; the interval of the ratio of two is Student's, with
//! Welch's degrees of freedom, as there may be few blocks. As several figures are looked at, each
//! interval is the wider for it (Bonferroni), so that 95 % is the chance that all of them hold.

use std::fmt;

use hearken_load::Report;
use serde::{Deserialize, Serialize};

use crate::stats::student_t_beyond;
use crate::table::{Table, aligned};
use crate::units::{micros, number};

mod bootstrap;
mod caveats;
mod quantity;
mod runs;
mod verdict;

pub use quantity::Quantity;
pub use verdict::Verdict;

use bootstrap::{Spread, spreads};
use runs::Side;

/// The value of [`Comparison::schema`].
pub const SCHEMA: &str = "hearken-compare/1";
/// How sure the intervals are, all together.
const CONFIDENCE: f64 = 0.95;
/// How the intervals were made, for whoever reads the JSON.
const METHOD: &str = "ratios of B to A; standard errors of their logarithms by a circular block \
    bootstrap over intervals (and over runs, where there are several), intervals by Student's t with \
    Welch's degrees of freedom, widened for the number of figures (Bonferroni) so that all of them \
    hold with 95 %";

/// How to compare.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The smallest difference that matters, as a part of 1.
    pub threshold: f64,
    /// What the resamples are drawn from.
    pub seed: u64,
    /// How many there are.
    pub resamples: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options { threshold: 0.02, seed: 1, resamples: 1000 }
    }
}

/// What came of comparing. Serialises to JSON; displays as a table for people.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// [`SCHEMA`].
    pub schema: String,
    /// Runs and intervals of the first side.
    pub a: Compared,
    /// And of the second, which is judged.
    pub b: Compared,
    /// The smallest difference that matters, as a part of 1.
    pub threshold: f64,
    /// The chance that all intervals hold.
    pub confidence: f64,
    /// How they were made.
    pub method: String,
    /// Figure by figure.
    pub figures: Vec<Figure>,
    /// What the figures say together.
    pub verdict: Verdict,
    /// The same as a sentence.
    pub sentence: String,
    /// What casts doubt on it, in sentences.
    pub warnings: Vec<String>,
}

/// What a side is made of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// How many runs.
    pub runs: usize,
    /// How many intervals, of all runs.
    pub intervals: usize,
    /// What was offered, per second, in the mean of the runs.
    pub offered_rate: f64,
}

/// A figure of both sides.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// What it is.
    pub quantity: Quantity,
    /// Of the first side.
    pub a: f64,
    /// Of the second.
    pub b: f64,
    /// The second divided by the first; none where that is no number.
    pub ratio: Option<f64>,
    /// Lower end of the interval of the ratio; none where there is too little to say.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// What it says.
    pub verdict: Verdict,
}

/// Compares `b` with `a`, each a run or several of the same. The reports are taken as they are: see
/// [`Report::check`].
pub fn compare(a: &[Report], b: &[Report], options: &Options) -> Comparison {
    let mut sides = [Side::of(a), Side::of(b)];
    let present = |quantity: &Quantity| sides.iter().all(|side| side.has(*quantity));
    let quantities: Vec<Quantity> = Quantity::ALL.into_iter().filter(present).collect();
    runs::put_on_one_axis(&mut sides);
    let [of_a, of_b] = [0, 1].map(|side| spreads(&sides[side], options, side as u64));
    let figure = |&quantity: &Quantity| {
        let spread = (of_a[quantity as usize], of_b[quantity as usize]);
        Figure::of(quantity, &sides, spread, quantities.len(), options.threshold)
    };
    let figures: Vec<Figure> = quantities.iter().map(figure).collect();
    let verdict = Verdict::of_all(figures.iter().map(|figure| figure.verdict));
    Comparison {
        schema: SCHEMA.to_owned(),
        a: sides[0].told(a),
        b: sides[1].told(b),
        threshold: options.threshold,
        confidence: CONFIDENCE,
        method: METHOD.to_owned(),
        sentence: verdict::sentence(verdict, &figures, options.threshold),
        figures,
        verdict,
        warnings: caveats::caveats(a, b),
    }
}

impl Figure {
    fn of(
        quantity: Quantity,
        sides: &[Side; 2],
        spread: (Option<Spread>, Option<Spread>),
        family: usize,
        threshold: f64,
    ) -> Figure {
        let [a, b] = [0, 1].map(|side: usize| sides[side].shown(quantity));
        if a == 0.0 && b == 0.0 && spread.0.and(spread.1).is_some() {
            let verdict = Verdict::NoDifferenceSeen;
            return Figure { quantity, a, b, ratio: None, low: None, high: None, verdict };
        }
        let compared = [0, 1].map(|side: usize| sides[side].compared(quantity));
        let ratio = compared[1] / compared[0];
        let ratio = (ratio.is_finite() && ratio > 0.0).then_some(ratio);
        let margin = spread.0.zip(spread.1).map(|(a, b)| {
            let (variance, freedom) = a.and(&b);
            let chance = (1.0 - CONFIDENCE) / family.max(1) as f64;
            student_t_beyond(chance, freedom) * variance.sqrt()
        });
        let interval = ratio
            .zip(margin)
            .map(|(ratio, margin)| (ratio * (-margin).exp(), ratio * margin.exp()));
        let interval = interval.filter(|(_, high)| high.is_finite());
        Figure {
            quantity,
            a,
            b,
            ratio,
            low: interval.map(|(low, _)| low),
            high: interval.map(|(_, high)| high),
            verdict: Verdict::of(quantity, ratio, interval, threshold),
        }
    }
}

impl Comparison {
    /// Figure by figure, as rows of text.
    pub fn table(&self) -> Table {
        let head = ["figure", "A", "B", "B/A", "interval", "verdict"].map(String::from);
        let row = |figure: &Figure| {
            let shown = |value| match figure.quantity {
                Quantity::ReplyRate => number(value),
                Quantity::ErrorShare => format!("{:.3} %", value * 100.0),
                _ => number(micros(value)),
            };
            let interval = figure.low.zip(figure.high);
            vec![
                figure.quantity.name().to_owned(),
                shown(figure.a),
                shown(figure.b),
                figure.ratio.map(ratio).unwrap_or_default(),
                interval.map(|(l, h)| format!("{} to {}", ratio(l), ratio(h))).unwrap_or_default(),
                figure.verdict.to_string(),
            ]
        };
        Table { head: head.to_vec(), rows: self.figures.iter().map(row).collect() }
    }
}

/// Three decimals: a difference of a per cent is to be seen.
fn ratio(value: f64) -> String {
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
            "\nThe intervals hold all together with {:.0} % (Bonferroni, {} figures); below {} % no \
             difference matters.",
            self.confidence * 100.0,
            self.figures.len(),
            self.threshold * 100.0
        )?;
        for warning in &self.warnings {
            writeln!(f, "Warning: {warning}")?;
        }
        writeln!(f, "\n{}", self.sentence)
    }
}

#[cfg(test)]
mod tests;
