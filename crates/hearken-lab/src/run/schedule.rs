//! Selection of the measurements of each round by time and precision.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use super::RunConfig;
use crate::budget::Row;
use crate::claims::{Claim, Test};
use crate::experiment::Experiment;
use crate::plan::{Cell, PlannedExperiment, Trial};
use crate::results::Sample;
use crate::stats;
use crate::warning::Warning;

/// Time for which the estimates are assumed to have been right, in addition to the measurements.
const PRIOR: Duration = Duration::from_secs(15);
/// Number of times that a time budget is checked.
const REVIEWS: u32 = 50;

/// Selects the measurements of each round, which is a repetition of all cells.
pub(super) struct Schedule<'a> {
    config: &'a RunConfig,
    /// Rows by descending priority; none without a time budget.
    rows: Vec<Row>,
    /// Time at which the time budget is checked again.
    next_review: Duration,
    /// Cells that are no longer measured.
    dropped: HashSet<(String, Cell)>,
}

impl<'a> Schedule<'a> {
    /// Returns the schedule, and a warning about the rows that do not fit into the time budget.
    pub(super) fn new(config: &'a RunConfig) -> (Schedule<'a>, Option<Warning>) {
        let (rows, left_out) = match config.time_budget {
            Some(budget) => config.rows(budget),
            None => (Vec::new(), Vec::new()),
        };
        let needed: Duration = left_out.iter().map(|row| row.cost).sum();
        let labels = left_out.into_iter().map(|row| row.label).collect();
        let (next_review, dropped) = (Duration::ZERO, HashSet::new());
        let schedule = Schedule { config, rows, next_review, dropped };
        let warning = schedule.over_budget(labels, needed);
        (schedule, warning)
    }

    fn over_budget(&self, rows: Vec<String>, needed: Duration) -> Option<Warning> {
        let budget_s = self.config.time_budget?.as_secs_f64();
        let needed_s = needed.as_secs_f64();
        (!rows.is_empty()).then_some(Warning::OverBudget { budget_s, needed_s, rows })
    }

    /// Drops rows that do not fit into the rest of the time budget at the pace so far. Returns a warning about them.
    pub(super) fn keep_budget(
        &mut self,
        left: &[Trial],
        saturations: &BTreeMap<String, f64>,
        pace: &Pace,
    ) -> Option<Warning> {
        let budget = self.config.time_budget?;
        let elapsed = pace.began.elapsed();
        if elapsed < self.next_review {
            return None;
        }
        self.next_review = elapsed + budget / REVIEWS;
        let needed = |dropped: &HashSet<(String, Cell)>| {
            let is_kept = |trial: &&Trial| {
                trial.repetition < repetitions(self.config, &trial.experiment)
                    && !dropped.contains(&key(trial))
            };
            let expected: Duration = left.iter().filter(is_kept).map(|trial| trial.expected).sum();
            let has_trial =
                |name: &String| left.iter().filter(is_kept).any(|t| t.experiment == *name);
            let searches = self.config.experiments.iter().filter(|planned| {
                let name = &planned.experiment.name;
                !saturations.contains_key(name) && has_trial(name)
            });
            pace.scale(expected)
                + searches.map(PlannedExperiment::search_duration).sum::<Duration>()
        };
        let remaining = budget.saturating_sub(elapsed);
        let at_first = needed(&self.dropped);
        let (mut labels, mut dropped) = (Vec::new(), self.dropped.clone());
        let mut kept = self.rows.len();
        while kept > 1 && needed(&dropped) > remaining {
            kept -= 1;
            let cells: HashSet<&(String, Cell)> =
                self.rows[..kept].iter().flat_map(|row| &row.cells).collect();
            let own = self.rows[kept].cells.iter().filter(|cell| !cells.contains(cell));
            dropped.extend(own.cloned());
            labels.push(self.rows[kept].label.clone());
        }
        let excess = at_first.saturating_sub(needed(&dropped));
        self.rows.truncate(kept);
        self.dropped = dropped;
        self.over_budget(labels, excess)
    }

