//! Passes: loads on a running server, and what they cost it.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use hearken_load::lockstep;

use crate::accounting::Usage;
use crate::counters::{Counters, UnavailableCounter};
use crate::error::LabError;
use crate::experiment::{CounterGroup, Experiment, Load, Pass};
use crate::load_result::{self, LoadResult};
use crate::participant::{Environment, RunningServer, StartContext};
use crate::plan::{PUBLICATION_TIME, parse_duration};
use crate::process::ChildGuard;
use crate::results::Checks;
use crate::server_metrics::ServerMetrics;
use crate::throttle::Throttled;

/// Event mechanism of the load generator: available everywhere, and the same for all servers.
pub(super) const LOAD_EVENTS: &str = "epoll-edge";
/// Time limit for establishing connections.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit of a pass after its planned duration, sufficient for a busy machine.
const PASS_TIMEOUT: Duration = Duration::from_secs(60);
/// Number of requests in lockstep from which enough system calls are counted. Counting is slow, and the
/// counts are repeatable.
const MIN_SYSCALL_REQUESTS: u64 = 100;
/// Divisor of the number of requests in lockstep of a pass that counts system calls.
const SYSCALL_DIVISOR: u64 = 10;
/// Share of the requests below which a server is saturated.
const SATURATED_REPLIES: f64 = 0.95;
/// Utilisation of its processor above which a server is saturated.
const SATURATED_CPU: f64 = 0.95;

/// Figures of a pass by name.
pub(super) type Figures = BTreeMap<&'static str, f64>;

/// Everything that a pass needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct PassContext<'a> {
    pub(super) environment: &'a Environment,
    pub(super) experiment: &'a Experiment,
    pub(super) start: &'a StartContext,
    pub(super) running: &'a RunningServer,
    pub(super) stop: &'a AtomicBool,
}

/// Counters and clock of a run.
#[derive(Debug)]
pub(super) struct Instruments<'a> {
    /// Whether the clock of the machine counts instructions.
    pub(super) by_clock: bool,
    pub(super) seed: u64,
    pub(super) unavailable: &'a mut Vec<UnavailableCounter>,
}

impl PassContext<'_> {
    /// Returns the arguments of the load generator.
    fn arguments(&self, load: &Load) -> Vec<String> {
        let own = load.arguments(&self.running.url, &self.start.variables);
        let required = self.running.load_option();
        std::iter::once("load".to_owned()).chain(own).chain(required).collect()
    }

    fn launch(&self, arguments: &[String], pipe_stdin: bool) -> Result<ChildGuard, LabError> {
        let environment = self.environment;
        let schedule = environment.load_schedule(self.start.placement);
        environment.launch(&environment.hearken, arguments, "load", &schedule, pipe_stdin)
    }

    /// Runs an open load and returns its result as JSON.
    pub(super) fn run_load(
        &self,
        load: &Load,
        more: Vec<String>,
        duration: Duration,
    ) -> Result<String, LabError> {
        let mut arguments = self.arguments(load);
        arguments.extend(more);
        arguments.extend(["--json", "-", "--events", LOAD_EVENTS].map(String::from));
        let mut process = self.launch(&arguments, false)?;
        let output = process.wait_for_output(duration + PASS_TIMEOUT, self.stop);
        // A load without a reply exits with 1 after its result.
        let (output, status) = self.prefer_server_error(output)?;
        match status.success() || !output.is_empty() {
            true => Ok(output),
            false => Err(process.error(&format!("failed ({status})"))),
        }
    }

    /// Replaces an error of the load generator by the error of the server if the server has exited.
    fn prefer_server_error<T>(&self, result: Result<T, LabError>) -> Result<T, LabError> {
        match result {
            Err(LabError::Interrupted) => Err(LabError::Interrupted),
            Err(error) => {
                self.running.guard.check_running()?;
                Err(error)
            }
            ok => ok,
        }
    }

    /// Returns the length of the document that a load requests, if the experiment defines it.
    fn content_length(&self, load: &Load) -> Option<u64> {
        let path = load.path.fill(&self.start.variables);
        self.experiment.documents.get(path.trim_start_matches('/')).copied()
    }
}

