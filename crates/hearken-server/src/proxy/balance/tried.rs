//! The set of servers on which a request was tried.

/// A set of servers as 64 bits. It is exact for the first 64 servers. Further servers share their
/// bits, so a server may count as tried although it was not.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TriedServers(u64);

impl TriedServers {
    /// Adds a server.
    #[inline]
    pub fn insert(&mut self, server: usize) {
        self.0 |= 1 << (server % 64);
    }

    /// Returns whether the server, or one with the same bit, was added.
    #[inline]
    pub fn contains(self, server: usize) -> bool {
        self.0 & 1 << (server % 64) != 0
    }

    /// Returns whether the set is empty.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}
