//! The command line: what it takes, and what `--help`, the man pages and the completions say of it.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use hearken::io::readiness::{InterestPolicy, Order};
use hearken_load::{Count, Distribution, Expect, Objectives, Profile};

use crate::load::command::LoadCommand;
use crate::load::output::OutputArgs;
use crate::load_agents::ManyArgs;
use crate::load_plan::AllGiven;
use crate::time::{duration, patience, watch_interval};

/// Event delivery for network servers: serve, load, compare
#[derive(Parser)]
#[command(name = "hearken", version, propagate_version = true, max_term_width = 100)]
#[command(after_help = "\
Examples:
  hearken serve public
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

Prints \"listening on http://ADDR:PORT (MECHANISM, N workers, M connections)\" when it is ready. SIGTERM or SIGINT:
accepts no more, finishes what is in flight within --grace, and exits with 0; a second one ends it at
once.")]
pub(crate) struct ServeArgs {
    /// The directory that is served; nothing outside it is, symbolic links included
    pub(crate) dir: PathBuf,
    /// Where to listen; port 0 takes any that is free
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,
    /// The event mechanism, as `hearken mechanisms` lists them: NAME or NAME:OPTION=VALUE
    #[arg(long, value_name = "NAME", default_value = hearken::mechanism::AUTO)]
    pub(crate) events: String,
    /// Signals that may be queued for this process, for experiments with rt-signal (RLIMIT_SIGPENDING)
    #[arg(long, value_name = "N")]
    pub(crate) rt_queue: Option<u64>,
    /// Event loops, each a thread with a listening socket and a table of descriptors of its own
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) workers: NonZeroUsize,
    /// Connections accepted each time there are some to accept, or "all"
    #[arg(long, value_name = "N", default_value = "64")]
    pub(crate) accept_limit: AcceptLimit,
    /// How long the kernel keeps back a connection that says nothing yet, in whole seconds
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = duration)]
    pub(crate) defer_accept: Duration,
    /// Whether a call is tried before it is waited for
    #[arg(long, value_name = "ORDER", default_value = "try-first")]
    pub(crate) io: IoOrder,
    /// When interest in a connection is changed
    #[arg(long, value_name = "POLICY", default_value = "when-needed")]
    pub(crate) interest: Interest,
    /// Connections open at a time [default: what the limit of open files allows]
    #[arg(long, value_name = "N")]
    pub(crate) max_connections: Option<NonZeroUsize>,
    /// For a request's whole head, however it trickles (then 408)
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = patience)]
    pub(crate) head_timeout: Duration,
    /// For a request's whole body (then 408)
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = patience)]
    pub(crate) body_timeout: Duration,
    /// For the next request on a connection
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = patience)]
    pub(crate) idle_timeout: Duration,
    /// Bytes per second below which a client that is being sent to is cut off; 0 for no limit
    #[arg(long, value_name = "RATE", default_value = "256")]
    pub(crate) min_rate: u64,
    /// For requests in flight to end after SIGTERM
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(crate) grace: Duration,
    /// Append a line for each answer to FILE, in the combined format (- for stdout)
    #[arg(long, value_name = "FILE")]
    pub(crate) access_log: Option<PathBuf>,
    /// Memory for small files, in MiB, for each worker
    #[arg(long, value_name = "MIB", default_value = "64")]
    pub(crate) cache_mib: u16,
    /// Serve files whose names begin with a dot, too
    #[arg(long)]
    pub(crate) dotfiles: bool,
    /// End when the process that started this one does
    #[arg(long, hide = true)]
    pub(crate) exit_with_parent: bool,
}

/// A number, or none for `all`.
#[derive(Clone, Copy)]
pub(crate) struct AcceptLimit(pub(crate) Option<NonZeroU32>);

