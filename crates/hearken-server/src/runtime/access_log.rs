//! The access log: one line per request, in the combined format or as a JSON object.
//!
//! Each worker collects the lines of one event-loop turn and passes them to a `LogSink`. A separate
//! thread writes them, so a slow disk or a stalled reader delays no request.

mod combined;
pub(crate) mod json;
mod writer;

use std::net::IpAddr;
use std::time::Duration;

use hearken_http::{DateCache, Request, Version};

#[cfg(feature = "simulation")]
pub(crate) use writer::LogCollector;
pub(crate) use writer::{LogCounters, LogSink, LogWriter};

/// Maximum number of bytes logged of a field from a client.
const MAX_FIELD_BYTES: usize = 1024;
/// Maximum number of bytes logged of a rejected request.
const MAX_INPUT_BYTES: usize = 256;
/// Size in bytes at which lines are passed on before the turn ends.
const BATCH_BYTES: usize = 64 * 1024;

/// The format of the access log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LogFormat {
    /// The combined log format of Apache and nginx.
    Combined,
    /// One JSON object per line, including the upstream server and timings.
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

    /// Adds the line of a request. `request` is `None` if no request was parsed. `rejected`
    /// describes input that the server rejected.
    pub(crate) fn request(
        &mut self,
        date: &DateCache,
        request: Option<&Request<'_>>,
        rejected: Option<Rejected<'_>>,
        record: &RequestRecord<'_>,
    ) {
        // The previous buffer now belongs to the writer, so start with capacity for a few lines.
        self.lines.reserve(512);
        match self.format {
            LogFormat::Combined => combined::line(date, request, rejected, record, &mut self.lines),
            LogFormat::Json => json::line(date, request, rejected, record, &mut self.lines),
        }
        if self.lines.len() >= BATCH_BYTES {
            self.flush();
        }
    }

    /// Passes the collected lines to the writer thread, without blocking. Call it once per turn.
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

/// Input that is not a valid request.
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

/// The outcome of a request. The log contains its [`name`](Outcome::name).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Outcome {
    /// The response was sent in full.
    #[default]
    Complete,
    /// The server rejected the request.
    Rejected,
    /// The request is malformed.
    BadRequest,
    /// The client disconnected.
    ClientDisconnected,
    /// The client sent or received too slowly.
    ClientTimeout,
    /// The upstream server responded too slowly.
    UpstreamTimeout,
    /// The upstream server closed the connection before the end of its response.
    UpstreamClosed,
    /// The upstream server's response is malformed.
    BadResponse,
    /// The request timeout expired.
    RequestTimeout,
    /// The idle timeout of the tunnel expired.
    IdleTimeout,
    /// The shutdown timeout of the server expired.
    ShutdownTimeout,
}

impl Outcome {
    /// Returns the name used in the log.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Outcome::Complete => "complete",
            Outcome::Rejected => "rejected",
            Outcome::BadRequest => "bad-request",
            Outcome::ClientDisconnected => "client-disconnected",
            Outcome::ClientTimeout => "client-timeout",
            Outcome::UpstreamTimeout => "upstream-timeout",
            Outcome::UpstreamClosed => "upstream-closed",
            Outcome::BadResponse => "bad-response",
            Outcome::RequestTimeout => "request-timeout",
            Outcome::IdleTimeout => "idle-timeout",
            Outcome::ShutdownTimeout => "shutdown-timeout",
        }
    }
}

/// The logged properties of a completed request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RequestRecord<'a> {
    /// Client address.
    pub(crate) peer: Option<IpAddr>,
    /// Name of the TLS version, if the client uses TLS.
    pub(crate) tls_version: Option<&'a str>,
    /// Subject of the client's certificate.
    pub(crate) client_subject: Option<&'a str>,
    /// Status sent to the client; 0 if none was sent.
    pub(crate) status: u16,
    /// Bytes of content sent to the client.
    pub(crate) bytes_sent: u64,
    /// Bytes of content received from the client.
    pub(crate) bytes_received: u64,
    /// Upstream server that responded or failed last.
    pub(crate) upstream: Option<&'a str>,
    /// Number of attempts to send the request to an upstream server.
    pub(crate) attempts: u32,
    /// Time in the queue for an upstream server.
    pub(crate) queue_time: Duration,
    /// Time to connect to the upstream server; zero for a reused connection.
    pub(crate) connect_time: Duration,
    /// Time until the head of the response was received.
    pub(crate) header_time: Duration,
    /// Time until the response was sent in full.
    pub(crate) request_time: Duration,
    /// Outcome of the request.
    pub(crate) outcome: Outcome,
    /// Whether the client used HTTP/2. The request has the form of HTTP/1.1.
    pub(crate) is_http2: bool,
}

fn protocol(request: &Request<'_>, record: &RequestRecord<'_>) -> &'static str {
    match request.version {
        _ if record.is_http2 => "HTTP/2.0",
        Version::Http10 => "HTTP/1.0",
        Version::Http11 => "HTTP/1.1",
        Version::Http2 => "HTTP/2.0",
    }
}

#[cfg(test)]
mod tests;
