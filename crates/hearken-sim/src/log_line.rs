//! Lines of the access log.

use std::time::Duration;

/// The outcome of a request in the log.
#[derive(Clone, PartialEq, Debug)]
pub struct LogLine {
    /// Address of the client.
    pub client: String,
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
    /// Parses a line in the combined format, which has no outcome and no times.
    pub fn parse_combined(text: &str) -> LogLine {
        let (client, rest) = text.split_once(' ').unwrap_or_default();
        // The quoted fields are the request line, Referer, User-Agent, and the reason of a rejection.
        let numbers = rest.split('"').nth(2).unwrap_or_default();
        let (status, bytes_sent) = numbers.trim().split_once(' ').unwrap_or_default();
        LogLine {
            client: client.to_owned(),
            status: status.parse().unwrap_or_default(),
            bytes_sent: bytes_sent.parse().unwrap_or_default(),
            attempts: 0,
            outcome: String::new(),
            request_time: Duration::ZERO,
        }
    }

    /// Returns whether the outcome is `outcome`, or unknown.
    pub fn may_be(&self, outcome: &str) -> bool {
        self.outcome.is_empty() || self.outcome == outcome
    }

    /// Parses a line in JSON.
    pub fn parse(text: &str) -> LogLine {
        let value = |key: &str| {
            let (_, rest) = text.split_once(key).unwrap_or_default();
            let end = rest.bytes().position(|byte| matches!(byte, b',' | b'}'));
            rest[..end.unwrap_or(rest.len())].trim_matches('"')
        };
        let seconds: f64 = value("\"request_time\":").parse().unwrap_or_default();
        LogLine {
            client: value("\"client\":").to_owned(),
            status: value("\"status\":").parse().unwrap_or_default(),
            bytes_sent: value("\"bytes_sent\":").parse().unwrap_or_default(),
            attempts: value("\"attempts\":").parse().unwrap_or_default(),
            outcome: value("\"outcome\":").to_owned(),
            request_time: Duration::from_secs_f64(seconds),
        }
    }

    /// Returns a small number for the outcome.
    pub fn outcome_number(&self) -> u8 {
        OUTCOMES.iter().position(|name| *name == self.outcome).map_or(255, |index| index as u8)
    }
}
