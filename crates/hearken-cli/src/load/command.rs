//! `hearken load URL`, what is done with results (`hearken load merge | compare | show`), and
//! `hearken load specweb`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgMatches, Args, Command, Error, FromArgMatches, Subcommand};

use super::output::OutputArgs;
use crate::args::load::LoadArgs;
use crate::time::duration;

/// A load, or what comes before or after one.
pub(crate) enum LoadCommand {
    Run(Box<LoadArgs>),
    Other(Other),
}

// No words above it: they would become those of `hearken load`.
#[derive(Subcommand)]
pub(crate) enum Other {
    /// Make one result of those of several generators
    Merge(MergeArgs),
    /// Compare two loads, by statistics
    Compare(CompareArgs),
    /// Show a result, or write it in another form
    Show(ShowArgs),
    /// Make the files that --specweb asks for
    Specweb(SpecwebArgs),
}

impl Args for LoadCommand {
    fn augment_args(command: Command) -> Command {
        Other::augment_subcommands(LoadArgs::augment_args(command))
            .args_conflicts_with_subcommands(true)
            .subcommand_negates_reqs(true)
            .subcommand_required(false)
            .arg_required_else_help(false)
    }

    fn augment_args_for_update(command: Command) -> Command {
        LoadCommand::augment_args(command)
    }
}

impl FromArgMatches for LoadCommand {
    fn from_arg_matches(matches: &ArgMatches) -> Result<LoadCommand, Error> {
        if matches.subcommand_name().is_some() {
            Other::from_arg_matches(matches).map(LoadCommand::Other)
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
  hearken load merge rank-*.json --json whole.json
      The results of all parts of a load, as one: counts and whole distributions are added.
  hearken load merge a.json b.json --html whole.html
      As a page.

Intervals are put together by the time at which they were. Missing parts, starts that lie apart and
clocks that are not synchronised become warnings; results of different loads, and the same part
twice, are refused.")]
pub(crate) struct MergeArgs {
    /// The results, as --json wrote them, in any order
    #[arg(value_name = "FILES", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// By how much starts may lie apart, and clocks be wrong, without a warning
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = duration)]
    pub(crate) within: Duration,
    /// Write the result as JSON to FILE (- for stdout, in place of the summary)
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) outputs: OutputArgs,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  hearken load compare before.json after.json
      Figure by figure: the ratio, its interval, and whether that is better or worse.
  hearken load compare a1.json,a2.json,a3.json b1.json,b2.json,b3.json
      Several runs of each, which also tell how much runs differ by themselves.
  hearken load compare before.json after.json --threshold 5 --fail-if-worse
      For a pipeline: exits with 3 if a figure is worse, and by 5 % or more.

The intervals of all figures hold together with 95 % (Bonferroni). They are by a block bootstrap over
the intervals of a run, and over runs where there are several.

Exit status: 0; with --fail-if-worse 3 if B is worse in a figure; 2 if a file is no result.")]
pub(crate) struct CompareArgs {
    /// What it is compared with: a result, or several of the same with commas
    #[arg(value_name = "A.json[,...]")]
    pub(crate) a: String,
    /// What is judged
    #[arg(value_name = "B.json[,...]")]
    pub(crate) b: String,
    /// The smallest difference that matters, in per cent
    #[arg(long, value_name = "PERCENT", default_value = "2", value_parser = percent)]
    pub(crate) threshold: f64,
    /// Write the comparison as JSON to FILE (- for stdout, in place of the table)
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Exit with 3 if B is worse in a figure
    #[arg(long)]
    pub(crate) fail_if_worse: bool,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  hearken load show result.json
      The summary, again.
  hearken load show result.json --html result.html
      As a page that needs nothing else, with plots.
  hearken load show result.json --hlog result.hlog
      For HdrHistogram's tools.
  hearken load show result.json --csv - | column -s, -t
      Its intervals, as a table.")]
pub(crate) struct ShowArgs {
    /// The result, as --json wrote it
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Write it as JSON to FILE (- for stdout, in place of the summary)
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) outputs: OutputArgs,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  hearken load specweb --make /srv/files --directories 20
      20 directories of 36 files each: 102 MB.
  hearken load specweb --make /srv/files --connections 100
      As many as SPECweb99 has for so many simultaneous connections.
  hearken serve /srv/files & hearken load http://127.0.0.1:8080/ --specweb /srv/files
      Ask for them, in the mix and the sessions of SPECweb99's static part.

What is there already with the right size is kept, so that what was interrupted can be gone on with.")]
pub(crate) struct SpecwebArgs {
    /// Where to make them
    #[arg(long, value_name = "DIR")]
    pub(crate) make: PathBuf,
    /// How many directories, of 36 files and 5.1 MB each
    #[arg(
        long,
        value_name = "N",
        required_unless_present = "connections",
        conflicts_with = "connections"
    )]
    pub(crate) directories: Option<u32>,
    /// As many as SPECweb99 has for N simultaneous connections
    #[arg(long, value_name = "N")]
    pub(crate) connections: Option<u32>,
}

fn percent(text: &str) -> Result<f64, String> {
    let value: f64 = text.trim_end_matches('%').parse().map_err(|_| "no number".to_owned())?;
    if (0.0..=1000.0).contains(&value) { Ok(value) } else { Err("not from 0 to 1000".to_owned()) }
}
