//! What the server paid for the load, seen from its side: the data. Whoever can look at the server's
//! processes fills it in.

use serde::{Deserialize, Serialize};

mod summary;

/// What a watched server used while the load ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Server {
    /// What was watched, as it was asked for.
    pub what: String,
    /// The most processes that it was at a time.
    pub processes: u64,
    /// Watched processes that ended during the run.
    pub ended: u64,
    /// When the last of them had ended, in seconds since the start; none if there were some to the
    /// end.
    pub gone_at_s: Option<f64>,
    /// One for each interval, the first at the start and the last at the end.
    pub samples: Vec<ServerSample>,
    /// What it was altogether.
    pub total: ServerUse,
    /// CPU time that the watching itself took, in nanoseconds: not the server's.
    pub watching_ns: u64,
    /// What could not be had, in sentences: the source, what the kernel answered, what would allow it.
    pub not_had: Vec<String>,
}

/// The server at one moment. Times and counts are since the start, so that those of an interval are
/// the difference of its two ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerSample {
    /// Seconds since the start.
    pub at_s: f64,
    /// Processes at this moment.
    pub processes: u64,
    /// Threads at this moment.
    pub threads: Option<u64>,
    /// CPU time, in nanoseconds.
    pub cpu_ns: Option<u64>,
    /// CPU time in user mode, in nanoseconds; of processes it is in steps of 10 ms.
    pub user_ns: Option<u64>,
    /// CPU time in the kernel, in nanoseconds; of processes it is in steps of 10 ms.
    pub system_ns: Option<u64>,
    /// Time that threads were ready to run and waited for a processor, in nanoseconds.
    pub wait_ns: Option<u64>,
    /// Instructions, in user mode and in the kernel.
    pub instructions: Option<u64>,
    /// Instructions in user mode alone.
    pub user_instructions: Option<u64>,
    /// Cycles, in user mode and in the kernel.
    pub cycles: Option<u64>,
    /// Resident memory in bytes at this moment; what several processes share counts for each.
    /// Sockets' buffers are kernel memory and not in it.
    pub resident_bytes: Option<u64>,
    /// What a control group is charged for in bytes at this moment: with its page cache, and with its
    /// sockets' buffers.
    pub memory_bytes: Option<u64>,
    /// Times that a thread waited for something.
    pub voluntary_context_switches: Option<u64>,
    /// Times that a thread lost the processor to another.
    pub involuntary_context_switches: Option<u64>,
    /// Sockets at this moment: one that several descriptors refer to is one. Where very many
    /// descriptors are open, they are taken for sockets but for as many as were none at first.
    pub sockets: Option<u64>,
    /// Descriptors at this moment, in all tables.
    pub descriptors: Option<u64>,
    /// System calls.
    pub syscalls: Option<u64>,
}

/// What the server used over the whole run. Times and counts are differences, from the first sample
/// to the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerUse {
    /// How long it was watched, in seconds.
    pub elapsed_s: f64,
    /// Processors that were busy with it, in the mean: CPU time over elapsed time.
    pub cores: Option<f64>,
    /// CPU time, in nanoseconds.
    pub cpu_ns: Option<u64>,
    /// CPU time in user mode, in nanoseconds.
    pub user_ns: Option<u64>,
    /// CPU time in the kernel, in nanoseconds.
    pub system_ns: Option<u64>,
    /// Time that threads were ready to run and waited for a processor, in nanoseconds.
    pub wait_ns: Option<u64>,
    /// Instructions, in user mode and in the kernel.
    pub instructions: Option<u64>,
    /// Instructions in user mode alone.
    pub user_instructions: Option<u64>,
    /// Cycles, in user mode and in the kernel.
    pub cycles: Option<u64>,
    /// Times that a thread waited for something.
    pub voluntary_context_switches: Option<u64>,
    /// Times that a thread lost the processor to another.
    pub involuntary_context_switches: Option<u64>,
    /// System calls.
    pub syscalls: Option<u64>,
    /// The most resident memory of all samples, in bytes.
    pub peak_resident_bytes: Option<u64>,
    /// The most that a control group was charged for in all samples, in bytes.
    pub peak_memory_bytes: Option<u64>,
    /// The most sockets of all samples.
    pub peak_sockets: Option<u64>,
    /// The most descriptors of all samples.
    pub peak_descriptors: Option<u64>,
    /// The most threads of all samples.
    pub peak_threads: Option<u64>,
}

