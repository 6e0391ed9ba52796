//! Summary of the samples: one cell for each mechanism and number of idle connections.

use serde::{Deserialize, Serialize};

use crate::plan::Settings;
use crate::results::{Measurement, Sample};
use crate::stats::{Estimate, Ratio, estimate, ratio};

/// Statistics of a mechanism with a number of idle connections, over all repetitions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Mechanism of the server.
    pub mechanism: String,
    /// Number of idle connections.
    pub idle: u64,
    /// Number of samples.
    pub samples: usize,
    /// Number of samples in which the server was saturated.
    pub saturated: usize,
    /// Failed requests in all samples.
    pub errors: u64,
    /// CPU time per request, in nanoseconds.
    pub cpu_ns: Option<Estimate>,
    /// CPU time in user mode per request, in nanoseconds.
    pub cpu_user_ns: Option<Estimate>,
    /// CPU time in the kernel per request, in nanoseconds.
    pub cpu_system_ns: Option<Estimate>,
    /// Instructions per request.
    pub instructions: Option<Estimate>,
    /// Instructions per request in user mode.
    pub instructions_user: Option<Estimate>,
    /// Instructions per request in the kernel.
    pub instructions_kernel: Option<Estimate>,
    /// System calls per request.
    pub syscalls: Option<Estimate>,
    /// CPU time per connection that carries a single request, in nanoseconds.
    pub cpu_per_connection_ns: Option<Estimate>,
    /// System calls per connection that carries a single request.
    pub syscalls_per_connection: Option<Estimate>,
    /// Instructions per connection that carries a single request.
    pub instructions_per_connection: Option<Estimate>,
    /// Context switches per request.
    pub context_switches: Option<Estimate>,
    /// Resident memory with the idle connections, in bytes.
    pub rss_bytes: Option<Estimate>,
    /// Growth of resident memory per idle connection, in bytes.
    pub rss_per_idle_bytes: Option<Estimate>,
    /// Replies per second.
    pub reply_rate: Option<Estimate>,
    /// Median latency, in nanoseconds.
    pub latency_p50_ns: Option<Estimate>,
    /// 99th percentile of latency, in nanoseconds.
    pub latency_p99_ns: Option<Estimate>,
    /// CPU time relative to the reference mechanism with as many idle connections; none for itself.
    pub cpu_vs_reference: Option<Ratio>,
    /// CPU time relative to the same mechanism without idle connections; none for itself.
    pub cpu_vs_no_idle: Option<Ratio>,
    /// Instructions relative to the reference mechanism.
    pub instructions_vs_reference: Option<Ratio>,
    /// Instructions relative to the same mechanism without idle connections.
    pub instructions_vs_no_idle: Option<Ratio>,
}

/// Summarises the samples by mechanism, in the order of the settings, and by idle connections.
pub(crate) fn summarise(settings: &Settings, samples: &[Sample]) -> Vec<Cell> {
    let mut cells = Vec::new();
    for mechanism in &settings.mechanisms {
        for &idle in &settings.idle {
            let group = Group::of(samples, mechanism, idle);
            if !group.0.is_empty() {
                // A cell is not compared with itself, because the two would not be independent.
                let others = |of: &str, at| match (of, at) == (mechanism.as_str(), idle) {
                    true => Group(Vec::new()),
                    false => Group::of(samples, of, at),
                };
                let reference = others(&settings.reference, idle);
                let no_idle = others(mechanism, 0);
                cells.push(group.cell(mechanism, idle, &reference, &no_idle));
            }
        }
    }
    cells
}

/// The measurements of one cell.
struct Group<'a>(Vec<&'a Measurement>);

