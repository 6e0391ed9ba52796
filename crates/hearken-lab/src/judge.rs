//! Verdicts on claims.
//!
//! A test becomes one or more components: a value per repetition, and the interval that the claim states
//! for its mean. A claim is confirmed if every component lies within its interval, and refuted if one lies
//! outside. Both are tests of hypotheses by Student's t over the repetitions, so absence of evidence decides
//! nothing. In particular, equality needs an interval of confidence within the tolerance (Schuirmann, J.
//! Pharmacokin. Biopharm. 15, 1987).
//!
//! A conjunction needs no correction to be confirmed (Berger, Technometrics 24, 1982), and Bonferroni's to be
//! refuted. All claims of a run are corrected together (Holm, Scand. J. Stat. 6, 1979): the probability
//! that a run contains any wrong verdict is at most 5 %.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::claims::{Claim, Selection, Test};
use crate::experiment::Template;
use crate::results::{ExperimentReport, Sample};
use crate::stats::{estimate, student_t_tail};

/// Probability of any wrong verdict in a run.
const LEVEL: f64 = 0.05;
/// Minimum number of repetitions for a verdict.
pub const MIN_REPETITIONS: usize = 5;

/// Description of the method, for the report.
pub const METHOD: &str = "A claim is confirmed if all its quantities lie within the stated bounds and refuted if one \
     lies outside, by one-sided t-tests over at least five repetitions. Distances to a bound are reduced by the \
     difference between two instances of the reference server. Holm's correction covers all claims of the run: the \
     probability of any wrong verdict is at most 5 %.";

/// A decision about a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The data show what the claim states.
    Confirmed,
    /// The data show the contrary.
    Refuted,
    /// The data show neither.
    Undecided,
    /// A claim without data.
    NotRun,
}

impl Verdict {
    /// Returns the word.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Confirmed => "confirmed",
            Verdict::Refuted => "refuted",
            Verdict::Undecided => "undecided",
            Verdict::NotRun => "not run",
        }
    }
}

/// The judgement of a claim.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// Identifier of the claim.
    pub claim: String,
    /// Decision.
    pub verdict: Verdict,
    /// Probability of data as clear as these if the decision were wrong, corrected for the number of claims;
    /// none without data.
    pub p_value: Option<f64>,
    /// Reason why the claim is undecided or was not run.
    pub reason: Option<String>,
    /// Quantities and their bounds.
    pub components: Vec<Component>,
}

/// A quantity of a claim.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Component {
    /// Description.
    pub quantity: String,
    /// Number of repetitions.
    pub repetitions: usize,
    /// Estimate.
    pub value: f64,
    /// Lower end of the 95 % confidence interval.
    pub low: Option<f64>,
    /// Upper end of the 95 % confidence interval.
    pub high: Option<f64>,
    /// Lower bound that the claim states.
    pub min: Option<f64>,
    /// Upper bound that the claim states.
    pub max: Option<f64>,
}

/// A value per repetition on the scale of the test, and its bounds.
struct Series {
    quantity: String,
    values: Vec<f64>,
    low: f64,
    high: f64,
    scale: Scale,
    /// Uncertainty that repetitions do not show.
    floor: f64,
}

/// Scale on which values are normally distributed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scale {
    Linear,
    Logarithmic,
    /// The logarithm of the unexplained share of the variance.
    Residual,
    /// Counts without random error.
    Exact,
}

impl Series {
    fn ratio(
        quantity: String,
        values: Vec<f64>,
        low: Option<f64>,
        high: Option<f64>,
        floor: f64,
    ) -> Series {
        let log = |bound: Option<f64>, none: f64| bound.map_or(none, f64::ln);
        Series {
            quantity,
            values,
            low: log(low, f64::NEG_INFINITY),
            high: log(high, f64::INFINITY),
            scale: Scale::Logarithmic,
            floor,
        }
    }

