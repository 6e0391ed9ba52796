//! The access log: one line per request, in the combined format or as a JSON object.
//!
//! Each worker collects the lines of one event-loop turn and hands them to a `LogSink`. A thread
//! of its own writes them, so a slow disk or a stalled reader delays no request.

mod combined;
pub(crate) mod json;
mod writer;

use std::net::IpAddr;
use std::time::Duration;

use hearken_http::{DateCache, Request, Version};

pub(crate) use writer::{LogCounters, LogSink, LogWriter};

/// Maximum number of bytes logged of a field that a client chose.
const MAX_FIELD_BYTES: usize = 1024;
/// Maximum number of bytes logged of a rejected request.
const MAX_INPUT_BYTES: usize = 256;
/// Size at which lines are handed over before the turn ends, in bytes.
const BATCH_BYTES: usize = 64 * 1024;

/// The format of the access log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogFormat {
    /// The combined log format of Apache and nginx.
    Combined,
    /// One JSON object per line, with the upstream server and timings.
    Json,
}

/// The log lines of one worker.
#[derive(Debug)]
pub(crate) struct AccessLog {
    sink: LogSink,
    format: LogFormat,
    /// Lines of this turn.
    lines: Vec<u8>,
}

impl AccessLog {
    /// Creates the log of one worker.
    pub(crate) fn new(sink: LogSink, format: LogFormat) -> AccessLog {
        AccessLog { sink, format, lines: Vec::new() }
    }

    /// Adds the line of a request. `request` is `None` if no request was parsed; `rejected` states
    /// why the server refused to process the input.
    pub(crate) fn request(
        &mut self,
        date: &DateCache,
        request: Option<&Request<'_>>,
        rejected: Option<Rejected<'_>>,
        end: &RequestRecord<'_>,
    ) {
        // The buffer of the previous turn belongs to the writer: start with room for a few lines.
        self.lines.reserve(512);
        match self.format {
            LogFormat::Combined => combined::line(date, request, rejected, end, &mut self.lines),
            LogFormat::Json => json::line(date, request, rejected, end, &mut self.lines),
        }
        if self.lines.len() >= BATCH_BYTES {
            self.flush();
        }
    }

    /// Hands the collected lines to the writer thread. Call once per event-loop turn. Never blocks.
    #[inline]
    pub(crate) fn flush(&mut self) {
        if !self.lines.is_empty() {
            self.sink.send(std::mem::take(&mut self.lines));
        }
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Input that is not an acceptable request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rejected<'a> {
    /// Received bytes. The log contains at most the first 256, escaped.
    pub(crate) input: &'a [u8],
    /// Reason for the rejection.
    pub(crate) reason: &'static str,
}

impl Rejected<'_> {
    fn input(&self) -> &[u8] {
        self.input.get(..MAX_INPUT_BYTES).unwrap_or(self.input)
    }
}

/// How a request ended. The log contains it by [`name`](Outcome::name).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Outcome {
    /// The response was sent in full.
    #[default]
    Complete,
    /// The server refused the request.
    Rejected,
    /// The request is malformed.
    BadRequest,
    /// The client closed the connection.
    ClientDisconnected,
    /// The client sent or received too slowly.
    ClientTimeout,
    /// The upstream server did not respond in time.
    UpstreamTimeout,
    /// The upstream server closed the connection within its response.
    UpstreamClosed,
    /// The upstream server's response is malformed.
    BadResponse,
    /// The request exceeded its total time.
    RequestTimeout,
    /// The tunnel was idle for too long.
    IdleTimeout,
}

impl Outcome {
    /// Returns the name used in the log.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Outcome::Complete => "done",
            Outcome::Rejected => "refused",
            Outcome::BadRequest => "bad-request",
            Outcome::ClientDisconnected => "client-left",
            Outcome::ClientTimeout => "client-late",
            Outcome::UpstreamTimeout => "server-late",
            Outcome::UpstreamClosed => "server-cut",
            Outcome::BadResponse => "bad-response",
            Outcome::RequestTimeout => "overdue",
            Outcome::IdleTimeout => "idle",
        }
    }
}

/// The result of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RequestRecord<'a> {
    /// Client address.
    pub(crate) peer: Option<IpAddr>,
    /// Status sent to the client; 0 if none was sent.
    pub(crate) status: u16,
    /// Bytes of content sent to the client.
    pub(crate) bytes_sent: u64,
    /// Bytes of content received from the client.
    pub(crate) bytes_received: u64,
    /// Upstream server that responded, or that failed last.
    pub(crate) upstream: Option<&'a str>,
    /// Number of upstream servers tried.
    pub(crate) attempts: u32,
    /// Time in the queue for an upstream server.
    pub(crate) queue_time: Duration,
    /// Time to connect to the upstream server; zero for a reused connection.
    pub(crate) connect_time: Duration,
    /// Time until the response head arrived.
    pub(crate) header_time: Duration,
    /// Time until the response was sent in full.
    pub(crate) request_time: Duration,
    /// How the request ended.
    pub(crate) outcome: Outcome,
}

fn protocol(version: Version) -> &'static str {
    match version {
        Version::Http10 => "HTTP/1.0",
        Version::Http11 => "HTTP/1.1",
    }
}

#[cfg(test)]
mod tests;
