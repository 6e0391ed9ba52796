//! Measures servers that it starts as processes of their own.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hearken::descriptors;
use hearken_load::lockstep;
use tempfile::TempDir;

use super::participant::{Ground, Participant, Running, find, open_to_all};
use super::plan::{Case, Config, Settings};
use super::results::{self, Measurement};
use super::workload::{WORKLOADS, Workload};
use crate::counters::{Counters, Refusal};
use crate::error::LabError;
use crate::executor::{Executor, HOLD, LOAD_EVENTS, parse, words};
use crate::machine::{Placement, cpu_set};
use crate::process::{Guard, Pinned};
use crate::warning::Warning;

/// For a pass, however busy the machine is.
const PASS: Duration = Duration::from_secs(60);
/// A server that failed so often in a row is tried no more with as many idle connections.
const STRIKES: u32 = 2;
/// System calls repeat, and counting them is slow: a pass has this part of the requests.
const SYSCALLS_PART: u64 = 10;

/// Measures servers that it starts as processes of their own.
#[derive(Debug)]
pub struct ProcessExecutor {
    settings: Settings,
    placement: Placement,
    ground: Ground,
    participants: Vec<Participant>,
    session: Option<Session>,
    refusals: Vec<Refusal>,
    warnings: Vec<Warning>,
    /// Failures in a row, by server and idle connections.
    strikes: HashMap<(String, u64), u32>,
    _scratch: TempDir,
}

/// A server that runs, with its idle connections.
#[derive(Debug)]
struct Session {
    server: String,
    idle: u64,
    /// How many idle connections it really has.
    held: u64,
    repetition: u32,
    running: Running,
    holder: Option<Guard>,
    rss_start_bytes: u64,
    rss_bytes: u64,
}

/// What the driver is to do for a workload.
struct Drive {
    url: String,
    workload: &'static Workload,
    batch: u64,
}

impl ProcessExecutor {
    /// Writes the documents, and tries each server of the settings once. Those that are not installed
    /// or do not serve are left out, and `warnings` says why.
    pub fn new(
        config: &Config,
        placement: &Placement,
        warnings: &mut Vec<Warning>,
        stop: &AtomicBool,
    ) -> Result<Self, LabError> {
        let scratch = TempDir::with_prefix("hearken-lab-")
            .map_err(LabError::file("create a directory in", &std::env::temp_dir()))?;
        open_to_all(scratch.path())?;
        let root = scratch.path().join("site");
        std::fs::create_dir(&root).map_err(LabError::file("create", &root))?;
        open_to_all(&root)?;
        for workload in &WORKLOADS {
            let path = root.join(workload.document);
            let content = vec![b'x'; workload.length as usize];
            std::fs::write(&path, content).map_err(LabError::file("write", &path))?;
        }
        let chrt = find("chrt");
        if chrt.is_none() {
            warnings.push(Warning::NotBatch);
        }
        let settings = config.settings.clone();
        let ground = Ground {
            hearken: config.executable.clone(),
            root,
            scratch: scratch.path().to_owned(),
            cpus: placement.server.clone(),
            chrt,
            connections: settings.connections(),
            most_idle: settings.idle.iter().copied().max().unwrap_or(0),
            descriptors: descriptors::raise_limit().unwrap_or(1024),
        };
        let mut executor = ProcessExecutor {
            settings,
            placement: placement.clone(),
            ground,
            participants: Vec::new(),
            session: None,
            refusals: Vec::new(),
            warnings: Vec::new(),
            strikes: HashMap::new(),
            _scratch: scratch,
        };
        for name in &config.settings.servers {
            let recipe = config.recipes.iter().find(|recipe| &recipe.name == name);
            let recipe = recipe.ok_or_else(|| LabError::Config(format!("no recipe \"{name}\"")))?;
            match executor.admit(Participant::prepare(recipe, &executor.ground), stop)? {
                Ok(participant) => executor.participants.push(participant),
                Err(why) => warnings.push(why),
            }
        }
        match warnings.iter().find(|_| executor.participants.is_empty()) {
            Some(why) => Err(LabError::Config(format!("no server can take part: {why}"))),
            None => Ok(executor),
        }
    }

    /// The servers that take part.
    pub fn servers(&self) -> Vec<results::Participant> {
        self.participants.iter().map(Participant::describe).collect()
    }

    /// Ends what runs, and tells what was noticed meanwhile.
    pub fn end(&mut self) -> Vec<Warning> {
        self.leave();
        std::mem::take(&mut self.warnings)
    }

