//! Rotation of the addresses of a server.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use hearken::timer::Time;

use super::Endpoint;
use crate::proxy::servers::Endpoints;

/// The addresses of a server, used in turn.
pub(super) struct Rotation {
    addresses: Endpoints,
    turn: usize,
    /// Bit set of failed addresses, among the first 64.
    failed_addresses: u64,
    /// Time until which failed addresses are avoided.
    failed_until: Time,
}

impl Rotation {
    /// Creates a rotation without addresses that starts at position `start`.
    pub(super) fn new(start: usize) -> Rotation {
        let none = Endpoints::Inet(Arc::default());
        Rotation {
            addresses: none,
            turn: start,
            failed_addresses: 0,
            failed_until: Time::default(),
        }
    }

    pub(super) fn set_addresses(&mut self, endpoints: Endpoints) {
        let same = match (&self.addresses, &endpoints) {
            (Endpoints::Inet(old), Endpoints::Inet(new)) => Arc::ptr_eq(old, new) || old == new,
            _ => false,
        };
        if !same {
            self.failed_addresses = 0;
        }
        self.addresses = endpoints;
    }

    pub(super) fn next(&mut self, now: Time) -> Option<Endpoint> {
        let addresses = match &self.addresses {
            Endpoints::Unix(path) => return Some(Endpoint::Unix(Arc::<Path>::clone(path))),
            Endpoints::Inet(addresses) => addresses,
        };
        if self.failed_addresses != 0 && now >= self.failed_until {
            self.failed_addresses = 0;
        }
        let count = addresses.len();
        let from = self.turn.checked_rem(count)?;
        let at = (from..from + count)
            .map(|at| at % count)
            .find(|&at| at >= 64 || self.failed_addresses & 1 << at == 0)
            .unwrap_or(from);
        self.turn = at + 1;
        addresses.get(at).copied().map(Endpoint::Inet)
    }

    pub(super) fn record_failure(&mut self, addr: SocketAddr, until: Time) {
        let Endpoints::Inet(addresses) = &self.addresses else { return };
        if let Some(at) = addresses.iter().take(64).position(|&other| other == addr) {
            self.failed_addresses |= 1 << at;
            self.failed_until = until;
        }
    }
}
