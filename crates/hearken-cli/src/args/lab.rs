//! The arguments of `hearken lab`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

#[derive(Args)]
#[command(after_help = "\
Examples:
  hearken lab run quick
  hearken lab run peers --variant short
  hearken lab list")]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    pub(crate) command: LabCommand,
}

#[derive(Subcommand)]
pub(crate) enum LabCommand {
    /// Run experiments, built in or from files
    Run(Box<RunArgs>),
    /// Measure which mechanism and model fit a workload
    Advise(AdviseArgs),
    /// List experiments and recipes
    List(ListArgs),
    /// Print an experiment or a recipe
    Print(PrintArgs),
    /// Render the report of a run again
    Report(ReportArgs),
    /// Compare the results of two runs
    Compare(CompareArgs),
    /// Serve one byte and measure the delay of notifications
    #[command(hide = true)]
    DelayServer(DelayServerArgs),
    /// Run a program that ends with its parent
    #[command(hide = true)]
    Launch(LaunchArgs),
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  hearken lab run quick
      Compare all mechanisms; write results.json and report.html to ./lab.
  hearken lab run quick --server poll,epoll-edge --set idle=0,8000
      Compare two mechanisms with two numbers of idle connections.
  hearken lab run peers --variant short --server hearken,nginx --set workload=1b,1b-close --set idle=0
      Compare two servers in seconds.
  hearken lab run proxies --server hearken,nginx
      Compare proxies. All use the same origin server, which is not measured.
  hearken lab run CM01-F4
      Settle the claims of Figure 4 of Chandra and Mosberger.
  hearken lab run --paper GB04 --time-budget 15m
      Settle as many claims of Gammo et al. as fit into 15 minutes.
  hearken lab run mine.toml --check
      Check your own experiment.

Results are comparable only within one run. docs/lab.md documents the files.")]
pub(crate) struct RunArgs {
    /// Names of experiments or claims, or files of experiments
    #[arg(value_name = "EXPERIMENT", required_unless_present_any = ["resume", "paper", "all"])]
    pub(crate) experiments: Vec<String>,
    /// Settle the claims of a paper: BMD99, CM01, GB04, LC
    #[arg(long, value_name = "PAPER")]
    pub(crate) paper: Option<String>,
    /// Settle the claims of all papers
    #[arg(long)]
    pub(crate) all: bool,
    /// Leave out what does not fit into this time, such as 15m
    #[arg(long, value_name = "DURATION", value_parser = parse_time)]
    pub(crate) time_budget: Option<Duration>,
    /// Repeat measurements until the 95 % confidence intervals are this narrow, such as 5%
    #[arg(long, hide_short_help = true, value_name = "PERCENT", value_parser = parse_percent)]
    pub(crate) precision: Option<f64>,
    /// Maximum number of repetitions with --precision
    #[arg(
        long,
        hide_short_help = true,
        value_name = "N",
        default_value_t = 20,
        requires = "precision"
    )]
    pub(crate) max_repetitions: u32,
    /// Output directory of results.json, report.html and the journal
    #[arg(long, value_name = "DIR", default_value = "lab")]
    pub(crate) out: PathBuf,
    /// Values of an axis, separated by commas (repeatable)
    #[arg(long = "set", value_name = "AXIS=VALUES", value_parser = parse_axis)]
    pub(crate) axes: Vec<(String, Vec<String>)>,
    /// Servers, separated by commas [default: all of the experiment]
    #[arg(long = "server", value_name = "NAMES", value_delimiter = ',')]
    pub(crate) servers: Vec<String>,
    /// Recipe file of another server (repeatable)
    #[arg(long = "recipe", hide_short_help = true, value_name = "FILE")]
    pub(crate) recipes: Vec<PathBuf>,
    /// Server to compare the others with [default: that of the experiment]
    #[arg(long, hide_short_help = true, value_name = "NAME")]
    pub(crate) reference: Option<String>,
    /// Recipe of the server behind the proxies [default: that of the experiment]
    #[arg(long, hide_short_help = true, value_name = "NAME")]
    pub(crate) origin: Option<String>,
    /// Alternative values of the experiment, such as 'short'
    #[arg(long, hide_short_help = true, value_name = "NAME")]
    pub(crate) variant: Option<String>,
    /// Repetitions of each measurement [default: those of the experiment]
    #[arg(long, value_name = "N")]
    pub(crate) repetitions: Option<u32>,
    /// Measure the reference server twice, to show the noise
    #[arg(long, hide_short_help = true)]
    pub(crate) noise_floor: bool,
    /// Seed of the random order of measurements
    #[arg(long, hide_short_help = true, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Continue the run in this directory after it was killed
    #[arg(long, value_name = "DIR", exclusive = true)]
    pub(crate) resume: Option<PathBuf>,
    /// Check the experiments and exit
    #[arg(long, hide_short_help = true)]
    pub(crate) check: bool,
    /// Print the plan with its estimated time and exit
    #[arg(long)]
    pub(crate) plan: bool,
    /// Report instructions instead of time, on a machine emulated by NAME; see scripts/peers-emulated
    #[arg(long, hide = true, value_name = "NAME")]
    pub(crate) clock_is_instructions: Option<String>,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  hearken lab advise shop.toml
      Measure the mechanisms under this workload; write the results to ./lab.
  hearken lab advise --observe 4242
      Observe the connections of a server for a minute, then measure the mechanisms under its workload.

