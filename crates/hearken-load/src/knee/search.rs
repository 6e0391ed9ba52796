//! The search algorithm, which selects the rate of the next trial. It uses no server and no clock.

use std::time::Duration;

use super::posterior::Posterior;
use super::{Knee, KneeOptions, LimitedBy, Purpose, SCHEMA, Trial};
use crate::report::Model;
use crate::trial_runner;

/// Minimum number of trials near the knee. Fewer tell too little about the steepness of the curve.
const MIN_EDGE_TRIALS: u32 = 8;

/// Maximum number of consecutive recovery trials. The pause doubles before each.
const MAX_RECOVERY_TRIALS: u32 = 5;

/// Ratio of two rates that are close enough to locate the generator's own limit.
const CLOSE_RATIO: f64 = 1.1;

/// The next step of a search.
pub type Step = trial_runner::Step<Purpose, Knee>;

/// A search for the maximum rate that meets objectives, from trials with noisy results.
///
/// The rate doubles until the objectives are not met twice in a row. From then on the search
/// maintains a posterior distribution of the knee (Bayes). The model is a probability of meeting
/// the objectives that falls with the rate along a logistic curve of unknown steepness, with some
/// outliers. Each rate is drawn from the likely range. Thus rates go up and down, and the effect of
/// the rate is not confounded with changes over time. The search ends when the 95 % interval is
/// narrow enough. Results of the first phase do not count, because the server may not have been
/// warmed up.
///
/// After a failed trial the search pauses, then runs short recovery trials at a lower rate until
/// one passes. Thus a backlog or a slow recovery does not affect the next trial.
///
/// ```
/// use hearken_load::knee::{KneeOptions, Search, Step, Trial};
///
/// let mut search = Search::new(&KneeOptions::default());
/// let knee = loop {
///     match search.step() {
///         Step::Try { pause, rate, duration, .. } => {
///             let trial = Trial { passed: rate < 5000.0, replies: 1, ..Trial::default() };
///             search.record(trial, pause + duration);
///         }
///         Step::Done(knee) => break knee,
///     }
/// };
/// assert!((4900.0..5100.0).contains(&knee.rate));
/// ```
#[derive(Debug)]
pub struct Search {
    options: KneeOptions,
    random: fastrand::Rng,
    phase: Phase,
    /// Maximum rate that met the objectives so far.
    best: Option<f64>,
    /// Rate and purpose of the trial whose result is awaited.
    pending: Option<(f64, Purpose)>,
    /// Number of failed recovery trials, while the server recovers.
    recovering: Option<u32>,
    trials: Vec<Trial>,
    /// Number of trials that count towards the maximum.
    trial_count: u32,
    elapsed: Duration,
    /// The limiting factor, once the search is over.
    outcome: Option<LimitedBy>,
    notes: Vec<String>,
}

#[derive(Debug)]
enum Phase {
    /// Increases the rate until the objectives are not met.
    Bracket {
        next: f64,
        low: Option<f64>,
        /// Rate that failed, and whether the generator was the limit.
        high: Option<(f64, bool)>,
        /// Whether the last trial at this rate failed.
        again: bool,
        /// Number of successful trials at the maximum rate.
        at_most: u32,
    },
    /// Samples rates around the knee.
    Edge {
        posterior: Posterior,
        /// Numbers of trials that the posterior includes, and that were discarded.
        counted: u32,
        discarded: u32,
        /// Quantiles of the posterior at which the next trials are run.
        quantiles: Vec<f64>,
        top: f64,
    },
}

impl Phase {
    fn bracket(next: f64, low: Option<f64>) -> Phase {
        Phase::Bracket { next, low, high: None, again: false, at_most: 0 }
    }
}

impl Search {
    /// Creates a search.
    pub fn new(options: &KneeOptions) -> Search {
        Search {
            options: options.clone(),
            random: fastrand::Rng::with_seed(options.seed),
            phase: Phase::bracket(options.start.clamp(options.min_rate, options.max_rate), None),
            best: None,
            pending: None,
            recovering: None,
            trials: Vec::new(),
            trial_count: 0,
            elapsed: Duration::ZERO,
            outcome: None,
            notes: Vec::new(),
        }
    }

