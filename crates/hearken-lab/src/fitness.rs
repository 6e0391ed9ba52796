//! Fitness of the machine for a run: requirements of experiments, and other activity.

use std::fs;
use std::time::Duration;

use hearken::descriptors;
use procfs::{CurrentSI, KernelStats};

use crate::experiment::{Experiment, Requirements};
use crate::network;
use crate::plan::{PlannedExperiment, RESERVED_DESCRIPTORS};
use crate::throttle::Throttle;
use crate::warning::Warning;

/// Time over which the activity of other processes is measured.
const SAMPLE_TIME: Duration = Duration::from_millis(300);
/// Number of busy processors above which the machine is not quiet.
const BUSY_PROCESSORS: f64 = 0.1;
/// Share of the ports for outgoing connections that may wait for their release (TIME_WAIT).
const BUSY_PORTS: f64 = 0.5;
/// Number of CAP_PERFMON, which eBPF programs for tracing need, and of CAP_BPF.
const EBPF_CAPABILITIES: [u32; 2] = [38, 39];

/// Returns the requirement that this machine does not meet.
pub(crate) fn unmet(experiment: &Experiment) -> Option<String> {
    if experiment.quota.is_some()
        && let Err(error) = Throttle::new(1.0)
    {
        return Some(format!("a CPU quota ({error})"));
    }
    if experiment.network.is_some()
        && let Some(reason) = network::unavailable()
    {
        return Some(format!("an emulated network ({reason})"));
    }
    unmet_requirement(&experiment.requires)
}

fn unmet_requirement(requires: &Requirements) -> Option<String> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let limit = descriptors::raise_limit().unwrap_or(u64::MAX);
    if processors < requires.processors {
        return Some(format!("{} processors, but {processors} are allowed", requires.processors));
    }
    if limit < requires.descriptors {
        let required = requires.descriptors;
        return Some(format!("{required} descriptors per process, but the limit is {limit}"));
    }
    let is_missing = requires.ebpf && !EBPF_CAPABILITIES.into_iter().all(has_capability);
    is_missing.then(|| "CAP_BPF and CAP_PERFMON".to_owned())
}

fn has_capability(number: u32) -> bool {
    let status = procfs::process::Process::myself().and_then(|process| process.status());
    status.is_ok_and(|status| status.capeff & (1 << number) != 0)
}

/// Returns warnings about the present state of the machine.
pub(crate) fn warnings(experiments: &[PlannedExperiment]) -> Vec<Warning> {
    let mut found = Vec::new();
    if let Some(busy) = busy_processors().filter(|&busy| busy > BUSY_PROCESSORS) {
        found.push(Warning::MachineBusy { processors: busy });
    }
    if let Some((waiting, ports)) = waiting_ports()
        && waiting as f64 > BUSY_PORTS * ports as f64
    {
        found.push(Warning::PortsInUse { waiting, ports });
    }
    let limit = descriptors::raise_limit().unwrap_or(u64::MAX);
    let idle = experiments.iter().map(PlannedExperiment::max_idle).max().unwrap_or(0);
    if idle > limit.saturating_sub(RESERVED_DESCRIPTORS) {
        found.push(Warning::IdleLimited { requested: idle, limit });
    }
    found
}

/// Returns how many processors other processes use.
fn busy_processors() -> Option<f64> {
    let busy = || {
        let total = KernelStats::current().ok()?.total;
        let busy = total.user + total.nice + total.system + total.irq.unwrap_or(0);
        Some(busy + total.softirq.unwrap_or(0))
    };
    let before = busy()?;
    std::thread::sleep(SAMPLE_TIME);
    let ticks = busy()?.saturating_sub(before) as f64;
    Some(ticks / procfs::ticks_per_second() as f64 / SAMPLE_TIME.as_secs_f64())
}

/// Returns the number of connections in TIME_WAIT, and of ports for outgoing connections.
fn waiting_ports() -> Option<(u64, u64)> {
    let sockets = fs::read_to_string("/proc/net/sockstat").ok()?;
    let mut words = sockets.lines().find(|line| line.starts_with("TCP:"))?.split_whitespace();
    words.by_ref().find(|&word| word == "tw")?;
    let waiting = words.next()?.parse().ok()?;
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
    let mut ends = range.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
    let (first, last) = (ends.next()?, ends.next()?);
    Some((waiting, last.saturating_sub(first) + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_is_described() {
        assert!(busy_processors().unwrap() >= 0.0);
        assert!(waiting_ports().unwrap().1 > 0);
        assert_eq!(unmet_requirement(&Requirements::default()), None);
        let many = Requirements { processors: 1 << 20, ..Requirements::default() };
        assert!(unmet_requirement(&many).unwrap().contains("processors"));
    }
}
