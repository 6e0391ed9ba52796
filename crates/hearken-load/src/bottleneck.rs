//! The part of the system that limited the reply rate.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::report::{ConnectionLimit, Report};

/// The part of the system that limited the reply rate of a load.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Bottleneck {
    /// None: the server answered the offered load.
    #[default]
    None,
    /// The server.
    Server,
    /// The maximum number of connections in the settings. More connections could reach a higher
    /// rate, if the server can serve more requests at once.
    Connections,
    /// The CPU of the generator.
    Generator,
    /// The number of local ports.
    Ports,
    /// The limit of open files.
    Descriptors,
    /// The memory of the generator's machine.
    Memory,
}

/// Ratio of the requests that may fail, be missed or wait without a bottleneck.
const MAX_RATIO: f64 = 0.01;
/// CPU usage of the generator from which on it limits the rate.
pub(crate) const MAX_CPU_UTILISATION: f64 = 0.95;

impl Bottleneck {
    /// Finds the bottleneck of a load. A limit of the generator takes precedence over the server,
    /// because it also affects what the server appears to do.
    pub(crate) fn of(report: &Report) -> Bottleneck {
        let Report { requests, errors, missed, .. } = report;
        // Without any reply, the address or the protocol is wrong rather than the rate too high.
        if requests.replies + errors.client_timo + errors.socket_timo + requests.missed == 0 {
            return Bottleneck::None;
        }
        let is_relevant = |count: u64| count as f64 > requests.scheduled as f64 * MAX_RATIO;
        let in_time = report.reply_rate * report.duration_s;
        let is_short = is_relevant(requests.failed + requests.missed)
            || in_time < requests.answerable as f64 * (1.0 - MAX_RATIO);
        if is_relevant(errors.fd_unavail) {
            Bottleneck::Descriptors
        } else if is_relevant(errors.addr_unavail) {
            Bottleneck::Ports
        } else if is_relevant(missed.generator)
            || (is_short && report.generator_cpu_utilisation >= MAX_CPU_UTILISATION)
        {
            Bottleneck::Generator
        } else if is_relevant(missed.no_connection) || (is_short && is_relevant(requests.queued)) {
            match report.connections_limited_by {
                ConnectionLimit::Settings => Bottleneck::Connections,
                ConnectionLimit::Descriptors => Bottleneck::Descriptors,
                ConnectionLimit::Ports => Bottleneck::Ports,
                ConnectionLimit::Memory => Bottleneck::Memory,
            }
        } else if is_short {
            Bottleneck::Server
        } else {
            Bottleneck::None
        }
    }
}

impl fmt::Display for Bottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Bottleneck::None => "none",
            Bottleneck::Server => "server",
            Bottleneck::Connections => "connections",
            Bottleneck::Generator => "generator",
            Bottleneck::Ports => "ports",
            Bottleneck::Descriptors => "descriptors",
            Bottleneck::Memory => "memory",
        })
    }
}
