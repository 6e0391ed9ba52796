//! Other servers beside Hearken: the same load to each, and what it cost them.
//!
//! A server is started by its [`Recipe`], with one worker, on the same processor as a driver that asks
//! in lockstep ([`hearken_load::lockstep`]): it always finds the same number of connections ready, so
//! that what it does for a request repeats, and other work on the machine stretches time only.
//!
//! Proxies are compared likewise, before one origin for all of them that is not counted.
//!
//! A session is one server, started anew, with or without idle connections; in it each workload is
//! measured once. Sessions are shuffled within each repetition, and ratios are of the pairs that one
//! repetition makes, so that a drift of the machine falls on both sides of a ratio.

use std::sync::atomic::AtomicBool;
use std::time::Instant;

use crate::error::LabError;
use crate::executor::Executor;
use crate::machine::{Machine, Placement};
use crate::progress::Progress;
use crate::run::{Way, run};
use crate::stats;
use crate::warning::Warning;

mod driver;
mod executor;
mod figures;
mod held;
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

pub use executor::ProcessExecutor;
pub(crate) use figures::figures;
pub use kind::Kind;
pub use plan::{Case, Config, Settings, plan};
pub use recipe::{Recipe, Stop, builtin};
pub use results::{Measurement, Participant, Report, SCHEMA, Sample};
pub use summary::{Against, Cell, summarise};
pub(crate) use table::table;
pub use workload::{WORKLOADS, Workload};

use plan::fit_descriptors;

/// Runs the experiment with the servers of `config` that are installed. Raising `stop` ends it early
/// with a partial report.
///
/// Call it from a thread that outlives it: the processes end with the thread that started them.
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
    let mut report = peers_with(&config, &mut executor, placement, progress, stop)?;
    report.settings.participants = servers;
    report.settings.origin = executor.origin();
    warnings.append(&mut report.warnings);
    warnings.extend(executor.end());
    Ok(Report { warnings, ..report })
}

/// Runs the experiment with any executor, on the machine as it is.
pub fn peers_with(
    config: &Config,
    executor: &mut dyn Executor<Case, Measurement>,
    placement: Placement,
    progress: &mut dyn Progress,
    stop: &AtomicBool,
) -> Result<Report, LabError> {
    let settings = &config.settings;
    settings.check()?;
    let date = jiff::Timestamp::now().round(jiff::Unit::Second).unwrap_or_default().to_string();
    let began = Instant::now();
    let cases = plan(settings, &config.recipes);
    // Whoever fails is left out by the executor; the others go on.
    let most_failures = usize::MAX;
    let mut way = Way { expected: settings.expected(cases.len()), most_failures, progress, stop };
    let measure = |case: &Case| executor.measure(case, stop).map(|m| Sample::new(case, m));
    let (samples, mut warnings) = run(&cases, &mut way, measure)?;
    if settings.repetitions < 2 {
        warnings.push(Warning::FewRepetitions { repetitions: settings.repetitions });
    }
    if !settings.servers.contains(&settings.reference) {
        warnings.push(Warning::NoReference { reference: settings.reference.clone() });
    }
    Ok(Report {
        schema: SCHEMA.into(),
        complete: samples.len() == cases.len(),
        version: config.version.clone(),
        command_line: config.command_line.clone(),
        date,
        elapsed_s: began.elapsed().as_secs_f64(),
        settings: Settings { planned: cases.len(), ..settings.clone() },
        machine: Machine::look(),
        placement,
        refusals: executor.refusals(),
        warnings,
        method: stats::PAIRED_METHOD.into(),
        summary: summarise(settings, &samples),
        samples,
    })
}
