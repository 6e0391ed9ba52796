//! The arguments of `hearken load`.

use std::ffi::OsString;
use std::net::IpAddr;
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use hearken_load::{
    Count, Distribution, Expect, HostAddress, Objectives, Profile, SlowOptions, WebSocketOptions,
};

use crate::load::output::OutputArgs;
use crate::load_agents::ManyArgs;
use crate::load_plan::SetOptions;
use crate::time::{positive_duration, watch_interval};

#[derive(Args)]
#[command(after_help = "\
Examples:
  hearken load http://127.0.0.1:8080/ --rate 2000 --duration 10s --idle 10000
  hearken load ab http://127.0.0.1:8080/ http://127.0.0.1:8081/ -- --rate 2000")]
#[command(after_long_help = "\
Examples:
  hearken load http://127.0.0.1:8080/index.html --rate 2000 --duration 10s
      Send 2,000 requests per second on schedule, over as many connections as they need.
  hearken load http://127.0.0.1:8080/ --rate 500 --per-connection 1 --json result.json
      Open one connection per request, and write the result as JSON.
  hearken load http://127.0.0.1:8080/ --rate 1000 --idle 10000
      Hold 10,000 idle connections on the side.
  hearken load http://127.0.0.1:8080/ --rate 0 --idle 100000 --idle-request
      Hold idle connections only, each after one request, until interrupted.
  hearken load http://127.0.0.1:8080/chat --rate 0 --websocket 5000,mode=echo,every=1s
      Measure the time to the echo of a message on 5,000 WebSocket connections.
  hearken load http://127.0.0.1:8080/ --rate 1000 --slow-senders 100,rate=1
      Send the requests of 100 further connections at one byte per second.
  hearken load http://127.0.0.1:8080/ --rate 2000 --slo 'p99<5ms,errors<0.1%'
      Exit with 3 if an objective is missed.
  hearken load http://127.0.0.1:8080/ --find-knee --slo 'p99<5ms,errors<0.1%'
      Search for the highest rate that meets the objectives. Takes some minutes.
  hearken load http://127.0.0.1:8080/ --sweep --html sweep.html
      Plot reply rate, errors and latency at up to twice saturation. Takes some minutes.
  hearken load http://127.0.0.1:8080/ --lockstep 50 --requests 100000
      Send rounds of 50 requests, to count what a request costs the server.
  hearken load http://127.0.0.1:8080/ --rate 5000 --watch :8080
      Also report the CPU time, memory, sockets and system calls of the server.
  hearken load http://127.0.0.1:8080/ --json result.json --html result.html
      Write the result as JSON, and as a page with plots.
  hearken load ab http://127.0.0.1:8080/ http://127.0.0.1:8081/ -- --rate 2000
      Compare two servers by several runs of each.
  hearken load http://10.0.0.1/ --rate 200000 --on slurm:4
      Make the load from four machines.
  hearken load --plan run.toml --check
      Validate a file of options. --print-plan writes one.

Latency is measured from the scheduled send time, so a server that stalls is charged for every request
that it delays. Errors have httperf's names. Durations are written as 500ms, 5s, 2m or 1h.