    /// Returns the probabilities of the values if the mean were outside of the bounds, and if it were inside.
    fn p_values(&self) -> (f64, f64) {
        let n = self.values.len() as f64;
        let mean = self.values.iter().sum::<f64>() / n;
        if self.scale == Scale::Exact {
            let inside = self.values.iter().all(|value| (self.low..=self.high).contains(value));
            return if inside { (0.0, 1.0) } else { (1.0, 0.0) };
        }
        let squares: f64 = self.values.iter().map(|value| (value - mean).powi(2)).sum();
        let error = (squares / (n - 1.0) / n).sqrt();
        // The probability that the mean is at least this far on the right side of a bound by chance.
        let tail = |distance: f64| {
            let distance = distance - self.floor;
            match (distance, error) {
                (distance, _) if distance.is_infinite() => {
                    if distance > 0.0 {
                        0.0
                    } else {
                        1.0
                    }
                }
                (distance, 0.0) => {
                    if distance > 0.0 {
                        0.0
                    } else {
                        1.0
                    }
                }
                (distance, error) => student_t_tail(distance / error, n - 1.0),
            }
        };
        let inside = tail(mean - self.low).max(tail(self.high - mean));
        let outside = tail(self.low - mean).min(tail(mean - self.high));
        let sides = f64::from(u8::from(self.low.is_finite()) + u8::from(self.high.is_finite()));
        (inside, (outside * sides).min(1.0))
    }

    fn component(&self) -> Component {
        let back = |value: f64| match self.scale {
            Scale::Linear | Scale::Exact => value,
            Scale::Logarithmic => value.exp(),
            Scale::Residual => 1.0 - value.exp(),
        };
        let bound = |value: f64| value.is_finite().then(|| back(value));
        let estimate = estimate(self.values.iter().copied());
        let mean = estimate.map_or(f64::NAN, |e| e.mean);
        let margin = estimate.and_then(|e| e.margin);
        let mut interval = [margin.map(|m| back(mean - m)), margin.map(|m| back(mean + m))];
        let mut bounds = [bound(self.low), bound(self.high)];
        if self.scale == Scale::Residual {
            interval.reverse();
            bounds.reverse();
        }
        Component {
            quantity: self.quantity.clone(),
            repetitions: self.values.len(),
            value: back(mean),
            low: interval[0],
            high: interval[1],
            min: bounds[0],
            max: bounds[1],
        }
    }
}

/// Judges the claims with the data of a run.
pub fn judge(claims: &[Claim], experiments: &[ExperimentReport]) -> Vec<Judgement> {
    let mut judgements: Vec<(Judgement, f64, f64)> = Vec::new();
    for claim in claims {
        let mut judgement = Judgement {
            claim: claim.id.clone(),
            verdict: Verdict::Undecided,
            p_value: None,
            reason: None,
            components: Vec::new(),
        };
        match series(claim, experiments) {
            Ok(series) => {
                judgement.components = series.iter().map(Series::component).collect();
                let p: Vec<(f64, f64)> = series.iter().map(Series::p_values).collect();
                let confirm = p.iter().map(|(inside, _)| *inside).fold(0.0, f64::max);
                let refute = p.iter().map(|(_, outside)| *outside).fold(1.0, f64::min);
                let refute = (refute * p.len() as f64).min(1.0);
                judgements.push((judgement, confirm, refute));
            }
            Err((verdict, reason)) => {
                judgement.verdict = verdict;
                judgement.reason = Some(reason);
                judgements.push((judgement, 1.0, 1.0));
            }
        }
    }
    correct(&mut judgements);
    judgements.into_iter().map(|(judgement, ..)| judgement).collect()
}

/// Describes how many claims have each verdict.
pub(crate) fn counts(judgements: &[Judgement]) -> String {
    let all = [Verdict::Confirmed, Verdict::Refuted, Verdict::Undecided, Verdict::NotRun];
    let count = |verdict: &Verdict| {
        let count = judgements.iter().filter(|judgement| judgement.verdict == *verdict).count();
        (count > 0).then(|| format!("{count} {}", verdict.name()))
    };
    let counts: Vec<String> = all.iter().filter_map(count).collect();
    format!("{} claims: {}.", judgements.len(), counts.join(", "))
}

