//! Exact counts of user-mode instructions and system calls by tracing, available on every machine.
//!
//! A contender stops itself, runs some rounds, and stops again. Between two stops, the tracer steps it
//! by instruction or by system call. A segment without rounds measures the cost of the stops, which is
//! subtracted.
//!
//! a) A step is an instruction as ptrace(2) steps. A repeated string instruction counts once per
//!    repetition, whereas a hardware counter counts it once.
//! b) A step takes microseconds. Segments with more steps than the limit are not counted.
//! c) Work of the kernel on other threads, such as an io_uring poller, is not visible.

use std::io;

use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// Counts per event.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TraceCounts {
    /// Number of events in the segment whose system calls were counted.
    pub(crate) events: u64,
    /// User-mode instructions per event; none if there were too many to step.
    pub(crate) user: Option<f64>,
    /// System calls per event, including the write and the read.
    pub(crate) system_calls: f64,
}

/// The numbers of rounds to trace and the maximum number of steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TracePlan {
    few: u64,
    many: u64,
    active: u64,
    max_steps: u64,
}

impl TracePlan {
    /// Creates a plan for `active` events per round.
    pub(crate) fn new(active: usize, max_steps: u64) -> TracePlan {
        let active = active as u64;
        // Several descriptors, so that variation between them is averaged.
        TracePlan { few: 1, many: (64 / active).max(2), active, max_steps }
    }

    /// Returns the numbers of rounds that the contender runs between stops.
    pub(crate) fn segments(self) -> [u64; 5] {
        [0, self.few, self.many, 0, self.many]
    }
}

#[derive(Clone, Copy)]
enum Step {
    Instruction,
    SystemCall,
    Continue,
}

/// Traces a process through the segments of `plan`. The process is about to stop itself, and is stopped
/// at the end.
pub(crate) fn trace(process: u32, plan: TracePlan) -> io::Result<TraceCounts> {
    let process = Pid::from_raw(process.cast_signed());
    match waitpid(process, None)? {
        WaitStatus::Stopped(_, Signal::SIGSTOP) => {}
        other => {
            return Err(io::Error::other(format!("process did not stop for tracing: {other:?}")));
        }
    }
    ptrace::setoptions(process, Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_EXITKILL)?;
    let max_steps = plan.max_steps;
    let empty = segment(process, Step::Instruction, max_steps)?.0;
    let (few, complete) = segment(process, Step::Instruction, max_steps)?;
    let few = complete.then(|| few.saturating_sub(empty));
    let steps = match few {
        Some(steps) if steps / plan.few * plan.many <= max_steps => {
            let (many, complete) = segment(process, Step::Instruction, max_steps)?;
            let events = (plan.many * plan.active) as f64;
            complete.then(|| many.saturating_sub(empty) as f64 / events)
        }
        few => {
            segment(process, Step::Continue, max_steps)?;
            few.map(|steps| steps as f64 / (plan.few * plan.active) as f64)
        }
    };
    let empty = segment(process, Step::SystemCall, max_steps)?.0;
    let (calls, _) = segment(process, Step::SystemCall, max_steps)?;
    let events = plan.many * plan.active;
    // A traced system call stops at entry and at exit.
    let calls = calls.saturating_sub(empty) as f64 / 2.0 / events as f64;
    Ok(TraceCounts { events, user: steps, system_calls: calls })
}

/// Resumes the process until its next stop. Returns the number of steps and whether all were counted.
fn segment(process: Pid, step: Step, max_steps: u64) -> io::Result<(u64, bool)> {
    let (mut steps, mut step, mut signal) = (0, step, None);
    let mut complete = true;
    loop {
        match step {
            Step::Instruction => ptrace::step(process, signal.take())?,
            Step::SystemCall => ptrace::syscall(process, signal.take())?,
            Step::Continue => ptrace::cont(process, signal.take())?,
        }
        match waitpid(process, None) {
            Ok(WaitStatus::Stopped(_, Signal::SIGSTOP)) => return Ok((steps, complete)),
            Ok(WaitStatus::Stopped(_, Signal::SIGTRAP) | WaitStatus::PtraceSyscall(_)) => {
                steps += 1;
                if steps > max_steps {
                    (step, complete) = (Step::Continue, false); // (b)
                }
            }
            Ok(WaitStatus::Stopped(_, other)) => signal = Some(other),
            Ok(other) => {
                return Err(io::Error::other(format!("process ended while traced: {other:?}")));
            }
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}
