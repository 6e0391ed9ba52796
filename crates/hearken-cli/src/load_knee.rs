//! `hearken load --find-knee`.

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use hearken_load::knee::{KneeOptions, Trial, TrialRunner, find_knee};
use hearken_load::{Config, LoadError, Profile, Report, StopSignal};

use crate::args::load::LoadArgs;
use crate::load::status::NOT_MET;
use crate::load::{Sink, config};
use crate::{Failure, signals};

/// Interval at which a pause checks whether the search was stopped.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Runs `--find-knee`.
pub(crate) fn run(args: LoadArgs) -> Result<ExitCode, Failure> {
    let sink = Sink::open(args.json.as_deref())?;
    let defaults = KneeOptions::default();
    let options = KneeOptions {
        objectives: args.knee.slo.clone().unwrap_or(defaults.objectives),
        trial: args.knee.trial,
        max_rate: args.knee.max_rate,
        precision: args.knee.precision,
        // 32 bits, so that the seed is easy to type.
        seed: args.seed.unwrap_or_else(|| fastrand::u32(..).into()),
        ..defaults
    };
    let config = config(args)?;
    options.objectives.check_measurable(&config).map_err(Failure::usage)?;
    let stop = StopSignal::new();
    let raised = stop.clone();
    signals::on_stop(move || raised.raise()).map_err(Failure::runtime)?;
    let mut loads = Loads { config, seed: options.seed, stop };
    let knee = find_knee(&options, &mut loads).map_err(Failure::usage)?;
    let met = knee.rate > 0.0;
    sink.write(&knee)?;
    if let Some(status) = signals::exit_status() {
        return Ok(ExitCode::from(status));
    }
    Ok(if met { ExitCode::SUCCESS } else { ExitCode::from(NOT_MET) })
}

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
struct Loads {
    config: Config,
    /// The seed of the next trial.
    seed: u64,
    stop: StopSignal,
}

impl TrialRunner for Loads {
    fn run(&mut self, rate: f64, duration: Duration) -> Result<Report, LoadError> {
        self.seed = self.seed.wrapping_add(1);
        let config = Config {
            rate: Profile::constant(rate),
            duration: Some(duration),
            seed: Some(self.seed),
            ..self.config.clone()
        };
        hearken_load::run(&config, &mut (), &self.stop)
    }

    fn pause(&mut self, time: Duration) -> bool {
        pause(&self.stop, time)
    }

    fn on_trial(&mut self, trial: &Trial) {
        eprintln!("{trial}");
    }
}
