//! Sixteen bytes looked at together.
//!
//! A test answers with how many bytes at the start of a block surely are of a class. It may leave
//! out members that are rare: who must know looks at the next byte in the table of `class`.

use wide::u8x16;

/// Sixteen bytes; behind those that there are, zeros, which are in no class.
#[derive(Clone, Copy)]
pub(crate) struct Block(u8x16);

/// Two blocks that follow each other.
pub(crate) struct Pair {
    pub(crate) low: Block,
    high: Block,
}

impl Block {
    /// How many bytes a block holds.
    pub(crate) const LEN: usize = 16;

    /// The block at the start of `bytes`.
    #[inline(always)]
    pub(crate) fn new(bytes: &[u8]) -> Self {
        match bytes.first_chunk() {
            Some(chunk) => Self::from(chunk),
            None => Self::short(bytes),
        }
    }

    /// The block of fewer than sixteen bytes, put together from loads that overlap.
    #[inline(always)]
    pub(crate) fn short(bytes: &[u8]) -> Self {
        let bits = 8 * bytes.len() as u32;
        let (low, high) = match (bytes.first_chunk(), bytes.last_chunk()) {
            (Some(first), Some(last)) => {
                let last = u64::from_le_bytes(*last);
                (u64::from_le_bytes(*first), last.wrapping_shr(120u32.wrapping_sub(bits)) >> 8)
            }
            _ => (tiny(bytes), 0),
        };
        Self(u8x16::from((u128::from(high) << 64 | u128::from(low)).to_le_bytes()))
    }

    /// Letters and hyphens: what nearly all field names are made of.
    #[inline(always)]
    pub(crate) fn name(self) -> usize {
        run(self.letters() | self.is(b'-'))
    }

    /// What a field value may hold, but for tabs.
    #[inline(always)]
    pub(crate) fn text(self) -> usize {
        (!self.text_lanes()).trailing_zeros() as usize
    }

    #[inline(always)]
    fn text_lanes(self) -> u32 {
        lanes(self.0.max(splat(b' ')).cmp_eq(self.0) & !self.is(0x7f))
    }

    /// Visible ASCII other than `#` and `?`.
    #[inline(always)]
    pub(crate) fn path(self) -> usize {
        run(between(self.0, b'!', b'~') & !self.is(b'#') & !self.is(b'?'))
    }

    /// Visible ASCII other than `#`.
    #[inline(always)]
    pub(crate) fn target(self) -> usize {
        run(between(self.0, b'!', b'~') & !self.is(b'#'))
    }

    /// Letters, digits, hyphens and dots.
    #[inline(always)]
    pub(crate) fn host(self) -> usize {
        run(self.letters() | between(self.0, b'-', b'9') & !self.is(b'/'))
    }

    /// How many digits there are from lane `at` on.
    #[inline(always)]
    pub(crate) fn digits_from(self, at: usize) -> usize {
        let digits = lanes(between(self.0, b'0', b'9'));
        (!digits.checked_shr(at as u32).unwrap_or_default()).trailing_zeros() as usize
    }

    #[inline(always)]
    fn letters(self) -> u8x16 {
        between(self.0 | splat(0x20), b'a', b'z')
    }

    #[inline(always)]
    fn is(self, byte: u8) -> u8x16 {
        self.0.cmp_eq(splat(byte))
    }
}

impl From<&[u8; Self::LEN]> for Block {
    #[inline(always)]
    fn from(bytes: &[u8; Self::LEN]) -> Self {
        Self(u8x16::from(*bytes))
    }
}

impl Pair {
    /// How many bytes a pair holds.
    pub(crate) const LEN: usize = 2 * Block::LEN;

    /// What a field value may hold, but for tabs.
    #[inline(always)]
    pub(crate) fn text(&self) -> usize {
        (!(self.low.text_lanes() | self.high.text_lanes() << Block::LEN)).trailing_zeros() as usize
    }
}

impl From<&[u8; Self::LEN]> for Pair {
    #[inline(always)]
    fn from(bytes: &[u8; Self::LEN]) -> Self {
        let (low, high) = bytes.split_at(Block::LEN);
        Self { low: Block::new(low), high: Block::new(high) }
    }
}

/// Up to seven bytes as a number.
#[inline(always)]
fn tiny(bytes: &[u8]) -> u64 {
    let bits = 8 * bytes.len() as u32;
    match (bytes.first_chunk(), bytes.last_chunk()) {
        (Some(first), Some(last)) => {
            let last = u64::from(u32::from_le_bytes(*last));
            u64::from(u32::from_le_bytes(*first)) | last.wrapping_shl(bits.wrapping_sub(32))
        }
        _ => bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)),
    }
}

#[inline(always)]
fn splat(byte: u8) -> u8x16 {
    u8x16::splat(byte)
}

/// The lanes that hold a byte of `low..=high`.
#[inline(always)]
fn between(block: u8x16, low: u8, high: u8) -> u8x16 {
    let above = block - splat(low);
    above.min(splat(high - low)).cmp_eq(above)
}

/// The lanes that are set, as bits.
#[inline(always)]
fn lanes(lanes: u8x16) -> u32 {
    lanes.move_mask() as u32
}

/// How many lanes at the start are set.
#[inline(always)]
fn run(block: u8x16) -> usize {
    (!lanes(block)).trailing_zeros() as usize
}
