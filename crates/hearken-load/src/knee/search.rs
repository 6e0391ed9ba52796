//! Which rate to try next: the search for a knee, without a server and without a clock.

use std::time::Duration;

use super::posterior::Posterior;
use super::{Knee, KneeOptions, LimitedBy, Purpose, SCHEMA, Trial};
use crate::report::Model;

/// Trials near the knee, at least: fewer say too little of how steep it is.
const MIN_EDGE_TRIALS: u32 = 8;

/// How often it is looked whether a server has recovered, with pauses that double.
const MAX_RECOVERY_TRIALS: u32 = 5;

/// Rates so near to each other that the generator's own limit needs no closer look.
const CLOSE_RATIO: f64 = 1.1;

/// What to do next.
#[derive(Clone, PartialEq, Debug)]
pub enum Step {
    /// Pause, and then offer a rate for some time.
    Try {
        /// Before it, without load.
        pause: Duration,
        /// Arrivals per second.
        rate: f64,
        /// For how long.
        duration: Duration,
        /// What it is to find out.
        purpose: Purpose,
    },
    /// It has come to its end.
    Done(Box<Knee>),
}

/// Finds the highest rate that meets objectives, from trials that may say now this and now that.
///
/// The rate doubles until the objectives are not met, twice in a row. From there each trial is a draw
/// of where the knee may be: the place of the knee has a probability, after Bayes, under a model in
/// which the probability to meet the objectives falls with the rate along a logistic curve of unknown
/// steepness, and some trials go astray. The next rate is drawn from what is likely, so that rates
/// go up and down and do not confound with time, and it ends when the 95 % interval is as narrow
/// as was asked for. What was learnt on the way up does not count: the server may have been cold.
///
/// A trial that was not met is followed by a pause and a short one at somewhat less than was met before,
/// until that is met again: a backlog, or a server that takes time to recover, is not held against
/// the next trial.
#[derive(Debug)]
pub struct Search {
    options: KneeOptions,
    random: fastrand::Rng,
    phase: Phase,
    /// The highest rate that was met so far.
    best: Option<f64>,
    /// What is being asked, until it is told of.
    pending: Option<(f64, Purpose)>,
    /// How often it was looked whether the server has recovered, while it has not.
    recovering: Option<u32>,
    trials: Vec<Trial>,
    /// Trials that count towards the bound.
    trial_count: u32,
    elapsed: Duration,
    /// Why it is over.
    outcome: Option<LimitedBy>,
    notes: Vec<String>,
}

