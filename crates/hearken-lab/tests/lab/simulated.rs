//! An executor that computes measurements from a function instead of running servers.

use std::sync::atomic::{AtomicBool, Ordering};

use hearken_lab::journal::{Header, Journal};
use hearken_lab::{
    Available, Executor, Experiment, LabError, Measured, NoProgress, Placement, PlannedExperiment,
    Report, RunConfig, Trial, UnavailableCounter, Warning, builtin_experiments, builtin_recipes,
    run_with_executor,
};

/// Computes measurements, and simulates failures and an interruption.
pub(crate) struct Simulated<'a> {
    pub(crate) measured: Vec<Trial>,
    pub(crate) measure: &'a dyn Fn(&Trial) -> Result<Measured, LabError>,
    pub(crate) stops_at: Option<usize>,
}

impl<'a> Simulated<'a> {
    pub(crate) fn new(measure: &'a dyn Fn(&Trial) -> Result<Measured, LabError>) -> Simulated<'a> {
        Simulated { measured: Vec::new(), measure, stops_at: None }
    }
}

impl Executor for Simulated<'_> {
    fn measure(&mut self, trial: &Trial, stop: &AtomicBool) -> Result<Measured, LabError> {
        if self.stops_at == Some(self.measured.len()) {
            stop.store(true, Ordering::Relaxed);
            return Err(LabError::Interrupted);
        }
        self.measured.push(trial.clone());
        (self.measure)(trial)
    }

    fn saturation(&mut self, _: &str, _: &AtomicBool) -> Result<f64, LabError> {
        Ok(10_000.0)
    }

    fn set_saturation(&mut self, _: &str, rate: f64) {
        assert!(rate > 0.0);
    }

    fn unavailable_counters(&self) -> Vec<UnavailableCounter> {
        vec![UnavailableCounter {
            counter: "instructions".into(),
            call: "perf_event_open".into(),
            error: "No such file or directory (os error 2)".into(),
            hint: "No PMU: run on bare metal.".into(),
        }]
    }

    fn finish(&mut self) -> Vec<Warning> {
        Vec::new()
    }
}

/// Returns a built-in experiment.
pub(crate) fn experiment(name: &str) -> Experiment {
    builtin_experiments().unwrap().into_iter().find(|e| e.name == name).unwrap()
}

/// Returns an experiment with its servers, for five mechanisms.
pub(crate) fn planned(experiment: Experiment) -> PlannedExperiment {
    planned_with(experiment, &["select", "poll", "epoll-level", "epoll-edge", "rt-signal"])
}

/// Returns an experiment with its servers.
pub(crate) fn planned_with(experiment: Experiment, mechanisms: &[&str]) -> PlannedExperiment {
    let mechanisms = mechanisms.iter().map(|name| (*name).to_owned()).collect();
    let available = Available { recipes: builtin_recipes().unwrap(), mechanisms };
    PlannedExperiment::new(experiment, &available).unwrap()
}

/// Returns the configuration of a run.
pub(crate) fn config(experiments: Vec<PlannedExperiment>) -> RunConfig {
    RunConfig {
        executable: "hearken".into(),
        command_line: ["hearken", "lab", "run", "--out", "a <dir>"].map(String::from).to_vec(),
        version: "0.1.0".into(),
        experiments,
        seed: 1,
        emulator: None,
        claims: Vec::new(),
        time_budget: None,
    }
}

/// Runs the experiments with a journal in memory.
pub(crate) fn run(config: &RunConfig, executor: &mut Simulated<'_>) -> Result<Report, LabError> {
    let header = Header::new(Vec::new(), config.seed, &config.experiments);
    run_with_journal(config, executor, Journal::in_memory(&header))
}

/// Runs the experiments with the given journal.
pub(crate) fn run_with_journal(
    config: &RunConfig,
    executor: &mut Simulated<'_>,
    journal: Journal,
) -> Result<Report, LabError> {
    run_with(config, &config.plan(), executor, journal)
}

/// Runs the given trials with a journal in memory.
pub(crate) fn run_trials(
    config: &RunConfig,
    trials: &[Trial],
    executor: &mut Simulated<'_>,
) -> Result<Report, LabError> {
    let header = Header::new(Vec::new(), config.seed, &config.experiments);
    run_with(config, trials, executor, Journal::in_memory(&header))
}

fn run_with(
    config: &RunConfig,
    trials: &[Trial],
    executor: &mut Simulated<'_>,
    journal: Journal,
) -> Result<Report, LabError> {
    let placement = Placement { server: vec![0], others: vec![1] };
    let stop = AtomicBool::new(false);
    let mut report =
        run_with_executor(config, trials, executor, placement, journal, &mut NoProgress, &stop)?;
    for (report, planned) in report.experiments.iter_mut().zip(&config.experiments) {
        report.servers = planned.servers.iter().map(describe).collect();
    }
    Ok(report)
}

fn describe(server: &hearken_lab::Server) -> hearken_lab::Participant {
    hearken_lab::Participant {
        name: server.name.clone(),
        description: server.recipe.description.clone(),
        version: "1".into(),
        recipe: server.recipe.text.clone(),
        arguments: Vec::new(),
    }
}
