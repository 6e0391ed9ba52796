//! Trials of a search or a sweep: short loads whose reports select the next rate.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::bottleneck::{Bottleneck, MAX_CPU_UTILISATION};
use crate::config::LoadError;
use crate::knee::Trial;
use crate::report::Report;

/// 99th percentile of the generator's lateness up to which it does not limit the result.
const MAX_LATENESS: Duration = Duration::from_millis(1);

/// The generator's lateness matters if it is at least the latency divided by this.
const LATE_LATENCY_RATIO: u64 = 4;

/// The generator limits the result if it skipped more than one request in this many.
const MAX_SKIPPED: u64 = 100;

/// The next step of a search or a sweep with the result `R`, whose trials have purposes of type `P`.
#[derive(Clone, PartialEq, Debug)]
pub enum Step<P, R> {
    /// Pause, then run a trial.
    Try {
        /// Pause without load before the trial.
        pause: Duration,
        /// Arrivals per second.
        rate: f64,
        /// Duration of the trial.
        duration: Duration,
        /// Purpose of the trial.
        purpose: P,
    },
    /// All trials are complete.
    Done(Box<R>),
}

/// Runs the trials of a search or a sweep, whose results are of type `T`.
pub trait TrialRunner<T = Trial> {
    /// Offers `rate` arrivals per second for `duration`. An incomplete report ends the search.
    ///
    /// # Errors
    /// Ends the search with the same error.
    fn run(&mut self, rate: f64, duration: Duration) -> Result<Report, LoadError>;

    /// Waits for `time` without load. Returning false ends the search.
    fn pause(&mut self, time: Duration) -> bool;

    /// Handles the result of a trial.
    fn on_trial(&mut self, trial: &T) {
        let _ = trial;
    }
}

/// A trial that ended by itself.
pub(crate) struct Finished {
    pub(crate) report: Report,
    /// CPU usage of the generator, as a fraction of one processor per thread.
    pub(crate) busy: f64,
    /// Duration of the trial with the pause before it.
    pub(crate) took: Duration,
}

/// Pauses, then runs a trial. Returns `None` if it was stopped.
pub(crate) fn run_trial<T>(
    trials: &mut dyn TrialRunner<T>,
    pause: Duration,
    rate: f64,
    duration: Duration,
) -> Result<Option<Finished>, LoadError> {
    let began = Instant::now();
    if !trials.pause(pause) {
        return Ok(None);
    }
    let (offered, used) = (Instant::now(), cpu_time());
    let report = trials.run(rate, duration)?;
    if !report.complete {
        return Ok(None);
    }
    let available = offered.elapsed().max(duration).as_secs_f64() * report.threads.max(1) as f64;
    let busy = cpu_time().saturating_sub(used).as_secs_f64() / available;
    Ok(Some(Finished { report, busy, took: began.elapsed() }))
}

/// Returns whether the lateness of the generator was a large part of the latency.
pub(crate) fn generator_late(report: &Report) -> bool {
    let (lateness, latency) = (report.lateness_ns.p99, report.latency_ns.p99);
    Duration::from_nanos(lateness) > MAX_LATENESS && lateness >= latency / LATE_LATENCY_RATIO
}

/// Returns whether the generator could not offer the rate: it ran out of CPU time, descriptors or
/// ports.
pub(crate) fn generator_saturated(report: &Report, busy: f64) -> bool {
    let busy = busy.max(report.generator_cpu_utilisation);
    report.errors.fd_unavail + report.errors.addr_unavail > 0
        || busy >= MAX_CPU_UTILISATION
        || report.missed.generator > report.requests.scheduled / MAX_SKIPPED
        || report.bottleneck == Bottleneck::Generator
}

/// Returns the CPU time of this process so far.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime).try_into().unwrap_or_default()
}
