//! Runs a load: starts the threads and combines their updates into a report.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hearken::timer::Time;

use crate::arrivals::Arrivals;
use crate::bottleneck::Bottleneck;
use crate::config::{Config, DEFAULT_DURATION, LoadError};
use crate::environment::Environment;
use crate::histogram::Histogram;
use crate::http2;
use crate::idle_errors::IdleErrors;
use crate::recorder::{Recorder, Snapshot, WorkerUpdate};
use crate::report::{Histograms, Http2, Idle, Model, Part, Report, Requests, SCHEMA, Samples};
use crate::server_address;
use crate::side_connections::SidePlan;
use crate::statistics::Counts;
use crate::stop::StopSignal;
use crate::target::Target;
use crate::threads::{self, Load, Plan};
use crate::tls::TlsOptions;
use crate::url::Url;
use crate::wall_clock::{ClockMapping, ClockState};
use crate::warning;
use crate::worker::{SharedState, WorkerResult};
use crate::workload::{Count, Workload};

/// Time between the end of preparation and the first request, in which all threads are notified.
const START_LEAD: Duration = Duration::from_millis(1);

/// Start delay above which a warning is added.
const MAX_START_DELAY: Duration = Duration::from_millis(2);

/// Receives the progress of a load. `()` ignores it.
pub trait Progress {
    /// Called when the connections to open before the start are open and the load starts.
    fn on_prepared(&mut self) {}

    /// Called when all idle connections are established for the first time.
    fn on_idle_open(&mut self, connections: u64) {
        let _ = connections;
    }

    /// Called after the last reply or timeout, before connections are closed.
    fn on_finished(&mut self) {}

    /// Called at the end of each interval.
    fn on_interval(&mut self, so_far: &Snapshot) {
        let _ = so_far;
    }
}

impl Progress for () {}

/// Runs the load that `config` describes and returns the report. `progress` is called on this
/// thread. Raising `stop` ends the load immediately.
///
/// Raises the limit of open files of this process as far as possible. An unreachable server is a
/// result, not an error.
///
/// # Errors
/// Invalid settings, unreadable files, a host name that cannot be resolved, or an event mechanism
/// that is not available.
pub fn run(
    config: &Config,
    progress: &mut dyn Progress,
    stop: &StopSignal,
) -> Result<Report, LoadError> {
    let (load, plan) = prepare(config, stop, Environment::of_process)?;
    let (update_sender, updates) = channel();
    let (mut running, mut spares) = (Vec::new(), Vec::new());
    let mut failed = None;
    for index in 0..plan.threads() {
        let (spare, take) = channel();
        spares.push(spare);
        match threads::start(&plan, &load, index, update_sender.clone(), take) {
            Ok(thread) => running.push(thread),
            Err(error) => {
                failed = Some(error);
                stop.raise();
                break;
            }
        }
    }
    drop(update_sender);
    let mut coordinator = Coordinator::new(&load, &plan, spares);
    while let Ok((thread, update)) = updates.recv() {
        let clocks = || (ClockMapping::read(), Time::now());
        coordinator.on_update(thread, update, clocks, progress);
    }
    let mut ended = Vec::new();
    for thread in running {
        let panicked = || std::io::Error::other("a thread panicked");
        let system = |source| LoadError::System { action: "offer the load", source };
        match thread.join().unwrap_or_else(|_| Err(panicked())).map_err(system) {
            Ok(Ok(thread)) => ended.push(thread),
            Ok(Err(error)) | Err(error) => failed = failed.or(Some(error)),
        }
    }
    stop.clear();
    if let Some(error) = failed {
        return Err(error);
    }
    let clock_state = || (config.rank.size() > 1).then(|| ClockState::read().ok()).flatten();
    Ok(build_report(&load, &plan, coordinator, ended, clock_state()))
}

