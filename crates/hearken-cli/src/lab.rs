//! The command `hearken lab`.

use std::fs;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hearken_lab::compare::compare_results;
use hearken_lab::{Kind, LabError, Report, SCHEMA, export};

use crate::args::lab::{
    CompareArgs, LabArgs, LabCommand, LaunchArgs, ListArgs, PrintArgs, ReportArgs,
};
use crate::load::print;
use crate::{Failure, signals};

mod advise;
mod run;

/// Exit status that a shell reports for a process terminated by SIGINT.
const INTERRUPTED: u8 = 130;

pub(crate) fn run(args: LabArgs) -> Result<ExitCode, Failure> {
    match args.command {
        LabCommand::Run(args) => run::run(*args),
        LabCommand::Advise(args) => advise::run(&args),
        LabCommand::List(args) => list(&args),
        LabCommand::Print(args) => print_definition(&args),
        LabCommand::Report(args) => report(&args),
        LabCommand::Compare(args) => compare(&args),
        LabCommand::DelayServer(args) => {
            let served = hearken_lab::delay_server::run(&args.events, args.listen, args.admin);
            served.map(|()| ExitCode::SUCCESS).map_err(failure)
        }
        LabCommand::Launch(args) => launch(&args),
    }
}

/// Converts an error of the lab: invalid input is a usage error.
fn failure(error: LabError) -> Failure {
    match error {
        LabError::Config(_) | LabError::Workload(_) => Failure::usage(error),
        error => Failure::runtime(error),
    }
}

/// Writes the files of a report and prints its tables.
fn write(report: &Report, out: &Path) -> Result<(), Failure> {
    let written = export::write_all(report, out).map_err(Failure::runtime)?;
    let mut output = export::text(report);
    for path in written {
        output += &format!("wrote {}\n", path.display());
    }
    let _ = io::stdout().write_all(output.as_bytes());
    Ok(())
}

fn list(args: &ListArgs) -> Result<ExitCode, Failure> {
    let mut rows = Vec::new();
    if args.claims {
        for claim in hearken_lab::claims::all().map_err(Failure::runtime)? {
            let settled = claim.experiment.as_deref().unwrap_or("-");
            rows.push((format!("{:10} {settled:9}", claim.id), claim.statement));
        }
    } else if args.recipes {
        for recipe in hearken_lab::builtin_recipes().map_err(Failure::runtime)? {
            let kind = recipe.kind.name();
            rows.push((format!("{kind:6}  {}", recipe.name), recipe.description));
        }
    } else {
        for experiment in hearken_lab::builtin_experiments().map_err(Failure::runtime)? {
            rows.push((experiment.name, experiment.title));
        }
    }
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines = rows.iter().map(|(name, about)| format!("{name:width$}  {about}\n"));
    print(&lines.collect::<String>());
    Ok(ExitCode::SUCCESS)
}

fn print_definition(args: &PrintArgs) -> Result<ExitCode, Failure> {
    let (name, kind) = match (&args.recipe, &args.proxy) {
        (Some(name), _) => (name, Kind::Server),
        (_, Some(name)) => (name, Kind::Proxy),
        _ => {
            let name = args.experiment.as_deref().unwrap_or_default();
            print(&run::experiment(name)?.text);
            return Ok(ExitCode::SUCCESS);
        }
    };
    let recipes = hearken_lab::builtin_recipes().map_err(Failure::runtime)?;
    let known: Vec<_> = recipes.iter().filter(|recipe| recipe.kind == kind).collect();
    match known.iter().find(|recipe| recipe.name == *name) {
        Some(recipe) => print(&recipe.text),
        None => {
            let known: Vec<_> = known.iter().map(|recipe| recipe.name.as_str()).collect();
            let known = known.join(", ");
            let message = format!("unknown recipe '{name}' (available: {known})");
            return Err(Failure::usage(message));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn report(args: &ReportArgs) -> Result<ExitCode, Failure> {
    write(&read(&args.directory)?, &args.directory)?;
    Ok(ExitCode::SUCCESS)
}

fn compare(args: &CompareArgs) -> Result<ExitCode, Failure> {
    let comparison = compare_results(&read(&args.a)?, &read(&args.b)?);
    let is_stdout = args.json.as_deref() == Some(Path::new("-"));
    if let Some(path) = &args.json {
        let json = serde_json::to_string_pretty(&comparison).map_err(Failure::runtime)? + "\n";
        match is_stdout {
            true => print(&json),
            false => fs::write(path, json).map_err(|error| {
                Failure::usage(format!("cannot write '{}': {error}", path.display()))
            })?,
        }
    }
    if !is_stdout {
        print(&comparison.to_string());
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the results of a run.
fn read(directory: &Path) -> Result<Report, Failure> {
    let path = directory.join("results.json");
    let wrong = |problem: String| {
        Failure::usage(format!("cannot read the results '{}': {problem}", path.display()))
    };
    let text = fs::read(&path).map_err(|error| wrong(error.to_string()))?;
    let report: Report = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
    match report.schema == SCHEMA {
        true => Ok(report),
        false => Err(wrong(format!("its format is '{}', expected '{SCHEMA}'", report.schema))),
    }
}

/// Returns a flag that SIGINT and SIGTERM set.
fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    let on_stop = move || flag.store(true, Ordering::Release);
    signals::on_stop(on_stop).map_err(Failure::runtime)?;
    Ok(stop)
}

/// Replaces this process with another program, which the kernel kills when the lab exits.
fn launch(args: &LaunchArgs) -> Result<ExitCode, Failure> {
    signals::exit_with_parent().map_err(Failure::runtime)?;
    if let Some(members) = &args.join {
        let cannot = |error| {
            Failure::runtime(format!(
                "cannot write the cgroup file '{}': {error}",
                members.display()
            ))
        };
        fs::write(members, std::process::id().to_string()).map_err(cannot)?;
    }
    let [program, arguments @ ..] = &*args.command else { return Ok(ExitCode::FAILURE) };
    let error = Command::new(program).args(arguments).exec();
    Err(Failure::usage(format!("cannot start '{}': {error}", program.display())))
}
