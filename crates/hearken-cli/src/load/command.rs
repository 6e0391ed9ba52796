//! The command lines of `hearken load` and its subcommands.

use std::ffi::OsString;
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
    /// Run two loads several times, alternately, and compare them
    Ab(AbArgs),
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
warnings. Results of different loads, and duplicate parts, are rejected.

Exit status: 0 on success, 1 if no request succeeded, 2 if a file is not a result, 3 if an objective is
missed.")]
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
  hearken load compare a1.json,a2.json,a3.json b1.json,b2.json,b3.json
      Print the ratio of each figure, its confidence interval and a verdict.
  hearken load compare $(echo a-*.json | tr ' ' ,) $(echo b-*.json | tr ' ' ,)
      Compare the runs that hearken load ab --save stored.
  hearken load compare a1.json,a2.json b1.json,b2.json --threshold 5 --fail-if-worse
      Exit with 3 if a figure is worse by 5 % or more.
  hearken load compare before.json after.json
      Print ratios only. One run of a side cannot tell a difference from the variation between runs.

A verdict needs at least two runs of each side, and five to ten for differences of 5 %. Runs that were
made alternately are compared as pairs. hearken load ab makes such runs.

The confidence intervals of all figures hold together with 95 % (Bonferroni). They are Student's
intervals over the runs.

Exit status: 0 on success, 2 if a file is not a result or --fail-if-worse has a single run, 3 if a figure
of B is worse (--fail-if-worse).")]
pub(crate) struct CompareArgs {
    /// Reference: results of the same load, separated by commas
    #[arg(value_name = "A.JSON[,...]")]
    pub(crate) a: String,
    /// Results to compare with the reference
    #[arg(value_name = "B.JSON[,...]")]
    pub(crate) b: String,
    #[command(flatten)]
    pub(crate) judgement: JudgementArgs,
}

/// The judgement of a comparison, and its destination.
#[derive(Args)]
pub(crate) struct JudgementArgs {
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
  hearken load ab http://127.0.0.1:8080/ http://127.0.0.1:8081/
      Compare two servers in about two minutes: 6 pairs of runs of 10 s each.
  hearken load ab http://127.0.0.1:8080/ http://127.0.0.1:8081/ --watch :8080,:8081 -- --rate 5000
      Compare them at another rate, and also their CPU time per reply.
  hearken load ab before.toml after.toml --runs 10 --save runs -- --duration 30s
      Compare two plans. Takes ten minutes. Keeps the result of each run.

Each pair consists of a run of A and a run of B in random order, with the same seed of arrivals. The
verdict comes from the ratios of the pairs, so a slow change of the machine does not matter.
The total time is 2 * runs * (duration + pause).

SIGINT ends the runs and prints the comparison of the complete pairs.

Exit status: 0 on success, 1 on failure, 2 for invalid arguments, 3 if a figure of B is worse
(--fail-if-worse), 130 if interrupted.")]
pub(crate) struct AbArgs {
    /// Reference: a URL, or a plan (*.toml) as for hearken load --plan
    #[arg(value_name = "A")]
    pub(crate) a: String,
    /// URL or plan to compare with the reference
    #[arg(value_name = "B")]
    pub(crate) b: String,
    /// Number of runs of each, 2 to 100
    #[arg(long, value_name = "N", default_value = "6", value_parser = runs)]
    pub(crate) runs: usize,
    /// Pause between runs
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration)]
    pub(crate) pause: Duration,
    /// Servers of A and B to measure, as for hearken load --watch; one for both, or two
    #[arg(long, value_name = "TARGET[,TARGET]", value_delimiter = ',', num_args = 1)]
    pub(crate) watch: Vec<String>,
    /// Store the result of each run in this directory, as a-1.json, b-1.json and so on
    #[arg(long, value_name = "DIR")]
    pub(crate) save: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) judgement: JudgementArgs,
    /// Options of hearken load for both
    #[arg(last = true, value_name = "LOAD OPTIONS")]
    pub(crate) options: Vec<OsString>,
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

/// Parses the number of runs of a side.
fn runs(text: &str) -> Result<usize, String> {
    let runs = text.parse().ok().filter(|runs| (2..=100).contains(runs));
    runs.ok_or_else(|| "expected a number from 2 to 100".to_owned())
}

/// Parses a percentage from 0 to 1000.
fn percent(text: &str) -> Result<f64, String> {
    let value = text.trim_end_matches('%').parse::<f64>().ok();
    let value = value.filter(|value| (0.0..=1000.0).contains(value));
    value.ok_or_else(|| "expected a percentage from 0 to 1000".to_owned())
}
