//! Settings of a load, and errors that prevent it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use hearken::mechanism::SelectError;
use thiserror::Error;

use crate::arrivals::Arrivals;
use crate::profile::Profile;
use crate::rank::Rank;
use crate::report::{Model, QueueOrder};
use crate::server_address::HostAddress;
use crate::shard::Shard;
use crate::slow_clients::SlowOptions;
use crate::summary::Grouped;
use crate::tls::{TlsError, TlsOptions};
use crate::url::UrlError;
use crate::websocket::WebSocketOptions;
use crate::workload::{Count, Distribution, RequestTemplate, Source};

/// Default duration of a run, see [`Config::duration`].
pub const DEFAULT_DURATION: Duration = Duration::from_secs(10);

/// Default event mechanism, see [`Config::mechanism`]. It is the same on every machine, so that results
/// are comparable.
pub const DEFAULT_MECHANISM: &str = "epoll-edge";

/// Default number of connections of a closed loop, see [`Config::connections`].
pub const DEFAULT_CLOSED_CONNECTIONS: usize = 50;

/// Settings of a load: the server, the requests and their rate.
#[derive(Clone, Debug)]
pub struct Config {
    /// URL of the server: `http://HOST[:PORT]/PATH`, or `https:`.
    pub url: String,
    /// Path of the Unix socket to connect to, in place of the address of the URL's host. A path that begins
    /// with `@` is an abstract name.
    pub unix_socket: Option<PathBuf>,
    /// Addresses of hosts, which replace lookups. The host of the URL is the only one that is used.
    pub resolve: Vec<HostAddress>,
    /// Source of the requests.
    pub source: Source,
    /// Properties of all requests.
    pub template: RequestTemplate,
    /// Unit of arrival. Default: sessions if the source defines sessions, otherwise requests.
    pub model: Option<Model>,
    /// Arrival rate over time. If it is zero, the load consists of idle connections only.
    pub rate: Profile,
    /// Duration of the run. Default: the length of the rate profile or the trace, otherwise
    /// [`DEFAULT_DURATION`]. With a rate of zero the load runs until it is stopped.
    pub duration: Option<Duration>,
    /// Total number of arrivals of all processes: of requests, or of connections or sessions where these
    /// arrive. In a closed loop, the number of requests, or of sessions if the source defines sessions. The
    /// load ends earlier if the duration is over or the source is exhausted.
    pub requests: Option<NonZeroU64>,
    /// Arrival process. Ignored if the source is a trace, which contains the times.
    pub arrivals: Arrivals,
    /// Maximum number of connections that carry requests, over HTTP/1.1 one at a time each. They are
    /// opened as arrivals need them. Beyond the maximum, requests wait, which counts as latency.
    /// Default: as many as descriptors, ports and memory allow; in a closed loop
    /// [`DEFAULT_CLOSED_CONNECTIONS`].
    pub connections: Option<NonZeroUsize>,
    /// Order in which waiting requests get connections.
    pub queue: QueueOrder,
    /// Number of requests per connection. Where requests arrive, the generator opens as many
    /// connections as needed and closes each after this number of requests. Where connections
    /// arrive, or in a closed loop, each connection carries this number of requests.
    pub requests_per_connection: Option<Count>,
    /// Number of requests sent at once, on connections with several requests.
    pub pipeline: NonZeroUsize,
    /// Maximum number of concurrent streams of a connection of HTTP/2, in place of HTTP/1.1. The server may
    /// permit fewer. Connections at the side of the load use HTTP/1.1.
    pub http2: Option<NonZeroU32>,
    /// Think time from the last reply to the next request, on connections with several requests.
    pub think_time: Option<Distribution>,
    /// Lifetime of a connection. No request is sent on it afterwards. Where connections or sessions
    /// arrive, each connection stays open for this time.
    pub connection_lifetime: Option<Distribution>,
    /// Maximum time that a request waits for a connection, and then maximum time from sending it, or
    /// from opening a connection for it, until its reply is complete.
    pub timeout: Duration,
    /// Timeout for opening a connection.
    pub connect_timeout: Option<Duration>,
    /// Timeout for the first byte of a reply, measured from the time the request was sent.
    pub first_byte_timeout: Option<Duration>,
    /// Number of additional idle connections. Lost ones are opened again.
    pub idle_connections: usize,
    /// Whether each idle connection sends one request first.
    pub idle_sends_request: bool,
    /// Time after which an idle connection sends a request, repeatedly.
    pub idle_think_time: Option<Distribution>,
    /// Maximum rate at which idle connections are opened, per second.
    pub idle_rate: Option<f64>,
    /// WebSocket connections at the side of the load. Lost ones are opened again.
    pub websockets: Option<WebSocketOptions>,
    /// Additional clients that read their replies slowly.
    pub slow_readers: Option<SlowOptions>,
    /// Additional clients that send their requests slowly.
    pub slow_senders: Option<SlowOptions>,
    /// Local addresses to connect from, in turn. If empty, the kernel chooses the address, and
    /// connections to 127.0.0.0/8 use further loopback addresses when ports run out.
    pub source_addresses: Vec<IpAddr>,
    /// TLS settings.
    pub tls: TlsOptions,
    /// Number of event loops, one thread each.
    pub threads: NonZeroUsize,
    /// Length of the intervals in the report. Shortened if that gives each step of the rate whole
    /// intervals.
    pub report_interval: Duration,
    /// Rank of this process in a load generated by several processes. All processes have the same
    /// settings except for the rank, including the seed. Each generates its share.
    pub rank: Rank,
    /// Time of the first request by the real-time clock. Default: as soon as all connections are
    /// ready.
    pub start_at: Option<SystemTime>,
    /// Seed of the arrivals and of all other random choices. Default: a random seed, which the
    /// report contains.
    pub seed: Option<u64>,
    /// Name of the event mechanism, as in [`hearken::io::find`].
    pub mechanism: String,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            url: "http://127.0.0.1:8080/".to_owned(),
            unix_socket: None,
            resolve: Vec::new(),
            source: Source::default(),
            template: RequestTemplate::default(),
            model: None,
            rate: Profile::constant(1000.0),
            duration: None,
            requests: None,
            arrivals: Arrivals::Poisson,
            connections: None,
            queue: QueueOrder::default(),
            requests_per_connection: None,
            pipeline: NonZeroUsize::MIN,
            http2: None,
            think_time: None,
            connection_lifetime: None,
            timeout: Duration::from_secs(5),
            connect_timeout: None,
            first_byte_timeout: None,
            idle_connections: 0,
            idle_sends_request: false,
            idle_think_time: None,
            idle_rate: None,
            websockets: None,
            slow_readers: None,
            slow_senders: None,
            source_addresses: Vec::new(),
            tls: TlsOptions::default(),
            threads: NonZeroUsize::MIN,
            report_interval: Duration::from_secs(1),
            rank: Rank::SINGLE,
            start_at: None,
            seed: None,
            mechanism: DEFAULT_MECHANISM.to_owned(),
        }
    }
}

