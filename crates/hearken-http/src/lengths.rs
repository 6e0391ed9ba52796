//! Names told from nearly all others by their first letter and their length.

/// For each letter, whatever its case, the lengths of the names that start with it.
pub(crate) struct Lengths([u32; 32]);

impl Lengths {
    /// Those of `names`, each of which is shorter than 32 bytes.
    pub(crate) const fn of(names: &[&str]) -> Self {
        let mut lengths = [0; 32];
        let mut at = 0;
        while at < names.len() {
            let name = names[at].as_bytes();
            lengths[(name[0] & 31) as usize] |= 1 << name.len();
            at += 1;
        }
        Self(lengths)
    }

    /// Whether the name that is the first `len` bytes of `line` may be one of them.
    #[inline(always)]
    pub(crate) fn may_have(&self, line: &[u8], len: usize) -> bool {
        line.first().is_some_and(|first| self.0[usize::from(first & 31)] >> (len & 31) & 1 != 0)
    }
}
