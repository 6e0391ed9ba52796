//! Hardware and tracepoint counters of threads or of a cgroup (perf_event_open).
//!
//! A counter that the kernel refuses is not an error: the report lists it once, and the run continues
//! without it.

use std::fs::File;
use std::io;

use perf_event::Counter;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

mod quantity;

use quantity::Quantity;

/// A counter that is not available.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Name of the counter.
    pub what: String,
    /// System call that failed.
    pub call: String,
    /// Error of the system call.
    pub error: String,
    /// Probable cause and remedy.
    pub advice: String,
}

/// Counts since the counters were attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Instructions in user mode.
    pub instructions_user: Option<u64>,
    /// Instructions in the kernel on behalf of the process.
    pub instructions_kernel: Option<u64>,
    /// Cycles in both modes, if requested.
    pub cycles: Option<u64>,
    /// System calls.
    pub syscalls: Option<u64>,
}

/// Scope of the counters.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Whom<'a> {
    /// These threads.
    Threads(&'a [i32]),
    /// These threads, and all threads and processes that they create.
    Families(&'a [i32]),
    /// All current and future members of a cgroup, on each of these processors.
    Group(&'a File, &'a [usize]),
}

impl Counts {
    /// Returns the instructions in both modes; none if either is not available.
    pub(crate) fn instructions(&self) -> Option<u64> {
        Some(self.instructions_user? + self.instructions_kernel?)
    }
}

/// The counters of one event: one for each thread or processor.
#[derive(Debug)]
struct Several(Vec<Counter>);

/// The counters of the threads that existed when they were attached.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    instructions_user: Option<Several>,
    instructions_kernel: Option<Several>,
    cycles: Option<Several>,
    syscalls: Option<Several>,
}

impl Counters {
    /// Attaches all but the cycle counters to `threads` and records those that are not available.
    pub(crate) fn attach(threads: &[i32], refusals: &mut Vec<Refusal>) -> Counters {
        let instructions = Counters::attach_instructions(threads, refusals);
        let Counters { syscalls, .. } = Counters::attach_syscalls(threads, refusals);
        Counters { syscalls, ..instructions }
    }

    /// Attaches only the instruction counters. A tracepoint would add its own instructions to every
    /// system call.
    pub(crate) fn attach_instructions(threads: &[i32], refusals: &mut Vec<Refusal>) -> Counters {
        let whom = Whom::Threads(threads);
        let mut attach = |quantity| Several::attach_or_note(quantity, whom, refusals);
        Counters {
            instructions_user: attach(Quantity::UserInstructions),
            instructions_kernel: attach(Quantity::KernelInstructions),
            ..Counters::default()
        }
    }

    /// Attaches only the system call counters.
    pub(crate) fn attach_syscalls(threads: &[i32], refusals: &mut Vec<Refusal>) -> Counters {
        let whom = Whom::Threads(threads);
        let syscalls = Several::attach_or_note(Quantity::SystemCalls, whom, refusals);
        Counters { syscalls, ..Counters::default() }
    }

    /// Attaches all counters.
    pub(crate) fn attach_all(whom: Whom<'_>, refusals: &mut Vec<Refusal>) -> Counters {
        let mut attach = |quantity| Several::attach_or_note(quantity, whom, refusals);
        Counters {
            instructions_user: attach(Quantity::UserInstructions),
            instructions_kernel: attach(Quantity::KernelInstructions),
            cycles: attach(Quantity::Cycles),
            syscalls: attach(Quantity::SystemCalls),
        }
    }

    /// Returns whether any counter is attached.
    pub(crate) fn any(&self) -> bool {
        self.instructions_user.is_some()
            || self.instructions_kernel.is_some()
            || self.cycles.is_some()
            || self.syscalls.is_some()
    }

    /// Returns the counts since the counters were attached, and detaches the counters.
    pub(crate) fn finish(mut self) -> Counts {
        self.read()
    }

    /// Returns the counts since the counters were attached.
    pub(crate) fn read(&mut self) -> Counts {
        let total = |counters: &mut Option<Several>| counters.as_mut().and_then(Several::total);
        Counts {
            instructions_user: total(&mut self.instructions_user),
            instructions_kernel: total(&mut self.instructions_kernel),
            cycles: total(&mut self.cycles),
            syscalls: total(&mut self.syscalls),
        }
    }
}

impl Several {
    fn attach_or_note(
        quantity: Quantity,
        whom: Whom<'_>,
        refusals: &mut Vec<Refusal>,
    ) -> Option<Several> {
        match Several::attach(quantity, whom) {
            Ok(counters) => Some(counters),
            Err(refusal) => {
                if !refusals.contains(&refusal) {
                    refusals.push(refusal);
                }
                None
            }
        }
    }

