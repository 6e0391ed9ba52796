//! The command `hearken lab run`.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use clap::Parser;
use hearken::io::{find, names};
use hearken_lab::claims::{self, Claim};
use hearken_lab::emulated;
use hearken_lab::journal::{self, Header, Journal};
use hearken_lab::judge::judge;
use hearken_lab::{
    Available, Experiment, LabError, PlannedExperiment, Precision, Recipe, Report, RunConfig,
    StderrProgress, Warning,
};

use super::{INTERRUPTED, failure, read, stop_flag, write};
use crate::Failure;
use crate::args::lab::RunArgs;
use crate::load::print;
use crate::load_plan;

/// The arguments of a run that is resumed.
#[derive(Parser)]
#[command(name = "hearken lab run", no_binary_name = true)]
struct Resumed {
    #[command(flatten)]
    args: RunArgs,
}

pub(super) fn run(args: RunArgs) -> Result<ExitCode, Failure> {
    let (args, words, resumed) = match &args.resume {
        Some(directory) => {
            let words = journal::header(directory).map_err(Failure::usage)?.arguments;
            let args = Resumed::try_parse_from(&words).map_err(Failure::usage)?.args;
            (RunArgs { out: directory.clone(), ..args }, words, true)
        }
        None => (args, std::env::args().skip(3).collect(), false),
    };
    let available = available(&args)?;
    let (names, claims) = select(&args)?;
    let mut experiments = Vec::new();
    let is_single = names.len() == 1;
    for name in &names {
        let planned = planned(&args, experiment(name)?, &available, &claims, is_single);
        experiments.push(planned.map_err(failure)?);
    }
    let has_axis = |axis: &str| experiments.iter().any(|e| e.experiment.axis(axis).is_some());
    if let Some((axis, _)) = args.axes.iter().find(|(axis, _)| !has_axis(axis)) {
        return Err(Failure::usage(format!("no experiment has an axis '{axis}'")));
    }
    if args.check {
        experiments.iter().try_for_each(|planned| check_loads(&planned.experiment))?;
        print(&format!("{} valid\n", names.join(", ")));
        return Ok(ExitCode::SUCCESS);
    }
    let options = emulated_options(&args);
    let mut config = RunConfig {
        executable: std::env::current_exe().map_err(Failure::runtime)?,
        command_line: match args.clock_is_instructions {
            Some(_) => outer_command(std::env::args()),
            None => std::env::args().collect(),
        },
        version: env!("CARGO_PKG_VERSION").to_owned(),
        experiments,
        seed: args.seed,
        emulator: args.clock_is_instructions,
        claims,
        time_budget: args.time_budget,
    };
    if args.plan {
        print(&hearken_lab::forecast(&config));
        return Ok(ExitCode::SUCCESS);
    }
    if !resumed {
        // Left by an earlier run.
        let _ = fs::remove_dir_all(args.out.join("emulated"));
    }
    // Fails before the experiments instead of after them.
    fs::create_dir_all(&args.out).map_err(|error| {
        Failure::usage(format!("cannot create directory '{}': {error}", args.out.display()))
    })?;
    let header = Header::new(words, config.seed, &config.experiments);
    let journal = match resumed {
        true => Journal::resume(&args.out, &header),
        false => Journal::create(&args.out, header),
    };
    let stop = stop_flag()?;
    let report = match measure(&mut config, journal.map_err(failure)?, &options, &args.out, &stop) {
        // Interrupted before the first measurement.
        Err(LabError::Interrupted) => return Ok(ExitCode::from(INTERRUPTED)),
        report => report.map_err(failure)?,
    };
    write(&report, &args.out)?;
    Ok(if report.complete { ExitCode::SUCCESS } else { ExitCode::from(INTERRUPTED) })
}

