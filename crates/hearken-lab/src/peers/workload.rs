//! Workloads of the comparison.

use super::kind::Kind;

/// A workload: a document and the way it is requested.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// Name in reports and on command lines.
    pub name: &'static str,
    /// Description in one line.
    pub about: &'static str,
    /// Kind of participants.
    pub of: Kind,
    /// Name of the document in the document root.
    pub document: &'static str,
    /// Length of the document in bytes.
    pub length: u64,
    /// Whether each request uses a new connection.
    pub close: bool,
    /// Number of pipelined requests on a connection.
    pub pipeline: u64,
    /// Connections in a round, if different from the settings.
    pub batch: Option<u64>,
    /// Divisor of the number of requests in the settings.
    pub shorter: u64,
    /// Requests per second of the open-loop pass that measures latency; none to skip it.
    pub rate: Option<u32>,
}

/// All workloads. A mix of files, such as SPECweb99, requires support in the load generator.
pub const WORKLOADS: [Workload; 8] = [
    Workload {
        name: "1b",
        about: "1 byte, persistent connections",
        of: Kind::Server,
        document: "1b",
        length: 1,
        close: false,
        pipeline: 1,
        batch: None,
        shorter: 1,
        rate: Some(1000),
    },
    Workload {
        name: "1b-close",
        about: "1 byte, one connection per request",
        of: Kind::Server,
        document: "1b",
        length: 1,
        close: true,
        pipeline: 1,
        batch: None,
        shorter: 4,
        rate: Some(1000),
    },
    Workload {
        name: "1b-pipelined",
        about: "1 byte, persistent connections, 8 pipelined requests",
        of: Kind::Server,
        document: "1b",
        length: 1,
        close: false,
        pipeline: 8,
        batch: None,
        shorter: 1,
        rate: None,
    },
    Workload {
        name: "6k",
        about: "6 KiB, persistent connections",
        of: Kind::Server,
        document: "6k",
        length: 6 * 1024,
        close: false,
        pipeline: 1,
        batch: None,
        shorter: 2,
        rate: Some(1000),
    },
    Workload {
        name: "1m",
        about: "1 MiB, persistent connections",
        of: Kind::Server,
        document: "1m",
        length: 1024 * 1024,
        close: false,
        pipeline: 1,
        // Few connections, so that the data in flight fits the cache as little as on a server in use.
        batch: Some(10),
        shorter: 32,
        rate: Some(50),
    },
    Workload {
        name: "1k-proxied",
        about: "1 KiB through the proxy, persistent connections on both sides",
        of: Kind::Proxy,
        document: "1k",
        length: 1024,
        close: false,
        pipeline: 1,
        batch: None,
        shorter: 1,
        rate: Some(1000),
    },
    Workload {
        name: "1k-proxied-close",
        about: "1 KiB through the proxy, one client connection per request",
        of: Kind::Proxy,
        document: "1k",
        length: 1024,
        close: true,
        pipeline: 1,
        batch: None,
        shorter: 4,
        rate: Some(1000),
    },
    Workload {
        name: "64k-proxied",
        about: "64 KiB through the proxy, persistent connections on both sides",
        of: Kind::Proxy,
        document: "64k",
        length: 64 * 1024,
        close: false,
        pipeline: 1,
        batch: None,
        shorter: 4,
        rate: Some(200),
    },
];

impl Workload {
    /// Returns the workload of the given name.
    pub fn find(name: &str) -> Option<&'static Workload> {
        WORKLOADS.iter().find(|workload| workload.name == name)
    }

    /// Returns the number of requests of a pass, in complete rounds.
    pub(crate) fn requests(&self, requests: u64, batch: u64) -> u64 {
        let round = self.batch.unwrap_or(batch) * self.pipeline;
        (requests / self.shorter).max(1).next_multiple_of(round)
    }

    /// Returns the number of requests before the first pass, which fill caches and allocate buffers.
    pub(crate) fn warm_up(&self, batch: u64) -> u64 {
        self.requests(2000, batch).max(4 * self.batch.unwrap_or(batch) * self.pipeline)
    }
}
