//! Local addresses to connect from. One has ports for some 28,000 connections to a server; all of
//! 127.0.0.0/8 is this host, so that on loopback more can be had for nothing.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use hearken::Token;
use hearken::io::{Address, Io};

use crate::failure::Failure;
use crate::shard::Shard;

/// How many connections an address is planned for. The kernel tries every other port first, and all
/// of those again for each connection once they are taken: fewer than half of the ports.
const CONNECTIONS_PER_ADDRESS: usize = 12_000;

/// How many other addresses are tried before a connection is given up.
const MAX_RETRIES: usize = 4;

/// The addresses, of which a few are used in turn until their ports run short.
#[derive(Clone, Debug)]
pub(crate) struct SourceAddresses {
    /// `None` leaves the choice to the kernel.
    all: Vec<Option<SocketAddr>>,
    /// How many are used in turn, beginning with which.
    used_count: usize,
    first: usize,
    position: usize,
}

impl SourceAddresses {
    /// For `connections` to `target` at a time, from the addresses that are `given`, if any.
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

    /// For a thread that has so many at a time: others than the next one's, as long as there are
    /// others.
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

    /// Begins to connect to `target`, from other addresses if no port is left.
    pub(crate) fn connect(&mut self, io: &mut impl Io, target: SocketAddr) -> io::Result<Token> {
        let target = Address::Inet(target);
        let mut result = io.connect(&target, self.next());
        // Not all of them: the kernel looks long before it finds that none is left.
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

/// How many of `all` addresses so many connections take.
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
    fn threads_have_their_own() {
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
    fn as_many_as_are_needed() {
        assert_eq!(distinct("127.0.0.1", &[], 0), 1);
        assert_eq!(distinct("127.0.0.1", &[], 12_000), 1);
        assert_eq!(distinct("127.0.0.1", &[], 12_001), 2);
        assert_eq!(distinct("127.0.0.1", &[], usize::MAX), 254);
        assert_eq!(distinct("10.0.0.1", &[], 100_000), 1);
        assert_eq!(distinct("::1", &[], 100_000), 1);
        assert_eq!(distinct("10.0.0.1", &["10.0.0.2", "10.0.0.3"], 1), 2);
    }
}
