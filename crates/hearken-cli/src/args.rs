//! The command line: what it takes, and what `--help`, the man pages and the completions say of it.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub(crate) mod client;
pub(crate) mod events;
pub(crate) mod load;
pub(crate) mod proxy;

use crate::load::command::LoadCommand;
use crate::proxy::ProxyCommand;
use client::ClientArgs;
use events::EventArgs;

/// Event delivery for network servers: serve, proxy, load, compare
#[derive(Parser)]
#[command(name = "hearken", version, propagate_version = true, max_term_width = 100)]
#[command(after_help = "\
Examples:
  hearken serve public
  hearken proxy --to http://127.0.0.1:9000
  hearken load http://127.0.0.1:8080/ --rate 2000 --idle 10000
  hearken lab quick
  hearken mechanisms

Exit status: 0 on success, 1 when it failed on the way, 2 when it cannot be done as asked,
3 when it did not meet the objectives that it was given (load --slo, --find-knee).")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Serve the files of a directory over HTTP
    Serve(ServeArgs),
    /// Pass HTTP requests on to servers, and balance them
    Proxy(ProxyCommand),
    /// Load an HTTP server, open loop, and tell what its clients see
    Load(LoadCommand),
    /// Compare mechanisms on real traffic
    Lab(LabArgs),
    /// List event mechanisms, and which of them can be had here
    Mechanisms(MechanismsArgs),
    /// Write the man pages
    Man(ManArgs),
    /// Print a script that completes this command line in a shell
    Completions(CompletionsArgs),
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  hearken serve public
      Serve ./public on http://127.0.0.1:8080.
  hearken serve public --listen 0.0.0.0:80 --workers 2
      To everybody, with two event loops.
  hearken serve public --listen 127.0.0.1:0 --events poll --accept-limit 1 --io wait-first
      As a paper's server did, on any port that is free.
  hearken serve public --events uring
      By io_uring's completions: the kernel accepts, receives and sends.
  hearken serve public --events rt-signal:dequeue=one:recover=select --rt-queue 64
      By real-time signals, taken one at a time, with a queue that overflows soon.
  hearken serve public --access-log log.json --log-format json --admin 127.0.0.1:9090
      With an access log in JSON, and metrics at http://127.0.0.1:9090/metrics.

Prints \"listening on http://ADDR:PORT (MECHANISM, N workers, M connections)\" when it is ready, and with
--admin also \"metrics on http://ADDR:PORT/metrics\". On SIGTERM or SIGINT it stops accepting connections,
completes requests in progress within --grace, and exits with 0; a second signal ends it immediately. SIGHUP
reopens the access log. SIGUSR1 prints statistics of waits for events. Write DURATION as 500ms, 5s, 2m or 1h,
and BYTES as a number or as 16k, 8M.")]
pub(crate) struct ServeArgs {
    /// Directory to serve; nothing outside it is served, even through symbolic links
    pub(crate) dir: PathBuf,
    /// Memory for small files, in MiB, for each worker
    #[arg(long, value_name = "MIB", default_value = "64")]
    pub(crate) cache_mib: u16,
    /// Serve files whose names begin with a dot
    #[arg(long)]
    pub(crate) dotfiles: bool,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
    #[command(flatten, next_help_heading = "Events and experiments")]
    pub(crate) how: EventArgs,
    /// End when the process that started this one does
    #[arg(long, hide = true)]
    pub(crate) exit_with_parent: bool,
}

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

#[derive(Args)]
#[command(after_help = "\
Examples:
  hearken mechanisms
      Each mechanism: whether this kernel and this user can have it, and if not, why.
  hearken mechanisms --json | jq -r '.[] | select(.available) | .name'
      The names of those that can be had.
  hearken mechanisms --explain
      What --events auto chooses on this machine, and why.")]
pub(crate) struct MechanismsArgs {
    /// As a JSON array of objects
    #[arg(long)]
    pub(crate) json: bool,
    /// Say what `auto` stands for here, and what was measured to find out
    #[arg(long, conflicts_with = "json")]
    pub(crate) explain: bool,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  hearken man ~/.local/share/man/man1
  man hearken-serve")]
pub(crate) struct ManArgs {
    /// The directory they are written to
    #[arg(default_value = "man")]
    pub(crate) dir: PathBuf,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  hearken completions bash > ~/.local/share/bash-completion/completions/hearken
  hearken completions fish > ~/.config/fish/completions/hearken.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}
