//! The arguments of `hearken load`.

use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use hearken_load::{Count, Distribution, Expect, Objectives, Profile};

use crate::load::output::OutputArgs;
use crate::load_agents::ManyArgs;
use crate::load_plan::AllGiven;
use crate::time::{patience, watch_interval};

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
    /// What to ask for: http://HOST[:PORT]/PATH, or https:
    pub(crate) url: String,
    /// Arrivals a second, which may change: R, FROM..TO@TIME, or several with commas; 0 for none
    #[arg(long, value_name = "RATE", default_value = "1000", allow_hyphen_values = true,
        conflicts_with_all = ["steps", "closed"], help_heading = "Arrivals")]
    pub(crate) rate: Profile,
    /// Rates that are held one after another: R,R,...@TIME or FROM..TO/BY@TIME
    #[arg(long, value_name = "STEPS", value_parser = Profile::steps, conflicts_with = "closed", help_heading = "Arrivals")]
    pub(crate) steps: Option<Profile>,
    /// No rate: each of the connections asks again when it has its reply
    #[arg(long, conflicts_with_all = ["by", "arrivals"], help_heading = "Arrivals")]
    pub(crate) closed: bool,
    /// What arrives [default: requests, or sessions where the workload has them]
    #[arg(long, value_name = "WHAT", help_heading = "Arrivals")]
    pub(crate) by: Option<By>,
    /// For how long they arrive [default: as the rate or the workload says, else 10s]
    #[arg(long, value_name = "TIME", value_parser = patience, help_heading = "Arrivals")]
    pub(crate) duration: Option<Duration>,
    /// How they follow each other
    #[arg(long, value_name = "KIND", default_value = "poisson", help_heading = "Arrivals")]
    pub(crate) arrivals: Arrivals,
    /// Connections that are kept open for the requests
    #[arg(short = 'c', long, value_name = "N", default_value = "50", help_heading = "Connections")]
    pub(crate) connections: NonZeroUsize,
    /// Requests on each connection, K or K..L: with --by connections or --closed; else, connections
    /// are opened as they are needed, for so many requests each
    #[arg(long, value_name = "K", help_heading = "Connections")]
    pub(crate) per_connection: Option<Count>,
    /// Requests that are sent at once where a connection has several
    #[arg(long, value_name = "K", default_value = "1", help_heading = "Connections")]
    pub(crate) pipeline: NonZeroUsize,
    /// Between a reply and the next request on a connection: TIME, exp:MEAN, uniform:MIN..MAX,
    /// lognormal:MEDIAN,SIGMA or pareto:MIN,ALPHA
    #[arg(long, value_name = "TIMES", help_heading = "Arrivals")]
    pub(crate) think: Option<Distribution>,
    /// How long connections last, as for --think
    #[arg(long, value_name = "TIMES", help_heading = "Arrivals")]
    pub(crate) connection_time: Option<Distribution>,
    /// Connections that are held idle besides, and made again when lost; in as many tables of
    /// descriptors as they take
    #[arg(long, value_name = "N", default_value = "0", help_heading = "Idle connections")]
    pub(crate) idle: usize,
    /// Have each idle connection make one request first
    #[arg(long, help_heading = "Idle connections")]
    pub(crate) idle_request: bool,
    /// Have each idle connection make a request now and then, as for --think
    #[arg(long, value_name = "TIMES", help_heading = "Idle connections")]
    pub(crate) idle_think: Option<Distribution>,
    /// Begin no more than R idle connections a second
    #[arg(long, value_name = "R", help_heading = "Idle connections")]
    pub(crate) idle_rate: Option<f64>,
    /// From its intended time on, after which a request without its whole reply is given up
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = patience, help_heading = "Connections")]
    pub(crate) timeout: Duration,
    /// After which a connection that is not made is given up
    #[arg(long, value_name = "TIME", value_parser = patience, help_heading = "Connections")]
    pub(crate) connect_timeout: Option<Duration>,
    /// After which a request whose reply has not begun is given up
    #[arg(long, value_name = "TIME", value_parser = patience, help_heading = "Connections")]
    pub(crate) first_byte_timeout: Option<Duration>,
    /// The method of requests
    #[arg(
        short = 'X',
        long,
        value_name = "METHOD",
        default_value = "GET",
        conflicts_with = "head",
        help_heading = "Requests"
    )]
    pub(crate) method: String,
    /// Use HEAD instead of GET
    #[arg(long, help_heading = "Requests")]
    pub(crate) head: bool,
    /// A field for each request, as NAME: VALUE; may be given several times
    #[arg(short = 'H', long = "header", value_name = "FIELD", help_heading = "Requests")]
    pub(crate) header: Vec<String>,
    /// What each request has as its body
    #[arg(long, value_name = "TEXT", conflicts_with = "body_file", help_heading = "Requests")]
    pub(crate) body: Option<String>,
    /// A file that each request has as its body
    #[arg(long, value_name = "FILE", help_heading = "Requests")]
    pub(crate) body_file: Option<PathBuf>,
    /// What each reply must be: status=200, status=2xx, length=N, sha256=HEX; several with commas
    #[arg(long, value_name = "CHECKS", help_heading = "Requests")]
    pub(crate) expect: Option<Expect>,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
    /// Addresses to connect from, with commas [default: more of 127.x when ports run short]
    #[arg(long, value_name = "ADDRS", value_delimiter = ',', help_heading = "Connections")]
    pub(crate) sources: Vec<IpAddr>,
    /// Event loops, a thread each
    #[arg(short = 't', long, value_name = "N", default_value = "1")]
    pub(crate) threads: NonZeroUsize,
    /// How long the pieces are into which the result divides the run
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = patience, help_heading = "Results")]
    pub(crate) interval: Duration,
    /// What the arrivals are drawn from, to have the same again [default: a new one]
    #[arg(long, value_name = "N", help_heading = "Arrivals")]
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
        "OutputArgs"], help_heading = "Rounds instead of a rate")]
    pub(crate) lockstep: Option<NonZeroUsize>,
    /// How many requests the rounds are made of, rounded up to whole ones [default: 10000]
    #[arg(
        long,
        value_name = "N",
        requires = "lockstep",
        help_heading = "Rounds instead of a rate"
    )]
    pub(crate) requests: Option<u64>,
    /// Requests in rounds before those that are told of
    #[arg(
        long,
        value_name = "N",
        requires = "lockstep",
        default_value = "0",
        help_heading = "Rounds instead of a rate"
    )]
    pub(crate) warm_up: u64,
    /// A new connection for each request of a round
    #[arg(long, requires = "lockstep", help_heading = "Rounds instead of a rate")]
    pub(crate) close: bool,
    /// Say "ready" after the warm-up; then, for each number on stdin, make as many and tell of them
    #[arg(long, hide = true, requires = "lockstep", conflicts_with_all = ["requests", "json"], help_heading = "Rounds instead of a rate")]
    pub(crate) on_demand: bool,
    #[command(flatten)]
    pub(crate) knee: KneeArgs,
    /// Say "prepared" on stdout when the first request is about to be made
    #[arg(long, hide = true)]
    pub(crate) announce: bool,
    /// Tell what the server uses meanwhile: a process id (with its descendants), :PORT for whoever
    /// listens there, a systemd unit, or a control group
    #[arg(long, value_name = "WHAT", conflicts_with = "lockstep", help_heading = "Results")]
    pub(crate) watch: Option<String>,
    /// How often it is sampled
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = watch_interval,
        requires = "watch", help_heading = "Results")]
    pub(crate) watch_interval: Duration,
    /// How it goes, on stderr: =log for a line each interval, =none, or =auto, which is a block in
    /// place on a terminal and nothing elsewhere [default: auto]
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true, hide_possible_values = true,
        default_value = "auto", default_missing_value = "log", hide_default_value = true,
        conflicts_with = "lockstep", help_heading = "Results")]
    pub(crate) progress: ProgressArg,
    /// Write the result as JSON to FILE (- for stdout, in place of the summary)
    #[arg(long, value_name = "FILE", help_heading = "Results")]
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
    #[arg(
        long,
        value_name = "OBJECTIVES",
        conflicts_with = "lockstep",
        help_heading = "Objectives"
    )]
    pub(crate) slo: Option<Objectives>,
    /// Search for the highest rate that meets the objectives [default: p99<50ms,errors<0.1%,rate>=99%]
    #[arg(long, conflicts_with_all = ["rate", "steps", "closed", "duration",
        "trace", "access_log", "watch", "lockstep", "announce", "html", "csv", "hlog"], help_heading = "Objectives")]
    pub(crate) find_knee: bool,
    /// How long each rate is tried
    #[arg(long, value_name = "TIME", default_value = "3s", requires = "find_knee", value_parser = patience, help_heading = "Objectives")]
    pub(crate) trial: Duration,
    /// The highest rate that is tried
    #[arg(
        long,
        value_name = "R",
        default_value = "1000000",
        requires = "find_knee",
        help_heading = "Objectives"
    )]
    pub(crate) max_rate: f64,
    /// How narrow its 95 % interval is to be, to each side; it ends after 60 trials or 15 minutes in
    /// any case
    #[arg(long, value_name = "SHARE", default_value = "2%", requires = "find_knee", value_parser = share, help_heading = "Objectives")]
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
    #[arg(long, value_name = "FILE", group = "from", help_heading = "Requests")]
    pub(crate) urls: Option<PathBuf>,
    /// httperf's list of paths, each ended by a NUL: B is y to begin again at its end, else n
    #[arg(long, value_name = "B,FILE", group = "from", help_heading = "Requests")]
    pub(crate) wlog: Option<String>,
    /// httperf's file of sessions: N of them in all, with pauses of X seconds where it says nothing
    #[arg(long, value_name = "N,X,FILE", group = "from", help_heading = "Requests")]
    pub(crate) wsesslog: Option<String>,
    /// Ask for a SPECweb99-like mix of the files in DIR, which `hearken load specweb` makes
    #[arg(long, value_name = "DIR", group = "from", help_heading = "Requests")]
    pub(crate) specweb: Option<PathBuf>,
    /// Ask for what an access log (combined, or JSON) names, at its times
    #[arg(long, value_name = "FILE", group = "from", help_heading = "Requests")]
    pub(crate) access_log: Option<PathBuf>,
    /// How many times as fast as it was logged
    #[arg(
        long,
        value_name = "X",
        requires = "access_log",
        default_value = "1",
        help_heading = "Requests"
    )]
    pub(crate) speed: f64,
    /// Pass over lines of the log that cannot be read
    #[arg(long, requires = "access_log", help_heading = "Requests")]
    pub(crate) skip_bad: bool,
    /// Ask for what the lines of FILE name, at their times: SECONDS PATH
    #[arg(long, value_name = "FILE", group = "from", help_heading = "Requests")]
    pub(crate) trace: Option<PathBuf>,
}

/// How https is spoken.
#[derive(Args)]
#[group(multiple = true)]
pub(crate) struct TlsArgs {
    /// Trust the authorities in FILE (PEM) instead of this system's
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    pub(crate) cacert: Option<PathBuf>,
    /// Believe whatever certificate the server shows
    #[arg(short = 'k', long, help_heading = "TLS")]
    pub(crate) insecure: bool,
    /// Make a full TLS handshake on every connection
    #[arg(long, help_heading = "TLS")]
    pub(crate) no_resumption: bool,
    /// The name the server is asked for and must have, instead of the URL's host
    #[arg(long, value_name = "NAME", help_heading = "TLS")]
    pub(crate) server_name: Option<String>,
    /// Show this certificate (PEM) to a server that asks
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    pub(crate) cert: Option<PathBuf>,
    /// The key to it, if it is not in the same file
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
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
