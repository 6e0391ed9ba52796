//! Resource usage of the watched processes since the start, including those that have exited.

use std::collections::HashMap;
use std::ops::Add;

use procfs::ProcError;

use crate::accounting::{ProcessAccounting, ProcessTotals, Usage};
use crate::error::LabError;

/// Maximum number of threads whose context switches are read. Each takes two files.
const MAX_THREADS: u64 = 512;

/// Usage of all watched processes.
#[derive(Debug, Default)]
pub(crate) struct UsageTracker {
    processes: HashMap<i32, ProcessUsage>,
    /// Usage of exited processes since the start.
    exited_usage: Usage,
    /// Usage that exited processes inherited from their children since the start.
    inherited_usage: Usage,
    /// Lifetime usage, including children, of exited processes whose parent is watched. The kernel
    /// adds the same usage to the parent.
    exited_lifetime: Usage,
    /// Number of processes that have exited since the start.
    pub(crate) exited: u64,
    /// Start of the measurement, in ticks since boot; none before the start.
    started: Option<u64>,
    /// Maximum usage returned so far, so that the usage never decreases.
    max_returned: Usage,
    /// Whether there are too many threads to read their context switches.
    pub(crate) too_many_threads: bool,
}

/// Usage of one process.
#[derive(Debug)]
struct ProcessUsage {
    start_time: u64,
    parent: i32,
    /// Own usage and usage of children at the start, or when first seen if the process is older.
    base: (Usage, Usage),
    totals: Usage,
    children: Usage,
    threads: HashMap<i32, Usage>,
    exited_threads: Usage,
}

/// Current state of all watched processes.
#[derive(Debug, Default)]
pub(crate) struct CurrentState {
    pub(crate) processes: u64,
    pub(crate) threads: u64,
    pub(crate) resident: u64,
    /// Error of a process that is not accessible.
    pub(crate) access_error: Option<LabError>,
}

impl ProcessUsage {
    fn usage(&self) -> Usage {
        let threads = self.threads.values().copied().fold(self.exited_threads, Usage::add);
        self.totals + threads
    }

    fn update(&mut self, totals: &ProcessTotals, threads: Option<Vec<(i32, Usage)>>) {
        (self.totals, self.children) = (totals.usage, totals.reaped_children);
        if let Some(threads) = threads {
            let mut previous = std::mem::replace(&mut self.threads, threads.into_iter().collect());
            previous.retain(|thread, _| !self.threads.contains_key(thread));
            let exited = previous.into_values().fold(Usage::default(), Usage::add);
            self.exited_threads = self.exited_threads + exited;
        }
    }
}

impl UsageTracker {
    /// Returns whether `pid` is known and has not exited.
    pub(crate) fn is_running(&self, pid: i32) -> bool {
        self.processes.contains_key(&pid)
    }

    /// Starts the measurement. `now` is the time since boot in ticks.
    pub(crate) fn start(&mut self, now: u64) {
        for process in self.processes.values_mut() {
            process.base = (process.usage(), process.children);
        }
        let processes = std::mem::take(&mut self.processes);
        *self = UsageTracker {
            processes,
            started: Some(now),
            too_many_threads: self.too_many_threads,
            ..UsageTracker::default()
        };
    }

    /// Reads the usage of `members`. Known processes that are missing from `members` have exited.
    /// Members that do not exist are ignored.
    pub(crate) fn read(&mut self, members: &[i32]) -> CurrentState {
        let mut state = CurrentState::default();
        let mut missing = std::mem::take(&mut self.processes);
        let mut exited = Vec::new();
        for &pid in members {
            let known = missing.remove(&pid);
            match read_process(pid, state.threads) {
                Ok((accounting, totals, threads)) => {
                    self.too_many_threads |= threads.is_none();
                    let mut process = match known {
                        Some(process) if process.start_time == totals.start_time => process,
                        // The pid was reused by another process.
                        other => {
                            exited.extend(other);
                            if totals.zombie {
                                continue;
                            }
                            self.track(&totals, threads.as_deref())
                        }
                    };
                    process.update(&totals, threads);
                    if totals.zombie {
                        exited.push(process);
                        continue;
                    }
                    state.processes += 1;
                    state.threads += totals.threads;
                    state.resident += accounting.rss_bytes().unwrap_or(0);
                    self.processes.insert(pid, process);
                }
                Err(ProcError::NotFound(_)) => exited.extend(known),
                Err(error) if has_exited(&error) => exited.extend(known),
                Err(source) => {
                    self.processes.extend(known.map(|process| (pid, process)));
                    state.access_error.get_or_insert(LabError::Accounting { pid, source });
                }
            }
        }
        for process in exited.into_iter().chain(missing.into_values()) {
            self.record_exit(&process);
        }
        state
    }

