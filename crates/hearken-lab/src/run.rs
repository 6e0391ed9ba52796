//! Execution of a plan.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::error::LabError;
use crate::progress::Progress;
use crate::warning::Warning;

/// A planned measurement. Its `Display` form is shown as progress.
pub(crate) trait Planned: Display {
    /// Returns the warning for a failed measurement.
    fn failed(&self, reason: String) -> Warning;
}

/// Parameters of a run.
pub(crate) struct Way<'a> {
    /// Estimated duration of the run.
    pub(crate) expected: Duration,
    /// Number of consecutive failures after which the run is aborted.
    pub(crate) most_failures: usize,
    pub(crate) progress: &'a mut dyn Progress,
    pub(crate) stop: &'a AtomicBool,
}

/// Executes the trials in order. A failed trial is a warning; it is an error if all trials failed.
pub(crate) fn run<C: Planned, S>(
    cases: &[C],
    way: &mut Way<'_>,
    mut measure: impl FnMut(&C) -> Result<S, LabError>,
) -> Result<(Vec<S>, Vec<Warning>), LabError> {
    let mut samples = Vec::with_capacity(cases.len());
    let mut warnings = Vec::new();
    let mut first_failure = None;
    let (mut in_a_row, mut failures) = (0, 0);
    let began = Instant::now();
    for (done, case) in cases.iter().enumerate() {
        let left = left(began.elapsed(), done, cases.len(), way.expected);
        way.progress.step(done, cases.len(), case, left);
        let stopped = way.stop.load(Ordering::Relaxed);
        match if stopped { Err(LabError::Interrupted) } else { measure(case) } {
            Ok(sample) => {
                samples.push(sample);
                in_a_row = 0;
            }
            Err(LabError::Interrupted) => {
                let done = samples.len();
                warnings.push(Warning::Interrupted { done, planned: cases.len() });
                way.progress.finish();
                return Ok((samples, warnings));
            }
            Err(error) => {
                let reason = error.to_string();
                first_failure.get_or_insert_with(|| reason.clone());
                warnings.push(case.failed(reason));
                failures += 1;
                in_a_row += 1;
                if in_a_row == way.most_failures {
                    warnings.push(Warning::GaveUp { failures: in_a_row });
                    break;
                }
            }
        }
    }
    way.progress.finish();
    match first_failure {
        Some(first) if samples.is_empty() => Err(LabError::NothingMeasured { failures, first }),
        _ => Ok((samples, warnings)),
    }
}

/// Estimates the remaining time from the pace so far, or from the expected duration at the start.
fn left(elapsed: Duration, done: usize, planned: usize, expected: Duration) -> Duration {
    if done == 0 { expected } else { elapsed.mul_f64((planned - done) as f64 / done as f64) }
}
