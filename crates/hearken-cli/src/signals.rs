//! Signals: those that ask a command to end, and how many may be queued.

use std::io;
use std::thread;

use hearken::mechanism::signal;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
pub(crate) use signal_hook::iterator::Handle;
use signal_hook::iterator::Signals;

use crate::Failure;

/// Calls `stop` at the first SIGINT or SIGTERM; a second one ends the process at once, as its user
/// then means it to. What is returned ends the watching when it is closed.
pub(crate) fn on_stop(stop: impl FnOnce() + Send + 'static) -> io::Result<Handle> {
    on(&[SIGINT, SIGTERM], stop)
}

/// As [`on_stop`], and calls `reopen` at every SIGHUP and `tell` at every SIGUSR1.
pub(crate) fn on_server(
    stop: impl FnOnce() + Send + 'static,
    reopen: impl Fn() + Send + 'static,
    tell: impl Fn() + Send + 'static,
) -> io::Result<()> {
    on_stop(stop)?;
    let mut signals = Signals::new([SIGHUP, SIGUSR1])?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            if signal == SIGHUP { reopen() } else { tell() }
        }
    })?;
    Ok(())
}

/// As [`on_stop`], and at SIGUSR1 too, which srun and mpirun pass on to what they started.
pub(crate) fn on_agent_stop(stop: impl FnOnce() + Send + 'static) -> io::Result<Handle> {
    on(&[SIGINT, SIGTERM, SIGUSR1], stop)
}

/// Calls `at` at every SIGINT and SIGTERM.
pub(crate) fn each(mut at: impl FnMut() + Send + 'static) -> io::Result<Handle> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let handle = signals.handle();
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        signals.forever().for_each(|_| at());
    })?;
    Ok(handle)
}

fn on(which: &[i32], stop: impl FnOnce() + Send + 'static) -> io::Result<Handle> {
    let mut signals = Signals::new(which)?;
    let handle = signals.handle();
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let mut stop = Some(stop);
        for signal in &mut signals {
            match stop.take() {
                Some(stop) => stop(),
                None => std::process::exit(128 + signal),
            }
        }
    })?;
    Ok(handle)
}

/// Has the kernel send SIGTERM when the parent ends, so that an experiment leaves nothing behind
/// even when it is killed.
pub(crate) fn exit_with_parent() -> io::Result<()> {
    let parent = getppid();
    set_parent_process_death_signal(Some(Signal::TERM))?;
    if getppid() != parent {
        // It ended before we asked.
        std::process::exit(1);
    }
    Ok(())
}

/// Lowers the limit of signals queued for this process.
pub(crate) fn limit_queue(limit: Option<u64>) -> Result<(), Failure> {
    let Some(limit) = limit else { return Ok(()) };
    signal::limit_queue(limit).map_err(|error| {
        Failure::usage(format!("cannot set RLIMIT_SIGPENDING to {limit}: {error}"))
    })
}
