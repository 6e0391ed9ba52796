//! The report of a load, with its JSON fields.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::arrivals::Arrivals;
use crate::bottleneck::Bottleneck;
use crate::failure::Errors;
use crate::histogram::Histogram;
use crate::server::Server;
use crate::slo::ObjectiveResult;
use crate::slow_clients::SlowClients;
use crate::websocket::WebSockets;

/// The value of [`Report::schema`].
pub const SCHEMA: &str = "hearken-load/4";

/// The report of a load. It serialises to the JSON result and displays as a text summary.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Name and version of the format: [`SCHEMA`].
    pub schema: String,
    /// Whether the run ended by itself. False if it was stopped.
    pub complete: bool,
    /// Start of the load, in nanoseconds since 1970.
    pub started_unix_ns: u64,
    /// URL of the server.
    pub url: String,
    /// Description of the requests.
    pub workload: String,
    /// Unit of arrival.
    pub model: Model,
    /// Offered rate over time, as configured. Empty in a closed loop.
    pub rate: String,
    /// Mean arrivals per second. 0 in a closed loop.
    pub offered_rate: f64,
    /// Time during which requests were sent, in seconds.
    pub duration_s: f64,
    /// Arrival process.
    pub arrivals: Arrivals,
    /// Maximum number of concurrent connections for requests.
    pub connections: u64,
    /// Origin of that maximum.
    pub connections_limited_by: ConnectionLimit,
    /// Highest number of concurrent connections for requests during the run.
    pub peak_connections: u64,
    /// Order in which waiting requests get connections.
    pub queue: QueueOrder,
    /// Number of requests on each connection, if connections were opened for requests.
    pub requests_per_connection: Option<String>,
    /// Streams of HTTP/2, if it was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http2: Option<Http2>,
    /// Number of event loops that sent requests.
    pub threads: u64,
    /// Seed of the arrivals.
    pub seed: u64,
    /// Event mechanism.
    pub mechanism: String,
    /// Numbers of requests by outcome.
    pub requests: Requests,
    /// The requests that the generator could not send, by cause.
    pub missed: Missed,
    /// The part of the system that limited the reply rate.
    pub bottleneck: Bottleneck,
    /// CPU usage of the busiest thread that sent requests, as a fraction of a processor.
    pub generator_cpu_utilisation: f64,
    /// Numbers of sessions by outcome.
    pub sessions: Sessions,
    /// Replies by status class. 1xx are interim responses.
    pub status: Status,
    /// Replies per second, without replies received after the last scheduled request.
    pub reply_rate: f64,
    /// Replies per second in each of the intervals.
    pub reply_rate_samples: Samples,
    /// Latency from the scheduled time of a request to the end of its reply.
    pub latency_ns: Quantiles,
    /// Service time from sending a request to the end of its reply.
    pub service_ns: Quantiles,
    /// Time to open a connection, including its TLS handshake.
    pub connect_ns: Quantiles,
    /// Lateness of the generator: from the scheduled time of a request until the generator sent it,
    /// opened a connection for it or queued it.
    pub lateness_ns: Quantiles,
    /// Requests without a reply or with one that failed a check.
    pub errors: Errors,
    /// Descriptions of the first error of each kind that its name does not describe, and of the
    /// most common error of idle connections (`idle`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub first_errors: BTreeMap<String, String>,
    /// The timeouts counted in `errors.client-timo`.
    pub timeouts: Timeouts,
    /// Number of connections opened for requests.
    pub connections_opened: u64,
    /// Idle connections.
    pub idle: Idle,
    /// TLS handshakes.
    pub tls: Handshakes,
    /// Bytes on all connections.
    pub bytes: Bytes,
    /// The intervals of the run, in chronological order.
    pub intervals: Vec<Interval>,
    /// Full histograms.
    pub histograms: Histograms,
    /// Results of the WebSocket connections, if there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub websocket: Option<WebSockets>,
    /// Results of the slow clients, if there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow_clients: Option<SlowClients>,
    /// Resource usage of the server, if it was monitored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<Server>,
    /// Labels of the run, as given by the user.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Command line of the run. Set by the program that runs the generator.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Description of the generator's machine. Set by the program that runs the generator.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub machine: String,
    /// Rank of this generator, if several generators shared the load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<Part>,
    /// Parts of a merged result, by rank.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
    /// Results of the objectives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objectives: Vec<ObjectiveResult>,
    /// Reasons to doubt the values.
    pub warnings: Vec<String>,
}

/// One of several generators of a load.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Part {
    /// Rank, from 0.
    pub rank: u32,
    /// Number of generators.
    pub size: u32,
    /// Scheduled start in nanoseconds since 1970, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduled_start_unix_ns: Option<u64>,
    /// Delay of the start, in nanoseconds.
    pub start_delay_ns: u64,
    /// Whether the clock is synchronised according to the kernel, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_synchronised: Option<bool>,
    /// Maximum clock error according to the kernel in microseconds, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_max_error_us: Option<u64>,
}

