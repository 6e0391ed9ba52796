//! Hardware and tracepoint counters of threads or of a cgroup (perf_event_open).
//!
//! A counter that the kernel refuses is not an error: the report lists it once, and the run continues
//! without it.

use std::fs::File;
use std::io;

use perf_event::Counter;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

mod event;

use event::Event;

/// A counter that is not available.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnavailableCounter {
    /// Name of the counter.
    pub counter: String,
    /// System call that failed.
    pub call: String,
    /// Error of the system call.
    pub error: String,
    /// Probable cause and remedy.
    pub hint: String,
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
pub(crate) enum CounterScope<'a> {
    /// These threads.
    Threads(&'a [i32]),
    /// These threads, and all threads and processes that they create.
    ThreadsAndDescendants(&'a [i32]),
    /// All current and future members of a cgroup, on each of these processors.
    Cgroup(&'a File, &'a [usize]),
}

impl Counts {
    /// Returns the instructions in both modes; none if either is not available.
    pub(crate) fn instructions(&self) -> Option<u64> {
        Some(self.instructions_user? + self.instructions_kernel?)
    }
}

/// The counters of one event: one for each thread or processor.
#[derive(Debug)]
struct CounterSet(Vec<Counter>);

/// The counters of the threads that existed when they were attached.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    instructions_user: Option<CounterSet>,
    instructions_kernel: Option<CounterSet>,
    cycles: Option<CounterSet>,
    syscalls: Option<CounterSet>,
}

impl Counters {
    /// Attaches only the instruction counters. A tracepoint would add its own instructions to every
    /// system call.
    pub(crate) fn attach_instructions(
        threads: &[i32],
        unavailable: &mut Vec<UnavailableCounter>,
    ) -> Counters {
        let scope = CounterScope::Threads(threads);
        let mut attach = |event| CounterSet::attach_or_record(event, scope, unavailable);
        Counters {
            instructions_user: attach(Event::UserInstructions),
            instructions_kernel: attach(Event::KernelInstructions),
            ..Counters::default()
        }
    }

    /// Attaches the system call counters too.
    pub(crate) fn with_syscalls(
        self,
        threads: &[i32],
        unavailable: &mut Vec<UnavailableCounter>,
    ) -> Counters {
        let scope = CounterScope::Threads(threads);
        let syscalls = CounterSet::attach_or_record(Event::SystemCalls, scope, unavailable);
        Counters { syscalls, ..self }
    }

    /// Attaches all counters.
    pub(crate) fn attach_all(
        scope: CounterScope<'_>,
        unavailable: &mut Vec<UnavailableCounter>,
    ) -> Counters {
        let mut attach = |event| CounterSet::attach_or_record(event, scope, unavailable);
        Counters {
            instructions_user: attach(Event::UserInstructions),
            instructions_kernel: attach(Event::KernelInstructions),
            cycles: attach(Event::Cycles),
            syscalls: attach(Event::SystemCalls),
        }
    }

    /// Returns whether any counter is attached.
    pub(crate) fn is_any_attached(&self) -> bool {
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
        let total =
            |counters: &mut Option<CounterSet>| counters.as_mut().and_then(CounterSet::total);
        Counts {
            instructions_user: total(&mut self.instructions_user),
            instructions_kernel: total(&mut self.instructions_kernel),
            cycles: total(&mut self.cycles),
            syscalls: total(&mut self.syscalls),
        }
    }
}

impl CounterSet {
    fn attach_or_record(
        event: Event,
        scope: CounterScope<'_>,
        unavailable: &mut Vec<UnavailableCounter>,
    ) -> Option<CounterSet> {
        match CounterSet::attach(event, scope) {
            Ok(counters) => Some(counters),
            Err(missing) => {
                if !unavailable.contains(&missing) {
                    unavailable.push(missing);
                }
                None
            }
        }
    }

