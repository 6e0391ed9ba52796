//! A run: the measurements of a plan, its journal and its report.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::budget::{self, Row};
use crate::claims::Claim;
use crate::error::LabError;
use crate::executor::{Executor, ExecutorConfig, ProcessExecutor};
use crate::experiment::Experiment;
use crate::fitness;
use crate::journal::{Entry, Journal};
use crate::judge::judge;
use crate::machine::{Machine, Placement};
use crate::plan::{Cell, PlannedExperiment, Trial, plan};
use crate::progress::Progress;
use crate::results::{AxisReport, ExperimentReport, Report, SCHEMA, Sample};
use crate::stats;
use crate::summary::summarise;
use crate::warning::Warning;

mod schedule;

use schedule::{Pace, Schedule, key_of_cell};

/// Share of time waiting for the processor above which a server is considered disturbed.
const MAX_WAIT_SHARE: f64 = 0.05;
/// Lateness of the load generator, in nanoseconds, above which a warning is issued.
const MAX_LATENESS_NS: f64 = 5e6;

/// Configuration of a run.
#[derive(Clone, Debug)]
pub struct RunConfig {
    /// Path of `hearken`, usually `std::env::current_exe()`.
    pub executable: PathBuf,
    /// Command line, for the report.
    pub command_line: Vec<String>,
    /// Version of Hearken, for the report.
    pub version: String,
    /// Experiments.
    pub experiments: Vec<PlannedExperiment>,
    /// Seed of the order of measurements and of the arrivals.
    pub seed: u64,
    /// Description of the emulator, if the clock of this machine counts instructions instead of time. A
    /// nanosecond of CPU time is then one instruction.
    pub emulator: Option<String>,
    /// Claims to settle. If there are any, only the cells that they need are measured.
    pub claims: Vec<Claim>,
    /// Time in which the run ends. Rows that do not fit are left out.
    pub time_budget: Option<Duration>,
}

impl RunConfig {
    /// Returns the measurements that fit into the time budget, in random order.
    pub fn plan(&self) -> Vec<Trial> {
        let Some(budget) = self.time_budget else {
            return plan(&self.experiments, self.seed, &|experiment, cell| {
                let mut claims = self.claims.iter();
                self.claims.is_empty() || claims.any(|claim| claim.needs(experiment, cell))
            });
        };
        let kept = self.rows(budget).0;
        let cells: HashSet<&(String, Cell)> = kept.iter().flat_map(|row| &row.cells).collect();
        plan(&self.experiments, self.seed, &|experiment, cell| {
            cells.contains(&(experiment.name.clone(), cell.clone()))
        })
    }

    /// Returns the rows that fit into a time budget, and the others.
    pub(crate) fn rows(&self, budget: Duration) -> (Vec<Row>, Vec<Row>) {
        budget::fit(&self.experiments, &self.claims, budget)
    }
}

/// Runs the experiments with real servers. Setting `stop` ends the run early with a partial report, in
/// which `complete` is false.
///
/// The calling thread must outlive the run, because the processes are killed with the thread that
/// started them.
pub fn run(
    config: &RunConfig,
    journal: Journal,
    progress: &mut dyn Progress,
    stop: &AtomicBool,
) -> Result<Report, LabError> {
    let mut config = config.clone();
    let placement = Placement::choose()?;
    let began = Instant::now();
    let mut warnings = leave_out(&mut config.experiments)?;
    warnings.extend(fitness::warnings(&config.experiments));
    let mut trials = config.plan();
    if let Some(budget) = config.time_budget.filter(|_| trials.is_empty()) {
        let cost = config.rows(Duration::ZERO).1.first().map(|row| row.cost);
        let least = cost.unwrap_or_default().as_secs_f64();
        return Err(LabError::Config(format!(
            "the time budget of {:.0} s is too short for any measurement; the first needs {least:.0} s",
            budget.as_secs_f64()
        )));
    }
    let executor_config = ExecutorConfig {
        executable: config.executable.clone(),
        by_clock: config.emulator.is_some(),
        seed: config.seed,
    };
    let experiments = &mut config.experiments;
    let mut executor =
        ProcessExecutor::new(executor_config, placement.clone(), experiments, &mut trials, stop)?;
    config.time_budget = config.time_budget.map(|budget| budget.saturating_sub(began.elapsed()));
    let mut report =
        run_with_executor(&config, &trials, &mut executor, placement, journal, progress, stop)?;
    for experiment in &mut report.experiments {
        (experiment.servers, experiment.origin) = executor.participants(&experiment.name);
    }
    warnings.append(&mut report.warnings);
    Ok(Report { warnings, ..report })
}

