//! What came of it: the JSON, field by field.

use serde::{Deserialize, Serialize};

use crate::arrivals::Arrivals;
use crate::failure::Errors;

/// The value of [`Report::schema`].
pub const SCHEMA: &str = "hearken-load/1";

/// What came of a load. Serialises to the JSON result; displays as a summary for people.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// False if it was stopped before its time.
    pub complete: bool,
    /// What was asked for.
    pub url: String,
    /// Requests per second, as was asked for.
    pub offered_rate: f64,
    /// How long requests were made, in seconds.
    pub duration_s: f64,
    /// How they arrived.
    pub arrivals: Arrivals,
    /// Connections for the requests.
    pub connections: u64,
    /// Requests on each connection, if these were opened for the requests.
    pub per_connection: Option<u32>,
    /// What decided the arrivals.
    pub seed: u64,
    /// The event mechanism.
    pub events: String,
    /// What became of the requests.
    pub requests: Requests,
    /// Replies by the class of their status; 1xx are those that came before a reply.
    pub status: Status,
    /// Replies per second, of those that came while requests were still being made.
    pub reply_rate: f64,
    /// From the time when a request was intended to the end of its reply.
    pub latency_ns: Quantiles,
    /// From the time when it was sent.
    pub service_ns: Quantiles,
    /// From the time when a request was intended to when the generator sent it, opened a connection
    /// for it, or put it in line for one: how late the generator itself was.
    pub lateness_ns: Quantiles,
    /// Requests without a reply.
    pub errors: Errors,
    /// Connections that were made for requests.
    pub connections_opened: u64,
    /// Idle connections.
    pub idle: Idle,
    /// Bytes on all connections.
    pub bytes: Bytes,
    /// What casts doubt on the numbers, in sentences.
    pub warnings: Vec<String>,
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
    pub(crate) fn count(&mut self, status: u16) {
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
    /// How many tables of descriptors hold them besides that of the requests: none, if they are in
    /// that one.
    pub tables: u64,
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
