//! What came of it: the JSON, field by field.

use serde::{Deserialize, Serialize};

use crate::arrivals::Arrivals;
use crate::failure::Errors;
use crate::histogram::Histogram;
use crate::server::Server;
use crate::slo::ObjectiveResult;

/// The value of [`Report::schema`].
pub const SCHEMA: &str = "hearken-load/2";

/// What came of a load. Serialises to the JSON result; displays as a summary for people.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// False if it was stopped before its time.
    pub complete: bool,
    /// When the clock of the requests started, in nanoseconds since 1970.
    pub started_unix_ns: u64,
    /// The server that was asked, and for what.
    pub url: String,
    /// What else it was asked for, in words.
    pub workload: String,
    /// What arrives.
    pub model: Model,
    /// How much was offered over time, as it was asked for; empty in a closed loop.
    pub rate: String,
    /// Arrivals per second, on average over the run; 0 in a closed loop.
    pub offered_rate: f64,
    /// How long requests were made, in seconds.
    pub duration_s: f64,
    /// How they arrived.
    pub arrivals: Arrivals,
    /// Connections for the requests, where they are kept.
    pub connections: u64,
    /// Requests on each connection, if these were opened for the requests.
    pub per_connection: Option<String>,
    /// Event loops that made the requests.
    pub threads: u64,
    /// What decided the arrivals.
    pub seed: u64,
    /// The event mechanism.
    pub events: String,
    /// What became of the requests.
    pub requests: Requests,
    /// What became of the sessions, if there were any.
    pub sessions: Sessions,
    /// Replies by the class of their status; 1xx are those that came before a reply.
    pub status: Status,
    /// Replies per second, of those that came while requests were still being made.
    pub reply_rate: f64,
    /// Replies per second in each of the intervals.
    pub reply_rate_samples: Samples,
    /// From the time when a request was intended to the end of its reply.
    pub latency_ns: Quantiles,
    /// From the time when it was sent.
    pub service_ns: Quantiles,
    /// How long it took to connect, with TLS to the end of its handshake.
    pub connect_ns: Quantiles,
    /// From the time when a request was intended to when the generator sent it, opened a connection
    /// for it, or put it in line for one: how late the generator itself was.
    pub lateness_ns: Quantiles,
    /// Requests without a reply, or with one that did not pass its checks.
    pub errors: Errors,
    /// Of `errors.client-timo`: which limit it was.
    pub timeouts: Timeouts,
    /// Connections that were made for requests.
    pub connections_opened: u64,
    /// Idle connections.
    pub idle: Idle,
    /// Handshakes, where TLS was spoken.
    pub tls: Handshakes,
    /// Bytes on all connections.
    pub bytes: Bytes,
    /// The run in pieces, in the order of time.
    pub intervals: Vec<Interval>,
    /// The distributions, whole.
    pub histograms: Histograms,
    /// What the server used meanwhile, if it was watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<Server>,
    /// The command that made it, word by word; what runs the generator fills it in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// The generator's machine, in words; what runs the generator fills it in.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub machine: String,
    /// Of a load that several generators made: which part of it this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<Part>,
    /// Of a result that was merged: the parts, by rank.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
    /// What came of the objectives, if there were any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objectives: Vec<ObjectiveResult>,
    /// What casts doubt on the numbers, in sentences.
    pub warnings: Vec<String>,
}

/// One generator of several that make a load together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Part {
    /// Which one, from 0.
    pub rank: u32,
    /// How many there are.
    pub size: u32,
    /// When it was to start, in nanoseconds since 1970; none if it was to start at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_asked_unix_ns: Option<u64>,
    /// How much later than that it started, in nanoseconds.
    pub start_late_ns: u64,
    /// Whether the kernel says that its clock is synchronised; none if it does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_synchronised: Option<bool>,
    /// By how much its clock is wrong at most, as the kernel says, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_max_error_us: Option<u64>,
}

/// What arrives at the offered rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Model {
    /// Requests, over connections that are kept or opened for them.
    #[default]
    Requests,
    /// Connections, each with a number of requests one after another.
    Connections,
    /// Sessions: bursts of requests with pauses between them, on a connection each.
    Sessions,
    /// Nothing: each of a number of connections asks again when it has its reply.
    Closed,
}

/// The distributions, as HDR histograms (V2, compressed, in base64) of nanoseconds.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Histograms {
    /// Of [`Report::latency_ns`].
    pub latency: Histogram,
    /// Of [`Report::service_ns`].
    pub service: Histogram,
    /// Of [`Report::connect_ns`].
    pub connect: Histogram,
    /// Of [`Report::lateness_ns`].
    pub lateness: Histogram,
}