    fn attach(event: Event, scope: CounterScope<'_>) -> Result<CounterSet, UnavailableCounter> {
        let (threads, inherit) = match scope {
            CounterScope::Threads(threads) => (threads, false),
            CounterScope::ThreadsAndDescendants(threads) => (threads, true),
            CounterScope::Cgroup(group, processors) => {
                let counters = processors.iter().map(|&processor| {
                    let mut builder = event.builder()?;
                    builder.observe_cgroup(group).one_cpu(processor).enabled(true).build()
                });
                let counters: io::Result<_> = counters.collect();
                return counters.map(CounterSet).map_err(|e| event.unavailable(&e));
            }
        };
        let mut counters = Vec::with_capacity(threads.len());
        for &thread in threads {
            let mut builder = event.builder().map_err(|e| event.unavailable(&e))?;
            match builder.observe_pid(thread).inherit(inherit).enabled(true).build() {
                Ok(counter) => counters.push(counter),
                // The thread has exited. The others are still worth counting.
                Err(e) if e.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {}
                Err(e) => return Err(event.unavailable(&e)),
            }
        }
        Ok(CounterSet(counters))
    }

    /// Returns the sum, scaled up if the kernel multiplexed the hardware counters.
    fn total(&mut self) -> Option<u64> {
        let mut total = 0.0;
        for counter in &mut self.0 {
            let value = counter.read_count_and_time().ok()?;
            let share = value.time_running as f64 / value.time_enabled.max(1) as f64;
            // A thread that never ran was never counted.
            if value.time_running > 0 {
                total += value.count as f64 / share;
            }
        }
        (!self.0.is_empty()).then_some(total.round() as u64)
    }
}

/// Returns the id of the calling thread.
pub(crate) fn own_thread() -> [i32; 1] {
    [rustix::thread::gettid().as_raw_nonzero().get()]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses the code path of the hardware counters with an event that every kernel supports.
    #[test]
    fn software_event_is_counted_or_unavailable_with_a_hint() {
        match CounterSet::attach(Event::TaskClock, CounterScope::Threads(&own_thread())) {
            Ok(mut counters) => {
                let mut x = 1u64;
                for _ in 0..1_000_000 {
                    x = std::hint::black_box(x.wrapping_mul(3));
                }
                assert!(counters.total().unwrap() > 1_000, "no task clock in a busy loop");
            }
            Err(missing) => assert!(!missing.hint.is_empty(), "{missing:?}"),
        }
    }

    /// Holds on every machine.
    #[test]
    fn every_counter_is_counted_or_reported_once() {
        let mut unavailable = Vec::new();
        let first = Counters::attach_all(CounterScope::Threads(&own_thread()), &mut unavailable);
        for _ in 0..100 {
            rustix::thread::sched_yield();
        }
        let counts = first.finish();
        let count = unavailable.len();
        Counters::attach_all(CounterScope::Threads(&own_thread()), &mut unavailable);
        assert_eq!(unavailable.len(), count, "an unavailable counter was recorded twice");
        let counted =
            [counts.instructions_user, counts.instructions_kernel, counts.cycles, counts.syscalls];
        assert_eq!(counted.iter().filter(|c| c.is_none()).count(), count);
        if let Some(syscalls) = counts.syscalls {
            assert!(syscalls >= 100, "{syscalls} system calls, but 100 were made");
        }
    }

    #[test]
    fn descendants_are_counted() {
        let Ok(mut counters) = CounterSet::attach(
            Event::TaskClock,
            CounterScope::ThreadsAndDescendants(&own_thread()),
        ) else {
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
        match CounterSet::attach(Event::TaskClock, CounterScope::Threads(&[i32::MAX])) {
            Ok(mut counters) => assert_eq!(counters.total(), None),
            Err(missing) => assert!(missing.error.contains("denied"), "{missing:?}"),
        }
    }

    #[test]
    fn hints_match_the_error() {
        let missing = |errno: Errno, q: Event| q.unavailable(&io::Error::from(errno));
        let no_pmu = missing(Errno::NOENT, Event::UserInstructions);
        assert!(no_pmu.hint.contains("without a PMU"), "{no_pmu:?}");
        let denied = missing(Errno::ACCESS, Event::KernelInstructions);
        assert!(denied.hint.contains("perf_event_paranoid"), "{denied:?}");
        let tracefs = io::Error::new(io::ErrorKind::NotFound, "cannot read /sys/x/id: no such");
        assert!(Event::SystemCalls.unavailable(&tracefs).hint.contains("tracefs"));
    }
}
