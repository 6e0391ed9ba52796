//! What a process has used so far, by the kernel's own accounting in `/proc`.

use procfs::process::{Process, Task};
use procfs::{ProcError, ProcResult};

use crate::error::LabError;

/// A process seen from outside.
#[derive(Debug)]
pub(crate) struct Meter {
    process: Process,
}

/// The accounts of a process at one moment; threads that ended before are not in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// CPU time, exact to the nanosecond while no thread runs, else to a scheduler tick.
    pub cpu_ns: u64,
    /// CPU time in user mode, in ticks of 10 ms.
    pub user_ns: u64,
    /// CPU time in the kernel, in ticks of 10 ms.
    pub system_ns: u64,
    /// Time that threads were ready to run and had to wait for a processor.
    pub(crate) wait_ns: u64,
    /// Times that a thread gave up the processor or lost it.
    pub context_switches: u64,
}

impl Usage {
    /// What was used since `earlier`.
    pub(crate) fn since(&self, earlier: &Usage) -> Usage {
        Usage {
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            user_ns: self.user_ns.saturating_sub(earlier.user_ns),
            system_ns: self.system_ns.saturating_sub(earlier.system_ns),
            wait_ns: self.wait_ns.saturating_sub(earlier.wait_ns),
            context_switches: self.context_switches.saturating_sub(earlier.context_switches),
        }
    }
}

impl Meter {
    /// Looks at the process `pid`.
    pub(crate) fn open(pid: i32) -> Result<Meter, LabError> {
        match Process::new(pid) {
            Ok(process) => Ok(Meter { process }),
            Err(source) => Err(LabError::Accounting { pid, source }),
        }
    }

    /// The sum over its threads.
    pub(crate) fn usage(&self) -> Result<Usage, LabError> {
        self.said(self.read_usage())
    }

    /// Resident memory in bytes (`VmRSS`). Sockets are kernel memory and not in it.
    pub(crate) fn resident(&self) -> Result<u64, LabError> {
        let status = self.said(self.process.status())?;
        Ok(status.vmrss.unwrap_or(0) * 1024)
    }

    /// How many descriptors are open.
    pub(crate) fn descriptors(&self) -> Result<u64, LabError> {
        Ok(self.said(self.process.fd_count())? as u64)
    }

    /// The ids of its threads.
    pub(crate) fn threads(&self) -> Result<Vec<i32>, LabError> {
        let tasks = self.said(self.process.tasks())?;
        Ok(tasks.filter_map(|task| task.ok().map(|t| t.tid)).collect())
    }

    fn read_usage(&self) -> ProcResult<Usage> {
        let mut sum = Usage::default();
        let ns_per_tick = 1_000_000_000 / procfs::ticks_per_second();
        let stat = self.process.stat()?;
        sum.user_ns = stat.utime * ns_per_tick;
        sum.system_ns = stat.stime * ns_per_tick;
        for task in self.process.tasks()? {
            match task.and_then(|t| read_task(&t)) {
                Ok(used) => {
                    sum.cpu_ns += used.cpu_ns;
                    sum.wait_ns += used.wait_ns;
                    sum.context_switches += used.context_switches;
                }
                // A thread may end between the listing and the reading.
                Err(ProcError::NotFound(_)) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(sum)
    }

    fn said<T>(&self, result: ProcResult<T>) -> Result<T, LabError> {
        result.map_err(|source| LabError::Accounting { pid: self.process.pid, source })
    }
}

fn read_task(task: &Task) -> ProcResult<Usage> {
    let (status, scheduled) = (task.status()?, task.schedstat()?);
    Ok(Usage {
        cpu_ns: scheduled.sum_exec_runtime,
        wait_ns: scheduled.run_delay,
        context_switches: status.voluntary_ctxt_switches.unwrap_or(0)
            + status.nonvoluntary_ctxt_switches.unwrap_or(0),
        ..Usage::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_sees_this_process_work() {
        let meter = Meter::open(std::process::id().cast_signed()).unwrap();
        let before = meter.usage().unwrap();
        assert!(meter.resident().unwrap() > 100_000);
        assert!(meter.descriptors().unwrap() >= 3);
        assert!(!meter.threads().unwrap().is_empty());
        // Work until the accounts move: they must, at the next tick.
        let mut x = 1u64;
        while meter.usage().unwrap().since(&before).cpu_ns < 1_000_000 {
            for _ in 0..10_000 {
                x = std::hint::black_box(x.wrapping_mul(3));
            }
        }
    }

    #[test]
    fn differences_never_go_below_nothing() {
        let more = Usage { cpu_ns: 5, user_ns: 5, system_ns: 5, wait_ns: 5, context_switches: 5 };
        assert_eq!(Usage::default().since(&more), Usage::default());
        assert_eq!(more.since(&Usage::default()), more);
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error_that_says_so() {
        let error = Meter::open(i32::MAX).unwrap_err().to_string();
        assert!(error.contains(&i32::MAX.to_string()), "{error}");
    }
}