    fn track(&self, totals: &ProcessTotals, threads: Option<&[(i32, Usage)]>) -> ProcessUsage {
        let mut process = ProcessUsage {
            start_time: totals.start_time,
            parent: totals.parent,
            base: Default::default(),
            totals: totals.usage,
            children: totals.reaped_children,
            threads: threads.unwrap_or_default().iter().copied().collect(),
            exited_threads: Usage::default(),
        };
        if self.started.is_none_or(|started| totals.start_time < started) {
            process.base = (process.usage(), process.children);
        }
        process
    }

    fn record_exit(&mut self, process: &ProcessUsage) {
        let usage = process.usage();
        self.exited += 1;
        self.exited_usage = self.exited_usage + usage.since(&process.base.0);
        self.inherited_usage = self.inherited_usage + process.children.since(&process.base.1);
        if self.processes.contains_key(&process.parent) {
            self.exited_lifetime = self.exited_lifetime + process.totals + process.children;
        }
    }

    /// Returns the usage since the start. It includes children that existed only between two samples,
    /// because the kernel adds their usage to their parents.
    pub(crate) fn usage(&mut self) -> Usage {
        let (mut usage, mut from_children) = (self.exited_usage, self.inherited_usage);
        for process in self.processes.values() {
            usage = usage + process.usage().since(&process.base.0);
            from_children = from_children + process.children.since(&process.base.1);
        }
        self.max_returned =
            self.max_returned.max(&(usage + from_children.since(&self.exited_lifetime)));
        self.max_returned
    }
}

type Read = (ProcessAccounting, ProcessTotals, Option<Vec<(i32, Usage)>>);

/// Reads a process, and its threads unless there are too many including `others`.
fn read_process(pid: i32, others: u64) -> Result<Read, ProcError> {
    let accounting = ProcessAccounting::try_open(pid)?;
    let totals = accounting.totals()?;
    let threads = if others + totals.threads > MAX_THREADS {
        None
    } else {
        Some(accounting.thread_usage().or_else(|error| match error {
            // A zombie has no threads.
            ProcError::NotFound(_) => Ok(Vec::new()),
            error if has_exited(&error) => Ok(Vec::new()),
            error => Err(error),
        })?)
    };
    Ok((accounting, totals, threads))
}

