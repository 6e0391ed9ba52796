//! What is measured, and in which order.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use hearken::descriptors;
use serde::{Deserialize, Serialize};

use super::kind::Kind;
use super::recipe::Recipe;
use super::results::Participant;
use super::workload::Workload;
use crate::error::LabError;
use crate::plan::clamp_idle;
use crate::run::Planned;
use crate::warning::Warning;

/// Starting and stopping a server, and one workload in it, take about so long besides their load.
const SETUP: Duration = Duration::from_millis(900);

/// What [`peers`](super::peers()) is to do.
#[derive(Clone, Debug)]
pub struct Config {
    /// `hearken`: what loads the others.
    pub executable: PathBuf,
    /// What was typed, for the report.
    pub command_line: Vec<String>,
    /// The version for the report.
    pub version: String,
    /// How servers are started; [`Settings::servers`] names those that are.
    pub recipes: Vec<Recipe>,
    /// What stands behind proxies.
    pub origin: Option<Recipe>,
    /// What is compared.
    pub settings: Settings,
}

/// The numbers of the experiment, as they stand in the report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// What is compared.
    #[serde(default)]
    pub kind: Kind,
    /// Names of recipes.
    pub servers: Vec<String>,
    /// Names of workloads.
    pub workloads: Vec<String>,
    /// Numbers of idle connections.
    pub idle: Vec<u64>,
    /// How often each is measured.
    pub repetitions: u32,
    /// Requests in a pass of the shortest; workloads that take longer have fewer.
    pub requests: u64,
    /// Connections in a round.
    pub batch: u64,
    /// Length of the open-loop pass that latency is taken from, seconds; 0 for none.
    pub latency_s: f64,
    /// The server that the others are compared with.
    pub reference: String,
    /// Seed of the order.
    pub seed: u64,
    /// What emulates this machine, where its clock counts instructions instead of time: a nanosecond of
    /// CPU time is then one of them.
    #[serde(default)]
    pub emulator: Option<String>,
    /// How many measurements that makes.
    #[serde(default)]
    pub planned: usize,
    /// The servers as they were found.
    #[serde(default)]
    pub participants: Vec<Participant>,
    /// The server behind the proxies, likewise.
    #[serde(default)]
    pub origin: Option<Participant>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            kind: Kind::Server,
            servers: Vec::new(),
            workloads: Kind::Server.workloads().map(|w| w.name.to_owned()).collect(),
            idle: vec![0, 10_000],
            repetitions: 5,
            requests: 20_000,
            batch: 50,
            latency_s: 0.25,
            reference: "hearken".into(),
            seed: 1,
            emulator: None,
            planned: 0,
            participants: Vec::new(),
            origin: None,
        }
    }
}

impl Settings {
    /// The same in less than two minutes: says how far apart servers are, not by how much.
    pub fn short() -> Settings {
        let idle = vec![0, 2000];
        Settings { idle, repetitions: 2, requests: 4000, latency_s: 0.1, ..Settings::default() }
    }

    /// The same for proxies.
    pub fn proxies(self) -> Settings {
        let mut idle = self.idle;
        // Where many are held, some are too: the cost of a request is to depend on neither.
        if idle.iter().any(|&idle| idle > 2000) {
            idle.insert(idle.len() - 1, 2000);
        }
        let workloads = Kind::Proxy.workloads().map(|w| w.name.to_owned()).collect();
        Settings { kind: Kind::Proxy, workloads, idle, ..self }
    }

    /// The same in a machine emulated by `emulator`, whose clock counts instructions: it is slow, and
    /// counts repeat, so that fewer will do. Latency would be none that anybody sees.
    pub fn emulated(self, emulator: String) -> Settings {
        Settings {
            repetitions: self.repetitions.div_ceil(2),
            requests: self.requests / 2,
            latency_s: 0.0,
            emulator: Some(emulator),
            ..self
        }
    }

    /// An error if these describe no experiment.
    pub fn check(&self) -> Result<(), LabError> {
        let ours = |name: &str| Workload::find(name).is_some_and(|w| w.of == self.kind);
        let unknown = self.workloads.iter().find(|name| !ours(name));
        let wrong = if self.servers.is_empty() {
            format!("name at least one {}", self.kind.name())
        } else if let Some(name) = unknown {
            self.kind.no_workload(name)
        } else if self.workloads.is_empty() {
            "name at least one workload".into()
        } else if self.idle.is_empty() {
            "give at least one number of idle connections (0 is one)".into()
        } else if self.repetitions == 0 {
            "ask for at least one repetition".into()
        } else if self.requests == 0 || self.batch == 0 {
            "a pass needs requests, and a round connections".into()
        } else if !self.latency_s.is_finite() || self.latency_s < 0.0 {
            "the length of the latency pass is no time".into()
        } else {
            return Ok(());
        };
        Err(LabError::Config(wrong))
    }

    /// How long so many cases will take, before anything was measured.
    pub(crate) fn expected(&self, cases: usize) -> Duration {
        let passes = Duration::from_secs_f64(self.latency_s + self.requests as f64 * 30e-6);
        (SETUP + passes) * u32::try_from(cases).unwrap_or(u32::MAX)
    }

    /// The most connections that a server is to have at a time.
    pub(crate) fn connections(&self) -> u64 {
        self.idle.iter().max().unwrap_or(&0) + 4 * self.batch
    }
}

/// One workload to be measured on one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// The server, by the name of its recipe.
    pub server: String,
    /// The workload.
    pub workload: String,
    /// How many idle connections it holds meanwhile.
    pub idle: u64,
    /// Which repetition this is, from 0.
    pub repetition: u32,
    /// Its place in the shuffled order, from 0.
    pub order: usize,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, {} idle", self.server, self.workload, self.idle)
    }
}

impl Planned for Case {
    fn failed(&self, reason: String) -> Warning {
        Warning::ServerFailed {
            server: self.server.clone(),
            workload: self.workload.clone(),
            idle: self.idle,
            repetition: self.repetition,
            reason,
        }
    }
}

/// Every case once. Repetition follows repetition; in each, the sessions (a server with so many idle
/// connections) are shuffled, and in each session the workloads.
pub fn plan(settings: &Settings, recipes: &[Recipe]) -> Vec<Case> {
    let mut random = fastrand::Rng::with_seed(settings.seed);
    let mut cases = Vec::new();
    for repetition in 0..settings.repetitions {
        let mut sessions = Vec::new();
        for server in &settings.servers {
            for &idle in &settings.idle {
                let recipe = recipes.iter().find(|recipe| &recipe.name == server);
                let workloads = settings.workloads.iter();
                let mut session: Vec<Case> = workloads
                    .filter(|workload| recipe.is_none_or(|r| r.takes(workload, idle)))
                    .map(|workload| Case {
                        server: server.clone(),
                        workload: workload.clone(),
                        idle,
                        repetition,
                        order: 0,
                    })
                    .collect();
                random.shuffle(&mut session);
                sessions.push(session);
            }
        }
        random.shuffle(&mut sessions);
        cases.extend(sessions.into_iter().flatten());
    }
    for (order, case) in cases.iter_mut().enumerate() {
        case.order = order;
    }
    cases
}

/// Raises the limit on descriptors, which the children inherit, and lowers the levels of idle
/// connections that do not fit.
pub(crate) fn fit_descriptors(settings: &mut Settings, warnings: &mut Vec<Warning>) {
    if let Some(limit) = descriptors::raise_limit() {
        clamp_idle(&mut settings.idle, 4 * settings.batch, limit, warnings);
    }
}
