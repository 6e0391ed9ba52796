//! Execution of measurements with servers in separate processes.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;

use hearken::descriptors;
use tempfile::TempDir;

use super::driver::{Driver, DriverConfig, PASS_TIMEOUT};
use super::kind::Kind;
use super::origin::Origin;
use super::participant::{Environment, Participant, RunningServer, find_program, make_readable};
use super::plan::{Config, Settings, Trial};
use super::results::{self, Measurement};
use super::session::Session;
use super::workload::WORKLOADS;
use crate::counters::{Counters, UnavailableCounter};
use crate::error::LabError;
use crate::executor::{Executor, LOAD_EVENTS, parse, to_strings};
use crate::machine::{Placement, cpu_set};
use crate::process::{AffinityGuard, ChildGuard};
use crate::warning::Warning;

/// Number of consecutive failures after which a server is skipped at this number of idle connections.
const MAX_FAILURES: u32 = 2;
/// Divisor of the number of requests of the pass that counts system calls: it is slow and repeatable.
const SYSCALL_PASS_DIVISOR: u64 = 10;

/// Measures servers in separate processes.
#[derive(Debug)]
pub(super) struct ProcessExecutor {
    settings: Settings,
    environment: Environment,
    participants: Vec<Participant>,
    session: Option<Session>,
    /// Origin server of proxies.
    origin: Option<Origin>,
    unavailable: Vec<UnavailableCounter>,
    warnings: Vec<Warning>,
    /// Consecutive failures by server and idle connections.
    failures: HashMap<(String, u64), u32>,
    _scratch: TempDir,
}

impl ProcessExecutor {
    /// Creates the documents and tests each server of the settings once. Servers that are not installed
    /// or fail the test are excluded with a warning.
    pub(super) fn new(
        config: &Config,
        placement: &Placement,
        warnings: &mut Vec<Warning>,
        stop: &AtomicBool,
    ) -> Result<Self, LabError> {
        let scratch = TempDir::with_prefix("hearken-lab-")
            .map_err(LabError::file("create a directory in", &std::env::temp_dir()))?;
        make_readable(scratch.path())?;
        let root = scratch.path().join("site");
        std::fs::create_dir(&root).map_err(LabError::file("create", &root))?;
        make_readable(&root)?;
        for workload in &WORKLOADS {
            let path = root.join(workload.document);
            let content = vec![b'x'; workload.length as usize];
            std::fs::write(&path, content).map_err(LabError::file("write", &path))?;
        }
        let chrt = find_program("chrt");
        if chrt.is_none() {
            warnings.push(Warning::NoBatchScheduling);
        }
        let settings = config.settings.clone();
        let mut environment = Environment {
            kind: settings.kind,
            origin: None,
            hearken: config.executable.clone(),
            root,
            scratch: scratch.path().to_owned(),
            cpus: placement.server.clone(),
            others: placement.others.clone(),
            chrt,
            connections: settings.connections(),
            max_idle: settings.idle.iter().copied().max().unwrap_or(0),
            descriptors: descriptors::raise_limit().unwrap_or(1024),
        };
        let origin = match settings.kind {
            Kind::Server => None,
            Kind::Proxy => Some(Origin::start(config.origin.as_ref(), &environment, stop)?),
        };
        environment.origin = origin.as_ref().map(Origin::address);
        let mut executor = ProcessExecutor {
            settings,
            environment,
            participants: Vec::new(),
            session: None,
            origin,
            unavailable: Vec::new(),
            warnings: Vec::new(),
            failures: HashMap::new(),
            _scratch: scratch,
        };
        for name in &config.settings.servers {
            let recipe = config.recipes.iter().find(|recipe| &recipe.name == name);
            let recipe =
                recipe.ok_or_else(|| LabError::Config(format!("unknown recipe '{name}'")))?;
            match executor.test(Participant::prepare(recipe, &executor.environment), stop)? {
                Ok(participant) => executor.participants.push(participant),
                Err(warning) => warnings.push(warning),
            }
        }
        match warnings.last().filter(|_| executor.participants.is_empty()) {
            Some(reason) => {
                let kind = config.settings.kind.name();
                Err(LabError::Config(format!("no {kind} is available: {reason}")))
            }
            None => Ok(executor),
        }
    }

    /// Returns the participating servers.
    pub(super) fn servers(&self) -> Vec<results::Participant> {
        self.participants.iter().map(Participant::describe).collect()
    }