docs/lab.md documents the file of a workload.")]
pub(crate) struct AdviseArgs {
    /// File of the workload
    #[arg(value_name = "FILE", required_unless_present = "observe")]
    pub(crate) workload: Option<PathBuf>,
    /// Observe the workload of a running server with this process identifier
    #[arg(long, value_name = "PID", conflicts_with = "workload")]
    pub(crate) observe: Option<i32>,
    /// Time for which a server is observed
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = parse_time)]
    pub(crate) observe_for: Duration,
    /// Duration of each measurement
    #[arg(long, value_name = "DURATION", default_value = "1s")]
    pub(crate) trial: String,
    /// Repetitions of the decision
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(2..))]
    pub(crate) repetitions: u32,
    /// Candidates, separated by commas [default: all mechanisms and models]
    #[arg(long = "server", value_name = "NAMES", value_delimiter = ',')]
    pub(crate) servers: Vec<String>,
    /// Output directory of the results
    #[arg(long, value_name = "DIR", default_value = "lab")]
    pub(crate) out: PathBuf,
    /// Seed of the random order of measurements
    #[arg(long, hide_short_help = true, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

/// Parses a duration such as `15m`.
fn parse_time(text: &str) -> Result<Duration, String> {
    hearken_lab::parse_duration(text).ok_or_else(|| "expected a duration, such as 15m".to_owned())
}

/// Parses a percentage such as `5%`.
fn parse_percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    let in_range = number.filter(|percent| (0.1..100.0).contains(percent));
    in_range.map(|percent| percent / 100.0).ok_or_else(|| "expected 0.1% to 99.9%".to_owned())
}

/// Parses `AXIS=VALUE,VALUE`.
fn parse_axis(text: &str) -> Result<(String, Vec<String>), String> {
    let (name, values) = text.split_once('=').ok_or("expected AXIS=VALUES, such as idle=0,8000")?;
    Ok((name.to_owned(), values.split(',').map(str::to_owned).collect()))
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  hearken lab list
  hearken lab list --recipes")]
pub(crate) struct ListArgs {
    /// List the claims of the papers
    #[arg(long, conflicts_with = "recipes")]
    pub(crate) claims: bool,
    /// List the recipes of servers and proxies
    #[arg(long)]
    pub(crate) recipes: bool,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  hearken lab print quick
  hearken lab print --recipe nginx
  hearken lab print --proxy nginx")]
pub(crate) struct PrintArgs {
    /// Name of an experiment
    #[arg(value_name = "EXPERIMENT", required_unless_present_any = ["recipe", "proxy"])]
    pub(crate) experiment: Option<String>,
    /// Name of a recipe of a server
    #[arg(long, value_name = "NAME", conflicts_with_all = ["experiment", "proxy"])]
    pub(crate) recipe: Option<String>,
    /// Name of a recipe of a proxy
    #[arg(long, value_name = "NAME", conflicts_with = "experiment")]
    pub(crate) proxy: Option<String>,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  hearken lab report lab
      Render report.html and the figures from lab/results.json.")]
pub(crate) struct ReportArgs {
    /// Output directory of a run
    #[arg(value_name = "DIR", default_value = "lab")]
    pub(crate) directory: PathBuf,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  hearken lab compare before after
      Compare the cells that both runs contain.
  hearken lab compare before after --json -

Runs at different times differ by more than their intervals show. Measure the servers that matter in one run.")]
pub(crate) struct CompareArgs {
    /// Output directory of the first run
    #[arg(value_name = "A")]
    pub(crate) a: PathBuf,
    /// Output directory of the second run
    #[arg(value_name = "B")]
    pub(crate) b: PathBuf,
    /// Write the comparison as JSON to this file; '-' is standard output, without the tables
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct DelayServerArgs {
    /// Address of the server
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: SocketAddr,
    /// Address of the metrics page
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) admin: SocketAddr,
    /// Event mechanism
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub(crate) events: String,
}

#[derive(Args)]
pub(crate) struct LaunchArgs {
    /// File of a cgroup to which the process is added
    #[arg(long, value_name = "FILE")]
    pub(crate) join: Option<PathBuf>,
    /// Program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) command: Vec<OsString>,
}