    /// Has it answer once, before a run rests on it.
    fn admit(
        &self,
        prepared: Result<Participant, Warning>,
        stop: &AtomicBool,
    ) -> Result<Result<Participant, Warning>, LabError> {
        let participant = match prepared {
            Ok(participant) => participant,
            Err(why) => return Ok(Err(why)),
        };
        match self.tried(&participant, stop) {
            Ok(()) => Ok(Ok(participant)),
            Err(LabError::Interrupted) => Err(LabError::Interrupted),
            Err(error) => {
                let (server, reason) = (participant.recipe.name.clone(), error.to_string());
                Ok(Err(Warning::LeftOut { server, reason }))
            }
        }
    }

    fn tried(&self, participant: &Participant, stop: &AtomicBool) -> Result<(), LabError> {
        let _pinned = Pinned::to(&cpu_set(&self.placement.others))?;
        let running = participant.start(&self.ground, stop)?;
        for name in &self.settings.workloads {
            if participant.recipe.takes(name, 0) {
                let drive = self.drive(&running, name)?;
                let mut driver = self.driver(&drive, 0, &running, stop)?;
                driver.pass(1, stop)?;
                driver.end(stop)?;
            }
        }
        running.guard.end(participant.recipe.stop.signal());
        Ok(())
    }

    fn drive(&self, running: &Running, workload: &str) -> Result<Drive, LabError> {
        let unknown = || LabError::Config(format!("there is no workload \"{workload}\""));
        let workload = Workload::find(workload).ok_or_else(unknown)?;
        let batch = workload.batch.unwrap_or(self.settings.batch);
        let url = format!("{}/{}", running.url, workload.document);
        Ok(Drive { url, workload, batch })
    }

