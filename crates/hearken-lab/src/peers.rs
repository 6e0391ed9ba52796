//! Comparison with other servers: their costs under the same load.
//!
//! Each server is started by its [`Recipe`] with one worker, on the same processor as a driver that
//! works in lockstep ([`hearken_load::lockstep`]). The server always finds the same number of
//! connections ready, so its work per request is repeatable. Other work on the machine affects only
//! the elapsed time.
//!
//! Proxies are compared in the same way, with a common origin server, which is not measured.
//!
//! A session is one server, newly started, with or without idle connections. It measures each workload
//! once. Sessions are shuffled within each repetition. Ratios are computed within a repetition, so a
//! drift of the machine affects both sides of a ratio.

use std::sync::atomic::AtomicBool;
use std::time::Instant;

use crate::error::LabError;
use crate::executor::Executor;
use crate::machine::{Machine, Placement};
use crate::progress::Progress;
use crate::run::{RunContext, run};
use crate::stats;
use crate::warning::Warning;

mod driver;
mod executor;
mod figures;
mod idle;
mod kind;
mod origin;
mod participant;
mod plan;
mod recipe;
mod results;
mod session;
mod summary;
mod table;
mod workload;

use executor::ProcessExecutor;
pub(crate) use figures::figures;
pub use kind::Kind;
pub use plan::{Config, Settings, Trial, plan};
pub use recipe::{Recipe, Stop, builtin};
pub use results::{Measurement, Participant, Report, SCHEMA, Sample};
use summary::summarise;
pub use summary::{Cell, ReferenceRatios};
pub(crate) use table::table;
pub use workload::{WORKLOADS, Workload};

use plan::fit_descriptors;

/// Runs the experiment with the installed servers of `config`. Setting `stop` ends it early with a
/// partial report.
///
/// The calling thread must outlive the run, because the processes are killed with the thread that
/// started them.
pub fn peers(
    config: &Config,
    progress: &mut dyn Progress,
    stop: &AtomicBool,
) -> Result<Report, LabError> {
    config.settings.check()?;
    let mut config = config.clone();
    let mut warnings = Vec::new();
    fit_descriptors(&mut config.settings, &mut warnings);
    let placement = Placement::choose()?;
    let mut executor = ProcessExecutor::new(&config, &placement, &mut warnings, stop)?;
    config.settings.servers = executor.servers().iter().map(|s| s.name.clone()).collect();
    let servers = executor.servers();
    let mut report = peers_with_executor(&config, &mut executor, placement, progress, stop)?;
    report.settings.participants = servers;
    report.settings.origin = executor.origin();
    warnings.append(&mut report.warnings);
    warnings.extend(executor.finish());
    Ok(Report { warnings, ..report })
}

/// Runs the experiment with the given executor.
pub fn peers_with_executor(
    config: &Config,
    executor: &mut dyn Executor<Trial, Measurement>,
    placement: Placement,
    progress: &mut dyn Progress,
    stop: &AtomicBool,
) -> Result<Report, LabError> {
    let settings = &config.settings;
    settings.check()?;
    let date = jiff::Timestamp::now().round(jiff::Unit::Second).unwrap_or_default().to_string();
    let began = Instant::now();
    let trials = plan(settings, &config.recipes);
    // The executor skips servers that fail repeatedly; the run continues with the others.
    let most_failures = usize::MAX;
    let mut context = RunContext {
        expected_duration: settings.expected_duration(trials.len()),
        max_consecutive_failures: most_failures,
        progress,
        stop,
    };
    let measure = |trial: &Trial| executor.measure(trial, stop).map(|m| Sample::new(trial, m));
    let (samples, mut warnings) = run(&trials, &mut context, measure)?;
    if settings.repetitions < 2 {
        warnings.push(Warning::FewRepetitions { repetitions: settings.repetitions });
    }
    if !settings.servers.contains(&settings.reference) {
        warnings.push(Warning::NoReference { reference: settings.reference.clone() });
    }
    Ok(Report {
        schema: SCHEMA.into(),
        complete: samples.len() == trials.len(),
        version: config.version.clone(),
        command_line: config.command_line.clone(),
        date,
        elapsed_s: began.elapsed().as_secs_f64(),
        settings: Settings { planned: trials.len(), ..settings.clone() },
        machine: Machine::detect(),
        placement,
        unavailable_counters: executor.unavailable_counters(),
        warnings,
        method: stats::PAIRED_METHOD.into(),
        summary: summarise(settings, &samples),
        samples,
    })
}