    /// Returns the origin server of the proxies.
    pub(super) fn origin(&self) -> Option<results::Participant> {
        self.origin.as_ref().map(Origin::describe)
    }

    /// Ends the current session and returns the warnings so far.
    pub(super) fn finish(&mut self) -> Vec<Warning> {
        self.end_session();
        std::mem::take(&mut self.warnings)
    }

    /// Checks that a server works before the run relies on it.
    fn test(
        &self,
        prepared: Result<Participant, Warning>,
        stop: &AtomicBool,
    ) -> Result<Result<Participant, Warning>, LabError> {
        let participant = match prepared {
            Ok(participant) => participant,
            Err(warning) => return Ok(Err(warning)),
        };
        match self.test_workloads(&participant, stop) {
            Ok(()) => Ok(Ok(participant)),
            Err(LabError::Interrupted) => Err(LabError::Interrupted),
            Err(error) => {
                let (server, reason) = (participant.recipe.name.clone(), error.to_string());
                Ok(Err(Warning::Excluded { server, reason }))
            }
        }
    }

    /// Starts a server and sends a request of each workload.
    fn test_workloads(&self, participant: &Participant, stop: &AtomicBool) -> Result<(), LabError> {
        let _pinned = AffinityGuard::pin(&cpu_set(&self.environment.others))?;
        let running = participant.start(&self.environment, stop)?;
        for name in &self.settings.workloads {
            if participant.recipe.supports(name, 0) {
                let config = DriverConfig::new(&running, name, self.settings.batch)?;
                let mut driver = Driver::start(&self.environment, &config, 0, &running, stop)?;
                driver.run_pass(1, stop)?;
                driver.finish(stop)?;
            }
        }
        running.guard.stop(participant.recipe.stop.signal());
        Ok(())
    }

    /// Returns the session of a trial: the current session or a new one.
    fn session_for(&mut self, trial: &Trial, stop: &AtomicBool) -> Result<Session, LabError> {
        match self.session.take() {
            Some(session) if session.matches(trial) => return Ok(session),
            other => self.session = other,
        }
        self.end_session();
        let is_participant = |p: &&Participant| p.recipe.name == trial.server;
        let participant = self.participants.iter().find(is_participant);
        let unknown = || LabError::Config(format!("server '{}' is not available", trial.server));
        let participant = participant.ok_or_else(unknown)?;
        Session::start(&self.environment, participant, trial, self.settings.batch, stop)
    }

    /// Ends the current session.
    fn end_session(&mut self) {
        if let Some(session) = self.session.take() {
            self.warnings.extend(session.finish(&self.participants));
        }
    }

    /// Runs the passes of a trial.
    fn run_passes(
        &mut self,
        session: &Session,
        trial: &Trial,
        stop: &AtomicBool,
    ) -> Result<Measurement, LabError> {
        let running = session.running();
        let config = DriverConfig::new(running, &trial.workload, self.settings.batch)?;
        let (workload, batch) = (config.workload, self.settings.batch);
        let requests = workload.requests(self.settings.requests, batch);
        let mut unavailable = std::mem::take(&mut self.unavailable);
        let mut driver =
            Driver::start(&self.environment, &config, workload.warm_up(batch), running, stop)?;

        let before = running.tree.usage()?;
        let timed = driver.run_pass(requests, stop)?;
        let usage = running.tree.usage()?.since(&before);

        let threads = running.tree.threads()?;
        let by_clock = self.settings.emulator.is_some();
        let counters =
            (!by_clock).then(|| Counters::attach_instructions(&threads, &mut unavailable));
        let counted = match counters.as_ref().is_some_and(Counters::is_any_attached) {
            true => driver.run_pass(requests, stop)?.requests.replies,
            false => 0,
        };
        let instructions = counters.map(Counters::finish).unwrap_or_default();
        let syscalls = Counters::attach_syscalls(&threads, &mut unavailable);
        let traced = match syscalls.is_any_attached() {
            true => {
                let requests =
                    workload.requests(self.settings.requests / SYSCALL_PASS_DIVISOR, batch);
                driver.run_pass(requests, stop)?.requests.replies
            }
            false => 0,
        };
        let syscalls = syscalls.finish().syscalls;
        driver.finish(stop)?;
        self.unavailable = unavailable;
        let (latency, errors) = self.measure_latency(&config, running, trial, stop)?;
        running.guard.check_running()?;

        let replies = timed.requests.replies;
        let per = |n: u64, of: u64| (of > 0).then(|| n as f64 / of as f64);
        let time = |ns: u64| per(ns, replies).filter(|_| !by_clock);
        let (rss_start_bytes, rss_bytes) = session.rss_bytes();
        Ok(Measurement {
            requests: replies,
            cpu_ns_per_request: time(usage.cpu_ns),
            cpu_user_ns_per_request: time(usage.user_ns),
            cpu_system_ns_per_request: time(usage.system_ns),
            instructions_emulated_per_request: per(usage.cpu_ns, replies).filter(|_| by_clock),
            instructions_user_per_request: instructions
                .instructions_user
                .and_then(|n| per(n, counted)),
            instructions_kernel_per_request: instructions
                .instructions_kernel
                .and_then(|n| per(n, counted)),
            syscalls_per_request: syscalls.and_then(|n| per(n, traced)),
            context_switches_per_request: per(usage.context_switches(), replies),
            lockstep_rate: replies as f64 / timed.duration_s.max(1e-9),
            reconnects: if workload.close { 0 } else { timed.connections_opened },
            idle_connections: session.idle_connections(),
            rss_start_bytes,
            rss_bytes,
            rss_per_idle_bytes: session.rss_per_idle_bytes(),
            rss_per_unused_bytes: session.rss_per_unused_bytes,
            latency_p50_ns: latency.map(|(p50, _)| p50),
            latency_p99_ns: latency.map(|(_, p99)| p99),
            latency_errors: errors,
        })
    }

