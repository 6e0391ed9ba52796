//! Lines of the access log in JSON.

use std::time::Duration;

/// The outcome of a request in the log.
#[derive(Clone, PartialEq, Debug)]
pub struct LogLine {
    /// Status of the response, or 0.
    pub status: u16,
    /// Number of bytes of the response's body.
    pub bytes_sent: u64,
    /// Number of servers to which the request was sent.
    pub attempts: u32,
    /// The outcome.
    pub outcome: String,
    /// Time from the head of the request to the end of the response.
    pub request_time: Duration,
}

/// All outcomes.
const OUTCOMES: [&str; 11] = [
    "complete",
    "rejected",
    "bad-request",
    "client-disconnected",
    "client-timeout",
    "upstream-timeout",
    "upstream-closed",
    "bad-response",
    "request-timeout",
    "idle-timeout",
    "shutdown-timeout",
];

impl LogLine {
    /// Parses a line.
    pub fn parse(text: &str) -> LogLine {
        let value = |key: &str| {
            let (_, rest) = text.split_once(&format!("\"{key}\":")).unwrap_or_default();
            let end = rest.find([',', '}']).unwrap_or(rest.len());
            rest[..end].trim_matches('"').to_owned()
        };
        let seconds: f64 = value("request_time").parse().unwrap_or_default();
        LogLine {
            status: value("status").parse().unwrap_or_default(),
            bytes_sent: value("bytes_sent").parse().unwrap_or_default(),
            attempts: value("attempts").parse().unwrap_or_default(),
            outcome: value("outcome"),
            request_time: Duration::from_secs_f64(seconds),
        }
    }

    /// Returns a small number for the outcome.
    pub fn outcome_number(&self) -> u8 {
        OUTCOMES.iter().position(|name| *name == self.outcome).map_or(255, |index| index as u8)
    }
}