    /// Returns the next step. It stays the same until [`record`](Search::record) is called.
    pub fn step(&mut self) -> Step {
        if self.outcome.is_some() {
            return Step::Done(Box::new(self.result()));
        }
        let KneeOptions { pause, trial, .. } = self.options;
        let (pause, duration) = match self.recovering {
            Some(looked) => (pause * 2u32.saturating_pow(looked), trial / 4),
            None => (pause, trial),
        };
        if self.trial_count >= self.options.max_trials
            || self.elapsed + pause + duration > self.options.max_time
        {
            self.notes.push(format!(
                "the search ended after {} trials and {:.0} s, before it reached the target precision",
                self.trial_count,
                self.elapsed.as_secs_f64()
            ));
            self.outcome = Some(self.limit_so_far());
            return self.step();
        }
        let recovery = self.recovering.map(|looked| self.recovery_rate(looked));
        let (rate, purpose) = *self.pending.get_or_insert_with(|| match &mut self.phase {
            _ if recovery.is_some() => (recovery.unwrap_or_default(), Purpose::Recovery),
            Phase::Bracket { next, .. } => (*next, Purpose::Bracket),
            Phase::Edge { posterior, quantiles: places, .. } => {
                if places.is_empty() {
                    let end = if self.random.bool() { 0.03 } else { 0.97 };
                    places.extend([0.3, 0.5, 0.7].map(|at| at + self.random.f64() * 0.2 - 0.1));
                    places.push(end);
                    self.random.shuffle(places);
                }
                let place = places.pop().unwrap_or(0.5);
                (posterior.quantile(place).min(self.options.max_rate), Purpose::Refine)
            }
        });
        Step::Try { pause, rate, duration, purpose }
    }

    /// Returns the rate of a recovery trial: one that the server can certainly handle. It is lower
    /// after some failures, because earlier successes may have been chance.
    fn recovery_rate(&self, looked: u32) -> f64 {
        let met = match &self.phase {
            Phase::Bracket { low, .. } => low.or(self.best).unwrap_or(0.0),
            Phase::Edge { posterior, .. } => posterior.quantile(0.025),
        };
        let part = [0.8, 0.8, 0.4, 0.2, 0.1][looked.min(4) as usize];
        (met * part).max(self.options.min_rate)
    }

    /// Records the result of the last step, which took `took` including its pause. The rate and the
    /// purpose of `trial` are filled in.
    pub fn record(&mut self, mut trial: Trial, took: Duration) {
        let Some((rate, purpose)) = self.pending.take() else { return };
        self.elapsed += took;
        trial.rate = rate;
        trial.purpose = purpose;
        let outcome = Outcome { rate, met: trial.passed, late: trial.generator_limited };
        let replies = trial.replies;
        self.trials.push(trial);
        if let Some(looked) = self.recovering {
            self.recovering = (!outcome.met).then_some(looked + 1);
            if self.recovering == Some(MAX_RECOVERY_TRIALS) {
                self.notes.push(format!(
                    "the server did not recover: it does not meet the objectives at {rate:.1} \
                     per second after {MAX_RECOVERY_TRIALS} pauses",
                ));
                self.outcome = Some(self.limit_so_far());
            }
            return;
        }
        self.trial_count += 1;
        if outcome.met {
            self.best = Some(self.best.map_or(rate, |best| best.max(rate)));
        } else if self.best.is_some() {
            self.recovering = Some(0);
        }
        match self.phase {
            Phase::Bracket { .. } => self.bracket(outcome, replies),
            Phase::Edge { .. } => self.edge(outcome),
        }
    }

    fn bracket(&mut self, Outcome { rate, met, late }: Outcome, replies: u64) {
        let (min, max) = (self.options.min_rate, self.options.max_rate);
        let Phase::Bracket { next, low, high, again, at_most } = &mut self.phase else { return };
        if met {
            *low = Some(rate);
            *again = false;
            if rate >= max {
                *at_most += 1;
                if *at_most == 2 {
                    self.outcome = Some(LimitedBy::MaxRate);
                }
            } else if high.is_none_or(|(high, _)| high <= rate) {
                *high = None;
                *next = (rate * 2.0).min(max);
            }
        } else if !*again {
            // A single failure may be chance, or a server that is not warmed up.
            *again = true;
            return;
        } else {
            *again = false;
            *high = Some((rate, late));
            if low.is_some_and(|low| low >= rate) {
                *low = None;
            }
        }
        match (*low, *high) {
            (_, None) => {}
            (None, Some((high, _))) if high <= min => self.outcome = Some(LimitedBy::NeverMet),
            (None, Some(_)) if replies == 0 && self.best.is_none() => {
                self.notes.push(
                    "no replies were received; check that a server listens at the URL".to_owned(),
                );
                self.outcome = Some(LimitedBy::NeverMet);
            }
            (None, Some((high, _))) => *next = (high / 4.0).max(min),
            (Some(low), Some((high, true))) if high / low <= CLOSE_RATIO => {
                self.outcome = Some(LimitedBy::Generator);
            }
            (Some(low), Some((high, true))) => *next = (low * high).sqrt(),
            (Some(low), Some((high, false))) => {
                // Slightly above the maximum rate: the knee may lie just below that.
                let top = (high * 2.0).min(max * 1.25);
                let bottom = (low / 2.0).max(min.min(low));
                let posterior = Posterior::new(bottom, top, (low, high), self.options.precision);
                self.phase =
                    Phase::Edge { posterior, counted: 0, discarded: 0, quantiles: Vec::new(), top };
            }
        }
    }

