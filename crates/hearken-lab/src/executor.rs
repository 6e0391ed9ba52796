//! Execution of measurements with servers and load generators in separate processes.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use hearken::descriptors;
use tempfile::TempDir;

use crate::counters::UnavailableCounter;
use crate::error::LabError;
use crate::experiment::permits;
use crate::machine::{Placement, cpu_set};
use crate::network;
use crate::participant::{Environment, Participant, StartContext, find_program, make_readable};
use crate::plan::{Cell, PlannedExperiment, Trial};
use crate::process::AffinityGuard;
use crate::results::{self, Checks};
use crate::warning::Warning;

mod idle;
mod origin;
mod pass;
mod saturation;
mod session;

use origin::Origin;
use pass::{Instruments, PassContext};
use session::{Session, SessionContext};

/// Number of consecutive failures after which a server is skipped with these values.
const MAX_FAILURES: u32 = 2;
/// Connections to a server in addition to the idle ones, for limits in its configuration.
const ACTIVE_CONNECTIONS: u64 = 2000;

/// The values of a measurement.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// Metrics by name. Those that are not available are missing.
    pub metrics: BTreeMap<String, f64>,
    /// Circumstances that affect the metrics.
    pub checks: Checks,
}

/// Executes the measurements of a plan.
pub trait Executor {
    /// Executes one trial. Returns [`LabError::Interrupted`] if `stop` was set in the meantime.
    fn measure(&mut self, trial: &Trial, stop: &AtomicBool) -> Result<Measured, LabError>;

    /// Measures the highest rate that the reference server of an experiment answers.
    fn saturation(&mut self, experiment: &str, stop: &AtomicBool) -> Result<f64, LabError>;

    /// Sets the variable `saturation` of an experiment.
    fn set_saturation(&mut self, experiment: &str, rate: f64);

    /// Returns the counters that are not available, each once.
    fn unavailable_counters(&self) -> Vec<UnavailableCounter> {
        Vec::new()
    }

    /// Ends the processes and returns the warnings so far.
    fn finish(&mut self) -> Vec<Warning> {
        Vec::new()
    }
}

/// An experiment that is ready to run.
#[derive(Debug)]
struct Prepared {
    planned: PlannedExperiment,
    participants: Vec<Participant>,
    origin: Option<Origin>,
    saturation: Option<f64>,
}

/// Settings of a [`ProcessExecutor`].
#[derive(Clone, Debug)]
pub(crate) struct ExecutorConfig {
    /// Path of `hearken`, which generates the load.
    pub(crate) executable: PathBuf,
    /// Whether the clock of the machine counts instructions.
    pub(crate) by_clock: bool,
    /// Seed of the arrivals.
    pub(crate) seed: u64,
}

/// Measures servers in separate processes.
#[derive(Debug)]
pub(crate) struct ProcessExecutor {
    config: ExecutorConfig,
    environment: Environment,
    experiments: Vec<Prepared>,
    session: Option<Session>,
    unavailable: Vec<UnavailableCounter>,
    warnings: Vec<Warning>,
    /// Consecutive failures by experiment and cell.
    failures: HashMap<(String, Cell), u32>,
    _scratch: TempDir,
}

impl ProcessExecutor {
    /// Creates the documents and tests each server of the trials once. Servers that are not installed or
    /// fail the test are removed from `experiments` and `trials` with a warning.
    ///
    /// # Errors
    /// A problem that concerns all servers of an experiment.
    pub(crate) fn new(
        config: ExecutorConfig,
        placement: Placement,
        experiments: &mut [PlannedExperiment],
        trials: &mut Vec<Trial>,
        stop: &AtomicBool,
    ) -> Result<Self, LabError> {
        let scratch = TempDir::with_prefix("hearken-lab-")
            .map_err(LabError::file("create a directory in", &std::env::temp_dir()))?;
        make_readable(scratch.path())?;
        let root = scratch.path().join("site");
        create_documents(&root, experiments)?;
        let environment = Environment {
            hearken: config.executable.clone(),
            root,
            scratch: scratch.path().to_owned(),
            placement,
            chrt: find_program("chrt"),
            descriptors: descriptors::raise_limit().unwrap_or(1024),
        };
        if experiments.iter().any(|planned| planned.experiment.network.is_some()) {
            network::enter()?;
        }
        let mut executor = ProcessExecutor {
            config,
            environment,
            experiments: Vec::new(),
            session: None,
            unavailable: Vec::new(),
            warnings: Vec::new(),
            failures: HashMap::new(),
            _scratch: scratch,
        };
        if executor.environment.chrt.is_none()
            && experiments.iter().any(PlannedExperiment::is_together)
        {
            executor.warnings.push(Warning::NoBatchScheduling);
        }
        for planned in experiments {
            executor.prepare(planned, trials, stop)?;
        }
        Ok(executor)
    }