/// Decides by Holm's procedure. For each claim, either "it holds" or "it does not hold" is true, so each
/// counts once.
fn correct(judgements: &mut [(Judgement, f64, f64)]) {
    let mut order: Vec<usize> =
        (0..judgements.len()).filter(|&i| judgements[i].0.reason.is_none()).collect();
    order.sort_by(|&a, &b| {
        let p = |i: usize| judgements[i].1.min(judgements[i].2);
        p(a).total_cmp(&p(b))
    });
    let count = order.len();
    let mut adjusted: f64 = 0.0;
    for (rank, index) in order.into_iter().enumerate() {
        let (judgement, confirm, refute) = &mut judgements[index];
        adjusted = adjusted.max((confirm.min(*refute) * (count - rank) as f64).min(1.0));
        judgement.p_value = Some(adjusted);
        judgement.verdict = match adjusted <= LEVEL {
            true if *confirm < *refute => Verdict::Confirmed,
            true => Verdict::Refuted,
            false => Verdict::Undecided,
        };
        if judgement.verdict == Verdict::Undecided {
            judgement.reason = Some("The intervals contain a bound.".into());
        }
    }
}

/// Returns the components of a claim, or why there is no decision.
fn series(
    claim: &Claim,
    experiments: &[ExperimentReport],
) -> Result<Vec<Series>, (Verdict, String)> {
    let not_run = |reason: String| (Verdict::NotRun, reason);
    let undecided = |reason: String| (Verdict::Undecided, reason);
    let Some(name) = &claim.experiment else {
        let reason = claim.not_run.as_deref().unwrap_or("No experiment settles this claim.");
        return Err(not_run(reason.to_owned()));
    };
    let report = experiments.iter().find(|experiment| experiment.name == *name);
    let report = report.ok_or_else(|| not_run(format!("Experiment '{name}' was not run.")))?;
    let mut all = Vec::new();
    for test in &claim.tests {
        let data = Data { report, metric: test.metric() };
        all.extend(data.components(test).map_err(undecided)?);
    }
    if all.is_empty() {
        return Err(undecided("The claim has no test.".into()));
    }
    match all.iter().find(|series| series.values.len() < MIN_REPETITIONS) {
        Some(few) if few.values.is_empty() => {
            Err(not_run(format!("There are no measurements of {}.", few.quantity)))
        }
        Some(few) => Err(undecided(format!(
            "{} of at least {MIN_REPETITIONS} repetitions have {}.",
            few.values.len(),
            few.quantity
        ))),
        None => Ok(all),
    }
}

/// Values of a metric in an experiment.
struct Data<'a> {
    report: &'a ExperimentReport,
    metric: &'a str,
}

/// The value along an axis to which others are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Base {
    First,
    Previous,
}

/// Values by repetition.
type Values = BTreeMap<u32, f64>;

