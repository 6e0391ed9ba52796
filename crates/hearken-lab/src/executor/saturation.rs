//! The search for the saturation of a server, with the method of `hearken load --sweep`.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hearken_load::sweep::{LimitedBy, SweepOptions, Trial, TrialRunner, sweep};
use hearken_load::{LoadError, Report};

use super::pass::PassContext;
use crate::error::LabError;
use crate::experiment::Saturation;
use crate::plan::parse_duration;

/// Duration of a trial unless the experiment states one.
const TRIAL: Duration = Duration::from_secs(1);
/// Rate of the first trial, in arrivals per second.
const START_RATE: f64 = 500.0;
/// Interval at which a pause checks the stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Number of intervals in the result of a trial.
const INTERVALS: u32 = 10;

/// Searches for the highest rate that the server answers.
///
/// Returns the rate, and whether the generator could not offer more.
pub(super) fn search(
    rule: &Saturation,
    context: &PassContext<'_>,
) -> Result<(f64, bool), LabError> {
    let trial = rule.trial.as_deref().and_then(parse_duration).unwrap_or(TRIAL);
    let options = SweepOptions {
        trial,
        pause: trial / 4,
        start: START_RATE,
        loads: vec![1.0],
        repetitions: 1,
        ..SweepOptions::default()
    };
    let mut loads = Loads { rule, context, failure: None };
    let result = sweep(&options, &mut loads);
    if let Some(failure) = loads.failure {
        return Err(failure);
    }
    let wrong = |problem: String| LabError::Saturation { server: rule.server.clone(), problem };
    let result = result.map_err(|error| wrong(error.to_string()))?;
    match result.saturation_rate {
        rate if rate > 0.0 && result.complete => {
            Ok((rate, result.limited_by == LimitedBy::Generator))
        }
        _ => Err(wrong("no rate received replies".into())),
    }
}

/// The loads of the trials, in processes of their own.
struct Loads<'a> {
    rule: &'a Saturation,
    context: &'a PassContext<'a>,
    failure: Option<LabError>,
}

impl Loads<'_> {
    fn trial(&self, rate: f64, duration: Duration) -> Result<Report, LabError> {
        let interval = (duration / INTERVALS).as_millis().max(10);
        let own = [
            format!("--rate={rate:.3}"),
            format!("--duration={}ms", duration.as_millis()),
            format!("--interval={interval}ms"),
        ];
        let output = self.context.run_load(&self.rule.load, own.to_vec(), duration)?;
        let json = output.find('{').map_or("", |at| &output[at..]);
        serde_json::from_str(json).map_err(|error| LabError::LoadResult {
            process: "the load of a search for saturation".into(),
            problem: error.to_string(),
        })
    }
}

impl TrialRunner<Trial> for Loads<'_> {
    fn run(&mut self, rate: f64, duration: Duration) -> Result<Report, LoadError> {
        // An incomplete report ends the search.
        Ok(self.trial(rate, duration).unwrap_or_else(|error| {
            self.failure = Some(error);
            Report::default()
        }))
    }

    fn pause(&mut self, time: Duration) -> bool {
        let end = Instant::now() + time;
        while !self.context.stop.load(Ordering::Relaxed) {
            match end.saturating_duration_since(Instant::now()) {
                Duration::ZERO => return true,
                left => std::thread::sleep(left.min(POLL_INTERVAL)),
            }
        }
        self.failure = Some(LabError::Interrupted);
        false
    }
}
