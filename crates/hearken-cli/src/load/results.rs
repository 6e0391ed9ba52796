//! `hearken load merge | compare | show`: operations on stored results.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use hearken_lab::compare::{Options, Verdict, compare};
use hearken_load::Report;
use hearken_load::merge::merge_within;

use super::Sink;
use super::command::{CompareArgs, MergeArgs, ShowArgs};
use super::output::Outputs;
use super::read::read;
use crate::Failure;

/// Exit status of `compare --fail-if-worse` if a figure is worse.
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
    Ok(ExitCode::SUCCESS)
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
    let options = Options { threshold: args.threshold / 100.0, ..Options::default() };
    let sink = Sink::open(args.json.as_deref())?;
    let comparison = compare(&a, &b, &options);
    sink.write(&comparison)?;
    let worse = comparison.metrics.iter().any(|figure| figure.verdict == Verdict::Worse);
    Ok(if worse && args.fail_if_worse { ExitCode::from(WORSE) } else { ExitCode::SUCCESS })
}

fn read_all(files: &[impl AsRef<Path>]) -> Result<Vec<Report>, Failure> {
    files.iter().map(|file| read(file.as_ref())).collect()
}
