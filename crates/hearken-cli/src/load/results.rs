//! `hearken load merge | compare | show`: what is done with results that were stored.

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

/// What a load that is worse exits with, if asked to.
const WORSE: u8 = 3;

pub(super) fn merge(args: &MergeArgs) -> Result<ExitCode, Failure> {
    let parts = read_all(&args.files)?;
    let whole = merge_within(&parts, args.within).map_err(|error| {
        let file = error.at().and_then(|at| args.files.get(at));
        let file = file.map(|file| format!("{}: ", file.display())).unwrap_or_default();
        Failure::usage(format!("{file}{error}"))
    })?;
    Outputs::open(args.json.as_deref(), &args.outputs)?.tell(&whole)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn show(args: &ShowArgs) -> Result<ExitCode, Failure> {
    let report = read(&args.file)?;
    Outputs::open(args.json.as_deref(), &args.outputs)?.tell(&report)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn compared(args: &CompareArgs) -> Result<ExitCode, Failure> {
    let side = |files: &str| {
        let files: Vec<PathBuf> = files.split(',').map(PathBuf::from).collect();
        read_all(&files)
    };
    let (a, b) = (side(&args.a)?, side(&args.b)?);
    let options = Options { threshold: args.threshold / 100.0, ..Options::default() };
    let sink = Sink::open(args.json.as_deref())?;
    let comparison = compare(&a, &b, &options);
    sink.tell(&comparison)?;
    let worse = comparison.figures.iter().any(|figure| figure.verdict == Verdict::Worse);
    Ok(if worse && args.fail_if_worse { ExitCode::from(WORSE) } else { ExitCode::SUCCESS })
}

fn read_all(files: &[impl AsRef<Path>]) -> Result<Vec<Report>, Failure> {
    files.iter().map(|file| read(file.as_ref())).collect()
}
