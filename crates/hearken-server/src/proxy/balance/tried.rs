//! Which servers a request was tried on.

/// A small set of servers. Exact for the first 64; those beyond share places with these, so that one
/// may count as tried that was not.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tried(u64);

impl Tried {
    /// Adds one.
    #[inline]
    pub fn insert(&mut self, server: usize) {
        self.0 |= 1 << (server % 64);
    }

    /// Whether it was tried, or one that shares its place.
    #[inline]
    pub fn contains(self, server: usize) -> bool {
        self.0 & 1 << (server % 64) != 0
    }

    /// Whether none was tried.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}
