//! Resource usage of a process according to `/proc`.

use std::ops::Add;

use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use procfs::process::{Process, Task};
use procfs::{ProcError, ProcResult};

use crate::error::LabError;

/// A process whose resource usage is measured.
#[derive(Debug)]
pub(crate) struct ProcessAccounting {
    process: Process,
}

/// Resource usage of a process at one time. CPU time includes threads that have exited; the other
/// values do not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// CPU time in nanoseconds.
    pub cpu_ns: u64,
    /// CPU time in user mode, with a resolution of 10 ms.
    pub user_ns: u64,
    /// CPU time in the kernel, with a resolution of 10 ms.
    pub system_ns: u64,
    /// Time that threads were runnable but waited for a processor.
    pub(crate) wait_ns: u64,
    /// Number of voluntary context switches.
    pub voluntary: u64,
    /// Number of involuntary context switches.
    pub involuntary: u64,
}

/// Values that the kernel accounts to a process as a whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessTotals {
    /// Start time in clock ticks since boot. Together with the pid, it identifies the process.
    pub start_time: u64,
    /// Process id of the parent.
    pub parent: i32,
    /// Number of threads.
    pub threads: u64,
    /// Whether the process has exited but was not reaped.
    pub zombie: bool,
    /// CPU time of the process.
    pub usage: Usage,
    /// CPU time of descendants that have exited and were reaped, with a resolution of clock ticks.
    pub reaped_children: Usage,
}

impl Usage {
    /// Returns the number of context switches of both kinds.
    pub(crate) fn context_switches(&self) -> u64 {
        self.voluntary + self.involuntary
    }

    /// Returns the usage since `earlier`.
    pub(crate) fn since(&self, earlier: &Usage) -> Usage {
        Usage {
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            user_ns: self.user_ns.saturating_sub(earlier.user_ns),
            system_ns: self.system_ns.saturating_sub(earlier.system_ns),
            wait_ns: self.wait_ns.saturating_sub(earlier.wait_ns),
            voluntary: self.voluntary.saturating_sub(earlier.voluntary),
            involuntary: self.involuntary.saturating_sub(earlier.involuntary),
        }
    }
}

impl Usage {
    /// Returns the maximum of each value.
    pub(crate) fn max(&self, other: &Usage) -> Usage {
        Usage {
            cpu_ns: self.cpu_ns.max(other.cpu_ns),
            user_ns: self.user_ns.max(other.user_ns),
            system_ns: self.system_ns.max(other.system_ns),
            wait_ns: self.wait_ns.max(other.wait_ns),
            voluntary: self.voluntary.max(other.voluntary),
            involuntary: self.involuntary.max(other.involuntary),
        }
    }
}

impl Add for Usage {
    type Output = Usage;

    fn add(self, other: Usage) -> Usage {
        Usage {
            cpu_ns: self.cpu_ns + other.cpu_ns,
            user_ns: self.user_ns + other.user_ns,
            system_ns: self.system_ns + other.system_ns,
            wait_ns: self.wait_ns + other.wait_ns,
            voluntary: self.voluntary + other.voluntary,
            involuntary: self.involuntary + other.involuntary,
        }
    }
}

impl ProcessAccounting {
    /// Opens the accounting of a process.
    pub(crate) fn open(pid: i32) -> Result<ProcessAccounting, LabError> {
        ProcessAccounting::try_open(pid).map_err(|source| LabError::Accounting { pid, source })
    }

    /// Opens the accounting of a process. Returns the error of `/proc`.
    pub(crate) fn try_open(pid: i32) -> ProcResult<ProcessAccounting> {
        Ok(ProcessAccounting { process: Process::new(pid)? })
    }

    /// Returns the usage of the process and all its threads.
    pub(crate) fn usage(&self) -> Result<Usage, LabError> {
        self.with_pid(self.read_usage())
    }

    /// Returns the resident memory in bytes (`VmRSS`). Excludes sockets, which are kernel memory.
    pub(crate) fn rss_bytes(&self) -> Result<u64, LabError> {
        let status = self.with_pid(self.process.status())?;
        Ok(status.vmrss.unwrap_or(0) * 1024)
    }

    /// Returns the resident memory in bytes, exact to the page, if permitted. `VmRSS` may lag by dozens
    /// of pages per processor; the sum over the mappings does not, but needs ptrace permission.
    pub(crate) fn exact_rss_bytes(&self) -> Result<u64, LabError> {
        let rollup = self.process.smaps_rollup().ok();
        let rss =
            rollup.and_then(|r| r.memory_map_rollup.0.first()?.extension.map.get("Rss").copied());
        rss.map_or_else(|| self.rss_bytes(), Ok)
    }