impl<'a> Group<'a> {
    fn of(samples: &'a [Sample], mechanism: &str, idle: u64) -> Group<'a> {
        let matches = |s: &&Sample| s.mechanism == mechanism && s.idle == idle;
        Group(samples.iter().filter(matches).map(|s| &s.measured).collect())
    }

    fn values(&self, of: impl Fn(&Measurement) -> Option<f64>) -> Vec<f64> {
        self.0.iter().filter_map(|m| of(m)).collect()
    }

    fn cell(&self, mechanism: &str, idle: u64, reference: &Group<'_>, no_idle: &Group<'_>) -> Cell {
        let of = |get: fn(&Measurement) -> Option<f64>| estimate(self.values(get));
        let to = |other: &Group<'_>, get: fn(&Measurement) -> Option<f64>| {
            ratio(&self.values(get), &other.values(get))
        };
        let instructions = Measurement::instructions_per_request;
        Cell {
            mechanism: mechanism.into(),
            idle,
            samples: self.0.len(),
            saturated: self.0.iter().filter(|m| m.saturated).count(),
            errors: self.0.iter().map(|m| m.errors.total()).sum(),
            cpu_ns: of(|m| m.cpu_ns_per_request),
            cpu_user_ns: of(|m| m.cpu_user_ns_per_request),
            cpu_system_ns: of(|m| m.cpu_system_ns_per_request),
            instructions: of(instructions),
            instructions_user: of(|m| m.instructions_user_per_request),
            instructions_kernel: of(|m| m.instructions_kernel_per_request),
            syscalls: of(|m| m.syscalls_per_request),
            cpu_per_connection_ns: of(|m| m.cpu_ns_per_connection),
            syscalls_per_connection: of(|m| m.syscalls_per_connection),
            instructions_per_connection: of(|m| m.instructions_per_connection),
            context_switches: of(|m| m.context_switches_per_request),
            rss_bytes: of(|m| Some(m.rss_bytes as f64)),
            rss_per_idle_bytes: of(|m| m.rss_per_idle_bytes),
            reply_rate: of(|m| Some(m.reply_rate)),
            latency_p50_ns: of(|m| m.latency_p50_ns),
            latency_p99_ns: of(|m| m.latency_p99_ns),
            cpu_vs_reference: to(reference, |m| m.cpu_ns_per_request),
            cpu_vs_no_idle: to(no_idle, |m| m.cpu_ns_per_request),
            instructions_vs_reference: to(reference, instructions),
            instructions_vs_no_idle: to(no_idle, instructions),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Trial;

    fn sample(mechanism: &str, idle: u64, repetition: u32, cpu: f64) -> Sample {
        let trial = Trial { mechanism: mechanism.into(), idle, repetition, order: 0 };
        let measured = Measurement {
            cpu_ns_per_request: Some(cpu),
            saturated: cpu > 1000.0,
            ..Measurement::default()
        };
        Sample::new(&trial, measured)
    }

    #[test]
    fn cells_summarise_their_own_samples() {
        let settings = Settings {
            mechanisms: vec!["poll".into(), "epoll-edge".into(), "absent".into()],
            idle: vec![0, 100],
            ..Settings::default()
        };
        let samples = [
            sample("epoll-edge", 0, 0, 100.0),
            sample("poll", 100, 0, 1990.0),
            sample("poll", 0, 0, 200.0),
            sample("epoll-edge", 100, 0, 100.0),
            sample("poll", 100, 1, 2010.0),
        ];
        let cells = summarise(&settings, &samples);
        let names: Vec<_> = cells.iter().map(|c| (c.mechanism.as_str(), c.idle)).collect();
        assert_eq!(names, [("poll", 0), ("poll", 100), ("epoll-edge", 0), ("epoll-edge", 100)]);
        let poll = &cells[1];
        assert_eq!((poll.samples, poll.saturated), (2, 2));
        assert_eq!(poll.cpu_ns.unwrap().mean, 2000.0);
        assert!((poll.cpu_vs_reference.unwrap().ratio - 20.0).abs() < 0.01);
        assert!((poll.cpu_vs_no_idle.unwrap().ratio - 10.0).abs() < 0.01);
        assert!(cells[3].cpu_vs_reference.is_none() && cells[2].cpu_vs_no_idle.is_none());
        assert!(poll.instructions.is_none() && poll.instructions_vs_reference.is_none());
    }
}