impl FromStr for AcceptLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<AcceptLimit, String> {
        match text {
            "all" => Ok(AcceptLimit(None)),
            _ => match text.parse() {
                Ok(limit) => Ok(AcceptLimit(Some(limit))),
                Err(_) => Err(format!("\"{text}\" is neither a number of 1 or more nor \"all\"")),
            },
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum IoOrder {
    /// Call, and wait if it would block
    TryFirst,
    /// Wait, then call
    WaitFirst,
}

impl From<IoOrder> for Order {
    fn from(order: IoOrder) -> Order {
        match order {
            IoOrder::TryFirst => Order::TryFirst,
            IoOrder::WaitFirst => Order::WaitFirst,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Interest {
    /// Changed to just what is waited for, at every change of state
    EveryState,
    /// Added when it is missing, taken back when it wakes in vain
    WhenNeeded,
    /// Declared once, for both directions
    Once,
}

impl From<Interest> for InterestPolicy {
    fn from(interest: Interest) -> InterestPolicy {
        match interest {
            Interest::EveryState => InterestPolicy::EveryState,
            Interest::WhenNeeded => InterestPolicy::WhenNeeded,
            Interest::Once => InterestPolicy::Once,
        }
    }
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  hearken load http://127.0.0.1:8080/index.html --rate 2000 --duration 10s
      2,000 new requests a second, whatever becomes of the earlier ones, over 50 connections.
  hearken load http://127.0.0.1:8080/ --rate 500 --per-connection 1 --json result.json
      A connection for each request; the result for a program to read.
  hearken load http://127.0.0.1:8080/ --rate 1000 --idle 10000
      While 10,000 other connections are held idle.
  hearken load http://127.0.0.1:8080/ --rate 0 --idle 100000 --idle-request
      Nothing but idle ones, each of which has made a request, until it is interrupted.
  hearken load http://127.0.0.1:8080/ --rate 2000 --slo 'p99<5ms,errors<0.1%'
      Exits with 3 unless that is met.
  hearken load http://127.0.0.1:8080/ --find-knee --slo 'p99<5ms,errors<0.1%'
      The highest rate at which it is met, with its 95 % interval; some minutes.
  hearken load http://127.0.0.1:8080/ --lockstep 50 --requests 100000
      Rounds of 50 requests, each begun when the last is answered: to count what the server does.
  hearken load http://127.0.0.1:8080/ --rate 5000 --watch :8080
      And what the server uses meanwhile: CPU, memory, sockets, what the kernel counts.
  hearken load http://127.0.0.1:8080/ --json after.json --html after.html
  hearken load compare before.json after.json
      A page with plots; and whether it is better than it was.
  hearken load http://10.0.0.1/ --rate 200000 --on slurm:4
      From four machines at once, which Slurm gives; one result.
  hearken load --plan run.toml --check
      Whether the options in a file are sound. --print-plan writes such a file.

Latency is measured from the time at which a request was to be sent, so that a server that stalls is
charged for every request that it kept waiting. Errors have httperf's names.")]
pub(crate) struct LoadArgs {
    /// What to ask for: http://HOST[:PORT]/PATH
    pub(crate) url: String,
    /// Arrivals a second, which may change: R, FROM..TO@TIME, or several with commas; 0 for none
    #[arg(long, value_name = "RATE", default_value = "1000", allow_hyphen_values = true,
        conflicts_with_all = ["steps", "closed"])]
    pub(crate) rate: Profile,
    /// Rates that are held one after another: R,R,...@TIME or FROM..TO/BY@TIME
    #[arg(long, value_name = "STEPS", value_parser = Profile::steps, conflicts_with = "closed")]
    pub(crate) steps: Option<Profile>,
    /// No rate: each of the connections asks again when it has its reply
    #[arg(long, conflicts_with_all = ["by", "arrivals"])]
    pub(crate) closed: bool,
    /// What arrives [default: requests, or sessions where the workload has them]
    #[arg(long, value_name = "WHAT")]
    pub(crate) by: Option<By>,
    /// For how long they arrive [default: as the rate or the workload says, else 10s]
    #[arg(long, value_name = "TIME", value_parser = patience)]
    pub(crate) duration: Option<Duration>,
    /// How they follow each other
    #[arg(long, value_name = "KIND", default_value = "poisson")]
    pub(crate) arrivals: Arrivals,
    /// Connections that are kept open for the requests
    #[arg(short = 'c', long, value_name = "N", default_value = "50")]
    pub(crate) connections: NonZeroUsize,
    /// Requests on each connection, K or K..L: with --by connections or --closed; else, connections
    /// are opened as they are needed, for so many requests each
    #[arg(long, value_name = "K")]
    pub(crate) per_connection: Option<Count>,
    /// Requests that are sent at once where a connection has several
    #[arg(long, value_name = "K", default_value = "1")]
    pub(crate) pipeline: NonZeroUsize,
    /// Between a reply and the next request on a connection: TIME, exp:MEAN, uniform:MIN..MAX,
    /// lognormal:MEDIAN,SIGMA or pareto:MIN,ALPHA
    #[arg(long, value_name = "TIMES")]
    pub(crate) think: Option<Distribution>,
    /// How long connections last, as for --think
    #[arg(long, value_name = "TIMES")]
    pub(crate) connection_time: Option<Distribution>,
    /// Connections that are held idle besides, and made again when lost; in as many tables of
    /// descriptors as they take
    #[arg(long, value_name = "N", default_value = "0")]
    pub(crate) idle: usize,
    /// Have each idle connection make one request first
    #[arg(long)]
    pub(crate) idle_request: bool,
    /// Have each idle connection make a request now and then, as for --think
    #[arg(long, value_name = "TIMES")]
    pub(crate) idle_think: Option<Distribution>,
    /// Begin no more than R idle connections a second
    #[arg(long, value_name = "R")]
    pub(crate) idle_rate: Option<f64>,
    /// From its intended time on, after which a request without its whole reply is given up
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = patience)]
    pub(crate) timeout: Duration,
    /// After which a connection that is not made is given up
    #[arg(long, value_name = "TIME", value_parser = patience)]
    pub(crate) connect_timeout: Option<Duration>,
    /// After which a request whose reply has not begun is given up
    #[arg(long, value_name = "TIME", value_parser = patience)]
    pub(crate) first_byte_timeout: Option<Duration>,
    /// The method of requests
    #[arg(
        short = 'X',
        long,
        value_name = "METHOD",
        default_value = "GET",
        conflicts_with = "head"
    )]
    pub(crate) method: String,
    /// Use HEAD instead of GET
    #[arg(long)]
    pub(crate) head: bool,
    /// A field for each request, as NAME: VALUE; may be given several times
    #[arg(short = 'H', long = "header", value_name = "FIELD")]
    pub(crate) header: Vec<String>,
    /// What each request has as its body
    #[arg(long, value_name = "TEXT", conflicts_with = "body_file")]
    pub(crate) body: Option<String>,
    /// A file that each request has as its body
    #[arg(long, value_name = "FILE")]
    pub(crate) body_file: Option<PathBuf>,
    /// What each reply must be: status=200, status=2xx, length=N, sha256=HEX; several with commas
    #[arg(long, value_name = "CHECKS")]
    pub(crate) expect: Option<Expect>,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
    /// Addresses to connect from, with commas [default: more of 127.x when ports run short]
    #[arg(long, value_name = "ADDRS", value_delimiter = ',')]
    pub(crate) sources: Vec<IpAddr>,
    /// Event loops, a thread each
    #[arg(short = 't', long, value_name = "N", default_value = "1")]
    pub(crate) threads: NonZeroUsize,
    /// How long the pieces are into which the result divides the run
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = patience)]
    pub(crate) interval: Duration,
    /// What the arrivals are drawn from, to have the same again [default: a new one]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// The generator's own event mechanism
    #[arg(long, value_name = "NAME", default_value = hearken::mechanism::AUTO)]
    pub(crate) events: String,
    /// Signals that may be queued for it, for experiments with rt-signal (RLIMIT_SIGPENDING)
    #[arg(long, value_name = "N")]
    pub(crate) rt_queue: Option<u64>,
    /// No rate, but rounds: send a request on each of B connections, then read B replies
    #[arg(long, value_name = "B", conflicts_with_all = ["rate", "steps", "closed", "by", "duration",
        "arrivals", "connections", "per_connection", "think", "connection_time", "idle", "idle_request",
        "idle_think", "idle_rate", "connect_timeout", "first_byte_timeout", "expect", "SourceArgs",
        "TlsArgs", "sources", "threads", "interval", "seed", "events", "rt_queue", "announce",
        "OutputArgs"])]
    pub(crate) lockstep: Option<NonZeroUsize>,
    /// How many requests the rounds are made of, rounded up to whole ones [default: 10000]
    #[arg(long, value_name = "N", requires = "lockstep")]
    pub(crate) requests: Option<u64>,
    /// Requests in rounds before those that are told of
    #[arg(long, value_name = "N", requires = "lockstep", default_value = "0")]
    pub(crate) warm_up: u64,
    /// A new connection for each request of a round
    #[arg(long, requires = "lockstep")]
    pub(crate) close: bool,
    /// Say "ready" after the warm-up; then, for each number on stdin, make as many and tell of them
    #[arg(long, hide = true, requires = "lockstep", conflicts_with_all = ["requests", "json"])]
    pub(crate) on_demand: bool,
    #[command(flatten)]
    pub(crate) knee: KneeArgs,
    /// Say "prepared" on stdout when the first request is about to be made
    #[arg(long, hide = true)]
    pub(crate) announce: bool,
    /// Tell what the server uses meanwhile: a process id (with its descendants), :PORT for whoever
    /// listens there, a systemd unit, or a control group
    #[arg(long, value_name = "WHAT", conflicts_with = "lockstep")]
    pub(crate) watch: Option<String>,
    /// How often it is sampled
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = watch_interval,
        requires = "watch")]
    pub(crate) watch_interval: Duration,
    /// How it goes, on stderr: =log for a line each interval, =none, or =auto, which is a block in
    /// place on a terminal and nothing elsewhere [default: auto]
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true, hide_possible_values = true,
        default_value = "auto", default_missing_value = "log", hide_default_value = true,
        conflicts_with = "lockstep")]
    pub(crate) progress: ProgressArg,
    /// Write the result as JSON to FILE (- for stdout, in place of the summary)
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) outputs: OutputArgs,
    /// End when the process that started this one does
    #[arg(long, hide = true)]
    pub(crate) exit_with_parent: bool,
    #[command(flatten)]
    pub(crate) many: ManyArgs,
    /// What was given of all these, by a plan or the command line.
    #[arg(skip)]
    pub(crate) given: AllGiven,
}