/// Maximum number of threads.
const MAX_THREADS: usize = 1024;
/// Maximum number of connections of each kind in a process. A process uses some 100 bytes for each, and the
/// kernel some kilobytes.
const MAX_CONNECTIONS: usize = 10_000_000;
/// Maximum number of requests sent at once on a connection.
const MAX_PIPELINE: usize = 10_000;

impl Config {
    /// Checks that the settings are consistent.
    pub(crate) fn check(&self) -> Result<(), LoadError> {
        let refuse = |why| Err(LoadError::Config(why));
        let closed = self.model == Some(Model::Closed);
        let trace = self.has_times();
        if self.rate.is_zero() && self.side_connections() == 0 && !closed && !trace {
            return refuse(
                "the rate is 0 and there are no idle connections; set a rate or a number of idle connections",
            );
        }
        if self.websockets.as_ref().is_some_and(|options| !options.is_valid()) {
            return refuse(
                "WebSocket messages must be at least 1 ms apart and 32 bytes to 1 MiB long",
            );
        }
        if [self.slow_readers, self.slow_senders].iter().flatten().any(|slow| !slow.is_valid()) {
            return refuse("the rate of slow clients must be 0.01 to 1e9 bytes per second");
        }
        if self.arrivals == Arrivals::Trace && !trace {
            return refuse(
                "trace arrivals require a trace; set a log or a trace of requests as the source",
            );
        }
        let limits = [Some(self.timeout), self.connect_timeout, self.first_byte_timeout];
        if limits.into_iter().flatten().any(|limit| limit.is_zero()) {
            return refuse("a timeout of 0 fails every request; set a longer timeout");
        }
        if self.idle_rate.is_some_and(|rate| !(rate > 0.0 && rate <= 1e9)) {
            return refuse(
                "the rate of idle connections must be above 0 and at most 1e9 per second",
            );
        }
        self.check_limits()?;
        if self.requests.is_some() && self.is_silent() && !closed {
            return refuse(
                "the rate is 0, so that no request is sent; omit the number of requests",
            );
        }
        if self.rank.size() > 1 && self.seed.is_none() {
            return refuse("all processes of a load must use the same seed; set a seed");
        }
        let model = self.model();
        if model == Model::Requests && (self.think_time.is_some() || self.pipeline.get() > 1) {
            return refuse(
                "think times and pipelining require several requests per connection; use arrivals of \
                 connections or a closed loop",
            );
        }
        if self.http2.is_some() && self.pipeline.get() > 1 {
            return refuse("HTTP/2 has streams in place of pipelining; use one of both");
        }
        if model == Model::Requests && self.template.cookies {
            return refuse(
                "cookies require several requests per connection; use arrivals of connections or \
                 sessions, or a closed loop",
            );
        }
        let loops = self.share(0).count;
        if self.connections.is_some_and(|all| (all.get() as u64) < loops) {
            return refuse(
                "there are fewer connections than threads; use more connections or fewer threads",
            );
        }
        if self.report_interval < Duration::from_millis(10) {
            return refuse("intervals must be at least 10 ms long");
        }
        Ok(())
    }
}