/// A piece of the run.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Interval {
    /// When it begins, in seconds from [`Report::started_unix_ns`].
    pub at_s: f64,
    /// How long it is, in seconds.
    pub length_s: f64,
    /// True of the time after the last request was intended, in which replies are still awaited.
    #[serde(default)]
    pub draining: bool,
    /// Requests whose time came.
    pub intended: u64,
    /// Requests that were sent.
    pub sent: u64,
    /// Replies that came.
    pub replies: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Connections that were made.
    pub connections_opened: u64,
    /// Idle connections held at its end.
    pub idle_held: u64,
    /// Of the replies that came in it.
    pub latency_ns: Quantiles,
    /// The whole distribution, as in [`Histograms`]; encoded, as there may be thousands.
    pub latency: String,
}

/// What became of the sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Sessions {
    /// Those that began.
    pub begun: u64,
    /// Those that came to their end.
    pub completed: u64,
    /// Those that ended with a request that failed.
    pub failed: u64,
}

impl Sessions {
    pub(crate) fn add(&mut self, more: &Sessions) {
        self.begun += more.begun;
        self.completed += more.completed;
        self.failed += more.failed;
    }
}

/// A number that was looked at several times.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Samples {
    /// How often.
    pub count: u64,
    /// The least.
    pub min: f64,
    /// The mean.
    pub mean: f64,
    /// The greatest.
    pub max: f64,
    /// The standard deviation.
    pub stddev: f64,
}

impl Samples {
    /// Of these. O(n).
    pub fn from_values(values: impl Iterator<Item = f64>) -> Samples {
        let (mut count, mut min, mut max) = (0u64, f64::INFINITY, f64::NEG_INFINITY);
        // Welford's: no digits are lost where the values are large and alike.
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

/// Which limit ran out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct Timeouts {
    /// Before the connection was made.
    pub connect: u64,
    /// Before the first byte of the reply.
    pub first_byte: u64,
    /// Before the end of the reply.
    pub reply: u64,
}

impl Timeouts {
    pub(crate) fn add(&mut self, more: &Timeouts) {
        self.connect += more.connect;
        self.first_byte += more.first_byte;
        self.reply += more.reply;
    }
}

/// TLS handshakes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Handshakes {
    /// With a certificate.
    pub full: u64,
    /// That took up an earlier session.
    pub resumed: u64,
    /// That failed.
    pub failed: u64,
}

impl Handshakes {
    /// One more that came to its end.
    pub(crate) fn record(&mut self, resumed: bool) {
        *(if resumed { &mut self.resumed } else { &mut self.full }) += 1;
    }

    pub(crate) fn add(&mut self, more: &Handshakes) {
        self.full += more.full;
        self.resumed += more.resumed;
        self.failed += more.failed;
    }
}

/// What became of the requests: `intended = replies + failed + unfinished`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Requests {
    /// Those whose time came.
    pub intended: u64,
    /// Those that were sent.
    pub sent: u64,
    /// Those that have their whole reply.
    pub replies: u64,
    /// Those that failed: the sum of the errors.
    pub failed: u64,
    /// Those that were cut off when the load was stopped before its time.
    pub unfinished: u64,
    /// Those that found no free connection at their time.
    pub waited: u64,
}

/// Replies by the class of their status.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// Interim replies.
    #[serde(rename = "1xx")]
    pub interim: u64,
    /// Successes.
    #[serde(rename = "2xx")]
    pub success: u64,
    /// Redirections.
    #[serde(rename = "3xx")]
    pub redirection: u64,
    /// The client's errors.
    #[serde(rename = "4xx")]
    pub client_error: u64,
    /// The server's errors, and what no class is defined for.
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

    /// Each class by its name, and how many there were.
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

/// A distribution of times, in nanoseconds, to three digits.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Quantiles {
    /// How many there are.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation.
    pub stddev: f64,
    /// The shortest.
    pub min: u64,
    /// Half of them are no longer than this.
    pub p50: u64,
    /// 90 % are not.
    pub p90: u64,
    /// 95 % are not.
    pub p95: u64,
    /// 99 % are not.
    pub p99: u64,
    /// 99.9 % are not.
    pub p999: u64,
    /// The longest.
    pub max: u64,
}

/// Idle connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct Idle {
    /// How many were to be held.
    pub asked: u64,
    /// How many were held at the end.
    pub held: u64,
    /// How many were lost.
    pub lost: u64,
    /// How many of those that were lost were made again.
    pub re_established: u64,
    /// How many requests were made on them.
    pub requests: u64,
    /// How many of those have their reply.
    pub replies: u64,
    /// How many tables of descriptors hold them besides that of the requests: none, if they are in
    /// that one.
    pub tables: u64,
}

impl Idle {
    pub(crate) fn add(&mut self, more: &Idle) {
        self.asked += more.asked;
        self.held += more.held;
        self.lost += more.lost;
        self.re_established += more.re_established;
        self.requests += more.requests;
        self.replies += more.replies;
        self.tables += more.tables;
    }
}

/// Bytes, of HTTP and not of TCP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Bytes {
    /// From the server.
    pub received: u64,
    /// To the server.
    pub sent: u64,
}

impl Bytes {
    pub(crate) fn add(&mut self, more: &Bytes) {
        self.received += more.received;
        self.sent += more.sent;
    }
}
