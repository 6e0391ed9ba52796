//! What was wrong with the measurement itself, and what to do about it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A reason to read the numbers with care.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Warning {
    /// One processor for the server, the load and the lab.
    SharedProcessor,
    /// A level of idle connections does not fit the limit on descriptors.
    IdleClamped {
        /// What was asked for.
        asked: u64,
        /// What is measured instead.
        used: u64,
        /// The hard limit.
        limit: u64,
    },
    /// Too few repetitions for an interval.
    FewRepetitions {
        /// How many there are.
        repetitions: u32,
    },
    /// The reference is not among the mechanisms measured, so there are no ratios to it.
    NoReference {
        /// Its name.
        reference: String,
    },
    /// A measurement failed and is missing from the samples.
    Failed {
        /// The mechanism.
        mechanism: String,
        /// The idle connections.
        idle: u64,
        /// The repetition, from 0.
        repetition: u32,
        /// Why.
        reason: String,
    },
    /// A measurement of a server failed and is missing from the samples.
    ServerFailed {
        /// The server.
        server: String,
        /// The workload.
        workload: String,
        /// The idle connections.
        idle: u64,
        /// The repetition, from 0.
        repetition: u32,
        /// Why.
        reason: String,
    },
    /// A server that was to be compared is not installed.
    NotInstalled {
        /// The server.
        server: String,
        /// What was looked for.
        program: String,
        /// What would bring it.
        package: Option<String>,
    },
    /// A server could not be started, or did not serve.
    LeftOut {
        /// The server.
        server: String,
        /// Why.
        reason: String,
    },
    /// A server closed idle connections.
    IdleClosed {
        /// The server.
        server: String,
        /// How many.
        connections: u64,
    },
    /// Server and driver are not in the scheduling class for batches.
    NotBatch,
    /// Too many failures in a row: the rest was not tried.
    GaveUp {
        /// How many failed one after another.
        failures: usize,
    },
    /// The run was interrupted.
    Interrupted {
        /// How many measurements were made.
        done: usize,
        /// Of how many.
        planned: usize,
    },
    /// Other work took the server's processor.
    Busy {
        /// In how many samples.
        samples: usize,
        /// The worst share of the time in which the server had to wait.
        worst_share: f64,
    },
    /// Requests left the load generator late, though the server kept up.
    LateLoad {
        /// In how many samples.
        samples: usize,
        /// The worst 99th percentile of lateness.
        worst_p99_ns: f64,
    },
    /// Idle connections were lost while the load ran.
    IdleLost {
        /// In how many samples.
        samples: usize,
        /// How many connections, in all of these.
        connections: u64,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::SharedProcessor => write!(
                f,
                "Only one processor is allowed: server, load and lab share it, so latency holds \
                 the load's own work. Run on two or more (see taskset, cpuset)."
            ),
            Warning::IdleClamped { asked, used, limit } => write!(
                f,
                "{asked} idle connections do not fit the hard limit of {limit} descriptors a \
                 process; {used} were used. Raise it with `ulimit -Hn`."
            ),
            Warning::FewRepetitions { repetitions } => write!(
                f,
                "{repetitions} repetition(s) give no confidence interval; ask for three or more."
            ),
            Warning::NoReference { reference } => write!(
                f,
                "The reference `{reference}` was not measured, so no ratio to it is given."
            ),
            Warning::Failed { mechanism, idle, repetition, reason } => write!(
                f,
                "{mechanism} with {idle} idle connections, repetition {}, was not measured: \
                 {reason}",
                repetition + 1
            ),
            Warning::ServerFailed { server, workload, idle, repetition, reason } => write!(
                f,
                "{server}, workload {workload} with {idle} idle connections, repetition {}, was not \
                 measured: {reason}",
                repetition + 1
            ),
            Warning::NotInstalled { server, program, package } => {
                write!(f, "{server} is not installed: there is no program `{program}`")?;
                match package {
                    Some(package) => write!(f, " (package: {package})."),
                    None => write!(f, "."),
                }
            }
            Warning::LeftOut { server, reason } => write!(f, "{server} was left out: {reason}"),
            Warning::IdleClosed { server, connections } => write!(
                f,
                "{server} closed {connections} idle connection(s), or did not have them: its \
                 memory for each, and its cost beside them, are of fewer."
            ),
            Warning::NotBatch => write!(
                f,
                "There is no `chrt` (package: util-linux), so server and driver interrupt each other \
                 when they wake up: batches depend on timing, and counts repeat less well."
            ),
            Warning::GaveUp { failures } => {
                write!(f, "{failures} measurements failed in a row; the rest was not tried.")
            }
            Warning::Interrupted { done, planned } => write!(
                f,
                "Interrupted after {done} of {planned} measurements: cells have fewer samples \
                 than planned, or none."
            ),
            Warning::Busy { samples, worst_share } => write!(
                f,
                "In {samples} sample(s) the server had to wait for its processor, up to {:.0} % of \
                 the time, because other work ran there: costs and latencies are not its own \
                 alone. Measure again on a quiet machine.",
                worst_share * 100.0
            ),
            Warning::LateLoad { samples, worst_p99_ns } => write!(
                f,
                "In {samples} sample(s) the load generator itself was late (99th percentile up \
                 to {:.1} ms) though the server kept up. Latency counts from the intended moment, \
                 so it includes this; lower the rate or free a processor.",
                worst_p99_ns / 1e6
            ),
            Warning::IdleLost { samples, connections } => write!(
                f,
                "{connections} idle connection(s) were lost in {samples} sample(s): the server \
                 closed them, or ran out of something."
            ),
        }
    }
}