    /// Runs an open-loop pass at a low rate, if possible from another processor. Returns the median and
    /// the 99th percentile of latency, and the number of failed requests.
    fn measure_latency(
        &self,
        config: &DriverConfig,
        running: &RunningServer,
        trial: &Trial,
        stop: &AtomicBool,
    ) -> Result<(Option<(f64, f64)>, u64), LabError> {
        let Some(rate) = config.workload.rate.filter(|_| self.settings.latency_s > 0.0) else {
            return Ok((None, 0));
        };
        let seed = self.settings.seed.wrapping_add(u64::from(trial.repetition));
        let mut arguments = to_strings(&[
            "load",
            &config.url,
            "--rate",
            &rate.to_string(),
            "--duration",
            &format!("{}s", self.settings.latency_s),
            "--connections",
            &config.batch.to_string(),
            "--events",
            LOAD_EVENTS,
            "--seed",
            &seed.to_string(),
            "--json",
            "-",
            "--exit-with-parent",
        ]);
        if config.workload.close {
            arguments.extend(to_strings(&["--per-connection", "1"]));
        }
        let stderr = self.environment.scratch.join("latency.stderr");
        let cpus = cpu_set(&self.environment.others);
        let mut load = ChildGuard::spawn(&self.environment.hearken, &arguments, &cpus, stderr)?;
        let output = load.wait_for_end(PASS_TIMEOUT, stop);
        running.guard.check_running()?;
        let result = parse(load.name().to_string(), &output?)?;
        let times = result.latency_ns;
        let times = (times.count > 0).then_some((times.p50 as f64, times.p99 as f64));
        Ok((times, result.errors.total()))
    }
}

impl Executor<Trial, Measurement> for ProcessExecutor {
    fn measure(&mut self, trial: &Trial, stop: &AtomicBool) -> Result<Measurement, LabError> {
        let key = (trial.server.clone(), trial.idle);
        let failures = self.failures.get(&key).copied().unwrap_or(0);
        if failures >= MAX_FAILURES {
            return Err(LabError::Skipped { failures });
        }
        let _pinned = AffinityGuard::pin(&cpu_set(&self.environment.others))?;
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

    fn unavailable_counters(&self) -> Vec<UnavailableCounter> {
        self.unavailable.clone()
    }
}

impl ProcessExecutor {
    /// Records a failure of a server.
    fn record_failure(&mut self, trial: &Trial, error: LabError) -> LabError {
        // If the origin has exited, its error is the cause.
        let error = match self.origin.as_ref().map(Origin::check) {
            Some(Err(origin)) if !matches!(error, LabError::Interrupted) => origin,
            _ => error,
        };
        if !matches!(error, LabError::Interrupted) {
            *self.failures.entry((trial.server.clone(), trial.idle)).or_default() += 1;
        }
        error
    }
}
