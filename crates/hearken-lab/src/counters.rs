//! Instructions, cycles and system calls of threads or of a control group, counted by the kernel
//! (perf_event_open).
//!
//! A kernel that refuses is no error: the refusal goes into the report once, and the run goes on
//! without that number.

use std::fs::File;
use std::io;

use perf_event::Counter;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

mod quantity;

use quantity::Quantity;

/// Something that the kernel would not count here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The quantity that is missing.
    pub what: String,
    /// The call that was tried.
    pub call: String,
    /// What the kernel answered.
    pub error: String,
    /// Why, probably, and what would allow it.
    pub advice: String,
}

/// What was counted while the counters were attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Instructions in user mode.
    pub instructions_user: Option<u64>,
    /// Instructions in the kernel on behalf of the process.
    pub instructions_kernel: Option<u64>,
    /// Cycles in both modes, where they are asked for.
    pub cycles: Option<u64>,
    /// System calls.
    pub syscalls: Option<u64>,
}

/// Who is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Whom<'a> {
    /// These threads.
    Threads(&'a [i32]),
    /// These threads, and all threads and processes that they start.
    Families(&'a [i32]),
    /// All that a control group has, now and later, on each of these processors.
    Group(&'a File, &'a [usize]),
}

impl Counts {
    /// Instructions in both modes; none if either was refused.
    pub(crate) fn instructions(&self) -> Option<u64> {
        Some(self.instructions_user? + self.instructions_kernel?)
    }
}

/// One quantity, with a counter for every thread, or for every processor.
#[derive(Debug)]
struct Several(Vec<Counter>);

/// The counters on those who were there when they were attached.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    instructions_user: Option<Several>,
    instructions_kernel: Option<Several>,
    cycles: Option<Several>,
    syscalls: Option<Several>,
}

impl Counters {
    /// Attaches to `threads`, and notes what the kernel refuses.
    pub(crate) fn attach(threads: &[i32], refusals: &mut Vec<Refusal>) -> Counters {
        let instructions = Counters::attach_instructions(threads, refusals);
        let Counters { syscalls, .. } = Counters::attach_syscalls(threads, refusals);
        Counters { syscalls, ..instructions }
    }

    /// Instructions alone: a tracepoint adds its own to those of every system call.
    pub(crate) fn attach_instructions(threads: &[i32], refusals: &mut Vec<Refusal>) -> Counters {
        let whom = Whom::Threads(threads);
        let mut attach = |quantity| Several::attach_or_note(quantity, whom, refusals);
        Counters {
            instructions_user: attach(Quantity::UserInstructions),
            instructions_kernel: attach(Quantity::KernelInstructions),
            ..Counters::default()
        }
    }

    /// System calls alone.
    pub(crate) fn attach_syscalls(threads: &[i32], refusals: &mut Vec<Refusal>) -> Counters {
        let whom = Whom::Threads(threads);
        let syscalls = Several::attach_or_note(Quantity::SystemCalls, whom, refusals);
        Counters { syscalls, ..Counters::default() }
    }

    /// All that there is to count.
    pub(crate) fn attach_all(whom: Whom<'_>, refusals: &mut Vec<Refusal>) -> Counters {
        let mut attach = |quantity| Several::attach_or_note(quantity, whom, refusals);
        Counters {
            instructions_user: attach(Quantity::UserInstructions),
            instructions_kernel: attach(Quantity::KernelInstructions),
            cycles: attach(Quantity::Cycles),
            syscalls: attach(Quantity::SystemCalls),
        }
    }

    /// Is there anything that counts?
    pub(crate) fn any(&self) -> bool {
        self.instructions_user.is_some()
            || self.instructions_kernel.is_some()
            || self.cycles.is_some()
            || self.syscalls.is_some()
    }

    /// What was counted since the counters were attached, which ends here.
    pub(crate) fn finish(mut self) -> Counts {
        self.read()
    }

    /// What was counted since the counters were attached.
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
                // The thread has ended; what is left is still worth counting.
                Err(e) if e.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {}
                Err(e) => return Err(quantity.refusal(&e)),
            }
        }
        Ok(Several(counters))
    }

    /// The sum, scaled up where the hardware had to share its counters among several users.
    fn total(&mut self) -> Option<u64> {
        let mut total = 0.0;
        for counter in &mut self.0 {
            let read = counter.read_count_and_time().ok()?;
            let share = read.time_running as f64 / read.time_enabled.max(1) as f64;
            // A thread that never ran was never counted, and used nothing.
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

    /// The path is that of the hardware counters; only the event is one that every kernel has.
    #[test]
    fn a_software_event_counts_or_is_refused_with_advice() {
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

    /// Whatever this machine allows: each quantity is counted or refused, and refused once.
    #[test]
    fn every_quantity_is_counted_or_refused_once() {
        let mut refusals = Vec::new();
        let first = Counters::attach(&this_thread(), &mut refusals);
        for _ in 0..100 {
            rustix::thread::sched_yield();
        }
        let counts = first.finish();
        let refused = refusals.len();
        Counters::attach(&this_thread(), &mut refusals);
        assert_eq!(refusals.len(), refused, "a refusal was noted twice");
        let counted = [counts.instructions_user, counts.instructions_kernel, counts.syscalls];
        assert_eq!(counted.iter().filter(|c| c.is_none()).count(), refused);
        if let Some(syscalls) = counts.syscalls {
            assert!(syscalls >= 100, "{syscalls} system calls, but 100 were made");
        }
    }

    #[test]
    fn families_are_counted_with_what_they_start() {
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
        // Ten million multiplications take more than a millisecond anywhere; starting a thread less.
        assert!(counters.total().unwrap() - before > 1_000_000, "the new thread is not in it");
    }

    #[test]
    fn a_thread_that_has_gone_is_no_refusal() {
        match Several::attach(Quantity::TaskClock, Whom::Threads(&[i32::MAX])) {
            Ok(mut counters) => assert_eq!(counters.total(), None),
            Err(refusal) => assert!(refusal.error.contains("denied"), "{refusal:?}"),
        }
    }

    #[test]
    fn refusals_say_what_to_do() {
        let refusal = |errno: Errno, q: Quantity| q.refusal(&io::Error::from(errno));
        let no_pmu = refusal(Errno::NOENT, Quantity::UserInstructions);
        assert!(no_pmu.advice.contains("without a PMU"), "{no_pmu:?}");
        let denied = refusal(Errno::ACCESS, Quantity::KernelInstructions);
        assert!(denied.advice.contains("perf_event_paranoid"), "{denied:?}");
        let tracefs = io::Error::new(io::ErrorKind::NotFound, "cannot read /sys/x/id: no such");
        assert!(Quantity::SystemCalls.refusal(&tracefs).advice.contains("tracefs"));
    }
}