/// Removes the experiments whose requirements the machine does not meet.
fn leave_out(experiments: &mut Vec<PlannedExperiment>) -> Result<Vec<Warning>, LabError> {
    let mut warnings = Vec::new();
    experiments.retain(|planned| match fitness::unmet(&planned.experiment) {
        None => true,
        Some(requirement) => {
            let experiment = planned.experiment.name.clone();
            warnings.push(Warning::LeftOut { experiment, requirement });
            false
        }
    });
    match warnings.first().filter(|_| experiments.is_empty()) {
        Some(reason) => Err(LabError::Config(reason.to_string())),
        None => Ok(warnings),
    }
}

/// Runs the trials with the given executor.
pub fn run_with_executor(
    config: &RunConfig,
    trials: &[Trial],
    executor: &mut dyn Executor,
    placement: Placement,
    mut journal: Journal,
    progress: &mut dyn Progress,
    stop: &AtomicBool,
) -> Result<Report, LabError> {
    let began = Instant::now();
    let mut warnings = Vec::new();
    let mut samples = Vec::new();
    let mut saturations = BTreeMap::new();
    for entry in std::mem::take(&mut journal.entries) {
        match entry {
            Entry::Sample(sample) => samples.push(sample),
            Entry::Saturation { experiment, rate } => drop(saturations.insert(experiment, rate)),
            Entry::Header(_) => {}
        }
    }
    let done: HashSet<(String, Cell, u32)> = samples.iter().map(key_of).collect();
    let mut run = Run { executor, journal: &mut journal, saturations: &mut saturations, stop };
    let mut first_failure = None;
    let mut failures = 0;
    let mut pace = Pace::new(config, trials, &done);
    let (mut schedule, left_out) = Schedule::new(config);
    warnings.extend(left_out);
    let mut round = 0;
    let mut skipped = 0;
    for (index, trial) in trials.iter().enumerate() {
        if done.contains(&(trial.experiment.clone(), trial.cell.clone(), trial.repetition)) {
            continue;
        }
        if trial.repetition > round {
            round = trial.repetition;
            schedule.drop_precise(&trials[index..], &samples);
        }
        warnings.extend(schedule.keep_budget(&trials[index..], run.saturations, &pace));
        if !schedule.wants(trial) {
            skipped += 1;
            pace.skip(trial.expected);
            continue;
        }
        if schedule.is_over(&pace) {
            let planned = trials.len() - skipped;
            warnings.push(Warning::OutOfTime { done: samples.len(), planned });
            break;
        }
        progress.update(samples.len() + failures, trials.len() - skipped, trial, pace.remaining());
        let planned = config.experiments.iter().find(|e| e.experiment.name == trial.experiment);
        let Some(planned) = planned else { continue };
        let measured = run.saturate(&planned.experiment, trial).and_then(|()| {
            let began = Instant::now();
            let sample = run.measure(trial);
            pace.advance(trial.expected, began.elapsed());
            sample
        });
        match measured {
            Ok(sample) => samples.push(sample),
            Err(LabError::Interrupted) => {
                let planned = trials.len() - skipped;
                warnings.push(Warning::Interrupted { done: samples.len(), planned });
                break;
            }
            Err(error) => {
                let reason = error.to_string();
                first_failure.get_or_insert_with(|| reason.clone());
                failures += 1;
                warnings.push(Warning::MeasurementFailed {
                    measurement: trial.to_string(),
                    repetition: trial.repetition,
                    reason,
                });
            }
        }
    }
    progress.finish();
    if let Some(first) = first_failure.filter(|_| samples.is_empty()) {
        return Err(LabError::AllFailed { failures, first });
    }
    let mut all = executor.finish();
    if placement.is_shared() && config.experiments.iter().any(|e| !e.is_together()) {
        all.push(Warning::SharedProcessor);
    }
    all.extend(warnings);
    all.extend(config.experiments.iter().flat_map(design_warnings));
    all.extend(sample_warnings(&samples));
    let report = |planned: &PlannedExperiment| {
        experiment_report(planned, trials, &samples, saturations.get(&planned.experiment.name))
    };
    let experiments: Vec<ExperimentReport> = config.experiments.iter().map(report).collect();
    Ok(Report {
        schema: SCHEMA.into(),
        complete: samples.len() == trials.len() - skipped,
        version: config.version.clone(),
        command_line: config.command_line.clone(),
        date: journal.date,
        elapsed_s: began.elapsed().as_secs_f64(),
        seed: config.seed,
        machine: Machine::detect(),
        emulator: config.emulator.clone(),
        placement,
        unavailable_counters: executor.unavailable_counters(),
        warnings: all,
        method: stats::METHOD.into(),
        judgements: judge(&config.claims, &experiments),
        experiments,
    })
}

