//! `hearken load --sweep`.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use hearken_lab::export;
use hearken_load::sweep::{LimitedBy, Sweep, SweepOptions, sweep};

use crate::args::load::LoadArgs;
use crate::load::{ResultFile, Sink, config};
use crate::load_trials::Loads;
use crate::{Failure, signals};

/// Longest pause before a trial.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// Runs `--sweep`.
pub(crate) fn run(args: LoadArgs) -> Result<ExitCode, Failure> {
    let trial = args.knee.trial;
    let options = SweepOptions {
        trial,
        pause: (trial / 3).min(MAX_PAUSE),
        max_rate: args.knee.max_rate,
        repetitions: args.knee.repetitions,
        // 32 bits, so that the seed is easy to type.
        seed: args.seed.unwrap_or_else(|| fastrand::u32(..).into()),
        ..SweepOptions::default()
    };
    options.check().map_err(Failure::usage)?;
    let sink = Sink::open(args.json.as_deref())?;
    let page = args.outputs.html.as_deref();
    if page.is_some_and(|page| page == Path::new("-") || args.json.as_deref() == Some(page)) {
        return Err(Failure::usage("the page of --sweep needs a file of its own; use --html FILE"));
    }
    let page = page.map(ResultFile::open).transpose()?;
    let mut loads = Loads::new(config(args)?, options.seed)?;
    announce(&options);
    let result = sweep(&options, &mut loads).map_err(Failure::usage)?;
    if let Some(page) = page {
        page.write(export::html(&result).as_bytes())?;
    }
    sink.write(&result)?;
    Ok(status(&result))
}

/// Prints the expected duration and the head of the table of trials.
fn announce(options: &SweepOptions) {
    let rates = options.loads.len();
    let trials = rates * options.repetitions as usize;
    let seconds = options.estimated_duration().as_secs_f64();
    let time = if seconds < 100.0 {
        format!("{seconds:.0} s")
    } else {
        format!("{:.0} min", seconds / 60.0)
    };
    eprintln!(
        "sweep: the search for saturation, then {rates} rates in {trials} trials; at least {time}"
    );
    eprintln!(
        "  {:<9} {:>10} {:>10}  errors  missed     p50     p99",
        "trial", "offered/s", "replies/s"
    );
}

fn status(result: &Sweep) -> ExitCode {
    if let Some(status) = signals::exit_status() {
        ExitCode::from(status)
    } else if result.limited_by == LimitedBy::NoReplies {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}
