//! Instructions in user mode and system calls, counted by tracing: exact, and on every machine.
//!
//! A contender stops itself, runs some rounds, and stops again. Between two stops it is stepped
//! instruction by instruction, or from system call to system call. A segment of no rounds costs what
//! the stops themselves do, and is taken off.
//!
//! a) A step is an instruction as ptrace(2) steps: a repeated string instruction counts once for
//!    each repetition, where a hardware counter has one.
//! b) A step takes microseconds. What would take more of them than is allowed is not counted.
//! c) What the kernel does on other threads (a poller of io_uring) is not seen.

use std::io;

use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// What was counted over some events.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Traced {
    /// Events in the part whose system calls were counted.
    pub(crate) events: u64,
    /// Instructions in user mode for each event; none if they were too many to step.
    pub(crate) user: Option<f64>,
    /// System calls for each event, the write and the read among them.
    pub(crate) calls: f64,
}

/// How many rounds to run, and how many steps to make at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    few: u64,
    many: u64,
    active: u64,
    most_steps: u64,
}

impl Plan {
    /// For `active` events a round.
    pub(crate) fn new(active: usize, most_steps: u64) -> Plan {
        let active = active as u64;
        // Some events' worth, so that what varies with the descriptor is averaged.
        Plan { few: 1, many: (64 / active).max(2), active, most_steps }
    }

    /// What the contender is to run.
    pub(crate) fn segments(self) -> [u64; 5] {
        [0, self.few, self.many, 0, self.many]
    }
}

#[derive(Clone, Copy)]
enum By {
    Instruction,
    Call,
    Nothing,
}

/// Traces the process, which is about to stop, through the segments of `plan`; it is stopped at the
/// end.
pub(crate) fn trace(process: u32, plan: Plan) -> io::Result<Traced> {
    let process = Pid::from_raw(process.cast_signed());
    match waitpid(process, None)? {
        WaitStatus::Stopped(_, Signal::SIGSTOP) => {}
        other => return Err(io::Error::other(format!("did not stop to be traced: {other:?}"))),
    }
    ptrace::setoptions(process, Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_EXITKILL)?;
    let most = plan.most_steps;
    let empty = segment(process, By::Instruction, most)?.0;
    let (few, whole) = segment(process, By::Instruction, most)?;
    let few = whole.then(|| few.saturating_sub(empty));
    let steps = match few {
        Some(steps) if steps / plan.few * plan.many <= most => {
            let (many, whole) = segment(process, By::Instruction, most)?;
            let events = (plan.many * plan.active) as f64;
            whole.then(|| many.saturating_sub(empty) as f64 / events)
        }
        few => {
            segment(process, By::Nothing, most)?;
            few.map(|steps| steps as f64 / (plan.few * plan.active) as f64)
        }
    };
    let empty = segment(process, By::Call, most)?.0;
    let (calls, _) = segment(process, By::Call, most)?;
    let events = plan.many * plan.active;
    // Each is seen as it begins and as it ends.
    let calls = calls.saturating_sub(empty) as f64 / 2.0 / events as f64;
    Ok(Traced { events, user: steps, calls })
}

/// Runs on to the next stop: how many steps that were, and whether all were counted.
fn segment(process: Pid, by: By, most: u64) -> io::Result<(u64, bool)> {
    let (mut steps, mut by, mut signal) = (0, by, None);
    let mut whole = true;
    loop {
        match by {
            By::Instruction => ptrace::step(process, signal.take())?,
            By::Call => ptrace::syscall(process, signal.take())?,
            By::Nothing => ptrace::cont(process, signal.take())?,
        }
        match waitpid(process, None) {
            Ok(WaitStatus::Stopped(_, Signal::SIGSTOP)) => return Ok((steps, whole)),
            Ok(WaitStatus::Stopped(_, Signal::SIGTRAP) | WaitStatus::PtraceSyscall(_)) => {
                steps += 1;
                if steps > most {
                    (by, whole) = (By::Nothing, false); // (b)
                }
            }
            Ok(WaitStatus::Stopped(_, other)) => signal = Some(other),
            Ok(other) => return Err(io::Error::other(format!("ended while traced: {other:?}"))),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}