/// What the server is held to.
#[derive(Args)]
pub(crate) struct KneeArgs {
    /// Exit with 3 if these objectives are not met, such as p99<5ms,errors<0.1%,rate>=99%. There are
    /// pN, mean and max of the latency, also service.pN and connect.pN, errors, rate, idle. Requests
    /// that fail count as longer than any limit
    #[arg(long, value_name = "OBJECTIVES", conflicts_with = "lockstep")]
    pub(crate) slo: Option<Objectives>,
    /// Search for the highest rate that meets the objectives [default: p99<50ms,errors<0.1%,rate>=99%]
    #[arg(long, conflicts_with_all = ["rate", "steps", "closed", "duration",
        "trace", "access_log", "watch", "lockstep", "announce", "html", "csv", "hlog"])]
    pub(crate) find_knee: bool,
    /// How long each rate is tried
    #[arg(long, value_name = "TIME", default_value = "3s", requires = "find_knee", value_parser = patience)]
    pub(crate) trial: Duration,
    /// The highest rate that is tried
    #[arg(long, value_name = "R", default_value = "1000000", requires = "find_knee")]
    pub(crate) max_rate: f64,
    /// How narrow its 95 % interval is to be, to each side; it ends after 60 trials or 15 minutes in
    /// any case
    #[arg(long, value_name = "SHARE", default_value = "2%", requires = "find_knee", value_parser = share)]
    pub(crate) precision: f64,
}