Exit status: 0 on success, 1 on failure or if no request succeeded, 2 for invalid arguments, 3 if an
objective is missed. A load stopped by SIGINT or SIGTERM prints its result and exits with 130 or 143. A
second signal ends it at once.")]
pub(crate) struct LoadArgs {
    /// URL to request: http://HOST[:PORT]/PATH or https://...
    #[arg(hide_short_help = true)]
    pub(crate) url: String,
    /// Requests per second; 0 for none
    ///
    /// Either a number, a ramp FROM..TO@DURATION, or several separated by commas. With --by, the rate of
    /// connections or sessions.
    #[arg(long, value_name = "RATE", default_value = "1000", allow_hyphen_values = true,
        conflicts_with_all = ["steps", "closed"], help_heading = "Rate")]
    pub(crate) rate: Profile,
    /// Steps of the rate: R,R,...@DURATION or FROM..TO/BY@DURATION
    #[arg(long, value_name = "STEPS", value_parser = Profile::steps, conflicts_with = "closed", hide_short_help = true, help_heading = "Rate")]
    pub(crate) steps: Option<Profile>,
    /// Closed loop: each connection sends its next request after a reply
    #[arg(long, conflicts_with_all = ["by", "arrivals"], hide_short_help = true, help_heading = "Rate")]
    pub(crate) closed: bool,
    /// Duration of the load [default: from the rate or workload, or 10s]
    #[arg(long, value_name = "DURATION", value_parser = positive_duration, help_heading = "Rate")]
    pub(crate) duration: Option<Duration>,
    /// Total number of requests [default: unlimited]
    ///
    /// With --by, the total number of connections or sessions. The load ends after the last reply, or at the
    /// end of --duration. With --lockstep, rounded up to complete rounds [default: 10000].
    #[arg(short = 'n', long, value_name = "N", help_heading = "Rate")]
    pub(crate) requests: Option<NonZeroU64>,
    /// Unit of the rate [default: requests, or sessions if the workload has them]
    #[arg(long, value_name = "UNIT", hide_short_help = true, help_heading = "Rate")]
    pub(crate) by: Option<By>,
    /// Arrival process
    #[arg(
        long,
        value_name = "PROCESS",
        default_value = "poisson",
        hide_short_help = true,
        help_heading = "Rate"
    )]
    pub(crate) arrivals: Arrivals,
    /// Pause between a reply and the next request on a connection
    ///
    /// A distribution of times: DURATION, exp:MEAN, uniform:MIN..MAX, lognormal:MEDIAN,SIGMA or
    /// pareto:MIN,ALPHA.
    #[arg(long, value_name = "TIMES", hide_short_help = true, help_heading = "Rate")]
    pub(crate) think: Option<Distribution>,
    /// Seed of random arrivals, to repeat a run [default: random]
    #[arg(long, value_name = "N", hide_short_help = true, help_heading = "Rate")]
    pub(crate) seed: Option<u64>,
    /// Maximum number of connections [default: as the machine allows]
    ///
    /// Connections are opened as requests need them. Beyond the maximum, requests wait. The default is
    /// limited by descriptors, ports and memory.
    #[arg(short = 'c', long, value_name = "N", help_heading = "Connections")]
    pub(crate) connections: Option<NonZeroUsize>,
    /// Order in which waiting requests get connections
    #[arg(
        long,
        value_name = "ORDER",
        default_value = "lifo",
        hide_short_help = true,
        help_heading = "Connections"
    )]
    pub(crate) queue: Queue,
    /// Requests per connection, N or MIN..MAX; opens connections as needed
    #[arg(long, value_name = "N", hide_short_help = true, help_heading = "Connections")]
    pub(crate) per_connection: Option<Count>,
    /// Number of idle connections to hold on the side
    ///
    /// Connections that the server closes are re-established. The generator uses as many threads with
    /// descriptor tables of their own as the connections need.
    #[arg(long, value_name = "N", default_value = "0", help_heading = "Connections")]
    pub(crate) idle: usize,
    /// Request timeout, for waiting and then again for the reply
    ///
    /// A request waits at most this long for a connection. From then on, the server has this long for the
    /// complete reply.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = positive_duration, help_heading = "Connections")]
    pub(crate) timeout: Duration,
    /// Connect timeout [default: none]
    #[arg(long, value_name = "DURATION", value_parser = positive_duration, hide_short_help = true, help_heading = "Connections")]
    pub(crate) connect_timeout: Option<Duration>,
    /// Timeout for the first byte of a reply [default: none]
    #[arg(long, value_name = "DURATION", value_parser = positive_duration, hide_short_help = true, help_heading = "Connections")]
    pub(crate) first_byte_timeout: Option<Duration>,
    /// Number of pipelined requests
    #[arg(
        long,
        value_name = "N",
        default_value = "1",
        hide_short_help = true,
        help_heading = "Connections"
    )]
    pub(crate) pipeline: NonZeroUsize,
    /// Use HTTP/2: by prior knowledge, or by ALPN over TLS
    ///
    /// Requests share connections: each takes a free stream of an open connection. If there is none, it opens a
    /// connection, or waits. A request that times out resets its stream only. Idle, WebSocket and slow
    /// connections use HTTP/1.1.
    #[arg(long, conflicts_with = "pipeline", help_heading = "Connections")]
    pub(crate) http2: bool,
    /// Maximum number of concurrent streams per connection
    ///
    /// The server may permit fewer. With --closed or --by connections, a connection keeps as many requests in
    /// flight, but with --think one. With --lockstep, it is the number of requests per connection and round.
    #[arg(
        long,
        value_name = "N",
        default_value = "100",
        requires = "http2",
        hide_short_help = true,
        help_heading = "Connections"
    )]
    pub(crate) streams: NonZeroU32,
    /// Lifetime of connections, a distribution as for --think
    #[arg(long, value_name = "TIMES", hide_short_help = true, help_heading = "Connections")]
    pub(crate) connection_time: Option<Distribution>,
    /// Source addresses, separated by commas
    ///
    /// By default, the generator adds addresses from 127.0.0.0/8 when the ports of one are exhausted.
    #[arg(
        long,
        value_name = "ADDR",
        value_delimiter = ',',
        hide_short_help = true,
        help_heading = "Connections"
    )]
    pub(crate) sources: Vec<IpAddr>,
    /// Connect to a Unix socket in place of the URL's host; @NAME is an abstract socket
    #[arg(long, value_name = "PATH", value_parser = clap::value_parser!(OsString), conflicts_with_all = ["sources", "resolve"],
        hide_short_help = true, help_heading = "Connections")]
    pub(crate) unix_socket: Option<OsString>,
    /// Address of the URL's host, instead of a lookup; repeatable
    #[arg(long, value_name = "HOST:ADDR", hide_short_help = true, help_heading = "Connections")]
    pub(crate) resolve: Vec<HostAddress>,
    /// Send one request on each idle connection first
    #[arg(long, hide_short_help = true, help_heading = "Connections")]
    pub(crate) idle_request: bool,
    /// Send a request on each idle connection after such pauses, as for --think
    #[arg(long, value_name = "TIMES", hide_short_help = true, help_heading = "Connections")]
    pub(crate) idle_think: Option<Distribution>,
    /// Maximum rate of opening idle connections, per second [default: none]
    #[arg(long, value_name = "RATE", hide_short_help = true, help_heading = "Connections")]
    pub(crate) idle_rate: Option<f64>,
    /// WebSocket connections to hold on the side
    ///
    /// N connections, followed by settings: mode=idle (default), echo or broadcast; every=DURATION between
    /// messages, or between pings of idle connections [default: 1s; no pings]; size=BYTES of a message
    /// [default: 64]; type=text or binary; path=PATH, instead of that of the URL.
    #[arg(
        long,
        value_name = "N[,KEY=VALUE...]",
        hide_short_help = true,
        help_heading = "Connections"
    )]
    pub(crate) websocket: Option<WebSocketOptions>,
    /// Connections on the side that read their replies slowly: N,rate=BYTES per second
    #[arg(long, value_name = "N,KEY=VALUE", hide_short_help = true, help_heading = "Connections")]
    pub(crate) slow_readers: Option<SlowOptions>,
    /// Connections on the side that send their requests slowly: N,rate=BYTES per second
    #[arg(long, value_name = "N,KEY=VALUE", hide_short_help = true, help_heading = "Connections")]
    pub(crate) slow_senders: Option<SlowOptions>,
    /// Request method
    #[arg(
        short = 'X',
        long,
        value_name = "METHOD",
        default_value = "GET",
        hide_short_help = true,
        help_heading = "Requests"
    )]
    pub(crate) method: String,
    /// Header field 'NAME: VALUE'; repeatable
    #[arg(short = 'H', long = "header", value_name = "FIELD", help_heading = "Requests")]
    pub(crate) header: Vec<String>,
    /// Request body
    #[arg(
        long,
        value_name = "TEXT",
        conflicts_with = "body_file",
        hide_short_help = true,
        help_heading = "Requests"
    )]
    pub(crate) body: Option<String>,
    /// File with the request body
    #[arg(long, value_name = "FILE", hide_short_help = true, help_heading = "Requests")]
    pub(crate) body_file: Option<PathBuf>,
    /// Checks of replies: status=200, status=2xx, length=N, sha256=HEX
    ///
    /// Several are separated by commas. A reply that fails a check counts as an error.
    #[arg(long, value_name = "CHECKS", hide_short_help = true, help_heading = "Requests")]
    pub(crate) expect: Option<Expect>,
    /// Send the cookies that earlier replies on the same connection or session have set
    ///
    /// Requires --closed, --by connections, or a workload of sessions. Domain, Secure and SameSite are ignored.
    #[arg(long, hide_short_help = true, help_heading = "Requests")]
    pub(crate) cookies: bool,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
    /// Number of threads, each with an event loop
    #[arg(
        short = 't',
        long,
        value_name = "N",
        default_value = "1",
        hide_short_help = true,
        help_heading = "Generator"
    )]
    pub(crate) threads: NonZeroUsize,
    /// Event mechanism of the generator, as listed by hearken mechanisms
    #[arg(long, value_name = "NAME", default_value = hearken_load::DEFAULT_MECHANISM, hide_short_help = true, help_heading = "Generator")]
    pub(crate) events: String,
    /// Experimental setting: rt-queue=N, the maximum number of queued signals (RLIMIT_SIGPENDING)
    #[arg(
        long,
        value_name = "KEY=VALUE",
        value_parser = rt_queue,
        hide_short_help = true,
        help_heading = "Generator"
    )]
    pub(crate) experiment: Option<u64>,
    /// Send rounds instead of a rate: a request on each of N connections, then all replies
    #[arg(long, value_name = "N", conflicts_with_all = ["rate", "steps", "closed", "by", "duration",
        "arrivals", "connections", "per_connection", "think", "connection_time", "idle", "idle_request",
        "idle_think", "idle_rate", "websocket", "slow_readers", "slow_senders",
        "connect_timeout", "first_byte_timeout", "expect", "cookies", "SourceArgs",
        "sources", "unix_socket", "threads", "interval", "seed", "events", "experiment", "announce",
        "OutputArgs", "label", "quiet"], hide_short_help = true, help_heading = "Rounds")]
    pub(crate) lockstep: Option<NonZeroUsize>,
    /// Number of requests before the measured rounds
    #[arg(
        long,
        value_name = "N",
        requires = "lockstep",
        default_value = "0",
        hide_short_help = true,
        help_heading = "Rounds"
    )]
    pub(crate) warm_up: u64,
    /// Open a new connection for each request of a round
    #[arg(long, requires = "lockstep", hide_short_help = true, help_heading = "Rounds")]
    pub(crate) close: bool,
    /// Print "ready" after the warm-up, and make as many requests as each line of stdin says
    #[arg(long, hide = true, requires = "lockstep", conflicts_with_all = ["requests", "json"], help_heading = "Rounds")]
    pub(crate) on_demand: bool,
    #[command(flatten)]
    pub(crate) knee: KneeArgs,
    /// Print "prepared" on stdout before the first request
    #[arg(long, hide = true)]
    pub(crate) announce: bool,
    /// Write the result as JSON (- for stdout, instead of the summary)
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub(crate) json: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) outputs: OutputArgs,
    /// Also measure the server: process ID, :PORT, systemd unit or control group
    ///
    /// A process includes its descendants, and :PORT stands for the process that listens there. The result
    /// contains CPU time, memory, sockets and system calls, and instructions where the hardware counts them.
    #[arg(long, value_name = "TARGET", conflicts_with = "lockstep", help_heading = "Results")]
    pub(crate) watch: Option<String>,
    /// Sampling interval of --watch
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = watch_interval,
        requires = "watch", hide_short_help = true, help_heading = "Results")]
    pub(crate) watch_interval: Duration,
    /// Length of the intervals of the result
    ///
    /// With --steps, intervals are shortened so that each step has a whole number of them.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = positive_duration,
        hide_short_help = true, help_heading = "Results")]
    pub(crate) interval: Duration,
    /// Progress on stderr: auto, log or none [default: auto]
    ///
    /// 'auto' redraws a block on a terminal and prints nothing elsewhere. 'log', or the flag without a
    /// value, prints one line per interval.
    #[arg(long, value_name = "MODE", num_args = 0..=1, require_equals = true, hide_possible_values = true,
        default_value = "auto", default_missing_value = "log", hide_default_value = true,
        conflicts_with = "lockstep", hide_short_help = true, help_heading = "Results")]
    pub(crate) progress: ProgressArg,
    /// Label of the run, stored in the result; repeatable
    #[arg(long, value_name = "KEY=VALUE", value_parser = label, hide_short_help = true, help_heading = "Results")]
    pub(crate) label: Vec<(String, String)>,
    /// Print neither the summary nor progress, only errors
    #[arg(
        short = 'q',
        long,
        conflicts_with = "announce",
        hide_short_help = true,
        help_heading = "Results"
    )]
    pub(crate) quiet: bool,
    /// Exit when the parent process ends
    #[arg(long, hide = true)]
    pub(crate) exit_with_parent: bool,
    #[command(flatten)]
    pub(crate) many: ManyArgs,
    /// The options set by the plan and the command line.
    #[arg(skip)]
    pub(crate) options: SetOptions,
}

