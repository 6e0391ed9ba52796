//! The quick experiment: every mechanism under one load, with increasing numbers of idle connections.

use std::sync::atomic::AtomicBool;
use std::time::Instant;

use crate::error::LabError;
use crate::executor::{Executor, ProcessExecutor};
use crate::machine::{Machine, Placement};
use crate::plan::{QuickConfig, Trial, fit_descriptors, plan};
use crate::progress::Progress;
use crate::results::{Report, SCHEMA, Sample};
use crate::run::{RunContext, run};
use crate::stats;
use crate::summary::summarise;
use crate::warning::Warning;

/// Number of consecutive failures after which the run is aborted.
const MAX_CONSECUTIVE_FAILURES: usize = 5;
/// Share of time waiting for the processor above which a server is considered disturbed.
const MAX_WAIT_SHARE: f64 = 0.05;
/// Lateness of the load generator, in nanoseconds, above which a warning is issued.
const MAX_LATENESS_NS: f64 = 5e6;

/// Runs the experiment with real servers. Setting `stop` ends it early with a partial report, in
/// which `complete` is false.
///
/// The calling thread must outlive the run, because the processes are killed with the thread that
/// started them.
pub fn quick(
    config: &QuickConfig,
    progress: &mut dyn Progress,
    stop: &AtomicBool,
) -> Result<Report, LabError> {
    config.settings.check()?;
    let mut config = config.clone();
    let mut warnings = Vec::new();
    fit_descriptors(&mut config.settings, &mut warnings);
    let placement = Placement::choose()?;
    if placement.is_shared() {
        warnings.push(Warning::SharedProcessor);
    }
    let mut executor = ProcessExecutor::new(&config, &placement)?;
    let mut report = quick_with_executor(&config, &mut executor, placement, progress, stop)?;
    warnings.append(&mut report.warnings);
    Ok(Report { warnings, ..report })
}

/// Runs the experiment with the given executor.
pub fn quick_with_executor(
    config: &QuickConfig,
    executor: &mut dyn Executor,
    placement: Placement,
    progress: &mut dyn Progress,
    stop: &AtomicBool,
) -> Result<Report, LabError> {
    let settings = &config.settings;
    settings.check()?;
    let date = jiff::Timestamp::now().round(jiff::Unit::Second).unwrap_or_default().to_string();
    let began = Instant::now();
    let trials = plan(settings);
    let measure = |trial: &Trial| executor.measure(trial, stop).map(|m| Sample::new(trial, m));
    let mut context = RunContext {
        expected_duration: settings.expected_duration(),
        max_consecutive_failures: MAX_CONSECUTIVE_FAILURES,
        progress,
        stop,
    };
    let (samples, mut warnings) = run(&trials, &mut context, measure)?;
    warnings.extend(sample_warnings(config, &samples));
    Ok(Report {
        schema: SCHEMA.into(),
        complete: samples.len() == settings.count_trials(),
        version: config.version.clone(),
        command_line: config.command_line.clone(),
        date,
        elapsed_s: began.elapsed().as_secs_f64(),
        settings: settings.clone(),
        machine: Machine::detect(),
        placement,
        unavailable_counters: executor.unavailable_counters(),
        warnings,
        method: stats::METHOD.into(),
        summary: summarise(settings, &samples),
        samples,
    })
}

/// Returns the warnings that follow from the samples.
fn sample_warnings(config: &QuickConfig, samples: &[Sample]) -> Vec<Warning> {
    let settings = &config.settings;
    let mut found = Vec::new();
    if settings.repetitions < 2 {
        found.push(Warning::FewRepetitions { repetitions: settings.repetitions });
    }
    if !settings.mechanisms.contains(&settings.reference) {
        found.push(Warning::NoReference { reference: settings.reference.clone() });
    }
    let beyond = |limit: f64, of: fn(&Sample) -> f64| {
        let values: Vec<f64> = samples.iter().map(of).filter(|&v| v > limit).collect();
        let worst = values.iter().copied().reduce(f64::max)?;
        Some((values.len(), worst))
    };
    if let Some((samples, max_wait_ratio)) = beyond(MAX_WAIT_SHARE, |s| s.measured.cpu_wait_ratio) {
        found.push(Warning::ProcessorContention { samples, max_wait_ratio });
    }
    let late = |s: &Sample| if s.measured.saturated { 0.0 } else { s.measured.lateness_p99_ns };
    if let Some((samples, max_lateness_p99_ns)) = beyond(MAX_LATENESS_NS, late) {
        found.push(Warning::GeneratorLate { samples, max_lateness_p99_ns });
    }
    // Connections that were lost and not reopened are missing at the end. Use the larger count.
    let lost = |s: &Sample| s.measured.idle_lost.max(s.idle.saturating_sub(s.measured.idle_open));
    let lost: Vec<u64> = samples.iter().map(lost).filter(|&lost| lost > 0).collect();
    if !lost.is_empty() {
        found.push(Warning::IdleLost { samples: lost.len(), connections: lost.iter().sum() });
    }
    found
}
