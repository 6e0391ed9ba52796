//! The threads of a load, each with an event loop and optionally its own descriptor table, and the
//! distribution of connections among them.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::thread::{Builder, JoinHandle};

use hearken::descriptors::Table;
use hearken::io::{self as events, Io, Relay, Visitor};
use hearken::mechanism::Unavailable;
use hearken::{Wakeups, io::readiness::Policy};
use rustix::thread::set_current_timer_slack;

use crate::active_connections::ActiveConnections;
use crate::arrivals::{Arrivals, Schedule};
use crate::config::{Config, LoadError};
use crate::connection_limit::Limit;
use crate::environment::Environment;
use crate::histogram::Histogram;
use crate::idle_connections::IdleConnections;
use crate::profile::Profile;
use crate::recorder::{UpdateSink, WorkerUpdate};
use crate::report::{ConnectionLimit, Model};
use crate::shard::Shard;
use crate::side_connections::{SideConnections, SidePlan};
use crate::target::Target;
use crate::worker::{NEVER, SharedState, Worker, WorkerResult};
use crate::workload::Workload;

/// Number of descriptors in a table reserved for other purposes: standard streams, the mechanism,
/// the waker.
pub(crate) const RESERVED_DESCRIPTORS: u64 = 16;

/// Returns the policy of the event loop. Turns are short, because an arrival within a turn waits
/// for its end.
fn policy() -> Policy {
    let mut policy = Policy::default();
    (policy.batch, policy.turn_bytes) = (32, 64 * 1024);
    policy
}

/// The distribution of a load among threads.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Number of threads that send requests. They also hold the idle connections if there are no
    /// idle threads.
    pub(crate) active_threads: usize,
    /// Number of threads that only hold idle connections, each with a descriptor table of its own.
    pub(crate) idle_threads: usize,
    descriptor_table: Table,
    /// Maximum number of open files of each descriptor table.
    pub(crate) descriptors: u64,
    /// Maximum number of connections of this process that carry requests.
    pub(crate) limit: Limit,
    /// The reason why threads cannot have tables of their own, if they should.
    pub(crate) refused: Option<Unavailable>,
}

impl Plan {
    /// Creates a plan for this environment, and `ports` local ports.
    ///
    /// # Errors
    /// An unavailable mechanism, and more connections than descriptors, ports and memory allow.
    pub(crate) fn new(
        config: &Config,
        environment: &Environment,
        ports: usize,
    ) -> Result<Plan, LoadError> {
        let Environment { descriptors, available_memory, probe_table, .. } = *environment;
        let spec = events::find(&config.mechanism)?;
        let active_threads = config.threads.get();
        let room = usize::try_from(descriptors.saturating_sub(RESERVED_DESCRIPTORS))
            .unwrap_or(usize::MAX)
            .max(1);
        // eBPF programs identify descriptors by number for the full process.
        let wanted = if spec.needs_privileges() { Table::Shared } else { Table::Own };
        let refused = if wanted == Table::Own { probe_table(wanted).err() } else { None };
        let table = if refused.is_some() { Table::Shared } else { wanted };
        let idle = config.side_connections_here();
        let tables = if table == Table::Own { active_threads } else { 1 };
        let total = room.saturating_mul(tables);
        let wanted = config.connections_here();
        // Without a setting, half of the descriptors stay free for requests.
        let capacity = total.saturating_sub(wanted.unwrap_or(total / 2));
        let idle_threads =
            if table == Table::Own && idle > capacity { idle.div_ceil(room) } else { 0 };
        let idle_beside = if idle_threads > 0 { 0 } else { idle };
        let (own, ports) = (total.saturating_sub(idle_beside), ports.saturating_sub(idle));
        let machine = Limit::lowest(own, ports, available_memory());
        let limit = match wanted {
            None => machine,
            Some(wanted) if wanted <= machine.connections => {
                Limit { connections: wanted, origin: ConnectionLimit::Settings }
            }
            Some(requested) => {
                return Err(LoadError::Connections { requested, limit: machine.describe() });
            }
        };
        Ok(Plan {
            active_threads,
            idle_threads,
            descriptor_table: table,
            descriptors,
            limit,
            refused,
        })
    }

    /// Returns the total number of threads.
    pub(crate) fn threads(&self) -> usize {
        self.active_threads + self.idle_threads
    }

    /// Returns the maximum number of connections of a thread that carry requests.
    fn connections(&self, config: &Config, index: usize) -> usize {
        let local = Shard { index: index as u64, count: self.active_threads as u64 };
        let connections = match config.connection_setting() {
            Some(all) => config.share(index).share_of(all),
            None => local.share_of(self.limit.connections),
        };
        connections.max(1)
    }

    /// Returns the index of the first thread that holds idle connections, and the number of threads.
    fn idle_thread_range(&self) -> (usize, usize) {
        if self.idle_threads > 0 {
            (self.active_threads, self.idle_threads)
        } else {
            (0, self.active_threads)
        }
    }

    /// Returns the shard of a thread in the connections at the side of the load of this process, if the
    /// thread holds any.
    pub(crate) fn side_shard(&self, index: usize) -> Option<Shard> {
        let (first, count) = self.idle_thread_range();
        let index = index.checked_sub(first).filter(|&index| index < count)?;
        Some(Shard { index: index as u64, count: count as u64 })
    }

    /// Returns the number of idle connections of a thread.
    pub(crate) fn idle(&self, config: &Config, index: usize) -> usize {
        let count = config.share_here(config.idle_connections);
        self.side_shard(index).map_or(0, |shard| shard.share_of(count))
    }
}

