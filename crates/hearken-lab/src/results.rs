//! The report as data: what `results.json` holds, and all that the other exporters read.

use hearken_load::Errors;
use serde::{Deserialize, Serialize};

use crate::counters::Refusal;
use crate::machine::{Machine, Placement};
use crate::plan::{Case, Settings};
use crate::summary::Cell;
use crate::warning::Warning;

/// Name and version of the format of `results.json`.
pub const SCHEMA: &str = "hearken-lab-quick/2";

/// Everything that a run found: its settings, and its cells and samples, are those of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report<S = Settings, C = Cell, P = Sample> {
    /// Name and version of the format: [`SCHEMA`].
    pub schema: String,
    /// Was every planned measurement made?
    pub complete: bool,
    /// The version of Hearken.
    pub version: String,
    /// What was typed.
    pub command_line: Vec<String>,
    /// When the run began, RFC 3339.
    pub date: String,
    /// How long it took, seconds.
    pub elapsed_s: f64,
    /// What was asked for, after warnings were heeded.
    pub settings: S,
    /// Where it ran.
    pub machine: Machine,
    /// Which processors did what.
    pub placement: Placement,
    /// What the kernel would not count.
    pub refusals: Vec<Refusal>,
    /// What to keep in mind when reading.
    pub warnings: Vec<Warning>,
    /// How the statistics were made.
    pub method: String,
    /// One cell for each combination that has a sample.
    pub summary: Vec<C>,
    /// Every measurement, in the order in which they were made.
    pub samples: Vec<P>,
}

/// One measurement, with its place in the plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The mechanism that the server used.
    pub mechanism: String,
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
            mechanism: case.mechanism.clone(),
            idle: case.idle,
            repetition: case.repetition,
            order: case.order,
            measured,
        }
    }
}

/// What one server cost, and what its clients saw. "Per request" is per reply received.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// CPU time of the server per request, nanoseconds; none if no request was answered.
    pub cpu_ns_per_request: Option<f64>,
    /// The part in user mode, by ticks of 10 ms, so coarse.
    pub cpu_user_ns_per_request: Option<f64>,
    /// The part in the kernel, likewise.
    pub cpu_system_ns_per_request: Option<f64>,
    /// Share of one processor that the server used while the load ran, 0 to 1.
    pub cpu_share: f64,
    /// Share of the time in which the server had to wait for its processor: others used it.
    pub cpu_wait_share: f64,
    /// Instructions in user mode.
    pub instr_user_per_request: Option<f64>,
    /// Instructions in the kernel.
    pub instr_kernel_per_request: Option<f64>,
    /// System calls.
    pub syscalls_per_request: Option<f64>,
    /// CPU time of the server for a connection that is made, asks once and is closed, nanoseconds.
    pub cpu_ns_per_connection: Option<f64>,
    /// System calls for such a connection.
    pub syscalls_per_connection: Option<f64>,
    /// Instructions for such a connection, in both modes.
    pub instr_per_connection: Option<f64>,
    /// Context switches, of one's own accord or not.
    pub context_switches_per_request: Option<f64>,
    /// Resident memory before any connection.
    pub rss_start_bytes: u64,
    /// Resident memory with the idle connections, before the load.
    pub rss_bytes: u64,
    /// Resident memory after the load.
    pub rss_end_bytes: u64,
    /// What an idle connection added to it; none without idle connections.
    pub rss_per_idle_bytes: Option<f64>,
    /// Idle connections still open at the end.
    pub idle_held: u64,
    /// How often the server closed one; the load makes it again.
    pub idle_lost: u64,
    /// Requests due.
    pub intended: u64,
    /// Requests answered.
    pub replies: u64,
    /// Replies a second.
    pub reply_rate: f64,
    /// Median latency from the intended moment, nanoseconds; none without a reply.
    pub latency_p50_ns: Option<f64>,
    /// Its 90th percentile.
    pub latency_p90_ns: Option<f64>,
    /// Its 99th percentile.
    pub latency_p99_ns: Option<f64>,
    /// Its 99.9th percentile.
    pub latency_p999_ns: Option<f64>,
    /// Its maximum.
    pub latency_max_ns: Option<f64>,
    /// 99th percentile of the load generator's own delay.
    pub lateness_p99_ns: f64,
    /// Failed requests by kind.
    pub errors: Errors,
    /// Did the server not keep up, or use more than 95 % of its processor?
    pub saturated: bool,
}

impl Measurement {
    /// Instructions in both modes; none if either was refused.
    pub fn instr_per_request(&self) -> Option<f64> {
        Some(self.instr_user_per_request? + self.instr_kernel_per_request?)
    }
}