impl ServerSample {
    /// Processors that were busy between `earlier` and this.
    pub fn cores_since(&self, earlier: &ServerSample) -> Option<f64> {
        let used = self.cpu_ns?.saturating_sub(earlier.cpu_ns?);
        let seconds = self.at_s - earlier.at_s;
        (seconds > 0.0).then(|| used as f64 / 1e9 / seconds)
    }
}

impl ServerUse {
    /// Sums up `samples`.
    pub fn of(samples: &[ServerSample]) -> ServerUse {
        let (Some(first), Some(last)) = (samples.first(), samples.last()) else {
            return ServerUse::default();
        };
        let used = |count: fn(&ServerSample) -> Option<u64>| {
            count(first).zip(count(last)).map(|(first, last)| last.saturating_sub(first))
        };
        let peak = |level: fn(&ServerSample) -> Option<u64>| samples.iter().filter_map(level).max();
        ServerUse {
            elapsed_s: last.at_s - first.at_s,
            cores: last.cores_since(first),
            cpu_ns: used(|s| s.cpu_ns),
            user_ns: used(|s| s.user_ns),
            system_ns: used(|s| s.system_ns),
            wait_ns: used(|s| s.wait_ns),
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

    /// Voluntary and involuntary context switches.
    pub fn context_switches(&self) -> Option<u64> {
        Some(self.voluntary_context_switches? + self.involuntary_context_switches?)
    }

    /// CPU time for each of `requests`, in nanoseconds; none for no requests.
    pub fn cpu_ns_per(&self, requests: u64) -> Option<f64> {
        per(self.cpu_ns, requests)
    }

    /// Instructions in both modes for each of `requests`.
    pub fn instructions_per(&self, requests: u64) -> Option<f64> {
        per(self.instructions, requests)
    }

    /// Instructions in user mode for each of `requests`.
    pub fn user_instructions_per(&self, requests: u64) -> Option<f64> {
        per(self.user_instructions, requests)
    }

    /// Cycles for each of `requests`.
    pub fn cycles_per(&self, requests: u64) -> Option<f64> {
        per(self.cycles, requests)
    }

    /// System calls for each of `requests`.
    pub fn syscalls_per(&self, requests: u64) -> Option<f64> {
        per(self.syscalls, requests)
    }

    /// Context switches of both kinds for each of `requests`.
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

    fn sample(at_s: f64, cpu_ns: u64, sockets: u64) -> ServerSample {
        ServerSample {
            at_s,
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
        let total = ServerUse::of(&samples);
        let what = "nginx.service".to_owned();
        Server { what, processes: 2, samples, total, ..Server::default() }
    }

    #[test]
    fn the_whole_is_the_difference_and_the_peaks() {
        let server = watched();
        let total = &server.total;
        assert_eq!((total.elapsed_s, total.cpu_ns), (2.0, Some(1_000_000_000)));
        assert_eq!(total.cores, Some(0.5));
        assert_eq!((total.peak_sockets, total.peak_resident_bytes), (Some(40), Some(40_000_000)));
        assert_eq!((total.instructions, total.peak_descriptors), (None, None));
        assert_eq!(server.samples[2].cores_since(&server.samples[1]), Some(0.5));
        assert_eq!(server.samples[1].cores_since(&server.samples[1]), None);
        assert_eq!(total.cpu_ns_per(1_000), Some(1e6));
        assert_eq!((total.cpu_ns_per(0), total.syscalls_per(5)), (None, None));
        assert_eq!(ServerUse::of(&[]), ServerUse::default());
    }

    #[test]
    fn it_comes_back_from_json() {
        let server = watched();
        let text = serde_json::to_string(&server).unwrap();
        assert_eq!(serde_json::from_str::<Server>(&text).unwrap(), server);
        // One of a later version has more, one of an earlier less.
        let other: Server = serde_json::from_str(r#"{"what":"x","new":1}"#).unwrap();
        assert_eq!(other.what, "x");
    }
}
