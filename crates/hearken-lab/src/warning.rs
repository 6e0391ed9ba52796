//! Warnings about a measurement and their remedies.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A reason to doubt the results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Warning {
    /// Server, load generator and lab share one processor.
    SharedProcessor,
    /// Other processes are active before the run.
    MachineBusy {
        /// Number of processors that they use.
        processors: f64,
    },
    /// Many ports for outgoing connections wait for their release.
    PortsInUse {
        /// Connections in TIME_WAIT.
        waiting: u64,
        /// Ports for outgoing connections.
        ports: u64,
    },
    /// A number of idle connections exceeds the limit on descriptors.
    IdleLimited {
        /// Requested number.
        requested: u64,
        /// Limit on descriptors.
        limit: u64,
    },
    /// An experiment was left out because the machine does not meet its requirements.
    LeftOut {
        /// Name of the experiment.
        experiment: String,
        /// Requirement, and what the machine offers.
        requirement: String,
    },
    /// An experiment that needs exact counts was measured without an emulated machine.
    NotEmulated {
        /// Name of the experiment.
        experiment: String,
        /// Error.
        reason: String,
    },
    /// The load generator could not saturate the reference server.
    SaturationNotReached {
        /// Name of the experiment.
        experiment: String,
        /// Highest rate that it offered, in arrivals per second.
        rate: f64,
    },
    /// Rows did not fit into the time budget.
    OverBudget {
        /// Budget in seconds.
        budget_s: f64,
        /// Estimated time of the rows in seconds.
        needed_s: f64,
        /// Claims, or experiments and servers, that were left out.
        rows: Vec<String>,
    },
    /// The time budget ended before the run.
    OutOfTime {
        /// Number of completed measurements.
        done: usize,
        /// Number of planned measurements.
        planned: usize,
    },
    /// Too few repetitions for a confidence interval.
    FewRepetitions {
        /// Number of repetitions.
        repetitions: u32,
    },
    /// The reference is not among the measured mechanisms, so there are no ratios to it.
    NoReference {
        /// Name of the reference.
        reference: String,
    },
    /// A measurement failed and is missing from the samples.
    MeasurementFailed {
        /// Experiment, server and values.
        measurement: String,
        /// Repetition, from 0.
        repetition: u32,
        /// Error.
        reason: String,
    },
    /// A server is not installed.
    NotInstalled {
        /// Name of the server.
        server: String,
        /// Missing program.
        program: String,
        /// Package that provides the program.
        package: Option<String>,
    },
    /// A server could not be started or did not answer correctly.
    Excluded {
        /// Name of the server.
        server: String,
        /// Error.
        reason: String,
    },
    /// A server closed idle connections.
    IdleClosed {
        /// Name of the server.
        server: String,
        /// Number of connections.
        connections: u64,
    },
    /// Server and driver do not run in the scheduling class SCHED_BATCH.
    NoBatchScheduling,
    /// The run was interrupted.
    Interrupted {
        /// Number of completed measurements.
        done: usize,
        /// Number of planned measurements.
        planned: usize,
    },
    /// Other processes used the processor of the server.
    ProcessorContention {
        /// Number of affected samples.
        samples: usize,
        /// Maximum share of time in which the server waited for its processor.
        max_wait_ratio: f64,
    },
    /// The load generator sent requests late, although the server was not saturated.
    GeneratorLate {
        /// Number of affected samples.
        samples: usize,
        /// Maximum of the 99th percentile of lateness, in nanoseconds.
        max_lateness_p99_ns: f64,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::SharedProcessor => write!(
                f,
                "Only one processor is allowed. Server, load generator and lab share it, so latency \
                 includes the work of the load generator. Use two or more processors (see taskset)."
            ),
            Warning::MachineBusy { processors } => write!(
                f,
                "Other processes use {processors:.1} processors, which distorts costs and latencies. \
                 Repeat the run on an idle machine."
            ),
            Warning::PortsInUse { waiting, ports } => write!(
                f,
                "{waiting} of {ports} ports wait for their release (TIME_WAIT), so new connections may \
                 fail. Wait for a minute."
            ),
            Warning::IdleLimited { requested, limit } => write!(
                f,
                "{requested} idle connections exceed the hard limit of {limit} descriptors per process; \
                 fewer were used. Raise the limit with `ulimit -Hn`."
            ),
            Warning::LeftOut { experiment, requirement } => {
                write!(f, "Experiment '{experiment}' was left out: it requires {requirement}.")
            }
            Warning::NotEmulated { experiment, reason } => write!(
                f,
                "Experiment '{experiment}' measured time instead of exact counts: {reason}"
            ),
            Warning::SaturationNotReached { experiment, rate } => write!(
                f,
                "The load generator could not saturate the reference server of experiment '{experiment}'; \
                 loads are relative to {rate:.0} arrivals per second. Use a smaller quota, or an idle machine."
            ),
            Warning::OverBudget { budget_s, needed_s, rows } => write!(
                f,
                "The time budget of {budget_s:.0} s does not suffice for another {needed_s:.0} s. Left out: {}.",
                rows.join(", ")
            ),
            Warning::OutOfTime { done, planned } => write!(
                f,
                "The time budget ended after {done} of {planned} measurements: some cells have fewer \
                 samples than planned, or none."
            ),
            Warning::FewRepetitions { repetitions } => write!(
                f,
                "{repetitions} repetition(s) give no confidence interval; use three or more."
            ),
            Warning::NoReference { reference } => write!(
                f,
                "The reference '{reference}' was not measured, so there are no ratios to it."
            ),
            Warning::MeasurementFailed { measurement, repetition, reason } => {
                let repetition = repetition + 1;
                write!(
                    f,
                    "The measurement {measurement}, repetition {repetition}, failed: {reason}"
                )
            }
            Warning::NotInstalled { server, program, package } => {
                write!(f, "{server} is not installed: program '{program}' not found")?;
                match package {
                    Some(package) => write!(f, " (package: {package})."),
                    None => write!(f, "."),
                }
            }
            Warning::Excluded { server, reason } => write!(f, "{server} was excluded: {reason}"),
            Warning::IdleClosed { server, connections } => write!(
                f,
                "{server} closed or did not accept {connections} idle connection(s). Its memory per \
                 connection and its costs refer to fewer connections."
            ),
            Warning::NoBatchScheduling => write!(
                f,
                "`chrt` is not installed (package: util-linux), so server and driver preempt each \
                 other. Batch sizes depend on timing, and counts are less repeatable."
            ),
            Warning::Interrupted { done, planned } => write!(
                f,
                "Interrupted after {done} of {planned} measurements: some cells have fewer samples \
                 than planned, or none."
            ),
            Warning::ProcessorContention { samples, max_wait_ratio } => write!(
                f,
                "In {samples} sample(s), the server waited for its processor up to {:.0} % of the time \
                 because of other processes, which distorts costs and latencies. Repeat the run on an \
                 idle machine.",
                max_wait_ratio * 100.0
            ),
            Warning::GeneratorLate { samples, max_lateness_p99_ns } => write!(
                f,
                "In {samples} sample(s), the load generator was late (99th percentile up to {:.1} ms) \
                 although the server was not saturated. Latency is measured from the scheduled time \
                 and includes this delay. Reduce the rate or free a processor.",
                max_lateness_p99_ns / 1e6
            ),
        }
    }
}
