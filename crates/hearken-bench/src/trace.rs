//! Exact counts of user-mode instructions and system calls by tracing, available on every machine.
//!
//! A contender stops itself, runs some rounds, and stops again. Between two stops, the tracer steps it
//! by instruction or by system call. A segment without rounds measures the cost of the stops, which is
//! subtracted.
//!
//! a) A step is an instruction as ptrace(2) steps. A repeated string instruction counts once per
//!    repetition, whereas a hardware counter counts it once.
//! b) A step takes microseconds. Segments with more steps than the limit are not counted.
//! c) A signal with a handler, such as the events of `sigio-handler`, stops the process when it arrives.
//!    The next step delivers it, and the instructions of the handler count. The wrappers of
//!    nix reject real-time signals, so the stops are decoded here.
//! d) Work of the kernel on other threads, such as an io_uring poller, is not visible.

// ptrace(2) and waitpid(2).
#![allow(unsafe_code)]

use std::{io, ptr};

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

/// The distance to the next stop of the process.
#[derive(Clone, Copy)]
#[repr(u32)]
enum Step {
    Instruction = libc::PTRACE_SINGLESTEP,
    SystemCall = libc::PTRACE_SYSCALL,
    Continue = libc::PTRACE_CONT,
}

/// A stop of the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stop {
    /// After an instruction, or before or after a system call.
    Stepped,
    /// Before the delivery of a signal.
    Signal(libc::c_int),
}

/// Waits until the process stops.
fn wait(process: libc::pid_t) -> io::Result<Stop> {
    let mut status = 0;
    // SAFETY: the kernel writes to the status, which lives until the call returns.
    while unsafe { libc::waitpid(process, &raw mut status, 0) } == -1 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    if !libc::WIFSTOPPED(status) {
        return Err(io::Error::other(format!("process ended while traced: status {status:#x}")));
    }
    Ok(match libc::WSTOPSIG(status) {
        // PTRACE_O_TRACESYSGOOD sets a bit in stops at system calls.
        signal if signal & !0x80 == libc::SIGTRAP => Stop::Stepped,
        signal => Stop::Signal(signal),
    })
}

/// Makes a request of ptrace(2) whose data is a number.
fn request(request: libc::c_uint, process: libc::pid_t, data: libc::c_int) -> io::Result<()> {
    let address = ptr::null_mut::<libc::c_void>();
    // SAFETY: the requests of this module read and write no memory of this process.
    match unsafe { libc::ptrace(request, process, address, libc::c_long::from(data)) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Traces a process through the segments of `plan`. The process is about to stop itself, and is stopped
/// at the end.
pub(crate) fn trace(process: u32, plan: TracePlan) -> io::Result<TraceCounts> {
    let process = process.cast_signed();
    match wait(process)? {
        Stop::Signal(libc::SIGSTOP) => {}
        other => {
            return Err(io::Error::other(format!("process did not stop for tracing: {other:?}")));
        }
    }
    let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL;
    request(libc::PTRACE_SETOPTIONS, process, options)?;
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

/// Resumes the process until it stops itself. Returns the number of steps and whether all were counted.
fn segment(process: libc::pid_t, step: Step, max_steps: u64) -> io::Result<(u64, bool)> {
    let (mut steps, mut step, mut signal) = (0, step, 0);
    let mut complete = true;
    loop {
        request(step as libc::c_uint, process, std::mem::take(&mut signal))?;
        match wait(process)? {
            Stop::Signal(libc::SIGSTOP) => return Ok((steps, complete)),
            Stop::Signal(other) => signal = other, // (c)
            Stop::Stepped => {
                steps += 1;
                if steps > max_steps {
                    (step, complete) = (Step::Continue, false); // (b)
                }
            }
        }
    }
}