impl Data<'_> {
    fn components(&self, test: &Test) -> Result<Vec<Series>, String> {
        let ratio =
            |of: &Selection, to: &Selection, fixed, low, high| self.ratio(of, to, fixed, low, high);
        let tolerated = |tolerance: f64| (Some(1.0 / (1.0 + tolerance)), Some(1.0 + tolerance));
        Ok(match test {
            Test::Ratio { of, to, low, high, .. } => vec![ratio(of, to, [None, None], *low, *high)],
            Test::Equivalence { of, to, tolerance, .. } => {
                let (low, high) = tolerated(*tolerance);
                vec![ratio(of, to, [None, None], low, high)]
            }
            Test::Order { ascending, .. } => ascending
                .windows(2)
                .map(|pair| ratio(&pair[1], &pair[0], [None, None], Some(1.0), None))
                .collect(),
            Test::Crossover { of, to, over, below, above, .. } => {
                let at = |value: &'_ Template| (over.clone(), value.to_string());
                let (below, above) = (at(below), at(above));
                vec![
                    ratio(of, to, [Some(&below), Some(&below)], None, Some(1.0)),
                    ratio(of, to, [Some(&above), Some(&above)], Some(1.0), None),
                ]
            }
            Test::Flatness { of, over, tolerance, .. } => {
                let (low, high) = tolerated(*tolerance);
                self.steps(of, over, Base::First, low, high)?
            }
            Test::Monotonicity { of, over, falling, tolerance, .. } => {
                let (low, high) = match falling {
                    true => (None, Some(1.0 + tolerance)),
                    false => (Some(1.0 / (1.0 + tolerance)), None),
                };
                let mut all = self.steps(of, over, Base::Previous, low, high)?;
                let (low, high) = if *falling { (None, Some(1.0)) } else { (Some(1.0), None) };
                let whole = self.steps(of, over, Base::First, low, high)?;
                all.extend(whole.into_iter().last());
                all
            }
            Test::Slope { of, over, low, high, .. } => {
                let fits = self.fits(of, over)?;
                let values = fits.iter().filter_map(Fit::relative_change).collect();
                vec![Series {
                    quantity: format!("{} of {}, change over {over}", self.metric, of.server),
                    values,
                    low: low.unwrap_or(f64::NEG_INFINITY),
                    high: high.unwrap_or(f64::INFINITY),
                    scale: Scale::Linear,
                    floor: self.report.noise_floor(self.metric),
                }]
            }
            Test::Linearity { of, over, r2, .. } => {
                let fits = self.fits(of, over)?;
                vec![Series {
                    quantity: format!("{} of {}, R² over {over}", self.metric, of.server),
                    values: fits.iter().map(|fit| fit.unexplained.max(1e-12).ln()).collect(),
                    low: f64::NEG_INFINITY,
                    high: (1.0 - r2).ln(),
                    scale: Scale::Residual,
                    floor: 0.0,
                }]
            }
            Test::Level { of, low, high, .. } => vec![Series {
                quantity: format!("{} of {}", self.metric, describe(of, None)),
                values: self.values(of, None).into_values().collect(),
                low: low.unwrap_or(f64::NEG_INFINITY),
                high: high.unwrap_or(f64::INFINITY),
                scale: Scale::Linear,
                floor: 0.0,
            }],
            Test::Exact { of, value, .. } => vec![Series {
                quantity: format!("{} of {}", self.metric, describe(of, None)),
                values: self.values(of, None).into_values().collect(),
                low: *value,
                high: *value,
                scale: Scale::Exact,
                floor: 0.0,
            }],
        })
    }

    fn ratio(
        &self,
        of: &Selection,
        to: &Selection,
        [of_at, to_at]: [Option<&(String, String)>; 2],
        low: Option<f64>,
        high: Option<f64>,
    ) -> Series {
        let (numerators, denominators) = (self.values(of, of_at), self.values(to, to_at));
        let log = |(repetition, of): (&u32, &f64)| {
            let to = denominators.get(repetition)?;
            (*of > 0.0 && *to > 0.0).then(|| (of / to).ln())
        };
        let values = numerators.iter().filter_map(log).collect();
        let quantity =
            format!("{}: {} ÷ {}", self.metric, describe(of, of_at), describe(to, to_at));
        Series::ratio(quantity, values, low, high, self.report.noise_floor(self.metric))
    }

    /// Returns the ratios of each value along an axis to an earlier one.
    fn steps(
        &self,
        of: &Selection,
        over: &str,
        base: Base,
        low: Option<f64>,
        high: Option<f64>,
    ) -> Result<Vec<Series>, String> {
        let at: Vec<(String, String)> =
            self.axis(of, over)?.into_iter().map(|value| (over.to_owned(), value)).collect();
        let step = |i: usize| {
            let base = if base == Base::First { 0 } else { i };
            self.ratio(of, of, [Some(&at[i + 1]), Some(&at[base])], low, high)
        };
        Ok((0..at.len().saturating_sub(1)).map(step).collect())
    }

    /// Returns the values of an axis along which a selection is tested.
    fn axis(&self, of: &Selection, name: &str) -> Result<Vec<String>, String> {
        let axis = self
            .report
            .axis(name)
            .ok_or_else(|| format!("The experiment has no axis '{name}'."))?;
        let values: Vec<String> =
            axis.values.iter().filter(|value| of.includes(value)).cloned().collect();
        match values.len() {
            0 | 1 => Err(format!("Axis '{name}' has only one value in this run.")),
            _ => Ok(values),
        }
    }

    /// Fits a line to the values along an axis in each repetition that has all of them.
    fn fits(&self, of: &Selection, over: &str) -> Result<Vec<Fit>, String> {
        let axis = self.axis(of, over)?;
        let mut points: BTreeMap<u32, Vec<(f64, f64)>> = BTreeMap::new();
        for value in &axis {
            let x: f64 = value
                .parse()
                .map_err(|_| format!("The values of axis '{over}' are not numbers."))?;
            for (repetition, y) in self.values(of, Some(&(over.to_owned(), value.clone()))) {
                points.entry(repetition).or_default().push((x, y));
            }
        }
        let complete = points.into_values().filter(|points| points.len() == axis.len());
        Ok(complete.map(|points| Fit::new(&points)).collect())
    }

    /// Returns the values of a selection, with another value of an axis.
    fn values(&self, of: &Selection, fixed: Option<&(String, String)>) -> Values {
        let matches = |sample: &&Sample| {
            sample.server == of.server
                && self.report.axes.iter().all(|axis| {
                    let own = sample.values.get(&axis.name).map(String::as_str);
                    let at = of.at.get(&axis.name).map(Template::as_str);
                    let first = axis.values.first().map(String::as_str);
                    match fixed.filter(|(name, _)| *name == axis.name) {
                        Some((_, value)) => own == Some(value),
                        None if of.max_over.as_ref() == Some(&axis.name) => {
                            own.is_some_and(|own| of.includes(own))
                        }
                        None => own == at.or(first),
                    }
                })
        };
        let mut values = Values::new();
        for sample in self.report.samples.iter().filter(matches) {
            let Some(&value) = sample.metrics.get(self.metric) else { continue };
            let highest = values.entry(sample.repetition).or_insert(value);
            *highest = highest.max(value);
        }
        values
    }
}

