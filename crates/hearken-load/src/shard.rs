//! Shards: the parts of a load, one per thread and process.

/// One of `count` equal parts of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shard {
    /// Index of the shard, from 0.
    pub(crate) index: u64,
    pub(crate) count: u64,
}

impl Shard {
    /// The only shard.
    #[cfg(test)]
    pub(crate) const ALL: Shard = Shard { index: 0, count: 1 };

    /// Returns the shard's part of `whole` indivisible items. The parts of all shards add up to
    /// `whole`.
    pub(crate) fn share_of(self, total: usize) -> usize {
        self.share_of_count(total as u64) as usize
    }

    /// Returns the shard's part of a number that may exceed the address space, as
    /// [`share_of`](Shard::share_of) does.
    pub(crate) fn share_of_count(self, total: u64) -> u64 {
        total / self.count + u64::from(self.index < total % self.count)
    }

    /// Derives a seed that differs between shards.
    pub(crate) fn derive_seed(self, seed: u64) -> u64 {
        seed ^ self.index.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
}
