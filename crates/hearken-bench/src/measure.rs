//! One measurement, in a process of its own: what `peers/peer.h` is for those in C.

use std::io::{self, Write};

use perf_event::events::Hardware;
use perf_event::{Builder, Counter};
use rustix::process::{Signal, getpid, kill_process};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::pairs::{Over, Writers};

/// Something that dispatches events.
pub(crate) trait Contender {
    /// Takes events until each of `round` was read once.
    fn dispatch(&mut self, round: &[u32]) -> io::Result<()>;
}

/// What one measurement is to do.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Task {
    /// Descriptors that are registered.
    #[arg(long)]
    pub(crate) descriptors: usize,
    /// Descriptors that a round makes ready.
    #[arg(long)]
    pub(crate) active: usize,
    /// What the descriptors are.
    #[arg(long)]
    pub(crate) over: Over,
    /// How many passes.
    #[arg(long)]
    pub(crate) passes: u32,
    /// CPU time of a pass, nanoseconds.
    #[arg(long)]
    pub(crate) pass_ns: u64,
    /// Numbers of rounds to run for the driver to trace, each between two stops.
    #[arg(long, value_delimiter = ',')]
    pub(crate) segments: Vec<u64>,
}

/// What a contender answers: one line of JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Raw {
    /// What it is, with its version.
    pub(crate) version: String,
    /// Its passes.
    pub(crate) passes: Vec<Pass>,
}

/// One pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pass {
    /// Events dispatched, which is also the bytes written and read.
    pub(crate) events: u64,
    /// CPU time of the thread.
    pub(crate) cpu_ns: u64,
    /// Instructions in user mode, where they can be counted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) user: Option<u64>,
    /// Instructions in the kernel.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) kernel: Option<u64>,
}

/// Measures `contender`, says the result, and runs the segments.
pub(crate) fn measure(
    version: &str,
    contender: &mut impl Contender,
    writers: &mut Writers,
    task: &Task,
) -> io::Result<()> {
    let count = calibrate(contender, writers, task.pass_ns)?;
    let (mut user, mut kernel) = (counter(false), counter(true));
    let mut passes = Vec::new();
    for _ in 0..task.passes {
        let (user_before, kernel_before) = (read(&mut user), read(&mut kernel));
        let before = cpu_ns();
        rounds(contender, writers, count)?;
        let cpu_ns = cpu_ns() - before;
        let since = |after: Option<u64>, before| Some(after? - before?);
        passes.push(Pass {
            events: count * writers.active() as u64,
            cpu_ns,
            user: since(read(&mut user), user_before),
            kernel: since(read(&mut kernel), kernel_before),
        });
    }
    drop((user, kernel));
    let raw = Raw { version: version.to_owned(), passes };
    let mut out = io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(&raw)?)?;
    out.flush()?;
    if task.segments.is_empty() {
        return Ok(());
    }
    nix::sys::ptrace::traceme()?;
    for &count in &task.segments {
        kill_process(getpid(), Signal::STOP)?;
        rounds(contender, writers, count)?;
    }
    kill_process(getpid(), Signal::STOP)?;
    Ok(())
}

// Not inlined: the loop is the same code for every contender.
#[inline(never)]
fn rounds(contender: &mut impl Contender, writers: &mut Writers, count: u64) -> io::Result<()> {
    for _ in 0..count {
        let round = writers.write()?;
        turn(contender, round)?;
    }
    Ok(())
}

// Nor this: what is around it would be compiled differently for each.
#[inline(never)]
fn turn(contender: &mut impl Contender, round: &[u32]) -> io::Result<()> {
    contender.dispatch(round)
}

/// The number of rounds that takes `ns`, found by running them, so that it also warms up.
fn calibrate(contender: &mut impl Contender, writers: &mut Writers, ns: u64) -> io::Result<u64> {
    // Some tell the kernel of all the descriptors in their first wait, which is not to count.
    rounds(contender, writers, 4)?;
    let mut count = 2;
    loop {
        let before = cpu_ns();
        rounds(contender, writers, count)?;
        let took = (cpu_ns() - before).max(1);
        if took >= ns / 2 || count >= 1 << 30 {
            return Ok(((count as f64 * ns as f64 / took as f64) as u64).max(2));
        }
        count *= 2;
    }
}

fn cpu_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Counts the instructions of this thread, where there is a counter.
fn counter(kernel: bool) -> Option<Counter> {
    let mut builder = Builder::new(Hardware::INSTRUCTIONS);
    if kernel {
        builder.include_kernel().exclude_user(true);
    }
    builder.enabled(true).build().ok()
}

fn read(counter: &mut Option<Counter>) -> Option<u64> {
    counter.as_mut()?.read().ok()
}
