//! Events that the kernel counts, and hints for those that it refuses.

use std::io;

use perf_event::Builder;
use perf_event::events::{Hardware, Tracepoint};
use rustix::io::Errno;

use super::UnavailableCounter;

/// An event to count, and its mode.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    UserInstructions,
    KernelInstructions,
    Cycles,
    SystemCalls,
    #[cfg(test)]
    TaskClock,
}

impl Event {
    /// Returns the parameters of `perf_event_open`.
    pub(super) fn builder(self) -> io::Result<Builder<'static>> {
        match self {
            Event::UserInstructions => Ok(Builder::new(Hardware::INSTRUCTIONS)),
            Event::KernelInstructions => {
                let mut builder = Builder::new(Hardware::INSTRUCTIONS);
                builder.include_kernel().exclude_user(true);
                Ok(builder)
            }
            Event::Cycles => {
                let mut builder = Builder::new(Hardware::CPU_CYCLES);
                builder.include_kernel();
                Ok(builder)
            }
            Event::SystemCalls => {
                let mut builder = Builder::new(Tracepoint::with_id(syscall_tracepoint()?));
                builder.include_kernel();
                Ok(builder)
            }
            #[cfg(test)]
            Event::TaskClock => {
                let mut builder = Builder::new(perf_event::events::Software::TASK_CLOCK);
                builder.include_kernel();
                Ok(builder)
            }
        }
    }

    /// Returns the name of the event and the system call.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Event::UserInstructions => (
                "instructions in user mode",
                "perf_event_open(PERF_COUNT_HW_INSTRUCTIONS, exclude_kernel)",
            ),
            Event::KernelInstructions => (
                "instructions in the kernel",
                "perf_event_open(PERF_COUNT_HW_INSTRUCTIONS, exclude_user)",
            ),
            Event::Cycles => ("cycles", "perf_event_open(PERF_COUNT_HW_CPU_CYCLES)"),
            Event::SystemCalls => {
                ("system calls", "perf_event_open(tracepoint raw_syscalls:sys_enter)")
            }
            #[cfg(test)]
            Event::TaskClock => ("task clock", "perf_event_open(PERF_COUNT_SW_TASK_CLOCK)"),
        }
    }

    /// Describes why the counter is not available.
    pub(super) fn unavailable(self, error: &io::Error) -> UnavailableCounter {
        let (name, call) = self.names();
        let tracing = matches!(self, Event::SystemCalls);
        UnavailableCounter {
            counter: name.into(),
            call: call.into(),
            error: error.to_string(),
            hint: hint(error, tracing).into(),
        }
    }
}

/// Returns the id of the tracepoint at the entry of system calls.
fn syscall_tracepoint() -> io::Result<u64> {
    let id = |root: &str| {
        let path = format!("{root}/events/raw_syscalls/sys_enter/id");
        std::fs::read_to_string(&path)
            .map_err(|e| io::Error::new(e.kind(), format!("cannot read {path}: {e}")))
    };
    let text = id("/sys/kernel/tracing").or_else(|e| id("/sys/kernel/debug/tracing").or(Err(e)))?;
    text.trim().parse().map_err(io::Error::other)
}

/// Returns the probable cause of an error and its remedy.
fn hint(error: &io::Error, tracing: bool) -> &'static str {
    match Errno::from_io_error(error) {
        Some(Errno::NOENT | Errno::OPNOTSUPP | Errno::NODEV) => {
            "No hardware counter is available, probably because this is a virtual machine without a PMU. \
             Run on bare metal, or enable a virtual PMU in the hypervisor."
        }
        Some(Errno::ACCESS | Errno::PERM) if tracing => {
            "The tracepoint needs CAP_PERFMON (or root) or `sysctl kernel.perf_event_paranoid=-1`."
        }
        Some(Errno::ACCESS | Errno::PERM) => {
            "Allow it with `sysctl kernel.perf_event_paranoid=1` or grant CAP_PERFMON (or root); the \
             seccomp filter of a container may also forbid the call."
        }
        Some(Errno::NOSYS) => "The kernel or a seccomp filter does not provide perf_event_open.",
        Some(Errno::MFILE) => "Too few file descriptors are available; raise `ulimit -n`.",
        _ if tracing => {
            "tracefs must be mounted and readable: `mount -t tracefs none /sys/kernel/tracing` \
             as root, on a kernel with CONFIG_FTRACE_SYSCALLS."
        }
        _ => "See perf_event_open(2).",
    }
}