/// Returns whether the process exited while one of its files was read.
fn has_exited(error: &ProcError) -> bool {
    const NO_SUCH_PROCESS: i32 = rustix::io::Errno::SRCH.raw_os_error();
    matches!(error, ProcError::Io(error, _) if error.raw_os_error() == Some(NO_SUCH_PROCESS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(ms: u64, switches: u64) -> Usage {
        let cpu_ns = ms * 1_000_000;
        Usage { cpu_ns, user_ns: cpu_ns, voluntary: switches, ..Usage::default() }
    }

    fn totals(start_time: u64, own: u64, children: u64) -> ProcessTotals {
        let (usage, children) = (usage(own, 0), usage(children, 0));
        ProcessTotals {
            start_time,
            parent: 1,
            threads: 1,
            zombie: false,
            usage,
            reaped_children: children,
        }
    }

    fn add(tracker: &mut UsageTracker, pid: i32, totals: &ProcessTotals) {
        let process = tracker.track(totals, Some(&[]));
        tracker.processes.insert(pid, process);
    }

    fn exit(tracker: &mut UsageTracker, pid: i32) {
        let process = tracker.processes.remove(&pid).unwrap();
        tracker.record_exit(&process);
    }

    fn update(tracker: &mut UsageTracker, pid: i32, totals: &ProcessTotals) {
        tracker.processes.get_mut(&pid).unwrap().update(totals, Some(Vec::new()));
    }

    fn used_ms(tracker: &mut UsageTracker) -> u64 {
        tracker.usage().cpu_ns / 1_000_000
    }

    #[test]
    fn counts_from_the_start() {
        let mut tracker = UsageTracker::default();
        add(&mut tracker, 1, &totals(10, 500, 70));
        tracker.start(100);
        assert_eq!(used_ms(&mut tracker), 0);
        update(&mut tracker, 1, &totals(10, 530, 70));
        assert_eq!(used_ms(&mut tracker), 30);
        // A process started later counts completely, an older one only since it was first seen.
        add(&mut tracker, 2, &totals(101, 5, 0));
        add(&mut tracker, 3, &totals(99, 1_000, 0));
        assert_eq!(used_ms(&mut tracker), 35);
    }

    #[test]
    fn exited_child_counts_once_with_its_unseen_usage() {
        let mut tracker = UsageTracker::default();
        add(&mut tracker, 1, &totals(10, 100, 0));
        add(&mut tracker, 2, &totals(20, 1_000, 0));
        tracker.start(100);
        update(&mut tracker, 2, &totals(20, 1_040, 0));
        exit(&mut tracker, 2);
        assert_eq!((used_ms(&mut tracker), tracker.exited), (40, 1));
        // The kernel adds its lifetime usage to its parent, with 10 ms after the last sample.
        update(&mut tracker, 1, &totals(10, 100, 1_050));
        assert_eq!(used_ms(&mut tracker), 50);
        // A child that no sample has seen.
        update(&mut tracker, 1, &totals(10, 100, 1_070));
        assert_eq!(used_ms(&mut tracker), 70);
    }

    #[test]
    fn usage_never_decreases() {
        let mut tracker = UsageTracker::default();
        add(&mut tracker, 1, &totals(10, 0, 0));
        tracker.start(100);
        add(&mut tracker, 2, &totals(11, 0, 0));
        // Unseen children, then the exit of a process with children.
        update(&mut tracker, 2, &totals(11, 0, 30));
        assert_eq!(used_ms(&mut tracker), 30);
        exit(&mut tracker, 2);
        assert_eq!(used_ms(&mut tracker), 30);
        // The parent of this process is not watched, so its usage is added nowhere else.
        update(&mut tracker, 1, &totals(10, 0, 60));
        exit(&mut tracker, 1);
        assert_eq!(used_ms(&mut tracker), 60);
    }

    #[test]
    fn exited_threads_remain_counted() {
        let mut tracker = UsageTracker::default();
        add(&mut tracker, 1, &totals(10, 0, 0));
        tracker.start(100);
        let process = tracker.processes.get_mut(&1).unwrap();
        process.update(&totals(10, 0, 0), Some(vec![(1, usage(0, 3)), (7, usage(0, 4))]));
        process.update(&totals(10, 0, 0), Some(vec![(1, usage(0, 5))]));
        process.update(&totals(10, 0, 0), None);
        assert_eq!(tracker.usage().voluntary, 9);
    }

    #[test]
    fn missing_process_is_ignored() {
        let mut tracker = UsageTracker::default();
        let this = std::process::id().cast_signed();
        let state = tracker.read(&[this, i32::MAX]);
        assert_eq!(state.processes, 1);
        assert!(state.threads >= 1 && state.resident > 0 && tracker.exited == 0);
        assert!(
            tracker.is_running(this)
                && !tracker.is_running(i32::MAX)
                && state.access_error.is_none()
        );
        assert_eq!(tracker.read(&[]).processes, 0);
        assert_eq!(tracker.exited, 1);
    }
}