    /// Starts the driver, and has it make `warm_up` requests.
    fn driver<'a>(
        &self,
        drive: &'a Drive,
        warm_up: u64,
        running: &'a Running,
        stop: &AtomicBool,
    ) -> Result<Driver<'a>, LabError> {
        let (batch, pipeline) = (drive.batch.to_string(), drive.workload.pipeline.to_string());
        let mut arguments = words(&[
            "load",
            &drive.url,
            "--lockstep",
            &batch,
            "--pipeline",
            &pipeline,
            "--warm-up",
            &warm_up.to_string(),
            "--on-demand",
        ]);
        if drive.workload.close {
            arguments.push("--close".into());
        }
        let guard = self.ground.launch(&self.ground.hearken, &arguments, "driver", true)?;
        let mut driver = Driver { guard, drive, running };
        let ready = driver.guard.wait_for_line("ready", PASS, stop);
        driver.blame(ready)?;
        Ok(driver)
    }

    /// The session that a case belongs to: the one that runs, or a new one.
    fn enter(&mut self, case: &Case, stop: &AtomicBool) -> Result<Session, LabError> {
        match self.session.take() {
            Some(session) if session.is_for(case) => return Ok(session),
            other => self.session = other,
        }
        self.leave();
        let named = |p: &&Participant| p.recipe.name == case.server;
        let participant = self.participants.iter().find(named);
        let unknown = || LabError::Config(format!("{} does not take part", case.server));
        let participant = participant.ok_or_else(unknown)?;
        let running = participant.start(&self.ground, stop)?;
        // What the first requests have it allocate is no connection's.
        let drive = self.drive(&running, &case.workload)?;
        let first = drive.workload.warm_up(self.settings.batch);
        self.driver(&drive, first, &running, stop)?.end(stop)?;
        let rss_start_bytes = running.tree.resident()?;
        let held = participant.most_idle(case.idle, &self.ground);
        let holder = self.hold_idle(&running, held, stop)?;
        let rss_bytes = running.tree.resident()?;
        Ok(Session {
            server: case.server.clone(),
            idle: case.idle,
            held,
            repetition: case.repetition,
            running,
            holder,
            rss_start_bytes,
            rss_bytes,
        })
    }

    /// Ends the session that runs, if one does.
    fn leave(&mut self) {
        let Some(session) = self.session.take() else { return };
        let server = session.server;
        if let Some(holder) = session.holder {
            holder.terminate();
            let output = std::fs::read_to_string(self.idle_result()).unwrap_or_default();
            let result = parse(String::new(), &output).map(|result| result.idle);
            let held = session.held;
            let lost = result.map_or(held, |idle| idle.lost.max(held.saturating_sub(idle.held)));
            if lost > 0 {
                self.warnings
                    .push(Warning::IdleClosed { server: server.clone(), connections: lost });
            }
        }
        let named = |p: &&Participant| p.recipe.name == server;
        if let Some(participant) = self.participants.iter().find(named) {
            session.running.guard.end(participant.recipe.stop.signal());
        }
    }

    fn idle_result(&self) -> PathBuf {
        self.ground.scratch.join("idle.json")
    }

    fn hold_idle(
        &self,
        running: &Running,
        idle: u64,
        stop: &AtomicBool,
    ) -> Result<Option<Guard>, LabError> {
        if idle == 0 {
            return Ok(None);
        }
        let arguments = words(&[
            "load",
            &format!("{}/{}", running.url, WORKLOADS[0].document),
            "--rate",
            "0",
            "--idle",
            &idle.to_string(),
            // By the time that it is held, each has been accepted and answered.
            "--idle-request",
            "--events",
            LOAD_EVENTS,
            "--json",
            &self.idle_result().display().to_string(),
            "--exit-with-parent",
        ]);
        let stderr = self.ground.scratch.join("idle.stderr");
        let cpus = cpu_set(&self.placement.others);
        let mut holder = Guard::spawn(&self.ground.hearken, &arguments, &cpus, stderr)?;
        let held = holder.wait_for_line("holding ", HOLD, stop);
        running.guard.check()?;
        held?;
        Ok(Some(holder))
    }

    fn passes(
        &mut self,
        session: &Session,
        case: &Case,
        stop: &AtomicBool,
    ) -> Result<Measurement, LabError> {
        let running = &session.running;
        let drive = self.drive(running, &case.workload)?;
        let (workload, batch) = (drive.workload, self.settings.batch);
        let requests = workload.requests(self.settings.requests, batch);
        let mut refusals = std::mem::take(&mut self.refusals);
        let mut driver = self.driver(&drive, workload.warm_up(batch), running, stop)?;

        let before = running.tree.usage()?;
        let timed = driver.pass(requests, stop)?;
        let used = running.tree.usage()?.since(&before);

        let threads = running.tree.threads()?;
        let instructions = Counters::attach_instructions(&threads, &mut refusals);
        let counted = match instructions.any() {
            true => driver.pass(requests, stop)?.requests.replies,
            false => 0,
        };
        let instructions = instructions.finish();
        let syscalls = Counters::attach_syscalls(&threads, &mut refusals);
        let traced = match syscalls.any() {
            true => {
                let few = workload.requests(self.settings.requests / SYSCALLS_PART, batch);
                driver.pass(few, stop)?.requests.replies
            }
            false => 0,
        };
        let syscalls = syscalls.finish().syscalls;
        driver.end(stop)?;
        self.refusals = refusals;
        let (latency, errors) = self.latency(&drive, running, case, stop)?;
        running.guard.check()?;

        let replies = timed.requests.replies;
        let per = |n: u64, of: u64| (of > 0).then(|| n as f64 / of as f64);
        let added = session.rss_bytes.saturating_sub(session.rss_start_bytes) as f64;
        Ok(Measurement {
            requests: replies,
            cpu_ns_per_request: per(used.cpu_ns, replies),
            cpu_user_ns_per_request: per(used.user_ns, replies),
            cpu_system_ns_per_request: per(used.system_ns, replies),
            instr_user_per_request: instructions.instructions_user.and_then(|n| per(n, counted)),
            instr_kernel_per_request: instructions
                .instructions_kernel
                .and_then(|n| per(n, counted)),
            syscalls_per_request: syscalls.and_then(|n| per(n, traced)),
            context_switches_per_request: per(used.context_switches, replies),
            lockstep_rate: replies as f64 / timed.duration_s.max(1e-9),
            reconnects: if workload.close { 0 } else { timed.connections_opened },
            idle_connections: session.held,
            rss_start_bytes: session.rss_start_bytes,
            rss_bytes: session.rss_bytes,
            rss_per_idle_bytes: (session.held > 0).then(|| added / session.held as f64),
            latency_p50_ns: latency.map(|(p50, _)| p50),
            latency_p99_ns: latency.map(|(_, p99)| p99),
            latency_errors: errors,
        })
    }

    /// An open-loop pass at a low rate, from another processor where there is one: median and 99th
    /// percentile of latency, and how many requests failed.
    fn latency(
        &self,
        drive: &Drive,
        running: &Running,
        case: &Case,
        stop: &AtomicBool,
    ) -> Result<(Option<(f64, f64)>, u64), LabError> {
        let Some(rate) = drive.workload.rate.filter(|_| self.settings.latency_s > 0.0) else {
            return Ok((None, 0));
        };
        let seed = self.settings.seed.wrapping_add(u64::from(case.repetition));
        let mut arguments = words(&[
            "load",
            &drive.url,
            "--rate",
            &rate.to_string(),
            "--duration",
            &format!("{}s", self.settings.latency_s),
            "--connections",
            &drive.batch.to_string(),
            "--events",
            LOAD_EVENTS,
            "--seed",
            &seed.to_string(),
            "--json",
            "-",
            "--exit-with-parent",
        ]);
        if drive.workload.close {
            arguments.extend(words(&["--per-connection", "1"]));
        }
        let stderr = self.ground.scratch.join("latency.stderr");
        let cpus = cpu_set(&self.placement.others);
        let mut load = Guard::spawn(&self.ground.hearken, &arguments, &cpus, stderr)?;
        let output = load.wait_for_end(PASS, stop);
        running.guard.check()?;
        let result = parse(load.name().to_string(), &output?)?;
        let times = result.latency_ns;
        let times = (times.count > 0).then_some((times.p50 as f64, times.p99 as f64));
        Ok((times, result.errors.total()))
    }
}

