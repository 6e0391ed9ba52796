//! Resource usage of the server during the load. The data is set by a monitor that can observe the
//! server's processes.

use serde::{Deserialize, Serialize};

mod summary;

/// The resource usage of a monitored server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Server {
    /// Monitored target, as specified.
    pub target: String,
    /// Maximum number of processes.
    pub processes: u64,
    /// Number of monitored processes that exited during the run.
    pub exited_processes: u64,
    /// Time at which the last process had exited, in seconds from the start, or `None` if a process
    /// was running at the end.
    pub exited_at_s: Option<f64>,
    /// One sample per interval, the first at the start and the last at the end.
    pub samples: Vec<ServerSample>,
    /// Usage over the full run.
    pub total: ServerUsage,
    /// CPU time of the monitor itself, in nanoseconds. It is not part of the server's.
    pub monitor_cpu_ns: u64,
    /// Unavailable values, each with the source, the error of the kernel and the remedy.
    pub unavailable: Vec<String>,
}

/// A sample of the server's usage. Times and counts are cumulative from the start of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerSample {
    /// Seconds from the start.
    pub offset_s: f64,
    /// Number of processes.
    pub processes: u64,
    /// Number of threads.
    pub threads: Option<u64>,
    /// CPU time in nanoseconds.
    pub cpu_ns: Option<u64>,
    /// User CPU time in nanoseconds. The resolution for processes is 10 ms.
    pub user_ns: Option<u64>,
    /// System CPU time in nanoseconds. The resolution for processes is 10 ms.
    pub system_ns: Option<u64>,
    /// Time for which runnable threads waited for a processor, in nanoseconds.
    pub run_delay_ns: Option<u64>,
    /// Instructions in user and kernel mode.
    pub instructions: Option<u64>,
    /// Instructions in user mode.
    pub user_instructions: Option<u64>,
    /// Cycles in user and kernel mode.
    pub cycles: Option<u64>,
    /// Resident memory in bytes. Memory shared by several processes counts for each. Socket buffers
    /// are kernel memory and not included.
    pub resident_bytes: Option<u64>,
    /// Memory charged to the control group in bytes, including page cache and socket buffers.
    pub memory_bytes: Option<u64>,
    /// Voluntary context switches: a thread waited for something.
    pub voluntary_context_switches: Option<u64>,
    /// Involuntary context switches: a thread was preempted.
    pub involuntary_context_switches: Option<u64>,
    /// Number of sockets. A socket with several descriptors counts once. With very many open
    /// descriptors the number is an estimate: all descriptors except the number of non-sockets at
    /// the start.
    pub sockets: Option<u64>,
    /// Number of descriptors in all tables.
    pub descriptors: Option<u64>,
    /// System calls.
    pub syscalls: Option<u64>,
}

/// The server's usage over the full run. Times and counts are differences between the first and the
/// last sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerUsage {
    /// Monitored time in seconds.
    pub duration_s: f64,
    /// Mean number of busy processors: CPU time divided by elapsed time.
    pub cores: Option<f64>,
    /// CPU time in nanoseconds.
    pub cpu_ns: Option<u64>,
    /// User CPU time in nanoseconds.
    pub user_ns: Option<u64>,
    /// System CPU time in nanoseconds.
    pub system_ns: Option<u64>,
    /// Time for which runnable threads waited for a processor, in nanoseconds.
    pub run_delay_ns: Option<u64>,
    /// Instructions in user and kernel mode.
    pub instructions: Option<u64>,
    /// Instructions in user mode.
    pub user_instructions: Option<u64>,
    /// Cycles in user and kernel mode.
    pub cycles: Option<u64>,
    /// Voluntary context switches: a thread waited for something.
    pub voluntary_context_switches: Option<u64>,
    /// Involuntary context switches: a thread was preempted.
    pub involuntary_context_switches: Option<u64>,
    /// System calls.
    pub syscalls: Option<u64>,
    /// Maximum resident memory of all samples, in bytes.
    pub peak_resident_bytes: Option<u64>,
    /// Maximum memory charged to the control group of all samples, in bytes.
    pub peak_memory_bytes: Option<u64>,
    /// Maximum number of sockets of all samples.
    pub peak_sockets: Option<u64>,
    /// Maximum number of descriptors of all samples.
    pub peak_descriptors: Option<u64>,
    /// Maximum number of threads of all samples.
    pub peak_threads: Option<u64>,
}

impl ServerSample {
    /// Returns the mean number of busy processors since `earlier`.
    pub fn cores_since(&self, earlier: &ServerSample) -> Option<f64> {
        let used = self.cpu_ns?.saturating_sub(earlier.cpu_ns?);
        let seconds = self.offset_s - earlier.offset_s;
        (seconds > 0.0).then(|| used as f64 / 1e9 / seconds)
    }
}