/// Checks the settings, reads the files that they name, and distributes the load among threads.
pub(crate) fn prepare(
    config: &Config,
    stop: &StopSignal,
    environment: impl FnOnce() -> Environment,
) -> Result<(Arc<Load>, Plan), LoadError> {
    config.check()?;
    let url = url(config)?;
    let mut environment = environment();
    let target = Target::new(config, &url, environment.ports.clone())?;
    let workload = Arc::new(workload(config, &url)?);
    let idle = Arc::new(Workload::for_url(&url, &config.template)?);
    let side = SidePlan::new(config, &url, &idle, environment.random.u64(..))?;
    let plan = Plan::new(config, &environment, target.ports())?;
    let model = config.model();
    // Short enough to type, and exact in every JSON reader.
    let seed = config.seed.unwrap_or_else(|| environment.random.u32(..).into());
    let shared = Arc::new(SharedState {
        start_nanos: AtomicU64::new(0),
        stop: stop.clone(),
        finite: config.is_finite(),
        finished: AtomicBool::new(false),
        duration: run_duration(config, model),
        report_interval: config.rate.interval_within_steps(config.report_interval),
        prepare_timeout: config.timeout,
        cpu_time: environment.cpu_time,
    });
    let config = config.clone();
    let load = Load { config, target, workload, idle, side, model, seed, shared };
    Ok((Arc::new(load), plan))
}

/// Checks whether [`run`] could start, without network traffic: validates the settings and reads
/// the files they name.
///
/// # Errors
/// Invalid settings or unreadable files.
pub fn check(config: &Config) -> Result<(), LoadError> {
    config.check()?;
    let url = url(config)?;
    workload(config, &url)?;
    let idle = Arc::new(Workload::for_url(&url, &config.template)?);
    SidePlan::new(config, &url, &idle, 0).map(drop)
}

fn url(config: &Config) -> Result<Url, LoadError> {
    let url = Url::parse(&config.url)
        .map_err(|reason| LoadError::Url { url: config.url.clone(), reason })?;
    if !url.tls && config.tls != TlsOptions::default() {
        return Err(LoadError::Config(
            "TLS settings require an https:// URL; use https:// or omit the TLS \
             settings",
        ));
    }
    server_address::check(config, &url)?;
    Ok(url)
}

fn workload(config: &Config, url: &Url) -> Result<Workload, LoadError> {
    let closed = config.model == Some(Model::Closed);
    let workload = Workload::load(
        url,
        &config.source,
        &config.template,
        // In a closed loop a connection is used as long as possible.
        config.requests_per_connection.or((closed && !config.has_sessions()).then_some(Count::MAX)),
        config.think_time,
        config.pipeline,
    )?
    .limited_to(config.requests, config.model())?;
    if config.http2.is_some() {
        http2::check(&workload)?;
    }
    Ok(workload)
}

/// Returns the duration of the run, if it is known.
fn run_duration(config: &Config, model: Model) -> Option<Duration> {
    let default = match model {
        Model::Closed if config.is_finite() => None,
        Model::Closed => Some(DEFAULT_DURATION),
        _ if config.is_finite() => config.rate.length().filter(|_| config.requests.is_some()),
        _ if config.is_silent() => None,
        _ => Some(config.rate.length().unwrap_or(DEFAULT_DURATION)),
    };
    config.duration.or(default)
}

/// Handles the updates of all threads.
#[derive(Debug)]
pub(crate) struct Coordinator {
    load: Arc<Load>,
    recorder: Recorder,
    threads: usize,
    prepared: usize,
    drained: usize,
    idle_ready: usize,
    finished: usize,
    /// Number of threads that hold idle connections.
    idle_threads: usize,
    idle: Vec<Idle>,
    missing_idle: u64,
    started_unix_ns: u64,
    /// Delay of the start after the scheduled time.
    start_delay: Duration,
}

impl Coordinator {
    /// Creates the coordinator of threads that receive empty histograms from `spares`.
    pub(crate) fn new(
        load: &Arc<Load>,
        plan: &Plan,
        spares: Vec<Sender<Box<Histogram>>>,
    ) -> Coordinator {
        let threads = 0..plan.threads();
        Coordinator {
            load: load.clone(),
            recorder: Recorder::new(load.config.rate.clone(), spares),
            threads: plan.threads(),
            prepared: 0,
            drained: 0,
            idle_ready: 0,
            finished: 0,
            idle_threads: threads.filter(|&thread| plan.idle(&load.config, thread) > 0).count(),
            idle: vec![Idle::default(); plan.threads()],
            missing_idle: 0,
            started_unix_ns: 0,
            start_delay: Duration::ZERO,
        }
    }

