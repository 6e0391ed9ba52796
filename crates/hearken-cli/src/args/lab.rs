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
    /// Every mechanism under the same load, with more and more idle connections; about three minutes
    Quick(QuickArgs),
    /// Hearken and other servers under the same load, in lockstep; about ten minutes
    Peers(PeersArgs),
    /// Run a program that ends with the process that started this one
    #[command(hide = true)]
    Launch(LaunchArgs),
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  hearken lab peers
      Hearken, a bare loop, and all of nginx, h2o, lighttpd, haproxy, lwan that are installed.
  hearken lab peers --short --server hearken,nginx --workload 1b,1b-close --idle 0
      One question, in seconds.
  hearken lab peers --print-recipe nginx > mine.toml
  hearken lab peers --recipe mine.toml
      A server of your own: its name, command, configuration and port are in the recipe.
  hearken lab peers --proxies --server hearken,nginx --workload 1k-proxied
      Proxies instead of servers; behind each of them is the same origin, which is not counted.

Server and driver share a processor, and the driver asks in rounds: what the server does for a request
repeats, whatever else the machine does. Two things are compared only within one run.")]
pub(crate) struct PeersArgs {
    /// Where results.json and report.html go
    #[arg(long, value_name = "DIR", default_value = "lab-peers")]
    pub(crate) out: PathBuf,
    /// Compare proxies instead of servers; all else here then speaks of proxies
    #[arg(long)]
    pub(crate) proxies: bool,
    /// The server behind the proxies: one that has a recipe
    #[arg(long, value_name = "NAME", default_value = "hearken", requires = "proxies")]
    pub(crate) origin: String,
    /// Servers to compare [default: all that have a recipe and are installed]
    #[arg(long = "server", value_name = "NAMES", value_delimiter = ',')]
    pub(crate) servers: Vec<String>,
    /// A file that says how another server is started; may be given several times
    #[arg(long = "recipe", value_name = "FILE")]
    pub(crate) recipes: Vec<PathBuf>,
    /// What they are asked: 1b, 1b-close, 1b-pipelined, 6k, 1m; of proxies 1k-proxied,
    /// 1k-proxied-close, 64k-proxied [default: all]
    #[arg(long = "workload", value_name = "NAMES", value_delimiter = ',')]
    pub(crate) workloads: Vec<String>,
    /// Numbers of idle connections [default: 0,10000; for proxies 0,2000,10000]
    #[arg(long, value_name = "COUNTS", value_delimiter = ',')]
    pub(crate) idle: Vec<u64>,
    /// How often each is measured [default: 5]
    #[arg(long, value_name = "N")]
    pub(crate) repetitions: Option<u32>,
    /// Requests in a pass; workloads that take longer have fewer [default: 20000]
    #[arg(long, value_name = "N")]
    pub(crate) requests: Option<u64>,
    /// The server that the others are compared with
    #[arg(long, value_name = "NAME", default_value = "hearken")]
    pub(crate) reference: String,
    /// Fewer of everything: less than two minutes
    #[arg(long)]
    pub(crate) short: bool,
    /// The order of the measurements is drawn from this
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// This machine is emulated by WHAT, and its clock counts instructions: see scripts/peers-emulated
    #[arg(long, hide = true, value_name = "WHAT")]
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
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  hearken lab quick
      About three minutes; the table on stdout, results.json and report.html in ./lab-quick.
  hearken lab quick --out /tmp/lab --mechanisms poll,epoll-edge --idle 0,8000
      Two mechanisms, two numbers of idle connections.

Each server is started on a free port and pinned to one processor, the load to another. Two things
are compared only within one run.")]
pub(crate) struct QuickArgs {
    /// Where results.json and report.html go
    #[arg(long, value_name = "DIR", default_value = "lab-quick")]
    pub(crate) out: PathBuf,
    /// Mechanisms to compare [default: all that can be had here]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) mechanisms: Vec<String>,
    /// Numbers of idle connections
    #[arg(long, value_name = "COUNTS", value_delimiter = ',')]
    pub(crate) idle: Vec<u64>,
    /// Requests a second
    #[arg(long, value_name = "R")]
    pub(crate) rate: Option<f64>,
    /// How often each is measured
    #[arg(long, value_name = "N")]
    pub(crate) repetitions: Option<u32>,
    /// The order of the measurements is drawn from this
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
}
