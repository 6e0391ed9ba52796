//! Which of a server's addresses the next connection goes to.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use hearken::timer::Time;

use super::Where;
use crate::proxy::servers::Places;

/// A server's addresses, each in turn.
pub(super) struct Rotation {
    places: Places,
    turn: usize,
    /// Those of the first 64 that failed.
    failed: u64,
    /// Until when these come last.
    until: Time,
}

impl Rotation {
    /// Without addresses; `start` is where it begins.
    pub(super) fn new(start: usize) -> Rotation {
        let none = Places::Inet(Arc::default());
        Rotation { places: none, turn: start, failed: 0, until: Time::default() }
    }

    pub(super) fn renew(&mut self, places: Places) {
        let same = match (&self.places, &places) {
            (Places::Inet(old), Places::Inet(new)) => Arc::ptr_eq(old, new) || old == new,
            _ => false,
        };
        if !same {
            self.failed = 0;
        }
        self.places = places;
    }

    pub(super) fn next(&mut self, now: Time) -> Option<Where> {
        let addresses = match &self.places {
            Places::Unix(path) => return Some(Where::Unix(Arc::<Path>::clone(path))),
            Places::Inet(addresses) => addresses,
        };
        if self.failed != 0 && now >= self.until {
            self.failed = 0;
        }
        let count = addresses.len();
        let from = self.turn.checked_rem(count)?;
        let at = (from..from + count)
            .map(|at| at % count)
            .find(|&at| at >= 64 || self.failed & 1 << at == 0)
            .unwrap_or(from);
        self.turn = at + 1;
        addresses.get(at).copied().map(Where::Inet)
    }

    pub(super) fn failed(&mut self, addr: SocketAddr, until: Time) {
        let Places::Inet(addresses) = &self.places else { return };
        if let Some(at) = addresses.iter().take(64).position(|&other| other == addr) {
            self.failed |= 1 << at;
            self.until = until;
        }
    }
}