/// Runs a pass. Returns none if none of its counters is available.
pub(super) fn run(
    pass: &Pass,
    context: &PassContext<'_>,
    instruments: &mut Instruments<'_>,
    checks: &mut Checks,
) -> Result<Option<Figures>, LabError> {
    match pass.load.is_lockstep() {
        true => run_lockstep(pass, context, instruments, checks),
        false => run_open(pass, context, instruments, checks).map(Some),
    }
}

/// Runs a load in lockstep without measuring it.
pub(super) fn warm_up(load: &Load, context: &PassContext<'_>) -> Result<(), LabError> {
    let mut driver = Driver::start(load, context)?;
    driver.run(load, load_requests(load, context), context)?;
    driver.finish(context)
}

/// Sends one request for the path of a load and checks the reply.
pub(super) fn probe(load: &Load, context: &PassContext<'_>) -> Result<(), LabError> {
    let mut one = Load { options: BTreeMap::new(), ..load.clone() };
    let closes = ["close", "per-connection"].map(|name| load.options.get(name));
    let closes = closes.iter().flatten().any(|v| v.fill(&context.start.variables) != "false");
    for (name, value) in [("lockstep", toml::Value::from(1)), ("close", closes.into())] {
        one.options.extend(value.try_into().ok().map(|value| (name.to_owned(), value)));
    }
    let mut driver = Driver::start(&one, context)?;
    driver.run(&one, 1, context)?;
    driver.finish(context)
}

fn load_requests(load: &Load, context: &PassContext<'_>) -> u64 {
    let requests = load.requests.as_ref().map(|text| text.fill(&context.start.variables));
    let requests = requests.and_then(|text| text.parse::<f64>().ok()).unwrap_or(1.0);
    requests.max(1.0) as u64
}

/// A driver in lockstep with established connections. It waits for the number of requests to send.
struct Driver {
    guard: ChildGuard,
}

impl Driver {
    fn start(load: &Load, context: &PassContext<'_>) -> Result<Driver, LabError> {
        let mut arguments = context.arguments(load);
        arguments.push("--on-demand".into());
        let mut guard = context.launch(&arguments, true)?;
        context.prefer_server_error(guard.wait_for_line("ready", PASS_TIMEOUT, context.stop))?;
        Ok(Driver { guard })
    }

    /// Sends the given number of requests.
    fn run(
        &mut self,
        load: &Load,
        requests: u64,
        context: &PassContext<'_>,
    ) -> Result<lockstep::Report, LabError> {
        let written = self.guard.write_line(&requests.to_string());
        let line = written.and_then(|()| self.guard.wait_for_line("{", PASS_TIMEOUT, context.stop));
        let line = context.prefer_server_error(line)?;
        let process = self.guard.name().to_owned();
        let wrong = |problem: String| LabError::LoadResult { process: process.clone(), problem };
        let report: lockstep::Report =
            serde_json::from_str(&line).map_err(|error| wrong(error.to_string()))?;
        if report.schema != lockstep::SCHEMA {
            return Err(wrong(format!("its format is '{}'", report.schema)));
        }
        let server = &context.running.guard;
        if let Some(wrong) = report.warnings.first() {
            return Err(server.error(&format!("sent a wrong reply: {wrong}")));
        }
        match context.content_length(load) {
            Some(expected) if report.content_bytes != expected => {
                let sent = report.content_bytes;
                Err(server.error(&format!("sent {sent} bytes of content, expected {expected}")))
            }
            _ => Ok(report),
        }
    }

    /// Stops the driver and waits until it exits.
    fn finish(mut self, context: &PassContext<'_>) -> Result<(), LabError> {
        self.guard.close_stdin();
        self.guard.wait_for_end(PASS_TIMEOUT, context.stop).map(drop)
    }
}

