//! Data model of the report: the content of `results.json`.

use serde::{Deserialize, Serialize};

use super::plan::{Settings, Trial};
use super::summary::Cell;
use crate::results;

/// Format name and version of `results.json`.
pub const SCHEMA: &str = "hearken-lab-peers/2";

/// The result of a run.
pub type Report = results::Report<Settings, Cell, Sample>;

/// A participating server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Participant {
    /// Name of the recipe.
    pub name: String,
    /// Description from the recipe.
    pub description: String,
    /// Version that the server prints.
    pub version: String,
    /// Text of the recipe.
    pub recipe: String,
}

/// A measurement with its position in the plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Name of the server.
    pub server: String,
    /// Name of the workload.
    pub workload: String,
    /// Requested number of idle connections.
    pub idle: u64,
    /// Repetition, from 0.
    pub repetition: u32,
    /// Position in the random order, from 0.
    pub order: usize,
    /// Measured values.
    #[serde(flatten)]
    pub measured: Measurement,
}

impl Sample {
    /// Combines a trial and its measurement.
    pub fn new(trial: &Trial, measured: Measurement) -> Sample {
        Sample {
            server: trial.server.clone(),
            workload: trial.workload.clone(),
            idle: trial.idle,
            repetition: trial.repetition,
            order: trial.order,
            measured,
        }
    }
}

/// Costs per request of the processes of one server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Requests in the pass that measures CPU time.
    pub requests: u64,
    /// CPU time per request, in nanoseconds; none if the clock counts instructions.
    pub cpu_ns_per_request: Option<f64>,
    /// CPU time in user mode per request, in nanoseconds. Its resolution is ticks of 10 ms.
    pub cpu_user_ns_per_request: Option<f64>,
    /// CPU time in the kernel per request, in nanoseconds. Its resolution is ticks of 10 ms.
    pub cpu_system_ns_per_request: Option<f64>,
    /// Instructions in both modes per request, if the clock counts instructions.
    #[serde(default)]
    pub instructions_emulated_per_request: Option<f64>,
    /// Instructions in user mode per request.
    pub instructions_user_per_request: Option<f64>,
    /// Instructions in the kernel per request.
    pub instructions_kernel_per_request: Option<f64>,
    /// System calls per request.
    pub syscalls_per_request: Option<f64>,
    /// Voluntary and involuntary context switches per request.
    pub context_switches_per_request: Option<f64>,
    /// Replies per second in lockstep. Server and driver share a processor, so this is not a capacity.
    pub lockstep_rate: f64,
    /// Connections of the driver that the server closed and the driver reopened.
    pub reconnects: u64,
    /// Open idle connections: fewer than requested if the server does not accept more.
    pub idle_connections: u64,
    /// Resident memory of the server after its first requests, in bytes.
    pub rss_start_bytes: u64,
    /// Resident memory with the idle connections, in bytes.
    pub rss_bytes: u64,
    /// Growth of resident memory per idle connection, in bytes; none without idle connections.
    pub rss_per_idle_bytes: Option<f64>,
    /// Growth of the resident memory of a proxy per connection that has sent nothing, in bytes. Measured
    /// in a separate start of the proxy; none if it does not accept such connections.
    #[serde(default)]
    pub rss_per_unused_bytes: Option<f64>,
    /// Median latency of the open-loop pass, in nanoseconds.
    pub latency_p50_ns: Option<f64>,
    /// 99th percentile of latency of the open-loop pass, in nanoseconds.
    pub latency_p99_ns: Option<f64>,
    /// Failed requests of the open-loop pass.
    pub latency_errors: u64,
}

impl Measurement {
    /// Returns the instructions in both modes; none if either is not available.
    pub fn instructions_per_request(&self) -> Option<f64> {
        let both =
            || Some(self.instructions_user_per_request? + self.instructions_kernel_per_request?);
        self.instructions_emulated_per_request.or_else(both)
    }
}
