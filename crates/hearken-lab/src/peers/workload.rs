//! Workloads of the comparison.

use super::kind::Kind;

/// A workload: a document and the way it is requested.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// Name in reports and on command lines.
    pub name: &'static str,
    /// Description in one line.
    pub description: &'static str,
    /// Kind of participants.
    pub kind: Kind,
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
    pub request_divisor: u64,
    /// Requests per second of the open-loop pass that measures latency; none to skip it.
    pub rate: Option<u32>,
}

/// All workloads. A mix of files, such as SPECweb99, requires support in the load generator.
pub const WORKLOADS: [Workload; 8] = [
    Workload {
        name: "1b",
        description: "1 byte, persistent connections",
        kind: Kind::Server,
        document: "1b",
        length: 1,
        close: false,
        pipeline: 1,
        batch: None,
        request_divisor: 1,
        rate: Some(1000),
    },
    Workload {
        name: "1b-close",
        description: "1 byte, one connection per request",
        kind: Kind::Server,
        document: "1b",
        length: 1,
        close: true,
        pipeline: 1,
        batch: None,
        request_divisor: 4,
        rate: Some(1000),
    },
    Workload {
        name: "1b-pipelined",
        description: "1 byte, persistent connections, 8 pipelined requests",
        kind: Kind::Server,
        document: "1b",
        length: 1,
        close: false,
        pipeline: 8,
        batch: None,
        request_divisor: 1,
        rate: None,
    },
    Workload {
        name: "6k",
        description: "6 KiB, persistent connections",
        kind: Kind::Server,
        document: "6k",
        length: 6 * 1024,
        close: false,
        pipeline: 1,
        batch: None,
        request_divisor: 2,
        rate: Some(1000),
    },
    Workload {
        name: "1m",
        description: "1 MiB, persistent connections",
        kind: Kind::Server,
        document: "1m",
        length: 1024 * 1024,
        close: false,
        pipeline: 1,
        // Few connections, so that the data in flight fits the cache as little as on a server in use.
        batch: Some(10),
        request_divisor: 32,
        rate: Some(50),
    },
    Workload {
        name: "1k-proxied",
        description: "1 KiB through the proxy, persistent connections on both sides",
        kind: Kind::Proxy,
        document: "1k",
        length: 1024,
        close: false,
        pipeline: 1,
        batch: None,
        request_divisor: 1,
        rate: Some(1000),
    },
    Workload {
        name: "1k-proxied-close",
        description: "1 KiB through the proxy, one client connection per request",
        kind: Kind::Proxy,
        document: "1k",
        length: 1024,
        close: true,
        pipeline: 1,
        batch: None,
        request_divisor: 4,
        rate: Some(1000),
    },
    Workload {
        name: "64k-proxied",
        description: "64 KiB through the proxy, persistent connections on both sides",
        kind: Kind::Proxy,
        document: "64k",
        length: 64 * 1024,
        close: false,
        pipeline: 1,
        batch: None,
        request_divisor: 4,
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
        (requests / self.request_divisor).max(1).next_multiple_of(round)
    }

    /// Returns the number of requests before the first pass, which fill caches and allocate buffers.
    pub(crate) fn warm_up(&self, batch: u64) -> u64 {
        self.requests(2000, batch).max(4 * self.batch.unwrap_or(batch) * self.pipeline)
    }
}