/// The parameters of all threads.
#[derive(Debug)]
pub(crate) struct Load {
    pub(crate) config: Config,
    pub(crate) target: Target,
    pub(crate) workload: Arc<Workload>,
    /// Workload of the idle connections.
    pub(crate) idle: Arc<Workload>,
    pub(crate) side: SidePlan,
    pub(crate) model: Model,
    pub(crate) seed: u64,
    pub(crate) shared: Arc<SharedState>,
}

/// A handle of a thread.
pub(crate) type Thread = JoinHandle<io::Result<Result<WorkerResult, LoadError>>>;

/// Starts the thread with the given index. It sends updates to `updates` and receives empty
/// histograms from `spares`.
pub(crate) fn start(
    plan: &Plan,
    load: &Arc<Load>,
    index: usize,
    updates: Sender<(usize, WorkerUpdate)>,
    spares: Receiver<Box<Histogram>>,
) -> Result<Thread, LoadError> {
    let worker = WorkerStart::new(plan, load, index, spares);
    let name = if worker.makes_requests { "load" } else { "idle" };
    let failed = |source| LoadError::System { action: "start a load thread", source };
    let (thread, waker) = plan
        .descriptor_table
        .spawn(
            Builder::new().name(format!("{name}-{index}")),
            ThreadStart { worker, updates },
            thread_main,
        )
        .map_err(failed)?;
    load.shared.stop.add(waker);
    Ok(thread)
}

/// The parameters of a thread. They contain no descriptor, because the thread may have another
/// descriptor table.
struct ThreadStart {
    worker: WorkerStart,
    updates: Sender<(usize, WorkerUpdate)>,
}

fn thread_main(
    start: ThreadStart,
    wakeups: Wakeups,
) -> io::Result<Result<WorkerResult, LoadError>> {
    // Otherwise the kernel delays each wait by up to 50 us to combine wake-ups. A failure shows as
    // lateness.
    let _ = set_current_timer_slack(std::num::NonZeroU64::new(1));
    let load = start.worker.load.clone();
    let events = load.config.mechanism.clone();
    let ended = events::visit(&events, &policy(), wakeups, start).map_err(LoadError::from);
    let ended = ended.and_then(|ended| ended);
    if ended.is_err() {
        load.shared.stop.raise();
    }
    Ok(ended)
}

impl Visitor for ThreadStart {
    type Output = Result<WorkerResult, LoadError>;

    fn visit<I: Relay>(self, events: &'static str, io: I) -> Self::Output {
        self.worker.run(events, io, self.updates)
    }
}

/// The parameters of the event loop of a thread.
pub(crate) struct WorkerStart {
    load: Arc<Load>,
    index: usize,
    makes_requests: bool,
    /// Maximum number of connections that carry requests.
    limit: usize,
    idle: usize,
    side: Option<Shard>,
    /// Number of threads that hold idle connections, in all processes of the load.
    holding: u64,
    spares: Receiver<Box<Histogram>>,
}

impl WorkerStart {
    /// Creates the parameters of the thread with the given index. It receives empty histograms from
    /// `spares`.
    pub(crate) fn new(
        plan: &Plan,
        load: &Arc<Load>,
        index: usize,
        spares: Receiver<Box<Histogram>>,
    ) -> WorkerStart {
        let config = &load.config;
        WorkerStart {
            load: load.clone(),
            index,
            makes_requests: index < plan.active_threads,
            limit: plan.connections(config, index),
            idle: plan.idle(config, index),
            side: plan.side_shard(index),
            holding: (plan.idle_thread_range().1 as u64).saturating_mul(config.rank.size().into()),
            spares,
        }
    }

    /// Runs the event loop over `io`, which the event mechanism `mechanism` implements.
    pub(crate) fn run<I: Io, U: UpdateSink>(
        self,
        mechanism: &'static str,
        io: I,
        updates: U,
    ) -> Result<WorkerResult, LoadError> {
        let WorkerStart { load, index, makes_requests, limit, idle, side, holding, spares } = self;
        let Load { config, target, workload, model, seed, shared: common, .. } = &*load;
        let share = config.share(index);
        let side_share = |count| side.map_or(0, |side| side.share_of(config.share_here(count)));
        let target = target.for_thread(share);
        let none = Profile::constant(0.0);
        let schedule = match workload.timestamps() {
            _ if !makes_requests || *model == Model::Closed => {
                Schedule::new(Arrivals::Constant, &none, share, *seed)
            }
            Some(times) => Schedule::from_trace(times.clone(), share),
            None => Schedule::new(config.arrivals, &config.rate, share, *seed),
        };
        let schedule = schedule.limited_to(config.requests);
        let idlers =
            IdleConnections::new(config, target.clone(), &load.idle, idle, holding, share, *seed);
        let is_first = side.is_some_and(|side| side.index == 0);
        let side = SideConnections::new(&load.side, &target, side_share, is_first, share, *seed);
        let active = ActiveConnections::new(
            config,
            *model,
            target,
            workload,
            limit,
            share,
            *seed,
            makes_requests,
        );
        let interval_end = io.clock() + common.report_interval;
        let worker = Worker {
            io,
            index,
            active,
            idle: idlers,
            side,
            schedule,
            shared: common.clone(),
            updates,
            free_histograms: spares,
            start: None,
            next_arrival: None,
            exhausted: false,
            behind_since: None,
            measure_at: NEVER,
            cpu_utilisation: 0.0,
            interval_end,
            reported_intervals: 0,
            reported_idle_held: false,
        };
        worker.run(mechanism)
    }
}