    fn edge(&mut self, Outcome { rate, met, late }: Outcome) {
        let Phase::Edge { posterior, counted, discarded, top, .. } = &mut self.phase else {
            return;
        };
        if late && !met {
            // The trial says nothing about the server.
            *discarded += 1;
            if *discarded >= 6 && discarded > counted {
                self.outcome = Some(LimitedBy::Generator);
            }
            return;
        }
        posterior.update(rate, met);
        *counted += 1;
        let (below, above) = posterior.tails();
        let (low, high) = (posterior.quantile(0.025), posterior.quantile(0.975));
        let max = self.options.max_rate;
        if posterior.quantile(0.1) > max {
            self.outcome = Some(LimitedBy::MaxRate);
        } else if above > 0.5 {
            self.phase = Phase::bracket(top.min(max), Some(low));
        } else if below > 0.5 {
            let next = (low / 2.0).max(self.options.min_rate);
            self.phase = Phase::bracket(next, None);
        } else if *counted >= MIN_EDGE_TRIALS && high / low <= 1.0 + 2.0 * self.options.precision {
            self.outcome = Some(LimitedBy::Server);
        }
    }

    /// Returns the last recorded trial.
    pub fn last(&self) -> Option<&Trial> {
        self.trials.last()
    }

    /// Returns the limiting factor if the search ended now.
    fn limit_so_far(&self) -> LimitedBy {
        match &self.phase {
            Phase::Edge { counted: MIN_EDGE_TRIALS.., .. } => LimitedBy::Server,
            _ => LimitedBy::Unfinished,
        }
    }

    /// Returns the knee as far as it is known.
    pub fn result(&self) -> Knee {
        let limited_by = self.outcome.unwrap_or_else(|| self.limit_so_far());
        let best = self.best.unwrap_or(0.0);
        let (rate, rate_low, rate_high) = match (&self.phase, limited_by) {
            (Phase::Edge { posterior, .. }, LimitedBy::Server) => {
                let [low, rate, high] = [0.025, 0.5, 0.975].map(|at| posterior.quantile(at));
                let max = self.options.max_rate;
                (rate.min(max), low.min(max), (high <= max).then_some(high))
            }
            (Phase::Edge { posterior, .. }, LimitedBy::Unfinished) => {
                let [low, high] = [0.025, 0.975].map(|at| posterior.quantile(at));
                (low, low, Some(high))
            }
            (Phase::Bracket { low, high, .. }, LimitedBy::Unfinished) => {
                let low = low.unwrap_or(0.0);
                (low, low, high.map(|(high, _)| high))
            }
            (Phase::Bracket { high, .. }, LimitedBy::NeverMet) => {
                (0.0, 0.0, high.map(|(high, _)| high))
            }
            (_, LimitedBy::MaxRate) => (self.options.max_rate, self.options.max_rate, None),
            _ => (best, best, None),
        };
        Knee {
            schema: SCHEMA.to_owned(),
            url: String::new(),
            model: Model::default(),
            complete: self.outcome.is_some(),
            objectives: self.options.objectives.clone(),
            rate,
            rate_low,
            rate_high,
            limited_by,
            precision: self.options.precision,
            seed: self.options.seed,
            elapsed_s: self.elapsed.as_secs_f64(),
            trials: self.trials.clone(),
            notes: self.notes.clone(),
        }
    }
}

/// The relevant results of a trial.
#[derive(Clone, Copy)]
struct Outcome {
    rate: f64,
    met: bool,
    late: bool,
}