/// Objectives, the search for the highest rate that meets them, and the sweep of the rate.
#[derive(Args)]
pub(crate) struct KneeArgs {
    /// Exit with 3 if objectives are missed, e.g. p99<5ms,errors<0.1%
    ///
    /// Figures are percentiles of the latency (pN), mean, max, service.pN, connect.pN, errors, missed, rate and idle.
    /// Failed requests count as slower than any limit.
    #[arg(long, value_name = "OBJECTIVES", conflicts_with = "lockstep", help_heading = "Results")]
    pub(crate) slo: Option<Objectives>,
    /// Search for the highest rate that meets the objectives
    ///
    /// Without --slo, the objectives are p99<50ms,errors<0.1%,rate>=99%. The search ends after 60 trials or 15
    /// minutes.
    #[arg(long, conflicts_with_all = ["rate", "steps", "closed", "duration",
        "requests", "trace", "access_log", "watch", "lockstep", "announce", "html", "csv", "hlog", "junit",
        "github_summary", "label", "quiet"], group = "search", help_heading = "Results")]
    pub(crate) find_knee: bool,
    /// Find saturation, then measure the server at rates up to twice that
    ///
    /// Each of 16 rates is offered in several trials, in random order. Between trials, the server can
    /// recover. The result contains reply rate, errors and latency by offered rate, with 95 % confidence
    /// intervals. --html writes it with plots.
    #[arg(long, conflicts_with_all = ["rate", "steps", "closed", "duration", "requests", "trace", "access_log",
        "watch", "lockstep", "announce", "slo", "interval", "csv", "hlog", "junit", "github_summary", "label", "quiet"], group = "search", hide_short_help = true, help_heading = "Results")]
    pub(crate) sweep: bool,
    /// Number of trials at each rate of --sweep
    #[arg(
        long,
        value_name = "N",
        default_value = "3",
        requires = "sweep",
        hide_short_help = true,
        help_heading = "Results"
    )]
    pub(crate) repetitions: u32,
    /// Duration of a trial of --find-knee or --sweep
    #[arg(long, value_name = "DURATION", default_value = "3s", requires = "search", value_parser = positive_duration,
        hide_short_help = true, help_heading = "Results")]
    pub(crate) trial: Duration,
    /// Highest rate to try
    #[arg(
        long,
        value_name = "RATE",
        default_value = "1000000",
        requires = "search",
        hide_short_help = true,
        help_heading = "Results"
    )]
    pub(crate) max_rate: f64,
    /// Half-width of the 95 % confidence interval at which the search ends
    #[arg(long, value_name = "PERCENT", default_value = "2%", requires = "find_knee", value_parser = share,
        hide_short_help = true, help_heading = "Results")]
    pub(crate) precision: f64,
}

