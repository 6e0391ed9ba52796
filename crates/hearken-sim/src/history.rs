//! One history: a kind, and the decisions that determine everything that happens.

use std::cell::RefCell;
use std::fmt;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use hearken::io::sim::{Decisions, Host, TraceEntry, World};
use hearken_tls::ServerTls;

use crate::finding::Finding;
use crate::kinds::Kind;
use crate::report::Report;
use crate::scheduler::{Limits, Scheduler};
use crate::selection::Selection;
use crate::swarm::{Mode, Swarm};
use crate::tls;

/// The limits of every history. No program needs nearly as much.
const LIMITS: Limits = Limits { steps: 2_000_000, time: Duration::from_secs(30 * 24 * 3600) };

/// The origin of the decisions of a history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// A seed of the generator. What is selected is not drawn.
    Seed(u64, Selection),
    /// Bytes, followed by zeros.
    Bytes(Vec<u8>),
}

impl Source {
    fn decisions(&self) -> Decisions {
        match self {
            Source::Seed(seed, selection) => match selection.first_decision(*seed) {
                None => Decisions::from_seed(*seed),
                Some(first) => Decisions::from_bytes_and_seed(&[first], *seed),
            },
            Source::Bytes(bytes) => Decisions::from_bytes(bytes),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Seed(seed, _) => write!(f, "seed {seed}"),
            Source::Bytes(bytes) => write!(f, "{} bytes of decisions", bytes.len()),
        }
    }
}

/// The result of a history.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The first violation of an invariant.
    pub finding: Option<Finding>,
    /// Hash of everything that programs observed.
    pub hash: u64,
    /// Number of completions that programs received.
    pub events: u64,
    /// The states that the history reached.
    pub features: Vec<u32>,
    /// The decisions made, which repeat the history.
    pub decisions: Vec<u8>,
    /// Virtual duration.
    pub elapsed: Duration,
}

/// The parts of a history that is being set up.
#[derive(Debug)]
pub struct Simulation {
    /// The network.
    pub world: World,
    /// The programs.
    pub scheduler: Scheduler,
    /// The drawn configuration.
    pub swarm: Swarm,
    /// The report.
    pub report: Rc<Report>,
    /// Names of hosts by index.
    names: Rc<RefCell<Vec<String>>>,
}

impl Simulation {
    /// Creates a host. The name appears in the trace.
    pub fn host(&mut self, name: impl Into<String>, address: IpAddr) -> Host {
        self.names.borrow_mut().push(name.into());
        self.world.host(address)
    }

    /// Draws the TLS settings of a server, if clients use TLS. Reports a failure.
    pub(crate) fn draw_tls(&self) -> Option<ServerTls> {
        if !self.swarm.protocols.tls {
            return None;
        }
        let drawn = tls::draw_server(&self.world);
        drawn.inspect_err(|error| self.report.fail("TLS of a server", error.clone())).ok()
    }

    /// Draws one of the values. The first is the benign one.
    pub fn draw<T: Copy>(&self, values: &[T]) -> T {
        values[self.world.decide(values.len() as u32) as usize]
    }
}

/// A function that receives the trace: the name of a host and what it observed.
pub type Tracer = Box<dyn FnMut(&str, TraceEntry)>;

/// Runs a history.
pub fn run(kind: &dyn Kind, source: &Source, tracer: Option<Tracer>) -> Outcome {
    let mut decisions = source.decisions();
    let swarm = Swarm::draw(&mut decisions);
    let world = World::new(decisions, swarm.network);
    let names: Rc<RefCell<Vec<String>>> = Rc::default();
    if let Some(mut tracer) = tracer {
        let names = names.clone();
        world.set_trace(move |entry| {
            let name = names.borrow().get(entry.host).cloned().unwrap_or_default();
            tracer(&name, entry);
        });
    }
    let started = world.now();
    let report = Rc::new(Report::default());
    let scheduler = Scheduler::new(&world, swarm.stalls, report.clone());
    let mut simulation = Simulation { world: world.clone(), scheduler, swarm, report, names };
    if swarm.mode == Mode::Liveness {
        let host = simulation.host("faults", [10, 0, 255, 1].into());
        simulation.scheduler.spawn("faults", &host, move |program| {
            program.sleep_until(program.host().world().now() + swarm.faults_end);
            program.host().world().stop_faults();
        });
    }
    if swarm.protocols.tls {
        let clock = simulation.host("TLS", [10, 0, 255, 2].into());
        tls::begin(world.decide(1 << 16).into(), clock);
    }
    let check = kind.start(&mut simulation);
    let mut result = simulation.scheduler.run(LIMITS);
    if result.is_ok() {
        check(&simulation);
        result = simulation.report.take_finding().map_or(Ok(()), Err);
    }
    if result.is_ok() && world.open_sockets() > 0 {
        let detail = format!("{} sockets are open after all programs ended", world.open_sockets());
        result = Err(Finding::new("open sockets", detail));
    }
    tls::end();
    Outcome {
        finding: result.err(),
        hash: world.trace_hash(),
        events: simulation.report.events(),
        features: simulation.report.take_features(),
        decisions: world.decisions().consumed().to_vec(),
        elapsed: world.now().duration_since(started),
    }
}