    fn attach(quantity: Quantity, whom: Whom<'_>) -> Result<Several, Refusal> {
        let (threads, inherit) = match whom {
            Whom::Threads(threads) => (threads, false),
            Whom::Families(threads) => (threads, true),
            Whom::Group(group, processors) => {
                let counters = processors.iter().map(|&processor| {
                    let mut builder = quantity.builder()?;
                    builder.observe_cgroup(group).one_cpu(processor).enabled(true).build()
                });
                let counters: io::Result<_> = counters.collect();
                return counters.map(Several).map_err(|e| quantity.refusal(&e));
            }
        };
        let mut counters = Vec::with_capacity(threads.len());
        for &thread in threads {
            let mut builder = quantity.builder().map_err(|e| quantity.refusal(&e))?;
            match builder.observe_pid(thread).inherit(inherit).enabled(true).build() {
                Ok(counter) => counters.push(counter),
                // The thread has exited. The others are still worth counting.
                Err(e) if e.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {}
                Err(e) => return Err(quantity.refusal(&e)),
            }
        }
        Ok(Several(counters))
    }

    /// Returns the sum, scaled up if the kernel multiplexed the hardware counters.
    fn total(&mut self) -> Option<u64> {
        let mut total = 0.0;
        for counter in &mut self.0 {
            let read = counter.read_count_and_time().ok()?;
            let share = read.time_running as f64 / read.time_enabled.max(1) as f64;
            // A thread that never ran was never counted.
            if read.time_running > 0 {
                total += read.count as f64 / share;
            }
        }
        (!self.0.is_empty()).then_some(total.round() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn this_thread() -> [i32; 1] {
        [rustix::thread::gettid().as_raw_nonzero().get()]
    }

    /// Uses the code path of the hardware counters with an event that every kernel supports.
    #[test]
    fn software_event_is_counted_or_unavailable_with_a_hint() {
        match Several::attach(Quantity::TaskClock, Whom::Threads(&this_thread())) {
            Ok(mut counters) => {
                let mut x = 1u64;
                for _ in 0..1_000_000 {
                    x = std::hint::black_box(x.wrapping_mul(3));
                }
                assert!(counters.total().unwrap() > 1_000, "no task clock in a busy loop");
            }
            Err(refusal) => assert!(!refusal.advice.is_empty(), "{refusal:?}"),
        }
    }

    /// Holds on every machine.
    #[test]
    fn every_counter_is_counted_or_reported_once() {
        let mut refusals = Vec::new();
        let first = Counters::attach(&this_thread(), &mut refusals);
        for _ in 0..100 {
            rustix::thread::sched_yield();
        }
        let counts = first.finish();
        let refused = refusals.len();
        Counters::attach(&this_thread(), &mut refusals);
        assert_eq!(refusals.len(), refused, "an unavailable counter was recorded twice");
        let counted = [counts.instructions_user, counts.instructions_kernel, counts.syscalls];
        assert_eq!(counted.iter().filter(|c| c.is_none()).count(), refused);
        if let Some(syscalls) = counts.syscalls {
            assert!(syscalls >= 100, "{syscalls} system calls, but 100 were made");
        }
    }

    #[test]
    fn descendants_are_counted() {
        let Ok(mut counters) = Several::attach(Quantity::TaskClock, Whom::Families(&this_thread()))
        else {
            return;
        };
        let before = counters.total().unwrap();
        std::thread::spawn(|| {
            let mut x = 1u64;
            for _ in 0..10_000_000 {
                x = std::hint::black_box(x.wrapping_mul(3));
            }
        })
        .join()
        .unwrap();
        // Ten million multiplications take over a millisecond on any machine; starting a thread does not.
        assert!(counters.total().unwrap() - before > 1_000_000, "the new thread was not counted");
    }

    #[test]
    fn exited_thread_is_ignored() {
        match Several::attach(Quantity::TaskClock, Whom::Threads(&[i32::MAX])) {
            Ok(mut counters) => assert_eq!(counters.total(), None),
            Err(refusal) => assert!(refusal.error.contains("denied"), "{refusal:?}"),
        }
    }

    #[test]
    fn hints_match_the_error() {
        let refusal = |errno: Errno, q: Quantity| q.refusal(&io::Error::from(errno));
        let no_pmu = refusal(Errno::NOENT, Quantity::UserInstructions);
        assert!(no_pmu.advice.contains("without a PMU"), "{no_pmu:?}");
        let denied = refusal(Errno::ACCESS, Quantity::KernelInstructions);
        assert!(denied.advice.contains("perf_event_paranoid"), "{denied:?}");
        let tracefs = io::Error::new(io::ErrorKind::NotFound, "cannot read /sys/x/id: no such");
        assert!(Quantity::SystemCalls.refusal(&tracefs).advice.contains("tracefs"));
    }
}