/// Measures the experiments that need exact counts in an emulated machine if this one does not count instructions,
/// and then the others.
fn measure(
    config: &mut RunConfig,
    journal: Journal,
    options: &[String],
    out: &Path,
    stop: &AtomicBool,
) -> Result<Report, LabError> {
    let began = Instant::now();
    let (mut emulated, mut warnings) = (Vec::new(), Vec::new());
    if config.emulator.is_none() && !emulated::has_counters() {
        let needs_counts = |planned: &&PlannedExperiment| planned.experiment.requires.counts;
        let planned = config.experiments.iter().filter(needs_counts);
        let names: Vec<String> = planned.map(|p| p.experiment.name.clone()).collect();
        for name in names {
            match run_emulated(config, &name, options, out, stop) {
                Ok(report) => {
                    emulated.push(report);
                    config.experiments.retain(|planned| planned.experiment.name != name);
                }
                Err(LabError::Interrupted) => return Err(LabError::Interrupted),
                Err(error) => {
                    let reason = error.to_string();
                    warnings.push(Warning::NotEmulated { experiment: name, reason });
                }
            }
        }
    }
    config.time_budget = config.time_budget.map(|budget| budget.saturating_sub(began.elapsed()));
    let mut report = match config.experiments.is_empty() {
        true => emulated.remove(0),
        false => hearken_lab::run(config, journal, &mut StderrProgress::default(), stop)?,
    };
    emulated.into_iter().for_each(|other| report.add_emulated(other));
    report.command_line.clone_from(&config.command_line);
    report.warnings.extend(warnings);
    report.judgements = judge(&config.claims, &report.experiments);
    Ok(report)
}

/// Measures an experiment in an emulated machine, unless an earlier part of this run has done so.
fn run_emulated(
    config: &RunConfig,
    name: &str,
    options: &[String],
    out: &Path,
    stop: &AtomicBool,
) -> Result<Report, LabError> {
    let directory = out.join("emulated").join(name);
    if let Ok(report) = read(&directory)
        && report.complete
    {
        return Ok(report);
    }
    let own = config.claims.iter().filter(|claim| claim.experiment.as_deref() == Some(name));
    let mut arguments: Vec<String> = own.map(|claim| claim.id.clone()).collect();
    if arguments.is_empty() {
        arguments.push(name.to_owned());
    }
    arguments.extend_from_slice(options);
    eprintln!("lab: measuring {name} in an emulated machine");
    emulated::run(&config.executable, &arguments, &directory, stop)
}

/// Returns the options that also apply in an emulated machine.
fn emulated_options(args: &RunArgs) -> Vec<String> {
    let mut options = vec![format!("--seed={}", args.seed)];
    options.extend(
        args.axes.iter().map(|(axis, values)| format!("--set={axis}={}", values.join(","))),
    );
    options.extend(args.variant.iter().map(|variant| format!("--variant={variant}")));
    options.extend(args.repetitions.iter().map(|number| format!("--repetitions={number}")));
    if !args.servers.is_empty() {
        options.push(format!("--server={}", args.servers.join(",")));
    }
    options
}

/// Returns the names of the experiments to run, and the claims to settle. A name with a capital letter is
/// that of a claim, or the beginning of several.
fn select(args: &RunArgs) -> Result<(Vec<String>, Vec<Claim>), Failure> {
    let is_claim = |name: &&String| {
        let is_file = Path::new(name).extension().is_some_and(|extension| extension == "toml");
        !is_file && name.contains(char::is_uppercase)
    };
    let mut names: Vec<String> =
        args.experiments.iter().filter(|name| !is_claim(name)).cloned().collect();
    let mut prefixes: Vec<String> = args.experiments.iter().filter(is_claim).cloned().collect();
    prefixes.extend(args.all.then(String::new));
    prefixes.extend(args.paper.as_ref().map(|paper| format!("{paper}-")));
    if prefixes.is_empty() {
        return Ok((names, Vec::new()));
    }
    if !names.is_empty() {
        return Err(Failure::usage("a run settles claims or measures experiments, not both"));
    }
    let mut claims = claims::all().map_err(Failure::runtime)?;
    for prefix in &prefixes {
        if !claims.iter().any(|claim| claim.id.starts_with(prefix.as_str())) {
            return Err(Failure::usage(format!(
                "no claim begins with '{prefix}' (see hearken lab list --claims)"
            )));
        }
    }
    claims.retain(|claim| prefixes.iter().any(|prefix| claim.id.starts_with(prefix.as_str())));
    for name in claims.iter().filter_map(|claim| claim.experiment.as_ref()) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    match names.is_empty() {
        true => Err(Failure::usage("no experiment settles these claims yet")),
        false => Ok((names, claims)),
    }
}