fn run_lockstep(
    pass: &Pass,
    context: &PassContext<'_>,
    instruments: &mut Instruments<'_>,
    checks: &mut Checks,
) -> Result<Option<Figures>, LabError> {
    // On an emulated machine, the clock is the counter of instructions.
    let is_redundant = pass.count.contains(&CounterGroup::Instructions) && instruments.by_clock;
    if is_redundant {
        return Ok(None);
    }
    let mut driver = Driver::start(&pass.load, context)?;
    if pass.count.contains(&CounterGroup::Events) {
        std::thread::sleep(PUBLICATION_TIME);
    }
    let meter = Meter::start(pass, context, instruments)?;
    if pass.attaches() && !meter.counters.is_any_attached() {
        driver.finish(context)?;
        return Ok(None);
    }
    let requests = match load_requests(&pass.load, context) {
        requests if pass.count.contains(&CounterGroup::Syscalls) => {
            (requests / SYSCALL_DIVISOR).max(MIN_SYSCALL_REQUESTS.min(requests))
        }
        requests => requests,
    };
    let report = driver.run(&pass.load, requests, context)?;
    let mut figures = meter.finish(context, instruments.by_clock)?;
    driver.finish(context)?;
    figures.insert("scheduled", report.requests.scheduled as f64);
    figures.insert("replies", report.requests.replies as f64);
    figures.insert("failed", report.requests.failed as f64);
    figures.insert("reply_rate", report.requests.replies as f64 / report.duration_s.max(1e-9));
    figures.insert("connections_opened", report.connections_opened as f64);
    if !report.close {
        checks.reconnects += report.connections_opened.saturating_sub(report.batch);
    }
    Ok(Some(figures))
}

fn run_open(
    pass: &Pass,
    context: &PassContext<'_>,
    instruments: &mut Instruments<'_>,
    checks: &mut Checks,
) -> Result<Figures, LabError> {
    let mut arguments = context.arguments(&pass.load);
    let seed = instruments.seed.to_string();
    let fixed = ["--events", LOAD_EVENTS, "--seed", &seed, "--json", "-", "--announce"];
    arguments.extend(fixed.map(String::from));
    let mut load = context.launch(&arguments, false)?;
    let prepared = load.wait_for_line("prepared", OPEN_TIMEOUT, context.stop);
    context.prefer_server_error(prepared)?;
    // The cost of establishing the connections is not attributed to the requests.
    let meter = Meter::start(pass, context, instruments)?;
    let duration = pass.load.options.get("duration");
    let duration = duration.and_then(|text| parse_duration(&text.fill(&context.start.variables)));
    let limit = duration.unwrap_or_default() + PASS_TIMEOUT;
    let output = load.wait_for_output(limit, context.stop);
    let (output, status) = context.prefer_server_error(output)?;
    let mut figures = meter.finish(context, instruments.by_clock)?;
    context.running.guard.check_running()?;
    // A load without a reply exits with 1 after its result, which is a measurement.
    if !status.success() && output.is_empty() {
        return Err(load.error(&format!("failed ({status})")));
    }
    let result = parse(load.name(), &output)?;
    let requests = &result.requests;
    for (name, value) in [
        ("scheduled", requests.scheduled),
        ("answerable", requests.answerable),
        ("replies", requests.replies),
        ("failed", requests.failed),
        ("missed", requests.missed),
        ("connections_opened", result.connections_opened),
    ] {
        figures.insert(name, value as f64);
    }
    figures.insert("reply_rate", result.reply_rate);
    figures.insert("offered_rate", result.offered_rate);
    if !instruments.by_clock {
        figures.extend(latencies(&result));
    }
    let answered = requests.replies as f64 / requests.scheduled.max(1) as f64;
    let utilisation =
        figures.get("cpu_utilisation").copied().unwrap_or(0.0) / context.start.quota.unwrap_or(1.0);
    figures.insert("quota_utilisation", utilisation);
    checks.errors += result.errors.total();
    if !pass.attaches() {
        let saturated = answered < SATURATED_REPLIES || utilisation > SATURATED_CPU;
        checks.saturated |= saturated;
        let waited = figures.get("wait_ratio").copied().unwrap_or(0.0);
        checks.wait_ratio = checks.wait_ratio.max(waited);
        // A saturated server delays the generator.
        if !saturated {
            let lateness = result.lateness_ns.p99 as f64;
            checks.lateness_p99_ns = checks.lateness_p99_ns.max(lateness);
        }
    }
    Ok(figures)
}

