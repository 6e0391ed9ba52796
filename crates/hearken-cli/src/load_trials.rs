//! The trials of `hearken load --find-knee` and `--sweep`: one load, repeated at different rates.

use std::fmt::Display;
use std::thread;
use std::time::{Duration, Instant};

use hearken_load::knee::TrialRunner;
use hearken_load::{Config, LoadError, Profile, Report, StopSignal};

use crate::{Failure, signals};

/// Interval at which a pause checks whether the search was stopped.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Number of intervals in the report of a trial, and their minimum length.
const INTERVALS: u32 = 10;
const MIN_INTERVAL: Duration = Duration::from_millis(10);

/// Waits. Returns false at once if `stop` is raised.
pub(crate) fn pause(stop: &StopSignal, time: Duration) -> bool {
    let end = Instant::now() + time;
    while !stop.is_raised() {
        match end.saturating_duration_since(Instant::now()) {
            Duration::ZERO => return true,
            remaining => thread::sleep(remaining.min(POLL_INTERVAL)),
        }
    }
    false
}

/// One load, repeated at different rates.
pub(crate) struct Loads {
    config: Config,
    /// The seed of the next trial.
    seed: u64,
    stop: StopSignal,
}

impl Loads {
    /// Creates the loads. SIGINT and SIGTERM stop them.
    pub(crate) fn new(config: Config, seed: u64) -> Result<Loads, Failure> {
        let stop = StopSignal::new();
        let raised = stop.clone();
        signals::on_stop(move || raised.raise()).map_err(Failure::runtime)?;
        Ok(Loads { config, seed, stop })
    }
}

impl<T: Display> TrialRunner<T> for Loads {
    fn run(&mut self, rate: f64, duration: Duration) -> Result<Report, LoadError> {
        self.seed = self.seed.wrapping_add(1);
        let config = Config {
            rate: Profile::constant(rate),
            duration: Some(duration),
            seed: Some(self.seed),
            report_interval: (duration / INTERVALS).max(MIN_INTERVAL),
            ..self.config.clone()
        };
        hearken_load::run(&config, &mut (), &self.stop)
    }

    fn pause(&mut self, time: Duration) -> bool {
        pause(&self.stop, time)
    }

    fn on_trial(&mut self, trial: &T) {
        eprintln!("{trial}");
    }
}
