//! Local addresses to connect from. One address has ports for about 28,000 connections to a server.
//! On loopback, all addresses of 127.0.0.0/8 are local and can be used in addition.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use hearken::Token;
use hearken::io::{Address, Io};

use crate::failure::Failure;
use crate::shard::Shard;

/// Planned number of connections per address: less than half of the ports. The kernel first tries
/// every other port. Once these are taken, it tries all ports for each further connection.
const CONNECTIONS_PER_ADDRESS: usize = 12_000;

/// Maximum number of other addresses to try before a connection fails.
const MAX_RETRIES: usize = 4;

/// Local addresses, some of which are used in turn until their ports run out.
#[derive(Clone, Debug)]
pub(crate) struct SourceAddresses {
    /// All addresses. `None` leaves the choice to the kernel.
    all: Vec<Option<SocketAddr>>,
    /// Number of addresses used in turn, and index of the first.
    used_count: usize,
    first: usize,
    position: usize,
}

impl SourceAddresses {
    /// Creates the addresses for `connections` concurrent connections to `target`, from the
    /// addresses `given` if there are any.
    pub(crate) fn new(target: IpAddr, given: &[IpAddr], connections: usize) -> SourceAddresses {
        let (all, used) = match target {
            _ if !given.is_empty() => {
                let all = given.iter().map(|&ip| Some(SocketAddr::new(ip, 0))).collect();
                (all, given.len())
            }
            IpAddr::V4(target) if target.is_loopback() => {
                let more = (2..=254).map(|last| IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)));
                let more = more.map(|ip| Some(SocketAddr::new(ip, 0)));
                let all: Vec<_> = std::iter::once(None).chain(more).collect();
                let used = needed(connections, all.len());
                (all, used)
            }
            _ => (vec![None], 1),
        };
        SourceAddresses { all, used_count: used, first: 0, position: 0 }
    }

    /// Returns the addresses of a thread with `connections` concurrent connections. Threads use
    /// different addresses as far as possible.
    pub(crate) fn for_thread(&self, share: Shard, connections: usize) -> SourceAddresses {
        if share.count == 1 {
            return self.clone();
        }
        let used = needed(connections, self.all.len());
        let first = (share.index as usize).saturating_mul(used) % self.all.len();
        SourceAddresses { all: self.all.clone(), used_count: used, first, position: 0 }
    }

    fn next(&mut self) -> Option<SocketAddr> {
        self.position = (self.position + 1) % self.used_count;
        self.all[(self.first + self.position) % self.all.len()]
    }

    /// Starts to connect to `target`. Tries other source addresses if no port is available.
    pub(crate) fn connect(&mut self, io: &mut impl Io, target: SocketAddr) -> io::Result<Token> {
        let target = Address::Inet(target);
        let mut result = io.connect(&target, self.next());
        // Limit the attempts: the kernel takes long to find that no port is available.
        for _ in 0..MAX_RETRIES.min(self.all.len() - 1) {
            match &result {
                Err(error) if Failure::from_error(error) == Failure::AddrUnavail => {}
                _ => break,
            }
            self.first = (self.first + self.used_count) % self.all.len();
            result = io.connect(&target, self.next());
        }
        result
    }
}

/// Returns the number of addresses, out of `all`, that `connections` connections need.
fn needed(connections: usize, all: usize) -> usize {
    connections.div_ceil(CONNECTIONS_PER_ADDRESS).clamp(1, all)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::SourceAddresses;
    use crate::shard::Shard;

    fn distinct(target: &str, given: &[&str], connections: usize) -> usize {
        let given: Vec<IpAddr> = given.iter().map(|ip| ip.parse().unwrap()).collect();
        let mut sources = SourceAddresses::new(target.parse().unwrap(), &given, connections);
        let mut seen: Vec<_> = (0..1000).map(|_| sources.next()).collect();
        seen.sort();
        seen.dedup();
        seen.len()
    }

    #[test]
    fn threads_use_different_addresses() {
        let sources = SourceAddresses::new("127.0.0.1".parse().unwrap(), &[], 1_000_000);
        let of = |index, connections| {
            let mut sources = sources.for_thread(Shard { index, count: 50 }, connections);
            let mut seen: Vec<_> = (0..100).map(|_| sources.next()).collect();
            seen.sort();
            seen.dedup();
            seen
        };
        let all: Vec<_> = (0..50).flat_map(|index| of(index, 20_000)).collect();
        let distinct: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!((all.len(), distinct.len()), (100, 100));
        assert_eq!(of(0, 100_000).len(), 9);
        assert!(of(0, 100_000).iter().all(|source| !of(1, 100_000).contains(source)));
    }

    #[test]
    fn uses_as_few_addresses_as_possible() {
        assert_eq!(distinct("127.0.0.1", &[], 0), 1);
        assert_eq!(distinct("127.0.0.1", &[], 12_000), 1);
        assert_eq!(distinct("127.0.0.1", &[], 12_001), 2);
        assert_eq!(distinct("127.0.0.1", &[], usize::MAX), 254);
        assert_eq!(distinct("10.0.0.1", &[], 100_000), 1);
        assert_eq!(distinct("::1", &[], 100_000), 1);
        assert_eq!(distinct("10.0.0.1", &["10.0.0.2", "10.0.0.3"], 1), 2);
    }
}
