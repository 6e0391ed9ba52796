//! The maximum number of connections that carry requests.

use crate::report::ConnectionLimit;
use crate::summary::Grouped;

/// Memory that is planned for a connection: buffers of both sockets on loopback, and their state.
const BYTES_PER_CONNECTION: u64 = 64 * 1024;

/// A maximum number of connections, and what it results from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Limit {
    pub(crate) connections: usize,
    pub(crate) origin: ConnectionLimit,
}

impl Limit {
    /// Returns the lowest of the limits by descriptors, ports and memory. Connections use at most
    /// half of the available memory.
    pub(crate) fn lowest(descriptors: usize, ports: usize, memory: Option<u64>) -> Limit {
        let memory = memory.map_or(u64::MAX, |bytes| bytes / 2 / BYTES_PER_CONNECTION);
        let memory = usize::try_from(memory).unwrap_or(usize::MAX);
        let all = [
            (descriptors, ConnectionLimit::Descriptors),
            (ports, ConnectionLimit::Ports),
            (memory, ConnectionLimit::Memory),
        ];
        let lowest = all.into_iter().min_by_key(|(connections, _)| *connections);
        let (connections, origin) = lowest.unwrap_or(all[0]);
        Limit { connections: connections.max(1), origin }
    }

    /// Describes the limit.
    pub(crate) fn describe(self) -> String {
        let origin = match self.origin {
            ConnectionLimit::Settings => "the settings",
            ConnectionLimit::Descriptors => "open files (ulimit -n)",
            ConnectionLimit::Ports => "local ports (net.ipv4.ip_local_port_range)",
            ConnectionLimit::Memory => "available memory",
        };
        format!("{} by {origin}", Grouped(self.connections as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scarcest_resource_limits_connections() {
        let limit = |descriptors, ports, memory| Limit::lowest(descriptors, ports, memory);
        let by = |connections, origin| Limit { connections, origin };
        assert_eq!(limit(100, 200, None), by(100, ConnectionLimit::Descriptors));
        assert_eq!(limit(300, 200, Some(1 << 40)), by(200, ConnectionLimit::Ports));
        assert_eq!(limit(300, 200, Some(20 << 17)), by(20, ConnectionLimit::Memory));
        assert_eq!(limit(0, 200, Some(0)).connections, 1);
    }
}
