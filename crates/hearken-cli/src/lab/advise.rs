//! The command `hearken lab advise`.

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use hearken_lab::advise::{self, Workload};
use hearken_lab::journal::{Header, Journal};
use hearken_lab::{
    Available, Experiment, LabError, PlannedExperiment, Report, RunConfig, StderrProgress, export,
};

use super::{INTERRUPTED, failure, run::mechanisms, stop_flag};
use crate::Failure;
use crate::args::lab::AdviseArgs;
use crate::load::print;

pub(super) fn run(args: &AdviseArgs) -> Result<ExitCode, Failure> {
    let stop = stop_flag()?;
    match advise(args, &stop) {
        Err(LabError::Interrupted) => Ok(ExitCode::from(INTERRUPTED)),
        Ok(text) => {
            print(&text);
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => Err(failure(error)),
    }
}

fn advise(args: &AdviseArgs, stop: &AtomicBool) -> Result<String, LabError> {
    create(&args.out)?;
    let workload = match (&args.workload, args.observe) {
        (_, Some(pid)) => advise::observe(pid, args.observe_for, stop)?,
        (Some(path), None) => Workload::read(path)?,
        (None, None) => return Err(LabError::Workload("it has no file".into())),
    };
    let screening = workload.experiment(&args.trial, &args.out)?;
    let screened = measure(args, screening.clone(), &args.servers, "screening", stop)?;
    let finalists = advise::finalists(&screened, &screening)?;
    let finalists = Experiment { repetitions: args.repetitions, ..finalists };
    let decision = measure(args, finalists.clone(), &[], "decision", stop)?;
    advise::advice(&workload, &decision, &finalists)
}

/// Runs an experiment and writes its report to a directory of the given name.
fn measure(
    args: &AdviseArgs,
    experiment: Experiment,
    servers: &[String],
    name: &str,
    stop: &AtomicBool,
) -> Result<Report, LabError> {
    let recipes = hearken_lab::builtin_recipes()?;
    let mut planned =
        PlannedExperiment::new(experiment, &Available { recipes, mechanisms: mechanisms() })?;
    if !servers.is_empty() {
        planned.select_servers(servers)?;
    }
    let directory = args.out.join(name);
    let executable = std::env::current_exe()
        .map_err(|source| LabError::System { action: "find this program".into(), source })?;
    let command_line: Vec<String> = std::env::args().collect();
    let experiments = vec![planned];
    create(&directory)?;
    let header = Header::new(command_line.clone(), args.seed, &experiments);
    let journal = Journal::create(&directory, header)?;
    let config = RunConfig {
        executable,
        command_line,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        experiments,
        seed: args.seed,
        emulator: None,
        claims: Vec::new(),
        time_budget: None,
    };
    let report = hearken_lab::run(&config, journal, &mut StderrProgress::default(), stop)?;
    export::write_all(&report, &directory)?;
    match report.complete {
        true => Ok(report),
        false => Err(LabError::Interrupted),
    }
}

fn create(directory: &Path) -> Result<(), LabError> {
    fs::create_dir_all(directory).map_err(|source| LabError::System {
        action: format!("create the directory '{}'", directory.display()),
        source,
    })
}
