//! Classification of sixteen bytes at a time with SIMD.
//!
//! Each test returns the number of leading bytes in a block that belong to a class. Tests may omit rare
//! members of a class, so callers look up the next byte in the table of `class`.

use wide::u8x16;

/// A block of sixteen bytes. A short block is padded with zeros, which belong to no class.
#[derive(Clone, Copy)]
pub(crate) struct Block(u8x16);

/// A pair of adjacent blocks.
pub(crate) struct Pair {
    pub(crate) low: Block,
    high: Block,
}

impl Block {
    /// Size of a block in bytes.
    pub(crate) const LEN: usize = 16;

    /// Returns the block at the start of `bytes`.
    #[inline(always)]
    pub(crate) fn new(bytes: &[u8]) -> Self {
        match bytes.first_chunk() {
            Some(chunk) => Self::from(chunk),
            None => Self::from_short(bytes),
        }
    }

    /// Returns the block of fewer than sixteen bytes, assembled from overlapping loads.
    #[inline(always)]
    pub(crate) fn from_short(bytes: &[u8]) -> Self {
        let bits = 8 * bytes.len() as u32;
        let (low, high) = match (bytes.first_chunk(), bytes.last_chunk()) {
            (Some(first), Some(last)) => {
                let last = u64::from_le_bytes(*last);
                (u64::from_le_bytes(*first), last.wrapping_shr(120u32.wrapping_sub(bits)) >> 8)
            }
            _ => (load_up_to_7(bytes), 0),
        };
        Self(u8x16::from((u128::from(high) << 64 | u128::from(low)).to_le_bytes()))
    }

    /// Returns the number of leading letters and hyphens, the bytes of nearly all field names.
    #[inline(always)]
    pub(crate) fn name_prefix(self) -> usize {
        leading_lanes(self.alphabetic_lanes() | self.equal_lanes(b'-'))
    }

    /// Returns the number of leading lowercase letters and hyphens.
    #[inline(always)]
    pub(crate) fn lowercase_name_prefix(self) -> usize {
        leading_lanes(between(self.0, b'a', b'z') | self.equal_lanes(b'-'))
    }

    /// Returns the number of leading bytes that a field value may contain, tabs excluded.
    #[inline(always)]
    pub(crate) fn text_prefix(self) -> usize {
        (!self.text_lanes()).trailing_zeros() as usize
    }

    /// Returns whether a field value may contain all bytes of a complete block, tabs excluded.
    #[inline(always)]
    pub(crate) fn is_text(self) -> bool {
        self.text_lanes() == 0xffff
    }

    #[inline(always)]
    fn text_lanes(self) -> u32 {
        bit_mask(self.0.max(splat(b' ')).cmp_eq(self.0) & !self.equal_lanes(0x7f))
    }

    /// Returns the number of leading visible ASCII bytes other than `#` and `?`.
    #[inline(always)]
    pub(crate) fn path_prefix(self) -> usize {
        leading_lanes(
            between(self.0, b'!', b'~') & !self.equal_lanes(b'#') & !self.equal_lanes(b'?'),
        )
    }

    /// Returns the number of leading visible ASCII bytes other than `#`.
    #[inline(always)]
    pub(crate) fn target_prefix(self) -> usize {
        leading_lanes(between(self.0, b'!', b'~') & !self.equal_lanes(b'#'))
    }

    /// Returns the number of leading letters, digits, hyphens and dots.
    #[inline(always)]
    pub(crate) fn host_prefix(self) -> usize {
        leading_lanes(
            self.alphabetic_lanes() | between(self.0, b'-', b'9') & !self.equal_lanes(b'/'),
        )
    }

    /// Returns the number of consecutive digits starting at lane `at`.
    #[inline(always)]
    pub(crate) fn digits_from(self, at: usize) -> usize {
        let digits = bit_mask(between(self.0, b'0', b'9'));
        (!digits.checked_shr(at as u32).unwrap_or_default()).trailing_zeros() as usize
    }

    #[inline(always)]
    fn alphabetic_lanes(self) -> u8x16 {
        between(self.0 | splat(0x20), b'a', b'z')
    }

    #[inline(always)]
    fn equal_lanes(self, byte: u8) -> u8x16 {
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
    /// Size of a pair in bytes.
    pub(crate) const LEN: usize = 2 * Block::LEN;

    /// Returns the number of leading bytes that a field value may contain, tabs excluded.
    #[inline(always)]
    pub(crate) fn text_prefix(&self) -> usize {
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

/// Loads up to seven bytes as a little-endian number.
#[inline(always)]
fn load_up_to_7(bytes: &[u8]) -> u64 {
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

/// Returns a mask of the lanes that contain a byte in `low..=high`.
#[inline(always)]
fn between(block: u8x16, low: u8, high: u8) -> u8x16 {
    let above = block - splat(low);
    above.min(splat(high - low)).cmp_eq(above)
}

/// Converts a lane mask to one bit per lane.
#[inline(always)]
fn bit_mask(lanes: u8x16) -> u32 {
    lanes.move_mask() as u32
}

/// Returns the number of leading lanes that are set.
#[inline(always)]
fn leading_lanes(block: u8x16) -> usize {
    (!bit_mask(block)).trailing_zeros() as usize
}
