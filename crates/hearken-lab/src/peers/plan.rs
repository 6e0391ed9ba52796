//! Settings and plan of the comparison.

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
use crate::run::PlannedTrial;
use crate::warning::Warning;

/// Approximate time to start and stop a server and one workload, without their load.
const SETUP_TIME: Duration = Duration::from_millis(900);

/// Configuration of [`peers`](super::peers()).
#[derive(Clone, Debug)]
pub struct Config {
    /// Path of `hearken`, which generates the load.
    pub executable: PathBuf,
    /// Command line, for the report.
    pub command_line: Vec<String>,
    /// Version of Hearken, for the report.
    pub version: String,
    /// Available recipes; [`Settings::servers`] selects from them.
    pub recipes: Vec<Recipe>,
    /// Recipe of the origin server, for proxies.
    pub origin: Option<Recipe>,
    /// Settings of the experiment.
    pub settings: Settings,
}

/// Parameters of the experiment, as stored in the report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Kind of the participants.
    #[serde(default)]
    pub kind: Kind,
    /// Names of recipes.
    pub servers: Vec<String>,
    /// Names of workloads.
    pub workloads: Vec<String>,
    /// Numbers of idle connections.
    pub idle: Vec<u64>,
    /// Number of repetitions.
    pub repetitions: u32,
    /// Requests in a pass; longer workloads have fewer.
    pub requests: u64,
    /// Connections in a round.
    pub batch: u64,
    /// Duration in seconds of the open-loop pass that measures latency; 0 for none.
    pub latency_s: f64,
    /// Server that the others are compared with.
    pub reference: String,
    /// Seed of the order.
    pub seed: u64,
    /// Description of the emulator, if the clock of this machine counts instructions instead of time. A
    /// nanosecond of CPU time is then one instruction.
    #[serde(default)]
    pub emulator: Option<String>,
    /// Number of planned measurements.
    #[serde(default)]
    pub planned: usize,
    /// Participating servers with their versions.
    #[serde(default)]
    pub participants: Vec<Participant>,
    /// Origin server of the proxies with its version.
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
    /// Returns settings for a run of less than two minutes, which shows only large differences.
    pub fn short() -> Settings {
        let idle = vec![0, 2000];
        Settings { idle, repetitions: 2, requests: 4000, latency_s: 0.1, ..Settings::default() }
    }

    /// Returns the same settings for proxies.
    pub fn proxies(self) -> Settings {
        let mut idle = self.idle;
        // An additional, moderate number of idle connections.
        if idle.iter().any(|&idle| idle > 2000) {
            idle.insert(idle.len() - 1, 2000);
        }
        let workloads = Kind::Proxy.workloads().map(|w| w.name.to_owned()).collect();
        Settings { kind: Kind::Proxy, workloads, idle, ..self }
    }

    /// Returns the same settings for a machine emulated by `emulator`, whose clock counts instructions.
    /// Emulation is slow, but counts are repeatable, so fewer requests suffice. Latency is not meaningful.
    pub fn emulated(self, emulator: String) -> Settings {
        Settings {
            repetitions: self.repetitions.div_ceil(2),
            requests: self.requests / 2,
            latency_s: 0.0,
            emulator: Some(emulator),
            ..self
        }
    }

    /// Checks the settings and returns an error if they are invalid.
    pub fn check(&self) -> Result<(), LabError> {
        let is_supported = |name: &str| Workload::find(name).is_some_and(|w| w.kind == self.kind);
        let unknown = self.workloads.iter().find(|name| !is_supported(name));
        let wrong = if self.servers.is_empty() {
            format!("at least one {} is required", self.kind.name())
        } else if let Some(name) = unknown {
            self.kind.unknown_workload(name)
        } else if self.workloads.is_empty() {
            "at least one workload is required".into()
        } else if self.idle.is_empty() {
            "at least one number of idle connections is required (0 is allowed)".into()
        } else if self.repetitions == 0 {
            "at least one repetition is required".into()
        } else if self.requests == 0 || self.batch == 0 {
            "the numbers of requests and of connections per round must be positive".into()
        } else if !self.latency_s.is_finite() || self.latency_s < 0.0 {
            "the duration of the latency pass must not be negative".into()
        } else {
            return Ok(());
        };
        Err(LabError::Config(wrong))
    }

    /// Estimates the duration of the run.
    pub(crate) fn expected_duration(&self, trials: usize) -> Duration {
        let passes = Duration::from_secs_f64(self.latency_s + self.requests as f64 * 30e-6);
        (SETUP_TIME + passes) * u32::try_from(trials).unwrap_or(u32::MAX)
    }

    /// Returns the maximum number of concurrent connections to a server.
    pub(crate) fn connections(&self) -> u64 {
        self.idle.iter().max().unwrap_or(&0) + 4 * self.batch
    }
}

/// A planned measurement: one workload on one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// Name of the recipe.
    pub server: String,
    /// Name of the workload.
    pub workload: String,
    /// Number of idle connections.
    pub idle: u64,
    /// Repetition, from 0.
    pub repetition: u32,
    /// Position in the random order, from 0.
    pub order: usize,
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, {} idle", self.server, self.workload, self.idle)
    }
}

impl PlannedTrial for Trial {
    fn failure_warning(&self, reason: String) -> Warning {
        Warning::ServerMeasurementFailed {
            server: self.server.clone(),
            workload: self.workload.clone(),
            idle: self.idle,
            repetition: self.repetition,
            reason,
        }
    }
}

/// Returns all trials. Repetitions are executed one after another. In each, the sessions (a server
/// with a number of idle connections) are shuffled, and in each session the workloads.
pub fn plan(settings: &Settings, recipes: &[Recipe]) -> Vec<Trial> {
    let mut random = fastrand::Rng::with_seed(settings.seed);
    let mut trials = Vec::new();
    for repetition in 0..settings.repetitions {
        let mut sessions = Vec::new();
        for server in &settings.servers {
            for &idle in &settings.idle {
                let recipe = recipes.iter().find(|recipe| &recipe.name == server);
                let workloads = settings.workloads.iter();
                let mut session: Vec<Trial> = workloads
                    .filter(|workload| recipe.is_none_or(|r| r.supports(workload, idle)))
                    .map(|workload| Trial {
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
        trials.extend(sessions.into_iter().flatten());
    }
    for (order, trial) in trials.iter_mut().enumerate() {
        trial.order = order;
    }
    trials
}

/// Raises the soft limit on descriptors, which child processes inherit, and reduces the numbers of
/// idle connections to what fits.
pub(crate) fn fit_descriptors(settings: &mut Settings, warnings: &mut Vec<Warning>) {
    if let Some(limit) = descriptors::raise_limit() {
        clamp_idle(&mut settings.idle, 4 * settings.batch, limit, warnings);
    }
}