/// The streams of connections of HTTP/2.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Http2 {
    /// Maximum number of concurrent streams of a connection. The server may have permitted fewer.
    pub streams: u32,
    /// Number of requests sent again on another connection, because the server closed theirs and did not
    /// process them.
    pub resent: u64,
}

/// The unit of arrival.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Model {
    /// Requests, over persistent connections or ones opened for them.
    #[default]
    Requests,
    /// Connections, each with a number of requests in sequence.
    Connections,
    /// Sessions: bursts of requests with pauses, each on one connection.
    Sessions,
    /// A closed loop: each of a number of connections sends a request when it has received its
    /// reply.
    Closed,
}

/// Full histograms of times in nanoseconds (HDR, V2, compressed, in base64).
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Histograms {
    /// Histogram of [`Report::latency_ns`].
    pub latency: Histogram,
    /// Histogram of [`Report::service_ns`].
    pub service: Histogram,
    /// Histogram of [`Report::connect_ns`].
    pub connect: Histogram,
    /// Histogram of [`Report::lateness_ns`].
    pub lateness: Histogram,
}

/// An interval of the run.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Interval {
    /// Start of the interval in seconds from [`Report::started_unix_ns`].
    pub offset_s: f64,
    /// Length in seconds.
    pub duration_s: f64,
    /// Whether the interval follows the last scheduled request, when the generator waits for
    /// outstanding replies.
    #[serde(default)]
    pub draining: bool,
    /// Number of requests scheduled.
    pub scheduled: u64,
    /// Number of requests sent.
    pub sent: u64,
    /// Number of replies received.
    pub replies: u64,
    /// Number of failed requests.
    pub failed: u64,
    /// Number of requests that the generator could not send.
    #[serde(default)]
    pub missed: u64,
    /// Number of connections opened.
    pub connections_opened: u64,
    /// Number of established idle connections at the end.
    pub idle_open: u64,
    /// Latency of the replies received.
    pub latency_ns: Quantiles,
    /// Full latency histogram, encoded as in [`Histograms`].
    pub latency: String,
}

/// Numbers of sessions by outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Sessions {
    /// Number of sessions started.
    pub started: u64,
    /// Number of sessions completed.
    pub completed: u64,
    /// Number of sessions that ended with a failed request.
    pub failed: u64,
}

impl Sessions {
    pub(crate) fn add(&mut self, more: &Sessions) {
        self.started += more.started;
        self.completed += more.completed;
        self.failed += more.failed;
    }
}

/// Summary statistics of a sampled value.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Samples {
    /// Number of samples.
    pub count: u64,
    /// Minimum.
    pub min: f64,
    /// Mean.
    pub mean: f64,
    /// Maximum.
    pub max: f64,
    /// Sample standard deviation (n - 1).
    pub stddev: f64,
}

impl Samples {
    /// Summarises values. O(n).
    pub(crate) fn from_values(values: impl Iterator<Item = f64>) -> Samples {
        let (mut count, mut min, mut max) = (0u64, f64::INFINITY, f64::NEG_INFINITY);
        // Welford's algorithm loses no digits if values are large and similar.
        let (mut mean, mut squares) = (0.0, 0.0);
        for value in values {
            count += 1;
            min = value.min(min);
            max = value.max(max);
            let from = value - mean;
            mean += from / count as f64;
            squares += from * (value - mean);
        }
        match count {
            0 => Samples::default(),
            1 => Samples { count, min, mean, max, stddev: 0.0 },
            _ => Samples { count, min, mean, max, stddev: (squares / (count - 1) as f64).sqrt() },
        }
    }
}

/// Numbers of timeouts by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Timeouts {
    /// Timeouts before the connection was established.
    pub connect: u64,
    /// Timeouts before the first byte of the reply.
    pub first_byte: u64,
    /// Timeouts before the end of the reply.
    pub reply: u64,
}

impl Timeouts {
    pub(crate) fn add(&mut self, more: &Timeouts) {
        self.connect += more.connect;
        self.first_byte += more.first_byte;
        self.reply += more.reply;
    }
}

/// Numbers of TLS handshakes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Handshakes {
    /// Full handshakes.
    pub full: u64,
    /// Handshakes that resumed a session.
    pub resumed: u64,
    /// Failed handshakes.
    pub failed: u64,
}

impl Handshakes {
    /// Records a completed handshake.
    pub(crate) fn record(&mut self, resumed: bool) {
        *(if resumed { &mut self.resumed } else { &mut self.full }) += 1;
    }

    pub(crate) fn add(&mut self, more: &Handshakes) {
        self.full += more.full;
        self.resumed += more.resumed;
        self.failed += more.failed;
    }
}