/// Parses a share: `2%` or `0.02`.
fn share(text: &str) -> Result<f64, String> {
    let (number, of) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    match number.trim().parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(number / of),
        _ => Err(format!("\"{text}\" is no share; write one such as 2% or 0.02")),
    }
}

/// Where it is said what to ask for.
#[derive(Args)]
pub(crate) struct SourceArgs {
    /// Ask for what the lines of FILE name: [WEIGHT] PATH [METHOD] [CHECKS]
    #[arg(long, value_name = "FILE", group = "from")]
    pub(crate) urls: Option<PathBuf>,
    /// httperf's list of paths, each ended by a NUL: B is y to begin again at its end, else n
    #[arg(long, value_name = "B,FILE", group = "from")]
    pub(crate) wlog: Option<String>,
    /// httperf's file of sessions: N of them in all, with pauses of X seconds where it says nothing
    #[arg(long, value_name = "N,X,FILE", group = "from")]
    pub(crate) wsesslog: Option<String>,
    /// Ask for a SPECweb99-like mix of the files in DIR, which `hearken load specweb` makes
    #[arg(long, value_name = "DIR", group = "from")]
    pub(crate) specweb: Option<PathBuf>,
    /// Ask for what an access log (combined, or JSON) names, at its times
    #[arg(long, value_name = "FILE", group = "from")]
    pub(crate) access_log: Option<PathBuf>,
    /// How many times as fast as it was logged
    #[arg(long, value_name = "X", requires = "access_log", default_value = "1")]
    pub(crate) speed: f64,
    /// Pass over lines of the log that cannot be read
    #[arg(long, requires = "access_log")]
    pub(crate) skip_bad: bool,
    /// Ask for what the lines of FILE name, at their times: SECONDS PATH
    #[arg(long, value_name = "FILE", group = "from")]
    pub(crate) trace: Option<PathBuf>,
}