    /// Returns the number of descriptors in the largest table. A worker has its own table.
    pub(crate) fn count_descriptors(&self) -> Result<u64, LabError> {
        let mut max = 0;
        for thread in self.threads()? {
            // The table of a thread that has exited counts as empty.
            let table = format!("/proc/{}/task/{thread}/fd", self.process.pid);
            max = max.max(std::fs::read_dir(table).map_or(0, Iterator::count));
        }
        Ok(max as u64)
    }

    /// Returns the thread ids.
    pub(crate) fn threads(&self) -> Result<Vec<i32>, LabError> {
        let tasks = self.with_pid(self.process.tasks())?;
        Ok(tasks.filter_map(|task| task.ok().map(|t| t.tid)).collect())
    }

    fn read_usage(&self) -> ProcResult<Usage> {
        let totals = self.totals()?.usage;
        let threads = self.thread_usage()?;
        Ok(threads.into_iter().map(|(_, used)| used).fold(totals, Usage::add))
    }

    /// Returns the values that the kernel accounts to the process as a whole.
    pub(crate) fn totals(&self) -> ProcResult<ProcessTotals> {
        let ns = |ticks: u64| ticks * (1_000_000_000 / procfs::ticks_per_second());
        let stat = self.process.stat()?;
        let (user_ns, system_ns) = (ns(stat.utime), ns(stat.stime));
        let cpu_ns = self.cpu_clock_ns().unwrap_or(user_ns + system_ns);
        let waited_for = |ticks: i64| ns(ticks.max(0).cast_unsigned());
        let (user, system) = (waited_for(stat.cutime), waited_for(stat.cstime));
        Ok(ProcessTotals {
            start_time: stat.starttime,
            parent: stat.ppid,
            threads: stat.num_threads.max(0).cast_unsigned(),
            zombie: matches!(stat.state, 'Z' | 'X'),
            usage: Usage { cpu_ns, user_ns, system_ns, ..Usage::default() },
            reaped_children: Usage {
                cpu_ns: user + system,
                user_ns: user,
                system_ns: system,
                ..Usage::default()
            },
        })
    }

    /// Returns the usage of each thread, without the CPU time, which is included in the totals.
    pub(crate) fn thread_usage(&self) -> ProcResult<Vec<(i32, Usage)>> {
        let mut each = Vec::new();
        for task in self.process.tasks()? {
            match task.and_then(|t| Ok((t.tid, read_task(&t)?))) {
                Ok(thread) => each.push(thread),
                // A thread may exit between the listing and the reading.
                Err(ProcError::NotFound(_)) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(each)
    }

    /// Returns the CPU clock of the process, which includes threads that have exited.
    fn cpu_clock_ns(&self) -> Option<u64> {
        let clock = clock_getcpuclockid(Pid::from_raw(self.process.pid)).ok()?;
        let time = clock_gettime(clock).ok()?;
        Some(time.tv_sec().cast_unsigned() * 1_000_000_000 + time.tv_nsec().cast_unsigned())
    }

    fn with_pid<T>(&self, result: ProcResult<T>) -> Result<T, LabError> {
        result.map_err(|source| LabError::Accounting { pid: self.process.pid, source })
    }
}

fn read_task(task: &Task) -> ProcResult<Usage> {
    let (status, scheduled) = (task.status()?, task.schedstat()?);
    Ok(Usage {
        wait_ns: scheduled.run_delay,
        voluntary: status.voluntary_ctxt_switches.unwrap_or(0),
        involuntary: status.nonvoluntary_ctxt_switches.unwrap_or(0),
        ..Usage::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_the_cpu_time_of_this_process() {
        let accounting = ProcessAccounting::open(std::process::id().cast_signed()).unwrap();
        let before = accounting.usage().unwrap();
        assert!(accounting.rss_bytes().unwrap() > 100_000);
        assert!(accounting.count_descriptors().unwrap() >= 3);
        assert!(!accounting.threads().unwrap().is_empty());
        // The accounting must advance, at the latest at the next tick.
        let mut x = 1u64;
        while accounting.usage().unwrap().since(&before).cpu_ns < 1_000_000 {
            for _ in 0..10_000 {
                x = std::hint::black_box(x.wrapping_mul(3));
            }
        }
    }

    #[test]
    fn differences_are_never_negative() {
        let more =
            Usage { cpu_ns: 5, user_ns: 5, system_ns: 5, wait_ns: 5, voluntary: 5, involuntary: 5 };
        assert_eq!(Usage::default().since(&more), Usage::default());
        assert_eq!(more.since(&Usage::default()), more);
    }

    #[test]
    fn missing_process_is_an_error_with_its_pid() {
        let error = ProcessAccounting::open(i32::MAX).unwrap_err().to_string();
        assert!(error.contains(&i32::MAX.to_string()), "{error}");
    }
}
