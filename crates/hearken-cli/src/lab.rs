//! `hearken lab`.

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

use crate::args::{Experiment, LabArgs, LaunchArgs, QuickArgs};
use crate::{Failure, signals};

mod peers;

/// What a shell says of a process that SIGINT ended.
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
    report_on(&out, |progress, stop| hearken_lab::quick(&config, progress, stop))
}

fn executable() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(Failure::runtime)
}

/// Runs an experiment, and tells and writes what came of it. SIGINT ends it with what there is.
fn report_on<S, C, P>(
    out: &Path,
    experiment: impl FnOnce(&mut dyn Progress, &AtomicBool) -> Result<Report<S, C, P>, LabError>,
) -> Result<ExitCode, Failure>
where
    Report<S, C, P>: Render,
{
    let stop = Arc::new(AtomicBool::new(false));
    let raised = stop.clone();
    let on_stop = move || raised.store(true, Ordering::Release);
    signals::on_stop(on_stop).map_err(Failure::runtime)?;
    // Before minutes are spent on it.
    std::fs::create_dir_all(out)
        .map_err(|error| Failure::usage(format!("cannot write to {}: {error}", out.display())))?;
    let report = match experiment(&mut StderrProgress::new(), &stop) {
        Err(error @ LabError::Config(_)) => return Err(Failure::usage(error)),
        // Before there was anything to report on.
        Err(LabError::Interrupted) => return Ok(ExitCode::from(INTERRUPTED)),
        report => report.map_err(Failure::runtime)?,
    };
    let written = export::write_all(&report, out).map_err(Failure::runtime)?;
    let mut told = table::text(&report);
    for path in written {
        told += &format!("wrote {}\n", path.display());
    }
    let _ = io::stdout().write_all(told.as_bytes());
    Ok(if report.complete { ExitCode::SUCCESS } else { ExitCode::from(INTERRUPTED) })
}

/// Becomes another program, which the kernel ends when the lab does.
fn launch(args: &LaunchArgs) -> Result<ExitCode, Failure> {
    signals::exit_with_parent().map_err(Failure::runtime)?;
    let [program, arguments @ ..] = &*args.command else { return Ok(ExitCode::FAILURE) };
    let error = Command::new(program).args(arguments).exec();
    Err(Failure::usage(format!("cannot start {}: {error}", program.display())))
}

fn settings(args: QuickArgs) -> Result<Settings, Failure> {
    let defaults = Settings::default();
    let mechanisms = if args.mechanisms.is_empty() {
        let here = names().filter(|name| find(name).is_ok_and(|spec| spec.probe().is_ok()));
        here.map(str::to_owned).collect()
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