    /// Returns the participating servers of an experiment, and its origin.
    pub(crate) fn participants(
        &self,
        experiment: &str,
    ) -> (Vec<results::Participant>, Option<results::Participant>) {
        let Some(prepared) = self.prepared(experiment) else { return (Vec::new(), None) };
        let participants = prepared.participants.iter().map(Participant::describe).collect();
        (participants, prepared.origin.as_ref().map(Origin::describe))
    }

    fn prepared(&self, experiment: &str) -> Option<&Prepared> {
        self.experiments.iter().find(|e| e.planned.experiment.name == experiment)
    }

    /// Locates, builds and tests the servers of an experiment.
    fn prepare(
        &mut self,
        planned: &mut PlannedExperiment,
        trials: &mut Vec<Trial>,
        stop: &AtomicBool,
    ) -> Result<(), LabError> {
        let name = planned.experiment.name.clone();
        let origin = match &planned.origin {
            Some(recipe) => {
                let context = StartContext {
                    placement: planned.experiment.placement,
                    ..StartContext::default()
                };
                let directory = format!("{name}.origin");
                let environment = &self.environment;
                Some(Origin::start(&directory, recipe, &context, environment, stop)?)
            }
            None => None,
        };
        let mut prepared = Prepared {
            planned: planned.clone(),
            participants: Vec::new(),
            origin,
            saturation: None,
        };
        let mut last = None;
        for server in &planned.servers {
            let directory = format!("{name}.{}", server.name);
            let tested = match Participant::prepare(&directory, server, &self.environment) {
                Ok(participant) => self.test(&prepared, participant, trials, stop)?,
                Err(warning) => Err(warning),
            };
            match tested {
                Ok(participant) => prepared.participants.push(participant),
                Err(warning) => {
                    trials.retain(|t| t.experiment != name || t.cell.server != server.name);
                    last = Some(warning.to_string());
                    self.warnings.push(warning);
                }
            }
        }
        let names: Vec<&str> = prepared.participants.iter().map(|p| p.name.as_str()).collect();
        planned.servers.retain(|server| names.contains(&server.name.as_str()));
        match last.filter(|_| names.is_empty()) {
            Some(reason) => {
                let kind = planned.experiment.kind().name();
                Err(LabError::Config(format!("no {kind} is available: {reason}")))
            }
            None => {
                self.experiments.push(prepared);
                Ok(())
            }
        }
    }

    /// Checks that a server works before the run relies on it.
    fn test(
        &self,
        prepared: &Prepared,
        participant: Participant,
        trials: &[Trial],
        stop: &AtomicBool,
    ) -> Result<Result<Participant, Warning>, LabError> {
        match self.probe_loads(prepared, &participant, trials, stop) {
            Ok(()) => Ok(Ok(participant)),
            Err(LabError::Interrupted) => Err(LabError::Interrupted),
            Err(error) => {
                let (server, reason) = (participant.name, error.to_string());
                Ok(Err(Warning::Excluded { server, reason }))
            }
        }
    }

    /// Starts a server and sends a request for each document of its trials.
    fn probe_loads(
        &self,
        prepared: &Prepared,
        participant: &Participant,
        trials: &[Trial],
        stop: &AtomicBool,
    ) -> Result<(), LabError> {
        let experiment = &prepared.planned.experiment;
        let is_tested = |trial: &&Trial| {
            trial.experiment == experiment.name
                && trial.cell.server == participant.name
                && trial.repetition == 0
        };
        let mut own = trials.iter().filter(is_tested).peekable();
        let Some(first) = own.peek() else { return Ok(()) };
        let _pinned = AffinityGuard::pin(&cpu_set(&self.environment.placement.others))?;
        let start = self.start_context(prepared, &first.cell);
        let running = participant.start(&self.environment, &start, stop)?;
        let mut probed: Vec<(String, bool)> = Vec::new();
        for trial in own {
            let start = self.start_context(prepared, &trial.cell);
            for pass in experiment.passes.iter().filter(|p| permits(&p.only, &trial.cell.values)) {
                if pass.load.options.contains_key("specweb") {
                    continue; // Its path is a prefix, not a document.
                }
                let path = pass.load.path.fill(&start.variables);
                let closes = pass.load.options.get("close").map(|v| v.fill(&start.variables));
                let key = (path, closes.is_some_and(|closes| closes == "true"));
                if probed.contains(&key) {
                    continue;
                }
                probed.push(key);
                let context = PassContext {
                    environment: &self.environment,
                    experiment,
                    start: &start,
                    running: &running,
                    stop,
                };
                pass::probe(&pass.load, &context)?;
            }
        }
        running.guard.stop(participant.recipe.stop.signal());
        Ok(())
    }

