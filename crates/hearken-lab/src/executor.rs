//! Execution of measurements with real processes.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::accounting::{ProcessAccounting, Usage};
use crate::counters::{Counters, Counts, UnavailableCounter};
use crate::error::LabError;
use crate::load_result::{self, LoadResult};
use crate::machine::{Placement, cpu_set};
use crate::plan::{DOCUMENTS, QuickConfig, Settings, Trial};
use crate::process::{AffinityGuard, ChildGuard};
use crate::results::Measurement;

/// Time limit for a server to start listening.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for opening the idle connections.
pub(crate) const OPEN_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit for a load generator to exit after the end of its load.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);

/// Executes the measurements of a plan.
pub trait Executor<C = Trial, M = Measurement> {
    /// Executes one trial. Returns [`LabError::Interrupted`] if `stop` was set in the meantime.
    fn measure(&mut self, trial: &C, stop: &AtomicBool) -> Result<M, LabError>;

    /// Returns the counters that are not available, each once.
    fn unavailable_counters(&self) -> Vec<UnavailableCounter> {
        Vec::new()
    }
}

/// Measures servers in separate processes.
#[derive(Debug)]
pub(crate) struct ProcessExecutor {
    executable: PathBuf,
    settings: Settings,
    placement: Placement,
    scratch: TempDir,
    unavailable: Vec<UnavailableCounter>,
}

impl ProcessExecutor {
    /// Creates the documents that the servers will serve.
    pub(crate) fn new(config: &QuickConfig, placement: &Placement) -> Result<Self, LabError> {
        let scratch = TempDir::with_prefix("hearken-lab-")
            .map_err(LabError::file("create a directory in", &std::env::temp_dir()))?;
        let site = scratch.path().join("site");
        std::fs::create_dir(&site).map_err(LabError::file("create", &site))?;
        for (name, size) in DOCUMENTS {
            let path = site.join(name);
            std::fs::write(&path, vec![b'x'; size]).map_err(LabError::file("write", &path))?;
        }
        Ok(ProcessExecutor {
            executable: config.executable.clone(),
            settings: config.settings.clone(),
            placement: placement.clone(),
            scratch,
            unavailable: Vec::new(),
        })
    }

    fn start(
        &self,
        name: &str,
        cpus: &[usize],
        arguments: &[String],
    ) -> Result<ChildGuard, LabError> {
        let stderr = self.scratch.path().join(name);
        ChildGuard::spawn(&self.executable, arguments, &cpu_set(cpus), stderr)
    }

    fn start_server(&self, mechanism: &str, stop: &AtomicBool) -> Result<RunningServer, LabError> {
        let site = self.scratch.path().join("site");
        // Only the lab may close idle connections, even if a saturated load takes long.
        let arguments = to_strings(&[
            "serve",
            &site.display().to_string(),
            "--listen",
            "127.0.0.1:0",
            "--events",
            mechanism,
            "--workers",
            "1",
            "--idle-timeout",
            "10m",
            "--header-timeout",
            "10m",
            "--exit-with-parent",
        ]);
        let mut guard = self.start("server", &self.placement.server, &arguments)?;
        let line = guard.wait_for_line("listening on ", START_TIMEOUT, stop)?;
        let url = line.split_whitespace().nth(2).unwrap_or_default();
        let url = format!("{}/{}", url.trim_end_matches('/'), self.settings.document);
        let accounting = ProcessAccounting::open(guard.pid())?;
        Ok(RunningServer { guard, accounting, url })
    }