    /// Returns the start time of the load, called at `now` when all threads are ready.
    fn choose_start(&mut self, mapping: ClockMapping, now: Time) -> Time {
        let soonest = now + START_LEAD;
        let start_at = self.load.config.start_at;
        let scheduled = start_at.map(|at| mapping.to_monotonic(unix_ns(at)));
        let start = scheduled.map_or(soonest, |scheduled| scheduled.max(soonest));
        let late = scheduled.map_or(Duration::ZERO, |scheduled| start.duration_since(scheduled));
        // Ignore a delay below the resolution of the clocks.
        self.start_delay = late.saturating_sub(mapping.uncertainty());
        self.started_unix_ns = mapping.to_unix_ns(start);
        start
    }

    /// Handles an update of a thread. `clocks` returns the current time and its mapping to real time.
    pub(crate) fn on_update(
        &mut self,
        thread: usize,
        update: WorkerUpdate,
        clocks: impl FnOnce() -> (ClockMapping, Time),
        progress: &mut dyn Progress,
    ) {
        match update {
            WorkerUpdate::Preparing(idle) => {
                self.idle[thread] = idle;
                let held = self.idle.iter().map(|idle| idle.open).sum();
                progress.on_interval(&Snapshot { idle: held, ..Snapshot::default() });
            }
            WorkerUpdate::Prepared { missing } => {
                self.missing_idle += missing;
                self.prepared += 1;
                if self.prepared == self.threads {
                    progress.on_prepared();
                    let (mapping, now) = clocks();
                    let start = self.choose_start(mapping, now);
                    let shared = &self.load.shared;
                    shared.start_nanos.store(start.as_nanos(), Ordering::Release);
                    shared.stop.wake();
                }
            }
            WorkerUpdate::IdleHeld(idle) => {
                self.idle[thread] = idle;
                self.idle_ready += 1;
                if self.idle_ready == self.idle_threads {
                    progress.on_idle_open(self.idle.iter().map(|idle| idle.open).sum());
                }
            }
            WorkerUpdate::Finished => {
                self.finished += 1;
                if self.finished == self.threads {
                    self.load.shared.finished.store(true, Ordering::Release);
                    self.load.shared.stop.wake();
                }
            }
            WorkerUpdate::Slice(slice) => {
                // This is the last update of a thread.
                self.drained += usize::from(slice.draining);
                if slice.draining && self.drained == self.threads {
                    progress.on_finished();
                }
                if let Some(mut snapshot) = self.recorder.record_slice(thread, *slice) {
                    let remaining = |all: Duration| all.saturating_sub(snapshot.elapsed);
                    snapshot.remaining = self.load.shared.duration.map(remaining);
                    progress.on_interval(&snapshot);
                }
            }
        }
    }
}