fn describe(selection: &Selection, fixed: Option<&(String, String)>) -> String {
    let mut text = selection.server.clone();
    let at = selection.at.iter().map(|(axis, value)| (axis.as_str(), value.as_str()));
    for (axis, value) in at.chain(fixed.map(|(axis, value)| (axis.as_str(), value.as_str()))) {
        text += &format!(", {axis} {value}");
    }
    if let Some(axis) = &selection.max_over {
        text += &format!(", highest over {axis}");
    }
    text
}

/// A line through points by least squares.
struct Fit {
    start: f64,
    change: f64,
    /// Share of the variance that the line does not explain.
    unexplained: f64,
}

impl Fit {
    fn new(points: &[(f64, f64)]) -> Fit {
        let n = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
        let (x, y) = (mean(|p| p.0), mean(|p| p.1));
        let sum = |of: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>();
        let slope = sum(&|p| (p.0 - x) * (p.1 - y)) / sum(&|p| (p.0 - x).powi(2)).max(1e-300);
        let residual = sum(&|p| (p.1 - y - slope * (p.0 - x)).powi(2));
        let first = points.iter().map(|p| p.0).fold(f64::INFINITY, f64::min);
        let last = points.iter().map(|p| p.0).fold(f64::NEG_INFINITY, f64::max);
        Fit {
            start: y + slope * (first - x),
            change: slope * (last - first),
            unexplained: residual / sum(&|p| (p.1 - y).powi(2)).max(1e-300),
        }
    }

    fn relative_change(&self) -> Option<f64> {
        (self.start > 0.0).then(|| self.change / self.start)
    }
}
