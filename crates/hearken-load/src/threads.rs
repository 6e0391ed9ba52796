//! The threads of a load, each with an event loop and a table of descriptors of its own; and how the
//! connections are divided among them.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::thread::{Builder, JoinHandle};

use hearken::descriptors::Table;
use hearken::io::{self as events, Relay, Visitor};
use hearken::mechanism::Unavailable;
use hearken::timer::Time;
use hearken::{Wakeups, io::readiness::Policy};
use rustix::thread::set_current_timer_slack;

use crate::active::Active;
use crate::arrivals::{Arrivals, Schedule};
use crate::config::{Config, LoadError};
use crate::drive::{Common, Drive, Ended};
use crate::histogram::Histogram;
use crate::idle::Idlers;
use crate::profile::Profile;
use crate::record::Told;
use crate::report::Model;
use crate::share::Share;
use crate::target::Target;
use crate::workload::Workload;

/// Descriptors of a table besides those of connections: standard streams, the mechanism, the waker.
pub(crate) const SPARE: u64 = 16;

/// Turns are kept short: what arrives within one is late by the rest of it.
fn policy() -> Policy {
    let mut policy = Policy::default();
    (policy.batch, policy.turn_bytes) = (32, 64 * 1024);
    policy
}

/// How a load is divided among threads.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Threads that make requests, and hold idle connections if no others do.
    pub(crate) loops: usize,
    /// Threads that only hold idle connections: as many tables of descriptors as they take.
    pub(crate) holders: usize,
    table: Table,
    /// Why they have no tables of their own, where they should.
    pub(crate) refused: Option<Unavailable>,
}

impl Plan {
    /// For tables of so many descriptors.
    pub(crate) fn new(config: &Config, descriptors: u64) -> Result<Plan, LoadError> {
        let spec = events::find(&config.events)?;
        let loops = config.threads.get();
        let room = usize::try_from(descriptors.saturating_sub(SPARE)).unwrap_or(usize::MAX).max(1);
        // Programs in the kernel tell descriptors by their number for the whole process.
        let wanted = if spec.needs_privileges() { Table::Shared } else { Table::Own };
        let refused = if wanted == Table::Own { wanted.probe().err() } else { None };
        let table = if refused.is_some() { Table::Shared } else { wanted };
        let idle = config.idle_here();
        let beside =
            room.saturating_sub(config.connections_here().div_ceil(loops)).saturating_mul(loops);
        let holders = if table == Table::Own && idle > beside { idle.div_ceil(room) } else { 0 };
        Ok(Plan { loops, holders, table, refused })
    }

    pub(crate) fn threads(&self) -> usize {
        self.loops + self.holders
    }

    /// Which threads hold idle connections: the first of them, and how many there are.
    fn holding(&self) -> (usize, usize) {
        if self.holders > 0 { (self.loops, self.holders) } else { (0, self.loops) }
    }

    /// How many idle connections a thread of these holds.
    pub(crate) fn idle(&self, config: &Config, index: usize) -> usize {
        let (first, of) = self.holding();
        match index.checked_sub(first) {
            Some(index) if index < of => {
                Share { index: index as u64, of: of as u64 }.part(config.idle_here())
            }
            _ => 0,
        }
    }
}

/// What all threads are started with.
#[derive(Debug)]
pub(crate) struct Load {
    pub(crate) config: Config,
    pub(crate) target: Target,
    pub(crate) workload: Arc<Workload>,
    /// What idle connections ask for.
    pub(crate) idle: Arc<Workload>,
    pub(crate) model: Model,
    pub(crate) seed: u64,
    pub(crate) common: Arc<Common>,
}

/// A thread of a load.
pub(crate) type Thread = JoinHandle<io::Result<Result<Ended, LoadError>>>;

/// Starts the thread at `index`, which tells how it goes and takes empty histograms.
pub(crate) fn start(
    plan: &Plan,
    load: &Arc<Load>,
    index: usize,
    tell: Sender<(usize, Told)>,
    spares: Receiver<Box<Histogram>>,
) -> Result<Thread, LoadError> {
    let makes_requests = index < plan.loops;
    let idle = plan.idle(&load.config, index);
    let holding = (plan.holding().1 as u64).saturating_mul(load.config.rank.size().into());
    let start = Start { load: load.clone(), index, makes_requests, idle, holding, tell, spares };
    let name = if makes_requests { format!("load-{index}") } else { format!("holder-{index}") };
    let failed = |source| LoadError::System { action: "start a thread", source };
    let (thread, waker) =
        plan.table.spawn(Builder::new().name(name), start, body).map_err(failed)?;
    load.common.stop.add(waker);
    Ok(thread)
}

/// What a thread starts with: no descriptor, as its table is another.
struct Start {
    load: Arc<Load>,
    index: usize,
    makes_requests: bool,
    idle: usize,
    /// How many threads hold idle connections, in all parts of the load.
    holding: u64,
    tell: Sender<(usize, Told)>,
    spares: Receiver<Box<Histogram>>,
}

fn body(start: Start, wakeups: Wakeups) -> io::Result<Result<Ended, LoadError>> {
    // Or the kernel delays each wait by up to 50 us to save wake-ups. Refused, lateness shows it.
    let _ = set_current_timer_slack(std::num::NonZeroU64::new(1));
    let load = start.load.clone();
    let events = load.config.events.clone();
    let ended = events::visit(&events, &policy(), wakeups, start).map_err(LoadError::from);
    let ended = ended.and_then(|ended| ended);
    if ended.is_err() {
        load.common.stop.raise();
    }
    Ok(ended)
}

impl Visitor for Start {
    type Output = Result<Ended, LoadError>;

    fn visit<I: Relay>(self, events: &'static str, io: I) -> Self::Output {
        let Start { load, index, makes_requests, idle, holding, tell, spares } = self;
        let Load { config, target, workload, model, seed, common, .. } = &*load;
        let share = config.share(index);
        let connections = share.part(config.connections.get()).saturating_add(idle);
        let target = target.of_thread(share, connections);
        let none = Profile::constant(0.0);
        let schedule = match workload.timestamps() {
            _ if !makes_requests || *model == Model::Closed => {
                Schedule::new(Arrivals::Constant, &none, share, *seed)
            }
            Some(times) => Schedule::of_trace(times.clone(), share),
            None => Schedule::new(config.arrivals, &config.rate, share, *seed),
        };
        let idlers = Idlers::new(config, target.clone(), &load.idle, idle, holding, share, *seed);
        let active = Active::new(config, *model, target, workload, share, *seed, makes_requests);
        let drive = Drive {
            io,
            index,
            active,
            idlers,
            schedule,
            common: common.clone(),
            tell,
            spares,
            start: None,
            next: None,
            exhausted: false,
            tick: Time::now() + common.interval,
            told_intervals: 0,
            told_holding: false,
        };
        drive.run(events)
    }
}