#[derive(Debug)]
enum Phase {
    /// Up until it fails.
    Bracket {
        next: f64,
        low: Option<f64>,
        /// What was not met, and whether that was the generator.
        high: Option<(f64, bool)>,
        /// At this rate, it was not met before.
        again: bool,
        /// How often the highest rate that is allowed was met.
        at_most: u32,
    },
    /// Around the knee.
    Edge {
        posterior: Posterior,
        /// Trials that the posterior has been told of, and that it has not.
        counted: u32,
        discarded: u32,
        /// Where in the posterior the next ones are drawn.
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
    /// A new one.
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

    /// What to do next. The same until it is [`told`](Search::told).
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
                "it ended after {} trials and {:.0} s, before it was as precise as asked",
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
                (posterior.quantile(place).min(self.options.max_rate), Purpose::Edge)
            }
        });
        Step::Try { pause, rate, duration, purpose }
    }

    /// The rate at which it is looked whether the server has recovered: one that it surely can do,
    /// and lower after some failures, since what was met may have been chance.
    fn recovery_rate(&self, looked: u32) -> f64 {
        let met = match &self.phase {
            Phase::Bracket { low, .. } => low.or(self.best).unwrap_or(0.0),
            Phase::Edge { posterior, .. } => posterior.quantile(0.025),
        };
        let part = [0.8, 0.8, 0.4, 0.2, 0.1][looked.min(4) as usize];
        (met * part).max(self.options.min_rate)
    }

    /// What came of the last step, which took so long in all. Its rate and purpose are filled in.
    pub fn record(&mut self, mut trial: Trial, took: Duration) {
        let Some((rate, purpose)) = self.pending.take() else { return };
        self.elapsed += took;
        trial.rate = rate;
        trial.purpose = purpose;
        let told = Outcome { rate, met: trial.met, late: trial.generator_late };
        let replies = trial.replies;
        self.trials.push(trial);
        if let Some(looked) = self.recovering {
            self.recovering = (!told.met).then_some(looked + 1);
            if self.recovering == Some(MAX_RECOVERY_TRIALS) {
                self.notes.push(format!(
                    "the server did not recover: it does not meet them even at {rate:.1} \
                     per second, after {MAX_RECOVERY_TRIALS} pauses",
                ));
                self.outcome = Some(self.limit_so_far());
            }
            return;
        }
        self.trial_count += 1;
        if told.met {
            self.best = Some(self.best.map_or(rate, |best| best.max(rate)));
        } else if self.best.is_some() {
            self.recovering = Some(0);
        }
        match self.phase {
            Phase::Bracket { .. } => self.bracket(told, replies),
            Phase::Edge { .. } => self.edge(told),
        }
    }

    fn bracket(&mut self, Outcome { rate, met, late }: Outcome, replies: u64) {
        let (least, most) = (self.options.min_rate, self.options.max_rate);
        let Phase::Bracket { next, low, high, again, at_most } = &mut self.phase else { return };
        if met {
            *low = Some(rate);
            *again = false;
            if rate >= most {
                *at_most += 1;
                if *at_most == 2 {
                    self.outcome = Some(LimitedBy::MaxRate);
                }
            } else if high.is_none_or(|(high, _)| high <= rate) {
                *high = None;
                *next = (rate * 2.0).min(most);
            }
        } else if !*again {
            // Once may be chance, or a server that is cold.
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
            (None, Some((high, _))) if high <= least => self.outcome = Some(LimitedBy::NeverMet),
            (None, Some(_)) if replies == 0 && self.best.is_none() => {
                self.notes
                    .push("there was no reply at all; does a server listen there?".to_owned());
                self.outcome = Some(LimitedBy::NeverMet);
            }
            (None, Some((high, _))) => *next = (high / 4.0).max(least),
            (Some(low), Some((high, true))) if high / low <= CLOSE_RATIO => {
                self.outcome = Some(LimitedBy::Generator);
            }
            (Some(low), Some((high, true))) => *next = (low * high).sqrt(),
            (Some(low), Some((high, false))) => {
                // A little above what may be tried, or the knee could not lie just below that.
                let top = (high * 2.0).min(most * 1.25);
                let bottom = (low / 2.0).max(least.min(low));
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
            // It says nothing of the server.
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
        let most = self.options.max_rate;
        if posterior.quantile(0.1) > most {
            self.outcome = Some(LimitedBy::MaxRate);
        } else if above > 0.5 {
            self.phase = Phase::bracket(top.min(most), Some(low));
        } else if below > 0.5 {
            let next = (low / 2.0).max(self.options.min_rate);
            self.phase = Phase::bracket(next, None);
        } else if *counted >= MIN_EDGE_TRIALS && high / low <= 1.0 + 2.0 * self.options.precision {
            self.outcome = Some(LimitedBy::Server);
        }
    }

    /// The last trial that it was told of.
    pub fn last(&self) -> Option<&Trial> {
        self.trials.last()
    }

    /// What limits the rate, where it ends before its time.
    fn limit_so_far(&self) -> LimitedBy {
        match &self.phase {
            Phase::Edge { counted: MIN_EDGE_TRIALS.., .. } => LimitedBy::Server,
            _ => LimitedBy::Unfinished,
        }
    }

    /// The knee, as far as it is known.
    pub fn result(&self) -> Knee {
        let limited_by = self.outcome.unwrap_or_else(|| self.limit_so_far());
        let best = self.best.unwrap_or(0.0);
        let (rate, low, high) = match (&self.phase, limited_by) {
            (Phase::Edge { posterior, .. }, LimitedBy::Server) => {
                let [low, rate, high] = [0.025, 0.5, 0.975].map(|at| posterior.quantile(at));
                let most = self.options.max_rate;
                (rate.min(most), low.min(most), (high <= most).then_some(high))
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
            low,
            high,
            limited_by,
            precision: self.options.precision,
            seed: self.options.seed,
            elapsed_s: self.elapsed.as_secs_f64(),
            trials: self.trials.clone(),
            notes: self.notes.clone(),
        }
    }
}

/// What matters of a trial.
#[derive(Clone, Copy)]
struct Outcome {
    rate: f64,
    met: bool,
    late: bool,
}
