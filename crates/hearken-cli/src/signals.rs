//! Signals that stop a command, and the limit of queued signals.

use std::io;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;

use hearken::mechanism::signal;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
pub(crate) use signal_hook::iterator::Handle;
use signal_hook::iterator::Signals;

use crate::Failure;

/// The signal that stopped the command, or 0.
static STOPPED_BY: AtomicI32 = AtomicI32::new(0);

/// Returns the exit status of a command that a signal stopped: 128 plus the number of the signal, as in a shell.
/// Returns `None` if no signal was received.
pub(crate) fn exit_status() -> Option<u8> {
    match STOPPED_BY.load(Ordering::Acquire) {
        0 => None,
        signal => u8::try_from(128 + signal).ok(),
    }
}

/// Calls `stop` at the first SIGINT or SIGTERM. A second signal exits immediately. Closing the
/// returned handle ends the handling.
pub(crate) fn on_stop(stop: impl FnOnce() + Send + 'static) -> io::Result<Handle> {
    stop_on(&[SIGINT, SIGTERM], stop)
}

/// Handles the signals of a server: as [`on_stop`], `reopen` at SIGHUP and `report` at SIGUSR1.
pub(crate) fn on_server(
    stop: impl FnOnce() + Send + 'static,
    reopen: impl Fn() + Send + 'static,
    report: impl Fn() + Send + 'static,
) -> io::Result<()> {
    on_stop(stop)?;
    start_thread(Signals::new([SIGHUP, SIGUSR1])?, move |signal| {
        if signal == SIGHUP { reopen() } else { report() }
    })?;
    Ok(())
}

/// Handles the signals of an agent: as [`on_stop`], and SIGUSR1, which srun and mpirun forward.
pub(crate) fn on_agent_stop(stop: impl FnOnce() + Send + 'static) -> io::Result<Handle> {
    stop_on(&[SIGINT, SIGTERM, SIGUSR1], stop)
}

/// Calls `handle` at every SIGINT and SIGTERM.
pub(crate) fn each(mut handle: impl FnMut() + Send + 'static) -> io::Result<Handle> {
    start_thread(Signals::new([SIGINT, SIGTERM])?, move |signal| {
        set_stopped_by(signal);
        handle();
    })
}

/// Records the first signal.
fn set_stopped_by(signal: i32) {
    let _ = STOPPED_BY.compare_exchange(0, signal, Ordering::AcqRel, Ordering::Acquire);
}

fn stop_on(signals: &[i32], stop: impl FnOnce() + Send + 'static) -> io::Result<Handle> {
    let mut stop = Some(stop);
    start_thread(Signals::new(signals)?, move |signal| match stop.take() {
        Some(stop) => {
            set_stopped_by(signal);
            stop();
        }
        None => std::process::exit(128 + signal),
    })
}

fn start_thread(
    mut signals: Signals,
    mut handle: impl FnMut(i32) + Send + 'static,
) -> io::Result<Handle> {
    let closing = signals.handle();
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || signals.forever().for_each(&mut handle))?;
    Ok(closing)
}

/// Makes the kernel send SIGTERM when the parent ends, so that a killed experiment leaves no
/// process behind.
pub(crate) fn exit_with_parent() -> io::Result<()> {
    let parent = getppid();
    set_parent_process_death_signal(Some(Signal::TERM))?;
    if getppid() != parent {
        // The parent ended before the request.
        std::process::exit(1);
    }
    Ok(())
}

/// Lowers the limit of signals queued for this process.
pub(crate) fn limit_queue(limit: Option<u64>) -> Result<(), Failure> {
    let Some(limit) = limit else { return Ok(()) };
    signal::set_queue_limit(limit).map_err(|error| {
        Failure::usage(format!("cannot set RLIMIT_SIGPENDING to {limit}: {error}"))
    })
}
