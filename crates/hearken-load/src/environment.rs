//! Inputs of a load besides its settings: limits of the machine, random numbers, CPU time.

use std::fs;
use std::ops::RangeInclusive;
use std::time::Duration;

use hearken::descriptors::{self, Table};
use hearken::mechanism::Unavailable;
use rustix::time::{ClockId, clock_gettime};

/// The environment of a load.
#[derive(Debug)]
pub(crate) struct Environment {
    /// Maximum number of open files of each descriptor table.
    pub(crate) descriptors: u64,
    /// Range of ephemeral ports, if it is known.
    pub(crate) ports: Option<RangeInclusive<u16>>,
    /// Returns the available memory in bytes, if it is known.
    pub(crate) available_memory: fn() -> Option<u64>,
    /// Checks whether threads can have a descriptor table.
    pub(crate) probe_table: fn(Table) -> Result<(), Unavailable>,
    /// Returns the CPU time of the current thread so far.
    pub(crate) cpu_time: fn() -> Duration,
    /// Random numbers for what the settings leave open.
    pub(crate) random: fastrand::Rng,
}

impl Environment {
    /// Returns the environment of this process. Raises the limit of open files as far as possible.
    pub(crate) fn of_process() -> Environment {
        Environment {
            descriptors: descriptors::raise_limit().unwrap_or(u64::MAX),
            ports: port_range(),
            available_memory,
            probe_table: Table::probe,
            cpu_time: thread_cpu_time,
            random: fastrand::Rng::new(),
        }
    }
}

/// Returns the kernel's range of ephemeral ports, if it is known.
pub(crate) fn port_range() -> Option<RangeInclusive<u16>> {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
    let mut ends = range.split_whitespace().map(str::parse);
    Some(ends.next()?.ok()?..=ends.next()?.ok()?)
}

/// Returns the available memory in bytes (proc_meminfo(5)), if it is known.
fn available_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// Returns the CPU time of this thread so far.
fn thread_cpu_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_available_memory_is_known() {
        assert!(super::available_memory().is_some_and(|bytes| bytes > 1 << 20));
    }
}