fn latencies(result: &LoadResult) -> Figures {
    let mut figures = Figures::from([("lateness_p99_ns", result.lateness_ns.p99 as f64)]);
    let latency = &result.latency_ns;
    if latency.count > 0 {
        figures.insert("latency_mean_ns", latency.mean);
        for (name, value) in [
            ("latency_p50_ns", latency.p50),
            ("latency_p90_ns", latency.p90),
            ("latency_p99_ns", latency.p99),
            ("latency_p999_ns", latency.p999),
            ("latency_max_ns", latency.max),
        ] {
            figures.insert(name, value as f64);
        }
    }
    figures
}

/// Parses the result of the load generator of the given name.
pub(super) fn parse(process: &str, output: &str) -> Result<LoadResult, LabError> {
    load_result::parse(output)
        .map_err(|problem| LabError::LoadResult { process: process.to_owned(), problem })
}

/// Resource usage of the server during a pass.
struct Meter {
    counters: Counters,
    before: Usage,
    throttled: Option<Throttled>,
    metrics: Option<ServerMetrics>,
    began: Instant,
}

impl Meter {
    fn start(
        pass: &Pass,
        context: &PassContext<'_>,
        instruments: &mut Instruments<'_>,
    ) -> Result<Meter, LabError> {
        let tree = &context.running.tree;
        let threads = if pass.attaches() { tree.threads()? } else { Vec::new() };
        let unavailable = &mut *instruments.unavailable;
        let mut counters = Counters::default();
        if pass.count.contains(&CounterGroup::Instructions) && !instruments.by_clock {
            counters = Counters::attach_instructions(&threads, unavailable);
        }
        if pass.count.contains(&CounterGroup::Syscalls) {
            counters = counters.with_syscalls(&threads, unavailable);
        }
        let metrics = match pass.count.contains(&CounterGroup::Events) {
            true => context.running.metrics()?,
            false => None,
        };
        let throttled = context.running.throttled()?;
        Ok(Meter { counters, before: tree.usage()?, throttled, metrics, began: Instant::now() })
    }

    fn finish(self, context: &PassContext<'_>, by_clock: bool) -> Result<Figures, LabError> {
        let elapsed = self.began.elapsed().as_nanos().max(1) as f64;
        let usage = context.running.tree.usage()?.since(&self.before);
        let throttled = context.running.throttled()?.zip(self.throttled);
        let throttled = throttled.map(|(after, before)| after.since(&before));
        let counts = self.counters.finish();
        let mut figures = Figures::from([("context_switches", usage.context_switches() as f64)]);
        let [cpu, user, system] = [usage.cpu_ns, usage.user_ns, usage.system_ns].map(|n| n as f64);
        if by_clock {
            figures.insert("instructions", cpu);
        } else {
            figures.insert("cpu_ns", cpu);
            figures.insert("cpu_user_ns", user);
            figures.insert("cpu_system_ns", system);
            figures.insert("cpu_utilisation", cpu / elapsed);
            // A server that its quota stops is runnable too.
            let stopped = throttled.unwrap_or_default().throttled_ns;
            let waited = usage.wait_ns.saturating_sub(stopped);
            figures.insert("wait_ratio", waited as f64 / elapsed);
            figures.insert("elapsed_ns", elapsed);
        }
        if let Some(before) = self.metrics {
            std::thread::sleep(PUBLICATION_TIME);
            let after = context.running.metrics()?.unwrap_or_default();
            figures.extend(after.since(&before));
        }
        if let Some(throttled) = throttled {
            figures.insert("quota_periods", throttled.periods as f64);
            figures.insert("throttled_periods", throttled.throttled_periods as f64);
            figures.insert("throttled_ns", throttled.throttled_ns as f64);
        }
        for (name, count) in [
            ("instructions", counts.instructions()),
            ("instructions_user", counts.instructions_user),
            ("instructions_kernel", counts.instructions_kernel),
            ("syscalls", counts.syscalls),
        ] {
            figures.extend(count.map(|count| (name, count as f64)));
        }
        Ok(figures)
    }
}
