//! The arguments of `hearken lab`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Args)]
#[command(after_help = "\
Examples:
  hearken lab quick
  hearken lab peers --short
  hearken lab quick --help")]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    pub(crate) experiment: Experiment,
}

#[derive(Subcommand)]
pub(crate) enum Experiment {
    /// Compare mechanisms under load with idle connections (about three minutes)
    Quick(QuickArgs),
    /// Compare Hearken with other servers in lockstep (about ten minutes)
    Peers(PeersArgs),
    /// Run a program that ends with its parent
    #[command(hide = true)]
    Launch(LaunchArgs),
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  hearken lab peers
      Compare Hearken, a minimal loop, and the installed ones of nginx, h2o, lighttpd, haproxy and lwan.
  hearken lab peers --short --server hearken,nginx --workload 1b,1b-close --idle 0
      Compare two servers in seconds.
  hearken lab peers --print-recipe nginx > mine.toml
  hearken lab peers --recipe mine.toml
      Compare your own server. The recipe has its name, command, configuration and port.
  hearken lab peers --proxies --server hearken,nginx --workload 1k-proxied
      Compare proxies. All use the same origin server, which is not measured.

Server and driver share a processor, and the driver sends requests in rounds. The cost of a request is
then independent of other load on the machine. Results are comparable only within one run.")]
pub(crate) struct PeersArgs {
    /// Output directory of results.json and report.html
    #[arg(long, value_name = "DIR", default_value = "lab-peers")]
    pub(crate) out: PathBuf,
    /// Compare proxies instead of servers
    #[arg(long)]
    pub(crate) proxies: bool,
    /// Recipe of the server behind the proxies
    #[arg(long, value_name = "NAME", default_value = "hearken", requires = "proxies")]
    pub(crate) origin: String,
    /// Servers to compare, separated by commas [default: all installed servers with a recipe]
    #[arg(long = "server", value_name = "NAMES", value_delimiter = ',')]
    pub(crate) servers: Vec<String>,
    /// Recipe file of another server (repeatable)
    #[arg(long = "recipe", value_name = "FILE")]
    pub(crate) recipes: Vec<PathBuf>,
    /// Workloads, separated by commas [default: all]
    ///
    /// Servers: 1b, 1b-close, 1b-pipelined, 6k, 1m. Proxies: 1k-proxied, 1k-proxied-close, 64k-proxied.
    #[arg(long = "workload", value_name = "NAMES", value_delimiter = ',')]
    pub(crate) workloads: Vec<String>,
    /// Numbers of idle connections [default: 0,10000; for proxies 0,2000,10000]
    #[arg(long, value_name = "COUNTS", value_delimiter = ',')]
    pub(crate) idle: Vec<u64>,
    /// Repetitions of each measurement [default: 5]
    #[arg(long, value_name = "N")]
    pub(crate) repetitions: Option<u32>,
    /// Requests per measurement; slow workloads use fewer [default: 20000]
    #[arg(long, value_name = "N")]
    pub(crate) requests: Option<u64>,
    /// Server to compare the others with
    #[arg(long, value_name = "NAME", default_value = "hearken")]
    pub(crate) reference: String,
    /// Reduce all numbers (less than two minutes)
    #[arg(long)]
    pub(crate) short: bool,
    /// Seed of the random order of measurements
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Report instructions instead of time, on a machine emulated by NAME; see scripts/peers-emulated
    #[arg(long, hide = true, value_name = "NAME")]
    pub(crate) clock_is_instructions: Option<String>,
    /// List the recipes
    #[arg(long = "recipes", conflicts_with = "print_recipe")]
    pub(crate) list: bool,
    /// Print a recipe
    #[arg(long, value_name = "NAME")]
    pub(crate) print_recipe: Option<String>,
}

#[derive(Args)]
pub(crate) struct LaunchArgs {
    /// Program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  hearken lab quick
      Print a table; write results.json and report.html to ./lab-quick.
  hearken lab quick --out /tmp/lab --mechanisms poll,epoll-edge --idle 0,8000
      Compare two mechanisms with two numbers of idle connections.

Each server runs on one processor, the load generator on another. Results are comparable only within
one run.")]
pub(crate) struct QuickArgs {
    /// Output directory of results.json and report.html
    #[arg(long, value_name = "DIR", default_value = "lab-quick")]
    pub(crate) out: PathBuf,
    /// Mechanisms to compare, separated by commas [default: all available]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) mechanisms: Vec<String>,
    /// Numbers of idle connections, separated by commas
    #[arg(long, value_name = "COUNTS", value_delimiter = ',')]
    pub(crate) idle: Vec<u64>,
    /// Requests per second
    #[arg(long, value_name = "R")]
    pub(crate) rate: Option<f64>,
    /// Repetitions of each measurement
    #[arg(long, value_name = "N")]
    pub(crate) repetitions: Option<u32>,
    /// Seed of the random order of measurements
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
}