    /// Drops cells that have their minimum number of repetitions and whose metrics are precise, together with all
    /// other servers at the same values, because ratios need the same repetitions of both sides.
    pub(super) fn drop_precise(&mut self, left: &[Trial], samples: &[Sample]) {
        let mut groups: BTreeMap<(&str, &BTreeMap<String, String>), Vec<&Trial>> = BTreeMap::new();
        for trial in left {
            groups.entry((&trial.experiment, &trial.cell.values)).or_default().push(trial);
        }
        for trials in groups.into_values() {
            let is_due =
                |trial: &&&Trial| trial.repetition >= repetitions(self.config, &trial.experiment);
            let experiment =
                trials.first().and_then(|trial| experiment(self.config, &trial.experiment));
            let target = experiment.and_then(|e| Some((e, e.precision?.target)));
            let Some((experiment, target)) = target else { continue };
            if trials.iter().min_by_key(|trial| trial.repetition).filter(is_due).is_none() {
                continue;
            }
            let metrics = self.metrics(experiment);
            let is_precise = |trial: &&Trial| {
                metrics.iter().all(|metric| {
                    let own = samples.iter().filter(|s| key_of_cell(s) == key(trial));
                    let values = own.filter_map(|sample| sample.metrics.get(*metric).copied());
                    stats::estimate(values).is_none_or(|estimate| {
                        let margin = estimate.margin.unwrap_or(f64::INFINITY);
                        margin <= target * estimate.mean.abs()
                    })
                })
            };
            if trials.iter().all(is_precise) {
                self.dropped.extend(trials.into_iter().map(key));
            }
        }
    }

    /// Returns the metrics that decide about precision: those of the claims, or those that are compared.
    fn metrics<'e>(&'e self, experiment: &'e Experiment) -> Vec<&'e str> {
        let own = |claim: &&Claim| claim.experiment.as_ref() == Some(&experiment.name);
        let claims = self.config.claims.iter().filter(own);
        let claimed: Vec<&str> = claims.flat_map(|claim| &claim.tests).map(Test::metric).collect();
        match claimed.is_empty() {
            false => claimed,
            true => {
                let compared = experiment.metrics.iter().filter(|metric| metric.compare);
                compared.map(|metric| metric.name.as_str()).collect()
            }
        }
    }

    pub(super) fn wants(&self, trial: &Trial) -> bool {
        !self.dropped.contains(&key(trial))
    }

    /// Returns whether the time budget is used up.
    pub(super) fn is_over(&self, pace: &Pace) -> bool {
        self.config.time_budget.is_some_and(|budget| pace.began.elapsed() >= budget)
    }
}

fn experiment<'a>(config: &'a RunConfig, name: &str) -> Option<&'a Experiment> {
    config.experiments.iter().map(|planned| &planned.experiment).find(|e| e.name == name)
}

/// Returns the minimum number of repetitions of an experiment.
fn repetitions(config: &RunConfig, name: &str) -> u32 {
    experiment(config, name).map_or(0, |experiment| experiment.repetitions)
}

fn key(trial: &Trial) -> (String, Cell) {
    (trial.experiment.clone(), trial.cell.clone())
}

pub(super) fn key_of_cell(sample: &Sample) -> (String, Cell) {
    let cell = Cell { server: sample.server.clone(), values: sample.values.clone() };
    (sample.experiment.clone(), cell)
}

/// Estimate of the remaining time, from the expected durations and the pace so far.
pub(super) struct Pace {
    began: Instant,
    expected: Duration,
    /// Expected and actual duration of the measurements so far.
    passed: Duration,
    took: Duration,
}

impl Pace {
    /// Starts the clock. Repetitions that only improve the precision are not expected.
    pub(super) fn new(
        config: &RunConfig,
        trials: &[Trial],
        done: &HashSet<(String, Cell, u32)>,
    ) -> Pace {
        let is_left = |trial: &&Trial| {
            trial.repetition < repetitions(config, &trial.experiment)
                && !done.contains(&(trial.experiment.clone(), trial.cell.clone(), trial.repetition))
        };
        let expected = trials.iter().filter(is_left).map(|trial| trial.expected).sum();
        Pace { began: Instant::now(), expected, passed: Duration::ZERO, took: Duration::ZERO }
    }

    pub(super) fn advance(&mut self, expected: Duration, took: Duration) {
        self.passed += expected;
        self.took += took;
    }

    /// Removes a measurement that does not take place.
    pub(super) fn skip(&mut self, expected: Duration) {
        self.expected = self.expected.saturating_sub(expected);
    }

    pub(super) fn remaining(&self) -> Duration {
        self.scale(self.expected.saturating_sub(self.passed))
    }

    /// Converts an expected duration to the pace so far. A few measurements say little about it.
    fn scale(&self, expected: Duration) -> Duration {
        let [took, passed] = [self.took, self.passed].map(|time| (time + PRIOR).as_secs_f64());
        expected.mul_f64(took / passed)
    }
}
