//! `hearken load --find-knee`.

use std::process::ExitCode;

use hearken_load::knee::{KneeOptions, find_knee};

use crate::args::load::LoadArgs;
use crate::load::status::NOT_MET;
use crate::load::{Sink, config};
use crate::load_trials::Loads;
use crate::{Failure, signals};

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
    let mut loads = Loads::new(config, options.seed)?;
    let knee = find_knee(&options, &mut loads).map_err(Failure::usage)?;
    let met = knee.rate > 0.0;
    sink.write(&knee)?;
    if let Some(status) = signals::exit_status() {
        return Ok(ExitCode::from(status));
    }
    Ok(if met { ExitCode::SUCCESS } else { ExitCode::from(NOT_MET) })
}