/// Numbers of requests by outcome: `scheduled = replies + failed + missed + unfinished`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Requests {
    /// Requests scheduled.
    pub scheduled: u64,
    /// Requests sent.
    pub sent: u64,
    /// Complete replies.
    pub replies: u64,
    /// Failed requests: the sum of the errors.
    pub failed: u64,
    /// Requests that the generator could not send: the sum of [`Report::missed`].
    pub missed: u64,
    /// Requests without an outcome when the load was stopped early.
    pub unfinished: u64,
    /// Requests that found no available connection at their scheduled time.
    pub queued: u64,
    /// Requests scheduled early enough to be answered before the last scheduled request: those with
    /// an outcome by then, and those that had already waited longer than a usual reply takes.
    pub answerable: u64,
}

/// Numbers of requests that the generator could not send, by cause. They are not failures of the
/// server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Missed {
    /// Requests that found no connection within their timeout, or no space in the queue.
    pub no_connection: u64,
    /// Requests that were skipped because the generator could not keep up with its schedule.
    pub generator: u64,
    /// Requests that left the queue so late that the run ended before their timeout.
    pub end_of_run: u64,
}

impl Missed {
    pub(crate) fn add(&mut self, more: &Missed) {
        self.no_connection += more.no_connection;
        self.generator += more.generator;
        self.end_of_run += more.end_of_run;
    }

    /// Returns each cause with its name.
    pub fn by_cause(&self) -> [(&'static str, u64); 3] {
        [
            ("no free connection", self.no_connection),
            ("generator too slow", self.generator),
            ("end of run", self.end_of_run),
        ]
    }

    /// Returns the total number of missed requests.
    pub fn total(&self) -> u64 {
        self.by_cause().iter().map(|(_, count)| count).sum()
    }
}

/// The order in which waiting requests get connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueueOrder {
    /// The newest request first. Under overload, a part of the requests gets short latencies and
    /// the rest expires.
    #[default]
    Lifo,
    /// The oldest request first. Under overload, all requests wait almost as long as the timeout.
    Fifo,
}

/// The origin of the maximum number of connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ConnectionLimit {
    /// The settings.
    #[default]
    Settings,
    /// The limit of open files.
    Descriptors,
    /// The number of local ports.
    Ports,
    /// The available memory.
    Memory,
}

/// Numbers of replies by status class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// Interim responses.
    #[serde(rename = "1xx")]
    pub interim: u64,
    /// Successful responses.
    #[serde(rename = "2xx")]
    pub success: u64,
    /// Redirections.
    #[serde(rename = "3xx")]
    pub redirection: u64,
    /// Client errors.
    #[serde(rename = "4xx")]
    pub client_error: u64,
    /// Server errors, and status codes of undefined classes.
    #[serde(rename = "5xx")]
    pub server_error: u64,
}

impl Status {
    pub(crate) fn add(&mut self, more: &Status) {
        self.interim += more.interim;
        self.success += more.success;
        self.redirection += more.redirection;
        self.client_error += more.client_error;
        self.server_error += more.server_error;
    }

    pub(crate) fn record(&mut self, status: u16) {
        *match status / 100 {
            1 => &mut self.interim,
            2 => &mut self.success,
            3 => &mut self.redirection,
            4 => &mut self.client_error,
            _ => &mut self.server_error,
        } += 1;
    }

    /// Returns each class with its name.
    pub fn by_class(&self) -> [(&'static str, u64); 5] {
        [
            ("1xx", self.interim),
            ("2xx", self.success),
            ("3xx", self.redirection),
            ("4xx", self.client_error),
            ("5xx", self.server_error),
        ]
    }
}

/// Summary statistics of times in nanoseconds, with three significant digits.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Quantiles {
    /// Number of times.
    pub count: u64,
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub stddev: f64,
    /// Minimum.
    pub min: u64,
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 95th percentile.
    pub p95: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// Maximum.
    pub max: u64,
}

/// Numbers of idle connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Idle {
    /// Number of connections to establish.
    pub requested: u64,
    /// Number of connections established at the end.
    pub open: u64,
    /// Number of connections lost.
    pub lost: u64,
    /// Number of lost connections that were established again.
    pub reestablished: u64,
    /// Number of requests sent on idle connections.
    pub requests: u64,
    /// Number of replies to these requests.
    pub replies: u64,
    /// Number of separate descriptor tables for idle connections. 0 if they share the table of the
    /// connections that carry requests.
    pub descriptor_tables: u64,
}

impl Idle {
    pub(crate) fn add(&mut self, more: &Idle) {
        self.requested += more.requested;
        self.open += more.open;
        self.lost += more.lost;
        self.reestablished += more.reestablished;
        self.requests += more.requests;
        self.replies += more.replies;
        self.descriptor_tables += more.descriptor_tables;
    }
}

/// Numbers of bytes of HTTP messages or TLS records, without TCP headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Bytes {
    /// Bytes received from the server.
    pub received: u64,
    /// Bytes sent to the server.
    pub sent: u64,
}

impl Bytes {
    pub(crate) fn add(&mut self, more: &Bytes) {
        self.received += more.received;
        self.sent += more.sent;
    }
}