    /// Returns the conditions under which the server of a cell starts.
    fn start_context(&self, prepared: &Prepared, cell: &Cell) -> StartContext {
        let planned = &prepared.planned;
        let mut variables = planned.variables(&cell.values);
        variables.insert("root".into(), self.environment.root.display().to_string());
        if let Some(rate) = prepared.saturation {
            variables.insert("saturation".into(), rate.to_string());
        }
        let idle = planned.experiment.idle.as_ref().map(|idle| idle.connections.fill(&variables));
        let idle = idle.and_then(|idle| idle.parse().ok()).unwrap_or(0);
        StartContext {
            connections: idle + ACTIVE_CONNECTIONS.min(self.environment.descriptors / 4),
            idle,
            origin: prepared.origin.as_ref().map(Origin::address),
            placement: planned.experiment.placement,
            quota: planned.quota(&variables),
            variables,
        }
    }

    /// Ends the current session.
    fn end_session(&mut self) {
        if let Some(session) = self.session.take() {
            self.warnings.extend(session.finish());
        }
    }

    /// Runs the passes of a trial.
    fn run_passes(
        &mut self,
        session: &Session,
        trial: &Trial,
        stop: &AtomicBool,
    ) -> Result<Measured, LabError> {
        let mut unavailable = std::mem::take(&mut self.unavailable);
        let measured = self.measure_passes(session, trial, &mut unavailable, stop);
        self.unavailable = unavailable;
        measured
    }

    fn measure_passes(
        &self,
        session: &Session,
        trial: &Trial,
        unavailable: &mut Vec<UnavailableCounter>,
        stop: &AtomicBool,
    ) -> Result<Measured, LabError> {
        let unknown = || LabError::Config(format!("unknown experiment '{}'", trial.experiment));
        let prepared = self.prepared(&trial.experiment).ok_or_else(unknown)?;
        let experiment = &prepared.planned.experiment;
        let start = self.start_context(prepared, &trial.cell);
        let context = PassContext {
            environment: &self.environment,
            experiment,
            start: &start,
            running: session.running(),
            stop,
        };
        let mut instruments = Instruments {
            by_clock: self.config.by_clock,
            // Each repetition has its own arrivals, the same for every cell.
            seed: self.config.seed.wrapping_add(u64::from(trial.repetition)),
            unavailable,
        };
        let mut checks = Checks::default();
        let mut figures = HashMap::new();
        for pass in &experiment.passes {
            let is_useful = pass.emulated || !self.config.by_clock;
            if is_useful && permits(&pass.only, &trial.cell.values) {
                let measured = pass::run(pass, &context, &mut instruments, &mut checks)?;
                figures.extend(measured.map(|measured| (pass.name.as_str(), measured)));
            }
        }
        session.running().guard.check_running()?;
        let value = |of: &str, per: Option<&str>| {
            let (pass, figure) = of.split_once('.')?;
            let value = |name: &str| match pass {
                "session" => session.figure(name),
                _ => figures.get(pass)?.get(name).copied(),
            };
            match per {
                Some(per) => Some(value(figure)? / value(per).filter(|&per| per > 0.0)?),
                None => value(figure),
            }
        };
        let mut metrics = BTreeMap::new();
        for metric in &experiment.metrics {
            let found = metric.of.iter().find_map(|of| value(of, metric.per.as_deref()));
            metrics.extend(found.map(|value| (metric.name.clone(), value)));
        }
        Ok(Measured { metrics, checks })
    }

    /// Starts the session of a trial, unless it is the current one.
    fn session_for(&mut self, trial: &Trial, stop: &AtomicBool) -> Result<Session, LabError> {
        match self.session.take() {
            Some(session) if session.number == trial.session => return Ok(session),
            other => self.session = other,
        }
        self.end_session();
        self.start_session(&trial.experiment, &trial.cell, trial.session, stop)
    }

    fn start_session(
        &self,
        experiment: &str,
        cell: &Cell,
        number: usize,
        stop: &AtomicBool,
    ) -> Result<Session, LabError> {
        let unknown = || LabError::Config(format!("server '{}' is not available", cell.server));
        let prepared = self.prepared(experiment).ok_or_else(unknown)?;
        let is_participant = |p: &&Participant| p.name == cell.server;
        let participant = prepared.participants.iter().find(is_participant).ok_or_else(unknown)?;
        let start = self.start_context(prepared, cell);
        if self.experiments.iter().any(|other| other.planned.experiment.network.is_some()) {
            let own = prepared.planned.experiment.network.as_ref();
            network::set(&own.map_or(network::NONE.into(), |text| text.fill(&start.variables)))?;
        }
        let context = SessionContext {
            environment: &self.environment,
            experiment: &prepared.planned.experiment,
            participant,
            start: &start,
            stop,
        };
        Session::start(number, context)
    }

