//! Execution of a plan.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::error::LabError;
use crate::progress::Progress;
use crate::warning::Warning;

/// A planned measurement. Its `Display` form is shown as progress.
pub(crate) trait PlannedTrial: Display {
    /// Returns the warning for a failed measurement.
    fn failure_warning(&self, reason: String) -> Warning;
}

/// Parameters of a run.
pub(crate) struct RunContext<'a> {
    /// Estimated duration of the run.
    pub(crate) expected_duration: Duration,
    /// Number of consecutive failures after which the run is aborted.
    pub(crate) max_consecutive_failures: usize,
    pub(crate) progress: &'a mut dyn Progress,
    pub(crate) stop: &'a AtomicBool,
}

/// Executes the trials in order. A failed trial is a warning; it is an error if all trials failed.
pub(crate) fn run<C: PlannedTrial, S>(
    trials: &[C],
    context: &mut RunContext<'_>,
    mut measure: impl FnMut(&C) -> Result<S, LabError>,
) -> Result<(Vec<S>, Vec<Warning>), LabError> {
    let mut samples = Vec::with_capacity(trials.len());
    let mut warnings = Vec::new();
    let mut first_failure = None;
    let (mut consecutive, mut failures) = (0, 0);
    let began = Instant::now();
    for (done, trial) in trials.iter().enumerate() {
        let remaining =
            remaining_time(began.elapsed(), done, trials.len(), context.expected_duration);
        context.progress.update(done, trials.len(), trial, remaining);
        let stopped = context.stop.load(Ordering::Relaxed);
        match if stopped { Err(LabError::Interrupted) } else { measure(trial) } {
            Ok(sample) => {
                samples.push(sample);
                consecutive = 0;
            }
            Err(LabError::Interrupted) => {
                let done = samples.len();
                warnings.push(Warning::Interrupted { done, planned: trials.len() });
                context.progress.finish();
                return Ok((samples, warnings));
            }
            Err(error) => {
                let reason = error.to_string();
                first_failure.get_or_insert_with(|| reason.clone());
                warnings.push(trial.failure_warning(reason));
                failures += 1;
                consecutive += 1;
                if consecutive == context.max_consecutive_failures {
                    warnings.push(Warning::TooManyFailures { failures: consecutive });
                    break;
                }
            }
        }
    }
    context.progress.finish();
    match first_failure {
        Some(first) if samples.is_empty() => Err(LabError::AllFailed { failures, first }),
        _ => Ok((samples, warnings)),
    }
}

/// Estimates the remaining time from the pace so far, or from the expected duration at the start.
fn remaining_time(elapsed: Duration, done: usize, planned: usize, expected: Duration) -> Duration {
    if done == 0 { expected } else { elapsed.mul_f64((planned - done) as f64 / done as f64) }
}