impl ServerUsage {
    /// Summarises `samples`.
    pub fn from_samples(samples: &[ServerSample]) -> ServerUsage {
        let (Some(first), Some(last)) = (samples.first(), samples.last()) else {
            return ServerUsage::default();
        };
        let used = |count: fn(&ServerSample) -> Option<u64>| {
            count(first).zip(count(last)).map(|(first, last)| last.saturating_sub(first))
        };
        let peak = |level: fn(&ServerSample) -> Option<u64>| samples.iter().filter_map(level).max();
        ServerUsage {
            duration_s: last.offset_s - first.offset_s,
            cores: last.cores_since(first),
            cpu_ns: used(|s| s.cpu_ns),
            user_ns: used(|s| s.user_ns),
            system_ns: used(|s| s.system_ns),
            run_delay_ns: used(|s| s.run_delay_ns),
            instructions: used(|s| s.instructions),
            user_instructions: used(|s| s.user_instructions),
            cycles: used(|s| s.cycles),
            voluntary_context_switches: used(|s| s.voluntary_context_switches),
            involuntary_context_switches: used(|s| s.involuntary_context_switches),
            syscalls: used(|s| s.syscalls),
            peak_resident_bytes: peak(|s| s.resident_bytes),
            peak_memory_bytes: peak(|s| s.memory_bytes),
            peak_sockets: peak(|s| s.sockets),
            peak_descriptors: peak(|s| s.descriptors),
            peak_threads: peak(|s| s.threads),
        }
    }

    /// Returns the number of voluntary and involuntary context switches.
    pub fn context_switches(&self) -> Option<u64> {
        Some(self.voluntary_context_switches? + self.involuntary_context_switches?)
    }

    /// Returns the CPU time per request in nanoseconds, or `None` without requests.
    pub fn cpu_ns_per(&self, requests: u64) -> Option<f64> {
        per(self.cpu_ns, requests)
    }

    /// Returns the instructions per request in both modes.
    pub fn instructions_per(&self, requests: u64) -> Option<f64> {
        per(self.instructions, requests)
    }

    /// Returns the user-mode instructions per request.
    pub fn user_instructions_per(&self, requests: u64) -> Option<f64> {
        per(self.user_instructions, requests)
    }

    /// Returns the cycles per request.
    pub fn cycles_per(&self, requests: u64) -> Option<f64> {
        per(self.cycles, requests)
    }

    /// Returns the system calls per request.
    pub fn syscalls_per(&self, requests: u64) -> Option<f64> {
        per(self.syscalls, requests)
    }

    /// Returns the context switches of both kinds per request.
    pub fn context_switches_per(&self, requests: u64) -> Option<f64> {
        per(self.context_switches(), requests)
    }
}

fn per(count: Option<u64>, requests: u64) -> Option<f64> {
    count.filter(|_| requests > 0).map(|count| count as f64 / requests as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(offset_s: f64, cpu_ns: u64, sockets: u64) -> ServerSample {
        ServerSample {
            offset_s,
            processes: 2,
            cpu_ns: Some(cpu_ns),
            user_ns: Some(cpu_ns / 4),
            system_ns: Some(cpu_ns / 4 * 3),
            sockets: Some(sockets),
            resident_bytes: Some(sockets * 1_000_000),
            ..ServerSample::default()
        }
    }

    pub(super) fn watched() -> Server {
        let samples =
            vec![sample(0.5, 100, 3), sample(1.5, 500_000_100, 40), sample(2.5, 1_000_000_100, 4)];
        let total = ServerUsage::from_samples(&samples);
        let target = "nginx.service".to_owned();
        Server { target, processes: 2, samples, total, ..Server::default() }
    }

    #[test]
    fn totals_are_differences_and_peaks() {
        let server = watched();
        let total = &server.total;
        assert_eq!((total.duration_s, total.cpu_ns), (2.0, Some(1_000_000_000)));
        assert_eq!(total.cores, Some(0.5));
        assert_eq!((total.peak_sockets, total.peak_resident_bytes), (Some(40), Some(40_000_000)));
        assert_eq!((total.instructions, total.peak_descriptors), (None, None));
        assert_eq!(server.samples[2].cores_since(&server.samples[1]), Some(0.5));
        assert_eq!(server.samples[1].cores_since(&server.samples[1]), None);
        assert_eq!(total.cpu_ns_per(1_000), Some(1e6));
        assert_eq!((total.cpu_ns_per(0), total.syscalls_per(5)), (None, None));
        assert_eq!(ServerUsage::from_samples(&[]), ServerUsage::default());
    }

    #[test]
    fn json_round_trips_and_tolerates_other_versions() {
        let server = watched();
        let text = serde_json::to_string(&server).unwrap();
        assert_eq!(serde_json::from_str::<Server>(&text).unwrap(), server);
        // A later version may have additional fields, an earlier one may lack some.
        let other: Server = serde_json::from_str(r#"{"target":"x","new":1}"#).unwrap();
        assert_eq!(other.target, "x");
    }
}
