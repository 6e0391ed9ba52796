//! What the servers are asked, and the proxies.

use super::kind::Kind;

/// A workload: which document, and how it is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// Its name, in reports and on command lines.
    pub name: &'static str,
    /// What it is, for people.
    pub about: &'static str,
    /// Who is asked.
    pub of: Kind,
    /// The document, by its name in the root, and its length in bytes.
    pub document: &'static str,
    /// How long it is.
    pub length: u64,
    /// A connection for each request, instead of keeping them.
    pub close: bool,
    /// Requests sent at once on a connection.
    pub pipeline: u64,
    /// Connections in a round, where that is not as the settings say.
    pub batch: Option<u64>,
    /// One pass is so many times shorter than the settings say.
    pub shorter: u64,
    /// Requests a second of the open-loop pass that latency is taken from; none is made without.
    pub rate: Option<u32>,
}

/// All of them. A mix of files, such as SPECweb99's, gets its line once the generator can ask for one.
pub const WORKLOADS: [Workload; 8] = [
    Workload {
        name: "1b",
        about: "1 byte, connections kept",
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
        about: "1 byte, a connection for each request",
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
        about: "1 byte, connections kept, 8 requests at once on each",
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
        about: "6 KiB, connections kept",
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
        about: "1 MiB, connections kept",
        of: Kind::Server,
        document: "1m",
        length: 1024 * 1024,
        close: false,
        pipeline: 1,
        // Few, so that what is under way fits the cache as little as for a server in use.
        batch: Some(10),
        shorter: 32,
        rate: Some(50),
    },
    Workload {
        name: "1k-proxied",
        about: "1 KiB through the proxy, connections kept on both sides",
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
        about: "1 KiB through the proxy, a client's connection for each request",
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
        about: "64 KiB through the proxy, connections kept on both sides",
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
    /// The workload of that name.
    pub fn find(name: &str) -> Option<&'static Workload> {
        WORKLOADS.iter().find(|workload| workload.name == name)
    }

    /// How many requests a pass has, of whole rounds, where the settings say `requests`.
    pub(crate) fn requests(&self, requests: u64, batch: u64) -> u64 {
        let round = self.batch.unwrap_or(batch) * self.pipeline;
        (requests / self.shorter).max(1).next_multiple_of(round)
    }

    /// How many requests go before the first pass: caches are filled, buffers are had.
    pub(crate) fn warm_up(&self, batch: u64) -> u64 {
        self.requests(2000, batch).max(4 * self.batch.unwrap_or(batch) * self.pipeline)
    }
}
