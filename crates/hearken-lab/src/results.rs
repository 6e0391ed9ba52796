//! Data model of the report: the content of `results.json` and the input of all exporters.

use hearken_load::Errors;
use serde::{Deserialize, Serialize};

use crate::counters::UnavailableCounter;
use crate::machine::{Machine, Placement};
use crate::plan::{Settings, Trial};
use crate::summary::Cell;
use crate::warning::Warning;

/// Format name and version of `results.json`.
pub const SCHEMA: &str = "hearken-lab-quick/3";

/// The result of a run. Settings, cells and samples are specific to the experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report<S = Settings, C = Cell, P = Sample> {
    /// Format name and version: [`SCHEMA`].
    pub schema: String,
    /// Whether every planned measurement was completed.
    pub complete: bool,
    /// Version of Hearken.
    pub version: String,
    /// Command line.
    pub command_line: Vec<String>,
    /// Start of the run, RFC 3339.
    pub date: String,
    /// Duration of the run in seconds.
    pub elapsed_s: f64,
    /// Settings in effect, after adjustments.
    pub settings: S,
    /// Hardware and kernel.
    pub machine: Machine,
    /// Assignment of processors.
    pub placement: Placement,
    /// Counters that were not available.
    pub unavailable_counters: Vec<UnavailableCounter>,
    /// Problems that affect the results.
    pub warnings: Vec<Warning>,
    /// Description of the statistical method.
    pub method: String,
    /// Statistics of each combination of factors that has a sample.
    pub summary: Vec<C>,
    /// All measurements, in the order of execution.
    pub samples: Vec<P>,
}

/// A measurement with its position in the plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Mechanism of the server.
    pub mechanism: String,
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
            mechanism: trial.mechanism.clone(),
            idle: trial.idle,
            repetition: trial.repetition,
            order: trial.order,
            measured,
        }
    }
}

/// Costs of one server and what its clients observed. Values per request are per reply received.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// CPU time of the server per request, in nanoseconds; none without replies.
    pub cpu_ns_per_request: Option<f64>,
    /// CPU time in user mode per request, in nanoseconds. Its resolution is ticks of 10 ms.
    pub cpu_user_ns_per_request: Option<f64>,
    /// CPU time in the kernel per request, in nanoseconds. Its resolution is ticks of 10 ms.
    pub cpu_system_ns_per_request: Option<f64>,
    /// Utilisation of one processor by the server during the load, 0 to 1.
    pub cpu_utilisation: f64,
    /// Share of time in which the server waited for its processor because of other processes.
    pub cpu_wait_ratio: f64,
    /// Instructions in user mode per request.
    pub instructions_user_per_request: Option<f64>,
    /// Instructions in the kernel per request.
    pub instructions_kernel_per_request: Option<f64>,
    /// System calls per request.
    pub syscalls_per_request: Option<f64>,
    /// CPU time of the server per connection that carries a single request, in nanoseconds.
    pub cpu_ns_per_connection: Option<f64>,
    /// System calls per connection that carries a single request.
    pub syscalls_per_connection: Option<f64>,
    /// Instructions in both modes per connection that carries a single request.
    pub instructions_per_connection: Option<f64>,
    /// Voluntary and involuntary context switches per request.
    pub context_switches_per_request: Option<f64>,
    /// Resident memory before any connection, in bytes.
    pub rss_start_bytes: u64,
    /// Resident memory with the idle connections before the load, in bytes.
    pub rss_bytes: u64,
    /// Resident memory after the load, in bytes.
    pub rss_end_bytes: u64,
    /// Growth of resident memory per idle connection, in bytes; none without idle connections.
    pub rss_per_idle_bytes: Option<f64>,
    /// Idle connections open at the end.
    pub idle_open: u64,
    /// Idle connections closed by the server; the load generator reopens them.
    pub idle_lost: u64,
    /// Scheduled requests.
    pub scheduled: u64,
    /// Replies received.
    pub replies: u64,
    /// Replies per second.
    pub reply_rate: f64,
    /// Median latency from the scheduled time, in nanoseconds; none without replies.
    pub latency_p50_ns: Option<f64>,
    /// 90th percentile of latency, in nanoseconds.
    pub latency_p90_ns: Option<f64>,
    /// 99th percentile of latency, in nanoseconds.
    pub latency_p99_ns: Option<f64>,
    /// 99.9th percentile of latency, in nanoseconds.
    pub latency_p999_ns: Option<f64>,
    /// Maximum latency, in nanoseconds.
    pub latency_max_ns: Option<f64>,
    /// 99th percentile of the delay of the load generator, in nanoseconds.
    pub lateness_p99_ns: f64,
    /// Failed requests by kind.
    pub errors: Errors,
    /// Whether the server did not keep up or used more than 95 % of its processor.
    pub saturated: bool,
}

impl Measurement {
    /// Returns the instructions in both modes; none if either is not available.
    pub fn instructions_per_request(&self) -> Option<f64> {
        Some(self.instructions_user_per_request? + self.instructions_kernel_per_request?)
    }
}
