//! Local addresses to connect from. One address has ports for about 28,000 connections to a server.
//! On loopback, all addresses of 127.0.0.0/8 are local and can be used in addition.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use hearken::Token;
use hearken::io::{Address, ConnectOptions, Io};

use crate::failure::Failure;
use crate::shard::Shard;

/// Number of successive connections from one address, relative to its ports: a little less than
/// half. The kernel first tries every other port. Once these are taken, it tries all ports for each
/// further connection. Ports stay taken for 60 s after a connection was closed, so the number of
/// connections counts, not the number of open ones.
const CONNECTIONS_PER_PORT: f64 = 0.49;

/// Maximum number of other addresses to try before a connection fails.
const MAX_RETRIES: usize = 4;

/// Local addresses, used in turn.
#[derive(Clone, Debug)]
pub(crate) struct SourceAddresses {
    /// All addresses. `None` leaves the choice to the kernel.
    all: Arc<[Option<SocketAddr>]>,
    /// Number of successive connections from the same address.
    run_length: usize,
    /// Index of the current address, and number of connections from it.
    position: usize,
    used: usize,
}

impl SourceAddresses {
    /// Creates the addresses for connections to `target`, with this number of ports each, from the
    /// addresses `given` if there are any.
    pub(crate) fn new(target: IpAddr, given: &[IpAddr], ports: usize) -> SourceAddresses {
        let in_succession = ((ports as f64 * CONNECTIONS_PER_PORT) as usize).max(1);
        let any_port = |ip: IpAddr| Some(SocketAddr::new(ip, 0));
        let (all, run_length): (Vec<_>, _) = match target {
            _ if !given.is_empty() => (given.iter().copied().map(any_port).collect(), 1),
            IpAddr::V4(target) if target.is_loopback() => {
                let more = (2..=254).map(|last| IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)));
                let all = std::iter::once(None).chain(more.map(any_port)).collect();
                (all, in_succession)
            }
            _ => (vec![None], in_succession),
        };
        SourceAddresses { all: all.into(), run_length, position: 0, used: 0 }
    }

    /// Returns no addresses, for connections to a Unix socket.
    pub(crate) fn none() -> SourceAddresses {
        SourceAddresses { all: [None].into(), run_length: 1, position: 0, used: 0 }
    }

    /// Returns the addresses of a thread. Threads begin with different addresses as far as possible.
    pub(crate) fn for_thread(&self, share: Shard) -> SourceAddresses {
        let count = usize::try_from(share.count).unwrap_or(usize::MAX).max(1);
        let distance = (self.all.len() / count).max(1);
        let position = (share.index as usize).saturating_mul(distance) % self.all.len();
        SourceAddresses { all: self.all.clone(), position, ..*self }
    }

    /// Returns the number of addresses.
    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    fn next(&mut self) -> Option<SocketAddr> {
        if self.used == self.run_length {
            self.advance();
        }
        self.used += 1;
        self.all[self.position]
    }

    fn advance(&mut self) {
        self.position = (self.position + 1) % self.all.len();
        self.used = 0;
    }

    /// Starts to connect to `target`. Tries other source addresses if no port is available.
    pub(crate) fn connect(
        &mut self,
        io: &mut impl Io,
        target: &Address,
        mut options: ConnectOptions,
    ) -> io::Result<Token> {
        options.source = self.next();
        let mut result = io.connect_with(target, &options);
        // Limit the attempts: the kernel takes long to find that no port is available.
        for _ in 0..MAX_RETRIES.min(self.all.len() - 1) {
            match &result {
                Err(error) if Failure::from_error(error) == Failure::AddrUnavail => {}
                _ => break,
            }
            self.advance();
            options.source = self.next();
            result = io.connect_with(target, &options);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::IpAddr;

    use super::SourceAddresses;
    use crate::shard::Shard;

    fn addresses(target: &str, given: &[&str]) -> SourceAddresses {
        let given: Vec<IpAddr> = given.iter().map(|ip| ip.parse().unwrap()).collect();
        SourceAddresses::new(target.parse().unwrap(), &given, 24_500)
    }

    fn distinct(mut sources: SourceAddresses, connections: usize) -> usize {
        (0..connections).map(|_| sources.next()).collect::<BTreeSet<_>>().len()
    }

    #[test]
    fn the_next_address_is_used_before_ports_run_out() {
        let loopback = || addresses("127.0.0.1", &[]);
        assert_eq!(distinct(loopback(), 12_005), 1);
        assert_eq!(distinct(loopback(), 12_006), 2);
        // A minute at 20,000 connections per second: the ports of closed connections stay taken.
        assert_eq!(distinct(loopback(), 1_200_000), 100);
        assert_eq!(distinct(loopback(), 4_000_000), 254);
        assert_eq!(distinct(addresses("10.0.0.1", &[]), 100_000), 1);
        assert_eq!(distinct(addresses("::1", &[]), 100_000), 1);
        assert_eq!(distinct(addresses("10.0.0.1", &["10.0.0.2", "10.0.0.3"]), 2), 2);
    }

    #[test]
    fn threads_use_different_addresses() {
        let sources = addresses("127.0.0.1", &[]);
        let of = |index| {
            let mut sources = sources.for_thread(Shard { index, count: 50 });
            (0..60_000).map(|_| sources.next()).collect::<BTreeSet<_>>()
        };
        let all: Vec<_> = (0..50).flat_map(of).collect();
        assert_eq!((all.len(), all.iter().collect::<BTreeSet<_>>().len()), (250, 250));
    }
}