/// State of a run.
struct Run<'a> {
    executor: &'a mut dyn Executor,
    journal: &'a mut Journal,
    saturations: &'a mut BTreeMap<String, f64>,
    stop: &'a AtomicBool,
}

impl Run<'_> {
    /// Determines the saturation before the first trial of an experiment that needs it.
    fn saturate(&mut self, experiment: &Experiment, trial: &Trial) -> Result<(), LabError> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(LabError::Interrupted);
        }
        let name = &trial.experiment;
        if experiment.saturation.is_some() {
            let rate = match self.saturations.get(name) {
                Some(&rate) => rate,
                None => {
                    let rate = self.executor.saturation(name, self.stop)?;
                    self.saturations.insert(name.clone(), rate);
                    self.journal.append(&Entry::Saturation { experiment: name.clone(), rate })?;
                    rate
                }
            };
            self.executor.set_saturation(name, rate);
        }
        Ok(())
    }

    /// Measures a trial and records it in the journal.
    fn measure(&mut self, trial: &Trial) -> Result<Sample, LabError> {
        let sample = Sample::new(trial, self.executor.measure(trial, self.stop)?);
        self.journal.append(&Entry::Sample(sample.clone()))?;
        Ok(sample)
    }
}

fn key_of(sample: &Sample) -> (String, Cell, u32) {
    let (experiment, cell) = key_of_cell(sample);
    (experiment, cell, sample.repetition)
}

fn experiment_report(
    planned: &PlannedExperiment,
    trials: &[Trial],
    samples: &[Sample],
    saturation: Option<&f64>,
) -> ExperimentReport {
    let experiment = &planned.experiment;
    let own = samples.iter().filter(|sample| sample.experiment == experiment.name);
    let samples: Vec<Sample> = own.cloned().collect();
    let servers: Vec<String> = planned.servers.iter().map(|server| server.name.clone()).collect();
    let axis = |axis: &crate::experiment::Axis| AxisReport {
        name: axis.name.clone(),
        title: axis.title.clone().unwrap_or_else(|| axis.name.clone()),
        values: axis.values.iter().map(|value| value.name.clone()).collect(),
    };
    ExperimentReport {
        name: experiment.name.clone(),
        definition: experiment.text.clone(),
        reference: experiment.reference.clone(),
        repetitions: experiment.repetitions,
        axes: experiment.axes.iter().map(axis).collect(),
        servers: Vec::new(),
        origin: None,
        saturation: saturation.copied(),
        emulator: None,
        planned: trials.iter().filter(|trial| trial.experiment == experiment.name).count(),
        summary: summarise(experiment, &experiment.reference, &servers, &samples),
        samples,
    }
}

/// Returns the warnings that follow from the settings of an experiment.
fn design_warnings(planned: &PlannedExperiment) -> Vec<Warning> {
    let experiment = &planned.experiment;
    let mut found = Vec::new();
    if experiment.repetitions < 2 {
        found.push(Warning::FewRepetitions { repetitions: experiment.repetitions });
    }
    if planned.server(&experiment.reference).is_none() {
        found.push(Warning::NoReference { reference: experiment.reference.clone() });
    }
    found
}

/// Returns the warnings that follow from the samples.
fn sample_warnings(samples: &[Sample]) -> Vec<Warning> {
    let mut found = Vec::new();
    let beyond = |limit: f64, of: fn(&Sample) -> f64| {
        let values: Vec<f64> = samples.iter().map(of).filter(|&v| v > limit).collect();
        let worst = values.iter().copied().reduce(f64::max)?;
        Some((values.len(), worst))
    };
    if let Some((samples, max_wait_ratio)) = beyond(MAX_WAIT_SHARE, |s| s.checks.wait_ratio) {
        found.push(Warning::ProcessorContention { samples, max_wait_ratio });
    }
    let late = beyond(MAX_LATENESS_NS, |s| s.checks.lateness_p99_ns);
    if let Some((samples, max_lateness_p99_ns)) = late {
        found.push(Warning::GeneratorLate { samples, max_lateness_p99_ns });
    }
    found
}