/// Parses a label `KEY=VALUE`.
fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some(("", _)) | None => Err("expected KEY=VALUE, such as commit=1a2b3c".to_owned()),
        _ if text.contains(char::is_control) => Err("control characters are invalid".to_owned()),
        Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
    }
}

/// Parses the experimental setting `rt-queue=N`.
fn rt_queue(text: &str) -> Result<u64, String> {
    let number = text.strip_prefix("rt-queue=").and_then(|number| number.parse().ok());
    number.ok_or_else(|| "expected rt-queue=N".to_owned())
}

/// Parses a share: `2%` or `0.02`.
fn share(text: &str) -> Result<f64, String> {
    let (number, divisor) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    match number.trim().parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(number / divisor),
        _ => Err("expected a share such as 2% or 0.02".to_owned()),
    }
}

/// The workload.
#[derive(Args)]
pub(crate) struct SourceArgs {
    /// Request the paths of a file; lines: [WEIGHT] PATH [METHOD] [CHECKS]
    #[arg(long, value_name = "FILE", group = "from", help_heading = "Requests")]
    pub(crate) urls: Option<PathBuf>,
    /// Replay an access log, combined or JSON
    #[arg(
        long,
        value_name = "FILE",
        group = "from",
        hide_short_help = true,
        help_heading = "Requests"
    )]
    pub(crate) access_log: Option<PathBuf>,
    /// Speed factor for --access-log
    #[arg(
        long,
        value_name = "N",
        requires = "access_log",
        default_value = "1",
        hide_short_help = true,
        help_heading = "Requests"
    )]
    pub(crate) speed: f64,
    /// Skip invalid lines of --access-log
    #[arg(long, requires = "access_log", hide_short_help = true, help_heading = "Requests")]
    pub(crate) skip_bad: bool,
    /// Request paths at given times; lines: SECONDS PATH
    #[arg(
        long,
        value_name = "FILE",
        group = "from",
        hide_short_help = true,
        help_heading = "Requests"
    )]
    pub(crate) trace: Option<PathBuf>,
    /// httperf's file of paths that end with NUL; y repeats the list, n does not
    #[arg(
        long,
        value_name = "Y|N,FILE",
        group = "from",
        hide_short_help = true,
        help_heading = "Requests"
    )]
    pub(crate) wlog: Option<String>,
    /// httperf's file of sessions: number of sessions, default pause in seconds, file
    #[arg(
        long,
        value_name = "N,SECONDS,FILE",
        group = "from",
        hide_short_help = true,
        help_heading = "Requests"
    )]
    pub(crate) wsesslog: Option<String>,
    /// Replay the requests of an HTTP Archive (HAR), a session for each page
    ///
    /// Requests to other servers are skipped, and requests that overlapped are sent one after another. The
    /// sessions are repeated.
    #[arg(
        long,
        value_name = "FILE",
        group = "from",
        hide_short_help = true,
        help_heading = "Requests"
    )]
    pub(crate) har: Option<PathBuf>,
    /// Request a SPECweb99-like mix of the files that hearken load specweb creates
    #[arg(
        long,
        value_name = "DIR",
        group = "from",
        hide_short_help = true,
        help_heading = "Requests"
    )]
    pub(crate) specweb: Option<PathBuf>,
}