/// Converts a time to nanoseconds since 1970. Earlier times become 0.
fn unix_ns(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Builds the report, when all threads have ended.
pub(crate) fn build_report(
    load: &Load,
    plan: &Plan,
    mut coordinator: Coordinator,
    ended: Vec<WorkerResult>,
    clock_state: Option<ClockState>,
) -> Report {
    coordinator.recorder.finish();
    let Load { config, workload, model, seed, .. } = load;
    let Coordinator { recorder, missing_idle: missing, started_unix_ns, start_delay: late, .. } =
        coordinator;
    let (mut counts, mut idle) = (Counts::default(), Idle::default());
    let (mut histograms, mut side) = (Histograms::default(), load.side.empty_results());
    let (mut idle_errors, mut first_errors) = (IdleErrors::default(), BTreeMap::new());
    let (mut complete, mut elapsed, mut events) = (true, Duration::ZERO, "");
    let (mut answerable, mut peak_connections, mut utilisation) = (0, 0, 0.0f64);
    for thread in ended {
        counts.add(&thread.stats.counts);
        idle.add(&thread.idle.counts());
        let of_idle = thread.idle.status();
        counts.handshakes.add(&of_idle.handshakes);
        counts.bytes.add(&of_idle.bytes);
        side.add(&thread.side);
        histograms.service.add(&thread.stats.service);
        histograms.connect.add(&thread.stats.connect);
        histograms.lateness.add(&thread.stats.lateness);
        idle_errors.merge(thread.idle.errors);
        for (kind, reason) in thread.stats.first_errors {
            first_errors.entry(kind.to_owned()).or_insert(reason);
        }
        complete &= thread.complete;
        elapsed = elapsed.max(thread.elapsed);
        events = thread.mechanism;
        answerable += thread.stats.answerable;
        peak_connections += thread.peak_connections as u64;
        utilisation = utilisation.max(thread.cpu_utilisation);
    }
    if let Some(reason) = idle_errors.most_common() {
        first_errors.insert("idle".to_owned(), reason.to_owned());
    }
    counts.handshakes.add(&side.handshakes);
    counts.bytes.add(&side.bytes);
    histograms.latency = Histogram::clone(&recorder.latency);
    idle.descriptor_tables = plan.idle_threads as u64;
    let duration_s = elapsed.as_secs_f64();
    let closed = *model == Model::Closed;
    let mut report = Report {
        schema: SCHEMA.to_owned(),
        complete,
        started_unix_ns,
        url: config.url.clone(),
        workload: workload.describe(),
        model: *model,
        rate: if closed { String::new() } else { config.rate.to_string() },
        offered_rate: offered_rate(config, workload, *model, elapsed),
        duration_s,
        arrivals: if workload.timestamps().is_some() { Arrivals::Trace } else { config.arrivals },
        connections: plan.limit.connections as u64,
        connections_limited_by: plan.limit.origin,
        peak_connections,
        generator_cpu_utilisation: utilisation,
        http2: config.http2.map(|streams| Http2 { streams: streams.into(), resent: counts.resent }),
        requests_per_connection: config.requests_per_connection.as_ref().map(ToString::to_string),
        threads: plan.active_threads as u64,
        seed: *seed,
        mechanism: events.to_owned(),
        requests: Requests {
            scheduled: counts.scheduled,
            sent: counts.sent,
            replies: counts.replies,
            failed: counts.errors.total(),
            missed: counts.missed.total(),
            unfinished: counts.outstanding(),
            queued: counts.queued,
            answerable,
        },
        missed: counts.missed,
        queue: config.queue,
        sessions: counts.sessions,
        status: counts.status,
        reply_rate: if duration_s > 0.0 { counts.replies_in_time as f64 / duration_s } else { 0.0 },
        reply_rate_samples: Samples::from_intervals(&recorder.intervals),
        latency_ns: histograms.latency.quantiles(),
        service_ns: histograms.service.quantiles(),
        connect_ns: histograms.connect.quantiles(),
        lateness_ns: histograms.lateness.quantiles(),
        errors: counts.errors,
        first_errors,
        timeouts: counts.timeouts,
        connections_opened: counts.connections_opened,
        idle,
        tls: counts.handshakes,
        bytes: counts.bytes,
        intervals: recorder.intervals,
        histograms,
        websocket: side.websockets,
        slow_clients: side.slow_clients,
        part: part(config, late, clock_state),
        ..Report::default()
    };
    report.bottleneck = Bottleneck::of(&report);
    report.warnings = warning::all(&report, missing, plan.descriptors);
    report.warnings.extend(idle_errors.warnings());
    if late > MAX_START_DELAY {
        let late = late.as_secs_f64() * 1e3;
        report.warnings.push(format!(
            "the load started {late:.1} ms after its scheduled start; use a later start time, so that its connections are ready"
        ));
    }
    if let Some(refused) = &plan.refused {
        let one = NonZeroUsize::MIN == config.threads;
        if !one || config.side_connections() as u64 > plan.descriptors {
            report
                .warnings
                .push(format!("all connections use a single descriptor table: {refused}"));
        }
    }
    report
}

/// Returns the rank and the clock state, if several processes share the load.
fn part(config: &Config, late: Duration, clock: Option<ClockState>) -> Option<Part> {
    let (rank, size) = (config.rank.rank(), config.rank.size());
    (size > 1).then(|| Part {
        rank,
        size,
        scheduled_start_unix_ns: config.start_at.map(unix_ns),
        start_delay_ns: u64::try_from(late.as_nanos()).unwrap_or(u64::MAX),
        clock_synchronised: clock.map(|clock| clock.synchronised),
        clock_max_error_us: clock.map(|clock| clock.max_error_us),
    })
}

/// Returns the mean arrivals per second.
fn offered_rate(config: &Config, workload: &Workload, model: Model, elapsed: Duration) -> f64 {
    let seconds = elapsed.as_secs_f64();
    if model == Model::Closed || seconds == 0.0 {
        return 0.0;
    }
    let arrivals = match workload.timestamps() {
        Some(times) => times.iter().filter(|&&at| at < elapsed).count() as f64,
        None => config.rate.arrivals_within(elapsed),
    };
    config.rank.share_f64(arrivals) / seconds
}
