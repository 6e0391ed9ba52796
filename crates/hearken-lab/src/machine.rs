//! Description of the machine and placement of processes on its processors.

use procfs::{CpuInfo, Current, Meminfo};
use rustix::thread::{CpuSet, sched_getaffinity};
use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::experiment::PlacementRule;
use crate::units::{mebibytes, number};

/// Hardware and kernel of the machine. The host name is not recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Model name of the processor; "unknown" if the kernel does not report it.
    pub cpu: String,
    /// Number of processors this process may use.
    pub processors: usize,
    /// Total memory in bytes.
    pub memory_bytes: u64,
    /// Kernel name, release, version and architecture.
    pub kernel: String,
    /// Evidence of a virtual machine; none if not detected.
    pub virtualisation: Option<String>,
}

impl Machine {
    /// Collects the description. Values that are not readable are "unknown" or zero.
    pub fn detect() -> Machine {
        let cpuinfo = CpuInfo::current().ok();
        let model = cpuinfo.as_ref().and_then(|c| c.model_name(0)).unwrap_or("unknown");
        let flagged = cpuinfo
            .as_ref()
            .and_then(|c| c.flags(0))
            .is_some_and(|flags| flags.contains(&"hypervisor"));
        let uname = rustix::system::uname();
        let words = [uname.sysname(), uname.release(), uname.version(), uname.machine()];
        Machine {
            cpu: model.to_string(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: Meminfo::current().map_or(0, |m| m.mem_total),
            kernel: words.map(|w| w.to_string_lossy().into_owned()).join(" "),
            virtualisation: virtualisation(flagged),
        }
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let plural = if self.processors == 1 { "" } else { "s" };
        let memory = number(mebibytes(self.memory_bytes as f64) / 1024.0);
        write!(f, "{}, {} processor{plural}, {memory} GiB", self.cpu, self.processors)?;
        write!(f, "; {}", self.kernel)
    }
}

fn virtualisation(flagged: bool) -> Option<String> {
    let dmi = |name| {
        let text = std::fs::read_to_string(format!("/sys/class/dmi/id/{name}")).ok()?;
        Some(text.trim().to_string()).filter(|t| !t.is_empty())
    };
    let product = || {
        let named: Vec<_> = ["sys_vendor", "product_name"].into_iter().filter_map(dmi).collect();
        if named.is_empty() { String::new() } else { format!(" ({})", named.join(" ")) }
    };
    flagged.then(|| format!("the processor reports a hypervisor{}", product()))
}

/// Processors of the server and of all other processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Processors of the server.
    pub server: Vec<usize>,
    /// Processors of the load generator and the lab.
    pub others: Vec<usize>,
}

impl Placement {
    /// Assigns the first allowed processor to the server and the others to all other processes.
    ///
    /// If only one processor is allowed, all processes share it.
    pub fn choose() -> Result<Placement, LabError> {
        let allowed = sched_getaffinity(None).map_err(|e| LabError::System {
            action: "query the allowed processors (sched_getaffinity)".into(),
            source: e.into(),
        })?;
        Ok(Placement::split((0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect()))
    }

    /// Returns the processors of a server and of its load generator.
    pub(crate) fn processors(&self, rule: PlacementRule) -> [Vec<usize>; 2] {
        let mut all: Vec<usize> = self.server.iter().chain(&self.others).copied().collect();
        match rule {
            PlacementRule::Apart => [self.server.clone(), self.others.clone()],
            PlacementRule::Together => [self.server.clone(), self.server.clone()],
            PlacementRule::Halves if self.is_shared() => [self.server.clone(), self.others.clone()],
            PlacementRule::Halves => {
                let others = all.split_off(all.len() / 2);
                [all, others]
            }
        }
    }

    fn split(mut allowed: Vec<usize>) -> Placement {
        let others = if allowed.len() > 1 { allowed.split_off(1) } else { allowed.clone() };
        Placement { server: allowed, others }
    }

    /// Returns whether the server shares its processor with the load generator.
    pub fn is_shared(&self) -> bool {
        self.server == self.others
    }
}

/// Converts processor numbers to a set for the kernel.
pub(crate) fn cpu_set(cpus: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        set.set(cpu);
    }
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detects_this_machine() {
        let machine = Machine::detect();
        assert!(machine.kernel.starts_with("Linux "), "{machine:?}");
        assert!(machine.memory_bytes > 1 << 20 && machine.processors >= 1);
    }

    #[test]
    fn server_gets_the_first_processor_exclusively() {
        let placed = Placement::split(vec![2, 3, 5]);
        assert_eq!(placed, Placement { server: vec![2], others: vec![3, 5] });
        assert!(!placed.is_shared());
        let placed = Placement::split(vec![1, 2, 3, 4]);
        assert_eq!(placed.processors(PlacementRule::Halves), [vec![1, 2], vec![3, 4]]);
        assert_eq!(placed.processors(PlacementRule::Together), [vec![1], vec![1]]);
        assert!(Placement::split(vec![4]).is_shared());
        assert!(!Placement::choose().unwrap().server.is_empty());
    }
}