/// Checks the options of all loads.
fn check_loads(experiment: &Experiment) -> Result<(), Failure> {
    for load in experiment.example_loads() {
        let words: Vec<OsString> = load.iter().map(OsString::from).collect();
        load_plan::load_args(&words).map_err(|failure| {
            let (name, load) = (&experiment.name, load.join(" "));
            Failure::usage(format!("experiment '{name}': 'hearken load {load}': {}", failure.error))
        })?;
    }
    Ok(())
}

/// Reads a built-in experiment or a file.
pub(super) fn experiment(name: &str) -> Result<Experiment, Failure> {
    if Path::new(name).extension().is_some_and(|extension| extension == "toml") {
        return Experiment::read(Path::new(name)).map_err(Failure::usage);
    }
    let builtin = hearken_lab::builtin_experiments().map_err(Failure::runtime)?;
    let names: Vec<String> = builtin.iter().map(|experiment| experiment.name.clone()).collect();
    builtin.into_iter().find(|experiment| experiment.name == name).ok_or_else(|| {
        let known = names.join(", ");
        Failure::usage(format!("unknown experiment '{name}' (available: {known}, or a .toml file)"))
    })
}

fn available(args: &RunArgs) -> Result<Available, Failure> {
    let mut recipes = Vec::new();
    for path in &args.recipes {
        recipes.push(Recipe::read(path).map_err(Failure::usage)?);
    }
    recipes.extend(hearken_lab::builtin_recipes().map_err(Failure::runtime)?);
    Ok(Available { recipes, mechanisms: mechanisms() })
}

/// Returns the mechanisms that this kernel offers.
pub(super) fn mechanisms() -> Vec<String> {
    let available = names().filter(|name| find(name).is_ok_and(|spec| spec.probe().is_ok()));
    available.map(str::to_owned).collect()
}

/// Applies the arguments to an experiment.
fn planned(
    args: &RunArgs,
    mut experiment: Experiment,
    available: &Available,
    claims: &[Claim],
    is_single: bool,
) -> Result<PlannedExperiment, LabError> {
    let emulated = args.clock_is_instructions.as_ref().map(|_| "emulated");
    let emulated = emulated.filter(|name| experiment.variants.contains_key(*name));
    if let Some(variant) = args.variant.as_deref().or(emulated) {
        experiment.select_variant(variant)?;
    }
    for (axis, values) in &args.axes {
        // Of several experiments, those that have the axis are meant.
        if is_single || experiment.axis(axis).is_some() {
            experiment.set(axis, values)?;
        }
    }
    experiment.repetitions = args.repetitions.unwrap_or(experiment.repetitions);
    if experiment.repetitions == 0 {
        return Err(LabError::Config("at least one repetition is required".into()));
    }
    if let Some(target) = args.precision {
        let max_repetitions = args.max_repetitions;
        experiment.precision = Some(Precision { target, max_repetitions });
    }
    if let Some(reference) = &args.reference {
        experiment.reference.clone_from(reference);
    }
    if let Some(origin) = &args.origin {
        if experiment.origin.is_none() {
            let problem = format!("experiment '{}' has no origin", experiment.name);
            return Err(LabError::Config(problem));
        }
        experiment.origin = Some(origin.clone());
    }
    let mut planned = PlannedExperiment::new(experiment, available)?;
    if !args.servers.is_empty() {
        planned.select_servers(&args.servers)?;
    }
    if args.noise_floor || !claims.is_empty() {
        planned.add_noise_floor();
    }
    Ok(planned)
}

/// Reconstructs the command line that started the emulated machine.
fn outer_command(words: impl Iterator<Item = String>) -> Vec<String> {
    let mut command = vec!["scripts/peers-emulated".to_owned(), "OUT".to_owned()];
    let mut words = words.skip_while(|word| word != "run").skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--out" | "--clock-is-instructions" => drop(words.next()),
            _ => command.push(word),
        }
    }
    command
}