impl Config {
    /// Checks numbers that no process can reach. Limits of this machine are checked later.
    fn check_limits(&self) -> Result<(), LoadError> {
        let connections = self.connections.map_or(0, NonZeroUsize::get) as u64;
        let connections = self.rank.share(connections) as usize;
        let limits = [
            ("threads", self.threads.get(), MAX_THREADS),
            ("connections", connections, MAX_CONNECTIONS),
            ("idle connections", self.share_here(self.idle_connections), MAX_CONNECTIONS),
            ("connections at the side", self.side_connections_here(), MAX_CONNECTIONS),
            ("streams", self.http2.map_or(0, |streams| streams.get() as usize), MAX_PIPELINE),
            ("pipelined requests", self.pipeline.get(), MAX_PIPELINE),
        ];
        match limits.into_iter().find(|(_, number, max)| number > max) {
            Some((setting, number, max)) => Err(LoadError::Limit { setting, number, max }),
            None => Ok(()),
        }
    }

    /// Returns the unit of arrival.
    pub(crate) fn model(&self) -> Model {
        let by_itself = if self.has_sessions() { Model::Sessions } else { Model::Requests };
        self.model.unwrap_or(by_itself)
    }

    /// Returns true if no requests arrive.
    pub(crate) fn is_silent(&self) -> bool {
        self.rate.is_zero() && !self.has_times()
    }

    /// Returns true if the source defines the arrival times.
    fn has_times(&self) -> bool {
        matches!(self.source, Source::AccessLog { .. } | Source::Trace(_))
    }

    /// Returns true if the source defines sessions.
    pub(crate) fn has_sessions(&self) -> bool {
        self.source.has_sessions()
    }

    /// Returns true if the load ends by itself after a number of arrivals.
    pub(crate) fn is_finite(&self) -> bool {
        self.requests.is_some() || self.has_finite_source()
    }

    fn has_finite_source(&self) -> bool {
        match self.source {
            Source::Wlog { repeat, .. } => !repeat,
            Source::Wsesslog { sessions, .. } => sessions.is_some(),
            Source::Url | Source::Urls(_) | Source::Specweb { .. } | Source::Har(_) => false,
            Source::AccessLog { .. } | Source::Trace(_) => true,
        }
    }

    /// Returns the shard of a thread.
    pub(crate) fn share(&self, thread: usize) -> Shard {
        let threads = self.threads.get() as u64;
        let first = u64::from(self.rank.rank()).saturating_mul(threads);
        let of = u64::from(self.rank.size()).saturating_mul(threads);
        Shard { index: first + thread as u64, count: of }
    }