/// TLS settings.
#[derive(Args)]
#[group(multiple = true)]
pub(crate) struct TlsArgs {
    /// Skip certificate verification
    #[arg(short = 'k', long, hide_short_help = true, help_heading = "TLS")]
    pub(crate) insecure: bool,
    /// Trusted CA certificates (PEM) [default: those of the system]
    #[arg(long, value_name = "FILE", hide_short_help = true, help_heading = "TLS")]
    pub(crate) cacert: Option<PathBuf>,
    /// Server name for SNI and verification [default: host of the URL]
    #[arg(long, value_name = "NAME", hide_short_help = true, help_heading = "TLS")]
    pub(crate) server_name: Option<String>,
    /// Client certificate (PEM)
    #[arg(long, value_name = "FILE", hide_short_help = true, help_heading = "TLS")]
    pub(crate) cert: Option<PathBuf>,
    /// Private key of the client certificate (PEM) [default: in the file of --cert]
    #[arg(long, value_name = "FILE", hide_short_help = true, help_heading = "TLS")]
    pub(crate) key: Option<PathBuf>,
    /// Make a full handshake on every connection
    #[arg(long, hide_short_help = true, help_heading = "TLS")]
    pub(crate) no_resumption: bool,
}

/// The unit of the rate.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum By {
    /// Requests, on persistent connections or on connections opened for them
    Requests,
    /// Connections, each with several sequential requests
    Connections,
    /// Sessions: bursts of requests with pauses
    Sessions,
}

/// The mode of progress reports.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum ProgressArg {
    /// A block on a terminal, nothing elsewhere
    Auto,
    /// One line per interval
    Log,
    /// Nothing
    None,
}

/// The order in which waiting requests get connections.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Queue {
    /// The newest request first
    Lifo,
    /// The oldest request first
    Fifo,
}

/// The arrival process.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Arrivals {
    /// Exponential intervals, as from many independent clients
    Poisson,
    /// Constant intervals
    Constant,
    /// Uniformly distributed intervals from 0 to twice the mean
    Uniform,
}
