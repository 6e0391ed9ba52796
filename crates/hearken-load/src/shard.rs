//! What part of a load one maker of it has: a thread, or a thread of one machine of several.

/// One of so many equal shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shard {
    /// Which, from 0.
    pub(crate) index: u64,
    pub(crate) count: u64,
}

impl Shard {
    /// The whole.
    #[cfg(test)]
    pub(crate) const ALL: Shard = Shard { index: 0, count: 1 };

    /// Its part of things that cannot be divided; all parts together are the whole.
    pub(crate) fn share_of(self, whole: usize) -> usize {
        let (of, index) = (usize::try_from(self.count).unwrap_or(usize::MAX), self.index as usize);
        whole / of + usize::from(index < whole % of)
    }

    /// What it draws from, if all draw from this: others than the others.
    pub(crate) fn derive_seed(self, seed: u64) -> u64 {
        seed ^ self.index.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
}