/// How https is spoken.
#[derive(Args)]
#[group(multiple = true)]
pub(crate) struct TlsArgs {
    /// Trust the authorities in FILE (PEM) instead of this system's
    #[arg(long, value_name = "FILE")]
    pub(crate) cacert: Option<PathBuf>,
    /// Believe whatever certificate the server shows
    #[arg(short = 'k', long)]
    pub(crate) insecure: bool,
    /// Make a full TLS handshake on every connection
    #[arg(long)]
    pub(crate) no_resumption: bool,
    /// The name the server is asked for and must have, instead of the URL's host
    #[arg(long, value_name = "NAME")]
    pub(crate) server_name: Option<String>,
    /// Show this certificate (PEM) to a server that asks
    #[arg(long, value_name = "FILE")]
    pub(crate) cert: Option<PathBuf>,
    /// The key to it, if it is not in the same file
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum By {
    /// Requests, over connections that are kept or opened for them
    Requests,
    /// Connections, each with its requests one after another
    Connections,
    /// Sessions: bursts of requests with pauses between them
    Sessions,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum ProgressArg {
    /// In place on a terminal, nothing elsewhere
    Auto,
    /// A line for each interval
    Log,
    /// Nothing
    None,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Arrivals {
    /// Independent of each other, as from many clients
    Poisson,
    /// One every 1/R seconds
    Constant,
    /// At distances from nothing to 2/R
    Uniform,
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

Server and driver share a processor, and the driver asks in rounds: what the server does for a request
repeats, whatever else the machine does. Two things are compared only within one run.")]
pub(crate) struct PeersArgs {
    /// Where results.json and report.html go
    #[arg(long, value_name = "DIR", default_value = "lab-peers")]
    pub(crate) out: PathBuf,
    /// Servers to compare [default: all that have a recipe and are installed]
    #[arg(long = "server", value_name = "NAMES", value_delimiter = ',')]
    pub(crate) servers: Vec<String>,
    /// A file that says how another server is started; may be given several times
    #[arg(long = "recipe", value_name = "FILE")]
    pub(crate) recipes: Vec<PathBuf>,
    /// What they are asked: 1b, 1b-close, 1b-pipelined, 6k, 1m [default: all]
    #[arg(long = "workload", value_name = "NAMES", value_delimiter = ',')]
    pub(crate) workloads: Vec<String>,
    /// Numbers of idle connections [default: 0,10000]
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
