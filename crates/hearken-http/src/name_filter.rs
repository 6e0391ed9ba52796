//! Fast filter for field names by first letter and length.

/// The lengths of the names in a set, for each first letter in any case.
pub(crate) struct NameFilter([u32; 32]);

impl NameFilter {
    /// Creates a filter for `names`, each shorter than 32 bytes.
    pub(crate) const fn new(names: &[&str]) -> Self {
        let mut lengths = [0; 32];
        let mut at = 0;
        while at < names.len() {
            let name = names[at].as_bytes();
            lengths[(name[0] & 31) as usize] |= 1 << name.len();
            at += 1;
        }
        Self(lengths)
    }

    /// Returns whether the first `len` bytes of `line` may be a name in the set.
    #[inline(always)]
    pub(crate) fn may_contain(&self, line: &[u8], len: usize) -> bool {
        line.first().is_some_and(|first| self.0[usize::from(first & 31)] >> (len & 31) & 1 != 0)
    }
}