    fn open_idle(
        &self,
        server: &RunningServer,
        idle: u64,
        stop: &AtomicBool,
    ) -> Result<Option<ChildGuard>, LabError> {
        if idle == 0 {
            return Ok(None);
        }
        // With `--json -`, the line awaited below would not appear on stdout.
        let arguments = to_strings(&[
            "load",
            &server.url,
            "--rate",
            "0",
            "--idle",
            &idle.to_string(),
            "--events",
            LOAD_EVENTS,
            "--json",
            &self.idle_result().display().to_string(),
            "--exit-with-parent",
        ]);
        let mut guard = self.start("idle", &self.placement.others, &arguments)?;
        guard.wait_for_line("holding ", OPEN_TIMEOUT, stop)?;
        // The server accepts connections after they are established.
        let deadline = Instant::now() + OPEN_TIMEOUT;
        while server.accounting.count_descriptors()? < idle {
            if Instant::now() >= deadline {
                return Err(server.guard.error("did not accept all idle connections in time"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(Some(guard))
    }

    fn idle_result(&self) -> PathBuf {
        self.scratch.path().join("idle.json")
    }

    /// Terminates the process that holds the idle connections and returns its statistics.
    fn close_idle(&self, guard: ChildGuard) -> Result<hearken_load::Idle, LabError> {
        let process = guard.name().to_string();
        guard.terminate();
        let path = self.idle_result();
        let output = std::fs::read_to_string(&path).map_err(LabError::file("read", &path))?;
        // The next process must not find this result.
        std::fs::remove_file(&path).map_err(LabError::file("remove", &path))?;
        Ok(parse(process, &output)?.idle)
    }

    /// Runs a load against the server. Calls `begin` after all connections are established, so that
    /// their cost is not attributed to the requests.
    fn load<T>(
        &self,
        server: &RunningServer,
        (seconds, connection_per_request): (f64, bool),
        trial: &Trial,
        stop: &AtomicBool,
        begin: impl FnOnce() -> Result<T, LabError>,
    ) -> Result<(T, LoadResult), LabError> {
        // Each repetition has its own arrivals, the same for every cell.
        let seed = self.settings.seed.wrapping_add(u64::from(trial.repetition));
        let mut arguments = to_strings(&[
            "load",
            &server.url,
            "--rate",
            &self.settings.rate.to_string(),
            "--duration",
            &format!("{seconds}s"),
            "--events",
            LOAD_EVENTS,
            "--connections",
            &self.settings.connections.to_string(),
            "--seed",
            &seed.to_string(),
            "--json",
            "-",
            "--announce",
            "--exit-with-parent",
        ]);
        if connection_per_request {
            arguments.extend(to_strings(&["--per-connection", "1"]));
        }
        let mut guard = self.start("load", &self.placement.others, &arguments)?;
        guard.wait_for_line("prepared", OPEN_TIMEOUT, stop)?;
        let started = begin()?;
        let limit = Duration::from_secs_f64(seconds) + DRAIN_TIMEOUT;
        let (output, status) = guard.wait_for_output(limit, stop)?;
        // A load without a reply exits with 1 after its result, which is a measurement.
        if !status.success() && output.is_empty() {
            return Err(guard.error(&format!("failed ({status})")));
        }
        Ok((started, parse(guard.name().into(), &output)?))
    }
}

impl Executor for ProcessExecutor {
    fn measure(&mut self, trial: &Trial, stop: &AtomicBool) -> Result<Measurement, LabError> {
        // This thread must not run on the processor of the server.
        let _pinned = AffinityGuard::pin(&cpu_set(&self.placement.others))?;
        let server = self.start_server(&trial.mechanism, stop)?;
        let rss_start_bytes = server.accounting.rss_bytes()?;
        let idle_load = self.open_idle(&server, trial.idle, stop)?;
        let rss_bytes = server.accounting.rss_bytes()?;

        // The first, short pass warms the server up and carries the overhead of the counters.
        let mut unavailable = std::mem::take(&mut self.unavailable);
        let attach = || Ok(Counters::attach(&server.accounting.threads()?, &mut unavailable));
        let passed = self.load(&server, (self.settings.counters_s, false), trial, stop, attach);
        let (counters, warm_up) = passed?;
        let counts = counters.finish();

        // The second pass opens a connection for each request, to measure the cost per connection.
        let attach = || {
            let counters = Counters::attach(&server.accounting.threads()?, &mut unavailable);
            Ok((counters, server.accounting.usage()?))
        };
        let passed = self.load(&server, (self.settings.counters_s, true), trial, stop, attach);
        let ((counters, before), short) = passed?;
        let short_cpu_ns = server.accounting.usage()?.since(&before).cpu_ns;
        let short_counts = counters.finish();
        self.unavailable = unavailable;

        let begin = || Ok((server.accounting.usage()?, Instant::now()));
        let ((before, began), result) =
            self.load(&server, (self.settings.duration_s, false), trial, stop, begin)?;
        let elapsed = began.elapsed();
        let usage = server.accounting.usage()?.since(&before);
        let rss_end_bytes = server.accounting.rss_bytes()?;

        let idle = match idle_load {
            Some(guard) => self.close_idle(guard)?,
            None => hearken_load::Idle::default(),
        };
        server.guard.terminate();

        let replies = short.requests.replies;
        let per_connection = |n: u64| (replies > 0).then(|| n as f64 / replies as f64);
        let added = rss_bytes.saturating_sub(rss_start_bytes) as f64;
        Ok(Measurement {
            rss_start_bytes,
            rss_bytes,
            rss_end_bytes,
            rss_per_idle_bytes: (trial.idle > 0).then(|| added / trial.idle as f64),
            idle_open: idle.open,
            idle_lost: idle.lost,
            cpu_ns_per_connection: per_connection(short_cpu_ns),
            syscalls_per_connection: short_counts.syscalls.and_then(per_connection),
            instructions_per_connection: short_counts.instructions().and_then(per_connection),
            ..divide_by_replies(&usage, elapsed, counts, &warm_up, &result)
        })
    }

    fn unavailable_counters(&self) -> Vec<UnavailableCounter> {
        self.unavailable.clone()
    }
}

/// Event mechanism of the load generator: available everywhere, and the same for all servers.
pub(crate) const LOAD_EVENTS: &str = "epoll-edge";

/// A listening server.
#[derive(Debug)]
struct RunningServer {
    guard: ChildGuard,
    accounting: ProcessAccounting,
    url: String,
}

pub(crate) fn to_strings(arguments: &[&str]) -> Vec<String> {
    arguments.iter().map(|&a| a.to_string()).collect()
}

pub(crate) fn parse(process: String, output: &str) -> Result<LoadResult, LabError> {
    load_result::parse(output).map_err(|problem| LabError::LoadResult { process, problem })
}

/// Divides the resource usage of the server by the number of replies.
fn divide_by_replies(
    usage: &Usage,
    elapsed: Duration,
    counts: Counts,
    warm_up: &LoadResult,
    result: &LoadResult,
) -> Measurement {
    let per = |replies: u64| move |n: u64| (replies > 0).then(|| n as f64 / replies as f64);
    let per_reply = per(result.requests.replies);
    let per_warm_up_reply = per(warm_up.requests.replies);
    let latency = |ns: u64| (result.latency_ns.count > 0).then_some(ns as f64);
    let share = |ns: u64| ns as f64 / elapsed.as_nanos().max(1) as f64;
    let cpu_utilisation = share(usage.cpu_ns);
    let answered = result.requests.replies as f64 / result.requests.scheduled.max(1) as f64;
    Measurement {
        cpu_ns_per_request: per_reply(usage.cpu_ns),
        cpu_user_ns_per_request: per_reply(usage.user_ns),
        cpu_system_ns_per_request: per_reply(usage.system_ns),
        cpu_utilisation,
        cpu_wait_ratio: share(usage.wait_ns),
        instructions_user_per_request: counts.instructions_user.and_then(&per_warm_up_reply),
        instructions_kernel_per_request: counts.instructions_kernel.and_then(&per_warm_up_reply),
        syscalls_per_request: counts.syscalls.and_then(&per_warm_up_reply),
        context_switches_per_request: per_reply(usage.context_switches()),
        scheduled: result.requests.scheduled,
        replies: result.requests.replies,
        reply_rate: result.reply_rate,
        latency_p50_ns: latency(result.latency_ns.p50),
        latency_p90_ns: latency(result.latency_ns.p90),
        latency_p99_ns: latency(result.latency_ns.p99),
        latency_p999_ns: latency(result.latency_ns.p999),
        latency_max_ns: latency(result.latency_ns.max),
        lateness_p99_ns: result.lateness_ns.p99 as f64,
        errors: result.errors,
        saturated: answered < 0.95 || cpu_utilisation > 0.95,
        ..Measurement::default()
    }
}
