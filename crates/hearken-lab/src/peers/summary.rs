//! Summary of the samples: one cell for each workload, number of idle connections and server.

use serde::{Deserialize, Serialize};

use super::plan::Settings;
use super::results::{Measurement, Sample};
use crate::stats::{Estimate, Ratio, estimate, paired_ratio};

/// Statistics of a combination of workload, idle connections and server, over all repetitions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Name of the workload.
    pub workload: String,
    /// Number of idle connections.
    pub idle: u64,
    /// Name of the server.
    pub server: String,
    /// Number of samples.
    pub samples: usize,
    /// Connections that the server closed unexpectedly, in all samples.
    pub reconnects: u64,
    /// Minimum number of open idle connections; less than `idle` if the server does not accept more.
    pub idle_connections: u64,
    /// Failed requests of the open-loop passes.
    pub errors: u64,
    /// CPU time per request, in nanoseconds.
    pub cpu_ns: Option<Estimate>,
    /// CPU time in user mode per request, in nanoseconds.
    pub cpu_user_ns: Option<Estimate>,
    /// CPU time in the kernel per request, in nanoseconds.
    pub cpu_system_ns: Option<Estimate>,
    /// Instructions per request.
    pub instructions: Option<Estimate>,
    /// Instructions in user mode per request.
    pub instructions_user: Option<Estimate>,
    /// Instructions in the kernel per request.
    pub instructions_kernel: Option<Estimate>,
    /// System calls per request.
    pub syscalls: Option<Estimate>,
    /// Context switches per request.
    pub context_switches: Option<Estimate>,
    /// Resident memory with the idle connections, in bytes.
    pub rss_bytes: Option<Estimate>,
    /// Growth of resident memory per idle connection, in bytes.
    pub rss_per_idle_bytes: Option<Estimate>,
    /// Growth of resident memory per connection that has sent nothing, in bytes.
    #[serde(default)]
    pub rss_per_unused_bytes: Option<Estimate>,
    /// Median latency, in nanoseconds.
    pub latency_p50_ns: Option<Estimate>,
    /// 99th percentile of latency, in nanoseconds.
    pub latency_p99_ns: Option<Estimate>,
    /// Ratios of CPU time to the reference.
    pub cpu_vs_reference: ReferenceRatios,
    /// Ratios of instructions to the reference.
    pub instructions_vs_reference: ReferenceRatios,
    /// Ratios of memory per idle connection to the reference.
    pub rss_per_idle_vs_reference: ReferenceRatios,
    /// Ratios of memory per unused connection to the reference.
    #[serde(default)]
    pub rss_per_unused_vs_reference: ReferenceRatios,
    /// CPU time relative to the same server without idle connections; none for itself.
    pub cpu_vs_no_idle: Option<Ratio>,
    /// Instructions relative to the same server without idle connections; none for itself.
    pub instructions_vs_no_idle: Option<Ratio>,
}

/// Ratios of a server and the reference in both directions; none for the reference itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReferenceRatios {
    /// Value of this server divided by the value of the reference.
    pub this_to_reference: Option<Ratio>,
    /// Value of the reference divided by the value of this server.
    pub reference_to_this: Option<Ratio>,
}

/// Summarises the samples by workload, idle connections and server.
pub(super) fn summarise(settings: &Settings, samples: &[Sample]) -> Vec<Cell> {
    let mut cells = Vec::new();
    for workload in &settings.workloads {
        for &idle in &settings.idle {
            for server in &settings.servers {
                let group = Group::of(samples, workload, idle, server);
                if group.0.is_empty() {
                    continue;
                }
                // No cell is compared with itself.
                let other = |of: &str, at| match (of, at) == (server.as_str(), idle) {
                    true => Group(Vec::new()),
                    false => Group::of(samples, workload, at, of),
                };
                let (reference, no_idle) = (other(&settings.reference, idle), other(server, 0));
                cells.push(group.cell(workload, idle, server, &reference, &no_idle));
            }
        }
    }
    cells
}

/// A value of a measurement.
type Value = fn(&Measurement) -> Option<f64>;

/// The samples of one cell.
struct Group<'a>(Vec<&'a Sample>);

impl<'a> Group<'a> {
    fn of(samples: &'a [Sample], workload: &str, idle: u64, server: &str) -> Group<'a> {
        let matches = |s: &&Sample| s.server == server && s.workload == workload && s.idle == idle;
        Group(samples.iter().filter(matches).collect())
    }

    /// Returns the values of both groups for the repetitions that have both.
    fn pairs(&self, other: &Group<'_>, of: Value) -> Vec<(f64, f64)> {
        let partner = |sample: &Sample| {
            let same = other.0.iter().find(|s| s.repetition == sample.repetition)?;
            Some((of(&sample.measured)?, of(&same.measured)?))
        };
        self.0.iter().filter_map(|sample| partner(sample)).collect()
    }

    fn reference_ratios(&self, reference: &Group<'_>, of: Value) -> ReferenceRatios {
        let this_to_reference = paired_ratio(&self.pairs(reference, of));
        ReferenceRatios {
            this_to_reference,
            reference_to_this: this_to_reference.map(|ratio| ratio.inverse()),
        }
    }

    fn cell(
        &self,
        workload: &str,
        idle: u64,
        server: &str,
        reference: &Group<'_>,
        no_idle: &Group<'_>,
    ) -> Cell {
        let measured = || self.0.iter().map(|s| &s.measured);
        let of = |get: Value| estimate(measured().filter_map(get));
        let to = |other: &Group<'_>, get: Value| paired_ratio(&self.pairs(other, get));
        let instructions: Value = Measurement::instructions_per_request;
        let cpu: Value = |m| m.cpu_ns_per_request;
        let rss: Value = |m| m.rss_per_idle_bytes;
        let silent: Value = |m| m.rss_per_unused_bytes;
        Cell {
            workload: workload.into(),
            idle,
            server: server.into(),
            samples: self.0.len(),
            reconnects: measured().map(|m| m.reconnects).sum(),
            idle_connections: measured().map(|m| m.idle_connections).min().unwrap_or(0),
            errors: measured().map(|m| m.latency_errors).sum(),
            cpu_ns: of(cpu),
            cpu_user_ns: of(|m| m.cpu_user_ns_per_request),
            cpu_system_ns: of(|m| m.cpu_system_ns_per_request),
            instructions: of(instructions),
            instructions_user: of(|m| m.instructions_user_per_request),
            instructions_kernel: of(|m| m.instructions_kernel_per_request),
            syscalls: of(|m| m.syscalls_per_request),
            context_switches: of(|m| m.context_switches_per_request),
            rss_bytes: of(|m| Some(m.rss_bytes as f64)),
            rss_per_idle_bytes: of(rss),
            rss_per_unused_bytes: of(silent),
            latency_p50_ns: of(|m| m.latency_p50_ns),
            latency_p99_ns: of(|m| m.latency_p99_ns),
            cpu_vs_reference: self.reference_ratios(reference, cpu),
            instructions_vs_reference: self.reference_ratios(reference, instructions),
            rss_per_idle_vs_reference: self.reference_ratios(reference, rss),
            rss_per_unused_vs_reference: self.reference_ratios(reference, silent),
            cpu_vs_no_idle: to(no_idle, cpu),
            instructions_vs_no_idle: to(no_idle, instructions),
        }
    }
}