    /// Records a failure of a cell.
    fn record_failure(&mut self, trial: &Trial, error: LabError) -> LabError {
        // If the origin has exited, its error is the cause.
        let origin = self.prepared(&trial.experiment).and_then(|prepared| prepared.origin.as_ref());
        let error = match origin.map(Origin::check) {
            Some(Err(origin)) if !matches!(error, LabError::Interrupted) => origin,
            _ => error,
        };
        if !matches!(error, LabError::Interrupted) {
            let key = (trial.experiment.clone(), trial.cell.clone());
            *self.failures.entry(key).or_default() += 1;
        }
        error
    }
}

/// Creates the documents of all experiments.
fn create_documents(root: &Path, experiments: &[PlannedExperiment]) -> Result<(), LabError> {
    fs::create_dir(root).map_err(LabError::file("create", root))?;
    make_readable(root)?;
    let directories = experiments.iter().map(|planned| planned.experiment.specweb).max();
    if let Some(directories) = directories.filter(|&directories| directories > 0) {
        let created = hearken_load::specweb::create(root, directories, &mut |_| {});
        created.map_err(|error| LabError::Config(error.to_string()))?;
    }
    for (name, &length) in experiments.iter().flat_map(|planned| &planned.experiment.documents) {
        let path = root.join(name);
        match path.metadata() {
            Ok(existing) if existing.len() != length => {
                let problem = format!("the experiments define document '{name}' with two lengths");
                return Err(LabError::Config(problem));
            }
            Ok(_) => {}
            Err(_) => {
                let content = vec![b'x'; usize::try_from(length).unwrap_or(0)];
                fs::write(&path, content).map_err(LabError::file("write", &path))?;
            }
        }
    }
    Ok(())
}

impl Executor for ProcessExecutor {
    fn measure(&mut self, trial: &Trial, stop: &AtomicBool) -> Result<Measured, LabError> {
        let key = (trial.experiment.clone(), trial.cell.clone());
        let failures = self.failures.get(&key).copied().unwrap_or(0);
        if failures >= MAX_FAILURES {
            return Err(LabError::Skipped { failures });
        }
        // This thread must not run on the processor of the server.
        let _pinned = AffinityGuard::pin(&cpu_set(&self.environment.placement.others))?;
        // A session that failed is discarded, because its measurements are not reliable.
        let session = match self.session_for(trial, stop) {
            Ok(session) => session,
            Err(error) => return Err(self.record_failure(trial, error)),
        };
        match self.run_passes(&session, trial, stop) {
            Ok(measured) => {
                self.session = Some(session);
                self.failures.remove(&key);
                Ok(measured)
            }
            Err(error) => Err(self.record_failure(trial, error)),
        }
    }

    fn saturation(&mut self, experiment: &str, stop: &AtomicBool) -> Result<f64, LabError> {
        self.end_session();
        let unknown = || LabError::Config(format!("experiment '{experiment}' has no saturation"));
        let prepared = self.prepared(experiment).ok_or_else(unknown)?;
        let definition = &prepared.planned.experiment;
        let rule = definition.saturation.as_ref().ok_or_else(unknown)?;
        let mut values = BTreeMap::new();
        for axis in &definition.axes {
            let first = axis.values.first().map(|value| value.name.clone()).unwrap_or_default();
            let value = rule.at.get(&axis.name).map_or(first, |value| value.as_str().to_owned());
            values.insert(axis.name.clone(), value);
        }
        let cell = Cell { server: rule.server.clone(), values };
        let _pinned = AffinityGuard::pin(&cpu_set(&self.environment.placement.others))?;
        let session = self.start_session(experiment, &cell, usize::MAX, stop)?;
        let start = self.start_context(prepared, &cell);
        let context = PassContext {
            environment: &self.environment,
            experiment: definition,
            start: &start,
            running: session.running(),
            stop,
        };
        let found = saturation::search(rule, &context);
        self.warnings.extend(session.finish());
        let (rate, is_limited) = found?;
        if is_limited {
            let experiment = experiment.to_owned();
            self.warnings.push(Warning::SaturationNotReached { experiment, rate });
        }
        Ok(rate)
    }

    fn set_saturation(&mut self, experiment: &str, rate: f64) {
        let is_meant = |e: &&mut Prepared| e.planned.experiment.name == experiment;
        if let Some(prepared) = self.experiments.iter_mut().find(is_meant) {
            prepared.saturation = Some(rate);
        }
    }

    fn unavailable_counters(&self) -> Vec<UnavailableCounter> {
        self.unavailable.clone()
    }

    fn finish(&mut self) -> Vec<Warning> {
        self.end_session();
        std::mem::take(&mut self.warnings)
    }
}