    /// Returns the numbers of connections at the side of the load, by kind.
    fn side_counts(&self) -> [usize; 4] {
        let slow = |options: Option<SlowOptions>| options.map_or(0, |slow| slow.connections);
        let websockets = self.websockets.as_ref().map_or(0, |options| options.connections);
        [self.idle_connections, websockets, slow(self.slow_readers), slow(self.slow_senders)]
    }

    /// Returns the number of connections at the side of the load.
    pub(crate) fn side_connections(&self) -> usize {
        self.side_counts().into_iter().fold(0, usize::saturating_add)
    }

    /// Returns the number of connections at the side of the load of this process.
    pub(crate) fn side_connections_here(&self) -> usize {
        let here = self.side_counts().map(|count| self.share_here(count));
        here.into_iter().fold(0, usize::saturating_add)
    }

    /// Returns the share of this process of a number of connections.
    pub(crate) fn share_here(&self, count: usize) -> usize {
        self.rank.share(count as u64) as usize
    }

    /// Returns the maximum number of connections of all processes, if the settings limit it.
    pub(crate) fn connection_setting(&self) -> Option<usize> {
        let closed = self.model == Some(Model::Closed);
        let default = closed.then(|| DEFAULT_CLOSED_CONNECTIONS.max(self.share(0).count as usize));
        self.connections.map(NonZeroUsize::get).or(default)
    }

    /// Returns the maximum number of connections of this process, if the settings limit it.
    pub(crate) fn connections_here(&self) -> Option<usize> {
        let all = self.connection_setting()?;
        Some((0..self.threads.get()).map(|thread| self.share(thread).share_of(all)).sum())
    }
}

/// An error that prevents a load from running.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The URL is invalid.
    #[error("invalid URL '{url}': {reason}")]
    Url {
        /// The URL as given.
        url: String,
        /// The problem.
        reason: UrlError,
    },
    /// A header field is invalid.
    #[error("invalid header field '{field}': {reason}")]
    Header {
        /// The field as given.
        field: String,
        /// The problem.
        reason: &'static str,
    },
    /// A file is invalid or cannot be read.
    #[error("cannot use {}{}: {reason}", path.display(), of_line(*line))]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Number of the invalid line, from 1.
        line: Option<u64>,
        /// The problem.
        reason: String,
    },
    /// A number exceeds its limit.
    #[error(
        "cannot use {} {setting} in a process: the maximum is {}",
        Grouped(*number as u64),
        Grouped(*max as u64)
    )]
    Limit {
        /// The objects.
        setting: &'static str,
        /// Their number in this process.
        number: usize,
        /// The maximum number.
        max: usize,
    },
    /// The path of a Unix socket is invalid, or contradicts other settings.
    #[error("cannot use Unix socket '{}': {reason}", path.display())]
    UnixSocket {
        /// The path as given.
        path: PathBuf,
        /// The problem.
        reason: &'static str,
    },
    /// An address was given for a host that the URL does not name.
    #[error("the URL does not name host '{host}' (did you mean '{used}'?)")]
    UnusedHost {
        /// The host as given.
        host: String,
        /// The host of the URL, with the address as given.
        used: HostAddress,
    },
    /// The settings are inconsistent.
    #[error("invalid load settings: {0}")]
    Config(&'static str),
    /// More connections than this machine allows.
    #[error("{requested} connections exceed the limit of {limit}; use fewer connections")]
    Connections {
        /// Number of connections of this process.
        requested: usize,
        /// Description of the limit.
        limit: String,
    },
    /// A source address and the server address have different address families.
    #[error(
        "cannot connect from {ip} to {addr}: one is IPv4 and the other IPv6; use other source addresses"
    )]
    Source {
        /// The local address.
        ip: IpAddr,
        /// The server address.
        addr: SocketAddr,
    },
    /// The host name cannot be resolved.
    #[error("cannot resolve host '{host}': {source}")]
    Resolve {
        /// The host name.
        host: String,
        /// The error of the resolver.
        source: io::Error,
    },
    /// The event mechanism is not available.
    #[error(transparent)]
    Events(#[from] SelectError),
    /// The TLS settings cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A system call that every run needs failed.
    #[error("cannot {action}: {source}")]
    System {
        /// The operation.
        action: &'static str,
        /// The error of the kernel.
        source: io::Error,
    },
}

fn of_line(line: Option<u64>) -> String {
    line.map(|line| format!(", line {line}")).unwrap_or_default()
}
