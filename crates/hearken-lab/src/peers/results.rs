//! The report as data: what `results.json` holds.

use serde::{Deserialize, Serialize};

use super::plan::{Case, Settings};
use super::summary::Cell;
use crate::results;

/// Name and version of the format of `results.json`.
pub const SCHEMA: &str = "hearken-lab-peers/1";

/// Everything that a run found.
pub type Report = results::Report<Settings, Cell, Sample>;

/// A server that took part, as it was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Participant {
    /// The name of its recipe.
    pub name: String,
    /// What it is, as the recipe says.
    pub about: String,
    /// What it says of its version.
    pub version: String,
    /// The recipe itself.
    pub recipe: String,
}

/// One measurement, with its place in the plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The server.
    pub server: String,
    /// The workload.
    pub workload: String,
    /// The idle connections asked for.
    pub idle: u64,
    /// The repetition, from 0.
    pub repetition: u32,
    /// The place in the shuffled order, from 0.
    pub order: usize,
    /// What was measured.
    #[serde(flatten)]
    pub measured: Measurement,
}

impl Sample {
    /// Puts a measurement in its place.
    pub fn new(case: &Case, measured: Measurement) -> Sample {
        Sample {
            server: case.server.clone(),
            workload: case.workload.clone(),
            idle: case.idle,
            repetition: case.repetition,
            order: case.order,
            measured,
        }
    }
}

/// What a request cost the processes of one server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Requests in the pass that CPU time is taken from.
    pub requests: u64,
    /// CPU time per request, nanoseconds; none where the clock counts instructions.
    pub cpu_ns_per_request: Option<f64>,
    /// The part in user mode, by ticks of 10 ms, so coarse.
    pub cpu_user_ns_per_request: Option<f64>,
    /// The part in the kernel, likewise.
    pub cpu_system_ns_per_request: Option<f64>,
    /// Instructions in both modes, where the clock counts them, but not each mode's.
    #[serde(default)]
    pub instr_by_clock_per_request: Option<f64>,
    /// Instructions in user mode.
    pub instr_user_per_request: Option<f64>,
    /// Instructions in the kernel.
    pub instr_kernel_per_request: Option<f64>,
    /// System calls.
    pub syscalls_per_request: Option<f64>,
    /// Context switches, of one's own accord or not.
    pub context_switches_per_request: Option<f64>,
    /// Replies a second while server and driver shared a processor: not what it can do alone.
    pub lockstep_rate: f64,
    /// Connections of the driver that the server closed, so that they were made again.
    pub reconnects: u64,
    /// Idle connections that it had: fewer than asked for where it takes no more.
    pub idle_connections: u64,
    /// Resident memory of the server after its first requests.
    pub rss_start_bytes: u64,
    /// Resident memory with the idle connections.
    pub rss_bytes: u64,
    /// What each of them added; none without.
    pub rss_per_idle_bytes: Option<f64>,
    /// What a connection of a proxy adds that is accepted and has said nothing, in a start of its own;
    /// none where it is not accepted before it says something.
    #[serde(default)]
    pub rss_per_silent_bytes: Option<f64>,
    /// Median latency of the open-loop pass, nanoseconds.
    pub latency_p50_ns: Option<f64>,
    /// Its 99th percentile.
    pub latency_p99_ns: Option<f64>,
    /// Requests of that pass that failed.
    pub latency_errors: u64,
}

impl Measurement {
    /// Instructions in both modes; none if either was refused.
    pub fn instr_per_request(&self) -> Option<f64> {
        let both = || Some(self.instr_user_per_request? + self.instr_kernel_per_request?);
        self.instr_by_clock_per_request.or_else(both)
    }
}