impl Executor<Case, Measurement> for ProcessExecutor {
    fn measure(&mut self, case: &Case, stop: &AtomicBool) -> Result<Measurement, LabError> {
        let key = (case.server.clone(), case.idle);
        let strikes = self.strikes.get(&key).copied().unwrap_or(0);
        if strikes >= STRIKES {
            return Err(LabError::GivenUp { failures: strikes });
        }
        let _pinned = Pinned::to(&cpu_set(&self.placement.others))?;
        // What is measured in a session that failed would be worth nothing: it ends here.
        let session = match self.enter(case, stop) {
            Ok(session) => session,
            Err(error) => return Err(self.strike(case, error)),
        };
        match self.passes(&session, case, stop) {
            Ok(measured) => {
                self.session = Some(session);
                self.strikes.remove(&key);
                Ok(measured)
            }
            Err(error) => Err(self.strike(case, error)),
        }
    }

    fn refusals(&self) -> Vec<Refusal> {
        self.refusals.clone()
    }
}

impl ProcessExecutor {
    fn strike(&mut self, case: &Case, error: LabError) -> LabError {
        if !matches!(error, LabError::Interrupted) {
            *self.strikes.entry((case.server.clone(), case.idle)).or_default() += 1;
        }
        error
    }
}

impl Session {
    fn is_for(&self, case: &Case) -> bool {
        (&self.server, self.idle, self.repetition) == (&case.server, case.idle, case.repetition)
    }
}

/// A driver that has made its connections and waits to be told how many requests to make.
struct Driver<'a> {
    guard: Guard,
    drive: &'a Drive,
    running: &'a Running,
}

impl Driver<'_> {
    /// Has it make so many requests.
    fn pass(&mut self, requests: u64, stop: &AtomicBool) -> Result<lockstep::Report, LabError> {
        let begun = self.guard.say(&requests.to_string());
        let line = begun.and_then(|()| self.guard.wait_for_line("{", PASS, stop));
        let line = self.blame(line)?;
        let process = self.guard.name().to_owned();
        let unread = |problem: String| LabError::LoadResult { process: process.clone(), problem };
        let report: lockstep::Report =
            serde_json::from_str(&line).map_err(|e| unread(e.to_string()))?;
        let expected = self.drive.workload.length;
        if report.schema != lockstep::SCHEMA {
            return Err(unread(format!("it speaks `{}`", report.schema)));
        }
        if let Some(wrong) = report.warnings.first() {
            return Err(self.running.guard.failed(&format!("answered wrongly: {wrong}")));
        }
        if report.content_bytes != expected {
            let got = report.content_bytes;
            let problem = format!("answered with {got} bytes where the file has {expected}");
            return Err(self.running.guard.failed(&problem));
        }
        Ok(report)
    }

    fn end(mut self, stop: &AtomicBool) -> Result<(), LabError> {
        self.guard.say_no_more();
        self.guard.wait_for_end(PASS, stop).map(drop)
    }

    /// If the server has ended, that is why the driver failed.
    fn blame<T>(&self, result: Result<T, LabError>) -> Result<T, LabError> {
        match result {
            Err(LabError::Interrupted) => Err(LabError::Interrupted),
            Err(error) => {
                self.running.guard.check()?;
                Err(error)
            }
            ok => ok,
        }
    }
}
