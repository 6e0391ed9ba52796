//! `hearken load merge | compare | show`: operations on stored results.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use hearken_lab::compare::{Comparison, Options, Verdict, compare};
use hearken_load::Report;
use hearken_load::merge::merge_within;

use super::Sink;
use super::command::{CompareArgs, JudgementArgs, MergeArgs, ShowArgs};
use super::output::Outputs;
use super::read::read;
use super::status::exit_status;
use crate::Failure;

/// Exit status of `--fail-if-worse` if a figure is worse.
const WORSE: u8 = 3;

/// Runs `hearken load merge`.
pub(super) fn merge(args: &MergeArgs) -> Result<ExitCode, Failure> {
    let parts = read_all(&args.files)?;
    let total = merge_within(&parts, args.within).map_err(|error| {
        let file = error.index().and_then(|at| args.files.get(at));
        let file = file.map(|file| format!("{}: ", file.display())).unwrap_or_default();
        Failure::usage(format!("{file}{error}"))
    })?;
    Outputs::open(args.json.as_deref(), &args.outputs)?.write(&total)?;
    Ok(exit_status(&total))
}

/// Runs `hearken load show`.
pub(super) fn show(args: &ShowArgs) -> Result<ExitCode, Failure> {
    let report = read(&args.file)?;
    Outputs::open(args.json.as_deref(), &args.outputs)?.write(&report)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `hearken load compare`.
pub(super) fn compare_results(args: &CompareArgs) -> Result<ExitCode, Failure> {
    let side = |files: &str| {
        let files: Vec<PathBuf> = files.split(',').map(PathBuf::from).collect();
        read_all(&files)
    };
    let (a, b) = (side(&args.a)?, side(&args.b)?);
    if args.judgement.fail_if_worse && a.len().min(b.len()) < 2 {
        return Err(Failure::usage(
            "--fail-if-worse needs at least two results of each side, because one run cannot tell a \
             difference from the variation between runs; use hearken load ab",
        ));
    }
    let sink = Sink::open(args.judgement.json.as_deref())?;
    let comparison = compare(&a, &b, &options(&args.judgement));
    sink.write(&comparison)?;
    Ok(status(&args.judgement, &comparison))
}

/// Returns the options of the comparison.
pub(super) fn options(judgement: &JudgementArgs) -> Options {
    Options { threshold: judgement.threshold / 100.0 }
}

/// Returns the exit status of a comparison.
pub(super) fn status(judgement: &JudgementArgs, comparison: &Comparison) -> ExitCode {
    let worse = comparison.metrics.iter().any(|figure| figure.verdict == Verdict::Worse);
    if worse && judgement.fail_if_worse { ExitCode::from(WORSE) } else { ExitCode::SUCCESS }
}

fn read_all(files: &[impl AsRef<Path>]) -> Result<Vec<Report>, Failure> {
    files.iter().map(|file| read(file.as_ref())).collect()
}
