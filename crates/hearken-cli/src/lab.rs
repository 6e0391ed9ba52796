//! The command `hearken lab`.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hearken::io::{find, names};
use hearken_lab::export::Render;
use hearken_lab::{
    LabError, Progress, QuickConfig, Report, Settings, StderrProgress, export, table,
};

use crate::args::lab::{Experiment, LabArgs, LaunchArgs, QuickArgs};
use crate::{Failure, signals};

mod peers;

/// Exit status that a shell reports for a process terminated by SIGINT.
const INTERRUPTED: u8 = 130;

pub(crate) fn run(args: LabArgs) -> Result<ExitCode, Failure> {
    match args.experiment {
        Experiment::Quick(args) => quick(args),
        Experiment::Peers(args) => peers::run(args),
        Experiment::Launch(args) => launch(&args),
    }
}

fn quick(args: QuickArgs) -> Result<ExitCode, Failure> {
    let out = args.out.clone();
    let config = QuickConfig {
        executable: executable()?,
        command_line: std::env::args().collect(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        settings: settings(args)?,
    };
    run_and_report(&out, |progress, stop| hearken_lab::quick(&config, progress, stop))
}

fn executable() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(Failure::runtime)
}

/// Runs an experiment, prints its table and writes its report. SIGINT ends it with a partial report.
fn run_and_report<S, C, P>(
    out: &Path,
    experiment: impl FnOnce(&mut dyn Progress, &AtomicBool) -> Result<Report<S, C, P>, LabError>,
) -> Result<ExitCode, Failure>
where
    Report<S, C, P>: Render,
{
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    let on_stop = move || flag.store(true, Ordering::Release);
    signals::on_stop(on_stop).map_err(Failure::runtime)?;
    // Fails before the experiment instead of after it.
    std::fs::create_dir_all(out).map_err(|error| {
        Failure::usage(format!("cannot create directory '{}': {error}", out.display()))
    })?;
    let report = match experiment(&mut StderrProgress::default(), &stop) {
        Err(error @ LabError::Config(_)) => return Err(Failure::usage(error)),
        // Interrupted before the first measurement.
        Err(LabError::Interrupted) => return Ok(ExitCode::from(INTERRUPTED)),
        report => report.map_err(Failure::runtime)?,
    };
    let written = export::write_all(&report, out).map_err(Failure::runtime)?;
    let mut output = table::text(&report);
    for path in written {
        output += &format!("wrote {}\n", path.display());
    }
    let _ = io::stdout().write_all(output.as_bytes());
    Ok(if report.complete { ExitCode::SUCCESS } else { ExitCode::from(INTERRUPTED) })
}

/// Replaces this process with another program, which the kernel kills when the lab exits.
fn launch(args: &LaunchArgs) -> Result<ExitCode, Failure> {
    signals::exit_with_parent().map_err(Failure::runtime)?;
    let [program, arguments @ ..] = &*args.command else { return Ok(ExitCode::FAILURE) };
    let error = Command::new(program).args(arguments).exec();
    Err(Failure::usage(format!("cannot start '{}': {error}", program.display())))
}

fn settings(args: QuickArgs) -> Result<Settings, Failure> {
    let defaults = Settings::default();
    let mechanisms = if args.mechanisms.is_empty() {
        let available = names().filter(|name| find(name).is_ok_and(|spec| spec.probe().is_ok()));
        available.map(str::to_owned).collect()
    } else {
        for name in &args.mechanisms {
            find(name).map_err(Failure::usage)?;
        }
        args.mechanisms
    };
    Ok(Settings {
        mechanisms,
        idle: if args.idle.is_empty() { defaults.idle } else { args.idle },
        rate: args.rate.unwrap_or(defaults.rate),
        repetitions: args.repetitions.unwrap_or(defaults.repetitions),
        seed: args.seed.unwrap_or(defaults.seed),
        ..defaults
    })
}
