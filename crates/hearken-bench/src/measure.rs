//! One measurement in its own process. `peers/peer.h` is the counterpart in C.

use std::io::{self, Write};

use perf_event::events::Hardware;
use perf_event::{Builder, Counter};
use rustix::process::{Signal, getpid, kill_process};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::pairs::{DescriptorType, Writers};

/// An event dispatcher under test.
pub(crate) trait Dispatcher {
    /// Receives events until one byte was read from each descriptor in `round`.
    fn dispatch(&mut self, round: &[u32]) -> io::Result<()>;
}

/// The parameters of one measurement.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Task {
    /// Number of registered descriptors.
    #[arg(long)]
    pub(crate) descriptors: usize,
    /// Number of descriptors that each round makes ready.
    #[arg(long)]
    pub(crate) active: usize,
    /// Type of the descriptors.
    #[arg(long)]
    pub(crate) descriptor_type: DescriptorType,
    /// Number of passes.
    #[arg(long)]
    pub(crate) passes: u32,
    /// CPU time per pass in nanoseconds.
    #[arg(long)]
    pub(crate) pass_ns: u64,
    /// Numbers of rounds that the driver traces, each between two stops.
    #[arg(long, value_delimiter = ',')]
    pub(crate) segments: Vec<u64>,
}

/// The result of a measurement, printed as one line of JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measurement {
    /// Name and version of the contender.
    pub(crate) version: String,
    /// Results of the passes.
    pub(crate) passes: Vec<Pass>,
}

/// The result of one pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pass {
    /// Number of events, which equals the number of bytes written and read.
    pub(crate) events: u64,
    /// CPU time of the thread in nanoseconds.
    pub(crate) cpu_ns: u64,
    /// User-mode instructions, if they can be counted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) user: Option<u64>,
    /// Kernel instructions, if they can be counted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) kernel: Option<u64>,
}

/// Measures `contender`, prints the result, and runs the segments.
pub(crate) fn measure(
    version: &str,
    contender: &mut impl Dispatcher,
    writers: &mut Writers,
    task: &Task,
) -> io::Result<()> {
    let count = calibrate(contender, writers, task.pass_ns)?;
    let (mut user, mut kernel) = (counter(false), counter(true));
    let mut passes = Vec::new();
    for _ in 0..task.passes {
        let (user_before, kernel_before) = (read(&mut user), read(&mut kernel));
        let before = cpu_ns();
        run_rounds(contender, writers, count)?;
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
    let measurement = Measurement { version: version.to_owned(), passes };
    let mut out = io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(&measurement)?)?;
    out.flush()?;
    if task.segments.is_empty() {
        return Ok(());
    }
    nix::sys::ptrace::traceme()?;
    for &count in &task.segments {
        kill_process(getpid(), Signal::STOP)?;
        run_rounds(contender, writers, count)?;
    }
    kill_process(getpid(), Signal::STOP)?;
    Ok(())
}

// Not inlined, so that the loop is the same code for every contender.
#[inline(never)]
fn run_rounds(
    contender: &mut impl Dispatcher,
    writers: &mut Writers,
    count: u64,
) -> io::Result<()> {
    for _ in 0..count {
        let round = writers.write()?;
        dispatch_round(contender, round)?;
    }
    Ok(())
}

// Not inlined, because the compiler would generate different surrounding code for each contender.
#[inline(never)]
fn dispatch_round(contender: &mut impl Dispatcher, round: &[u32]) -> io::Result<()> {
    contender.dispatch(round)
}

/// Returns the number of rounds that take `ns`. Running them also warms up caches.
fn calibrate(contender: &mut impl Dispatcher, writers: &mut Writers, ns: u64) -> io::Result<u64> {
    // Some contenders register the descriptors in their first wait, which must not count.
    run_rounds(contender, writers, 4)?;
    let mut count = 2;
    loop {
        let before = cpu_ns();
        run_rounds(contender, writers, count)?;
        let elapsed = (cpu_ns() - before).max(1);
        if elapsed >= ns / 2 || count >= 1 << 30 {
            return Ok(((count as f64 * ns as f64 / elapsed as f64) as u64).max(2));
        }
        count *= 2;
    }
}

fn cpu_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Starts a counter of the instructions of this thread, if one is available.
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
