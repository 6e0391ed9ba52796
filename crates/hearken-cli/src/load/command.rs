//! The command lines of `hearken load` and its subcommands.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgMatches, Args, Command, Error, FromArgMatches, Subcommand};

use super::output::OutputArgs;
use crate::args::load::LoadArgs;
use crate::time::duration;

/// A load, or a subcommand.
pub(crate) enum LoadCommand {
    /// A load.
    Run(Box<LoadArgs>),
    /// A subcommand.
    Other(Subcommands),
}

// Without documentation of its own, which clap would use as that of `hearken load`.
#[derive(Subcommand)]
pub(crate) enum Subcommands {
    /// Merge the results of several generators
    Merge(MergeArgs),
    /// Compare two loads statistically
    Compare(CompareArgs),
    /// Print a result, or convert it
    Show(ShowArgs),
    /// Create the files of the SPECweb99-like mix
    Specweb(SpecwebArgs),
}

impl Args for LoadCommand {
    fn augment_args(command: Command) -> Command {
        Subcommands::augment_subcommands(LoadArgs::augment_args(command))
            .args_conflicts_with_subcommands(true)
            .subcommand_negates_reqs(true)
            .subcommand_required(false)
            .arg_required_else_help(false)
            .disable_help_subcommand(true)
    }

    fn augment_args_for_update(command: Command) -> Command {
        LoadCommand::augment_args(command)
    }
}

impl FromArgMatches for LoadCommand {
    fn from_arg_matches(matches: &ArgMatches) -> Result<LoadCommand, Error> {
        if matches.subcommand_name().is_some() {
            Subcommands::from_arg_matches(matches).map(LoadCommand::Other)
        } else {
            LoadArgs::from_arg_matches(matches).map(|args| LoadCommand::Run(Box::new(args)))
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = LoadCommand::from_arg_matches(matches)?;
        Ok(())
    }
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  hearken load merge rank-*.json --json total.json
      Merge all parts of a load. Counts and complete distributions are added.
  hearken load merge a.json b.json --html total.html
      Write the merged result as a page.

Intervals are aligned by time. Missing parts, different start times and unsynchronised clocks cause
warnings. Results of different loads, and duplicate parts, are rejected.")]
pub(crate) struct MergeArgs {
    /// Results written by --json, in any order
    #[arg(value_name = "FILES", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Difference of start times and clock error that cause a warning
    #[arg(long, value_name = "DURATION", default_value = "50ms", value_parser = duration)]
    pub(crate) within: Duration,
    /// Write the result as JSON (- for stdout, instead of the summary)
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) outputs: OutputArgs,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  hearken load compare before.json after.json
      Print the ratio of each figure, its confidence interval and a verdict.
  hearken load compare a1.json,a2.json,a3.json b1.json,b2.json,b3.json
      Compare several runs of each, which also shows how much runs vary.
  hearken load compare before.json after.json --threshold 5 --fail-if-worse
      Exit with 3 if a figure is worse by 5 % or more.

The confidence intervals of all figures hold together with 95 % (Bonferroni). They come from a block
bootstrap over the intervals of a run, and over runs if there are several.

Exit status: 0 on success, 2 if a file is not a result, 3 if a figure of B is worse (--fail-if-worse).")]
pub(crate) struct CompareArgs {
    /// Reference: a result, or several of the same load, separated by commas
    #[arg(value_name = "A.JSON[,...]")]
    pub(crate) a: String,
    /// Result, or several, to compare with the reference
    #[arg(value_name = "B.JSON[,...]")]
    pub(crate) b: String,
    /// Smallest relevant difference, in per cent
    #[arg(long, value_name = "PERCENT", default_value = "2", value_parser = percent)]
    pub(crate) threshold: f64,
    /// Write the comparison as JSON (- for stdout, instead of the table)
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Exit with 3 if a figure of B is worse
    #[arg(long)]
    pub(crate) fail_if_worse: bool,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  hearken load show result.json
      Print the summary.
  hearken load show result.json --html result.html
      Write a self-contained page with plots.
  hearken load show result.json --hlog result.hlog
      Write a log for HdrHistogram's tools.
  hearken load show result.json --csv - | column -s, -t
      Print the intervals as a table.")]
pub(crate) struct ShowArgs {
    /// Result written by --json
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Write the result as JSON (- for stdout, instead of the summary)
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) outputs: OutputArgs,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  hearken load specweb --make /srv/files --directories 20
      Create 20 directories of 36 files each: 102 MB.
  hearken load specweb --make /srv/files --connections 100
      Create as many directories as SPECweb99 defines for 100 simultaneous connections.
  hearken serve /srv/files & hearken load http://127.0.0.1:8080/ --specweb /srv/files
      Request them in the mix and the sessions of SPECweb99's static part.

Existing files of the right size are kept, so an interrupted command can be repeated.")]
pub(crate) struct SpecwebArgs {
    /// Directory to create the files in
    #[arg(long, value_name = "DIR")]
    pub(crate) make: PathBuf,
    /// Number of directories, each with 36 files and 5.1 MB
    #[arg(
        long,
        value_name = "N",
        required_unless_present = "connections",
        conflicts_with = "connections"
    )]
    pub(crate) directories: Option<u32>,
    /// Number of simultaneous connections, from which SPECweb99 derives the number of directories
    #[arg(long, value_name = "N")]
    pub(crate) connections: Option<u32>,
}

/// Parses a percentage from 0 to 1000.
fn percent(text: &str) -> Result<f64, String> {
    let value = text.trim_end_matches('%').parse::<f64>().ok();
    let value = value.filter(|value| (0.0..=1000.0).contains(value));
    value.ok_or_else(|| "expected a percentage from 0 to 1000".to_owned())
}
