//! Failures of requests, named after httperf.

use std::io;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// The reason why a request has no valid reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    ClientTimo,
    SocketTimo,
    ConnRefused,
    ConnReset,
    StreamRefused,
    StreamReset,
    FdUnavail,
    AddrUnavail,
    Status,
    Check,
    Surplus,
    Other,
}

/// The client timeout that expired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TimeoutKind {
    Connect,
    FirstByte,
    Reply,
}

impl Failure {
    /// Classifies an error of the kernel.
    pub(crate) fn from_error(error: &io::Error) -> Failure {
        match Errno::from_io_error(error) {
            Some(Errno::TIMEDOUT) => Failure::SocketTimo,
            Some(Errno::CONNREFUSED) => Failure::ConnRefused,
            Some(Errno::CONNRESET | Errno::PIPE | Errno::CONNABORTED) => Failure::ConnReset,
            Some(Errno::MFILE | Errno::NFILE) => Failure::FdUnavail,
            // EADDRINUSE is what bind(2) returns if no port is available.
            Some(Errno::ADDRNOTAVAIL | Errno::ADDRINUSE) => Failure::AddrUnavail,
            _ => Failure::Other,
        }
    }

    /// Returns the name of a failure that the name alone does not describe.
    pub(crate) fn unspecific_name(self) -> Option<&'static str> {
        match self {
            Failure::Status => Some("status"),
            Failure::Check => Some("check"),
            Failure::Surplus => Some("surplus"),
            Failure::StreamReset => Some("stream-reset"),
            Failure::Other => Some("other"),
            _ => None,
        }
    }
}

/// Numbers of failed requests by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct Errors {
    /// A client timeout expired.
    pub client_timo: u64,
    /// The kernel timed out (`ETIMEDOUT`).
    pub socket_timo: u64,
    /// The connection was refused.
    #[serde(rename = "connrefused")]
    pub conn_refused: u64,
    /// The connection was reset, or closed before the reply was complete.
    #[serde(rename = "connreset")]
    pub conn_reset: u64,
    /// The server refused the request without processing it (HTTP/2).
    pub stream_refused: u64,
    /// The stream was reset before the reply was complete (HTTP/2).
    pub stream_reset: u64,
    /// No descriptor was available for a connection.
    pub fd_unavail: u64,
    /// No port was available for a connection.
    #[serde(rename = "addrunavail")]
    pub addr_unavail: u64,
    /// The reply has status 400 or above, and no check states the expected status.
    pub status: u64,
    /// The reply was complete but failed a check.
    pub check: u64,
    /// Further bytes followed the reply, without a further request.
    pub surplus: u64,
    /// Any other failure, such as an invalid HTTP response.
    pub other: u64,
}

impl Errors {
    pub(crate) fn record(&mut self, failure: Failure, times: u64) {
        *match failure {
            Failure::ClientTimo => &mut self.client_timo,
            Failure::SocketTimo => &mut self.socket_timo,
            Failure::ConnRefused => &mut self.conn_refused,
            Failure::ConnReset => &mut self.conn_reset,
            Failure::StreamRefused => &mut self.stream_refused,
            Failure::StreamReset => &mut self.stream_reset,
            Failure::FdUnavail => &mut self.fd_unavail,
            Failure::AddrUnavail => &mut self.addr_unavail,
            Failure::Status => &mut self.status,
            Failure::Check => &mut self.check,
            Failure::Surplus => &mut self.surplus,
            Failure::Other => &mut self.other,
        } += times;
    }

    pub(crate) fn add(&mut self, more: &Errors) {
        self.client_timo += more.client_timo;
        self.socket_timo += more.socket_timo;
        self.conn_refused += more.conn_refused;
        self.conn_reset += more.conn_reset;
        self.stream_refused += more.stream_refused;
        self.stream_reset += more.stream_reset;
        self.fd_unavail += more.fd_unavail;
        self.addr_unavail += more.addr_unavail;
        self.status += more.status;
        self.check += more.check;
        self.surplus += more.surplus;
        self.other += more.other;
    }

    /// Returns each kind with its name.
    pub fn by_name(&self) -> [(&'static str, u64); 12] {
        [
            ("status", self.status),
            ("check", self.check),
            ("surplus", self.surplus),
            ("client-timo", self.client_timo),
            ("socket-timo", self.socket_timo),
            ("connrefused", self.conn_refused),
            ("connreset", self.conn_reset),
            ("stream-refused", self.stream_refused),
            ("stream-reset", self.stream_reset),
            ("fd-unavail", self.fd_unavail),
            ("addrunavail", self.addr_unavail),
            ("other", self.other),
        ]
    }

    /// Returns the total number of failed requests.
    pub fn total(&self) -> u64 {
        self.by_name().iter().map(|(_, count)| count).sum()
    }
}
