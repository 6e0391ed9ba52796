//! The decisions of a simulation, drawn from a string of bytes.

/// The source of all decisions of a simulation: a string of bytes, continued by a seeded generator
/// or by zeros.
///
/// Zero always selects the benign alternative: no fault, the first of several. Removing bytes from
/// the end of a string, or setting them to zero, therefore simplifies what happens. A fuzzer can
/// provide the bytes.
///
/// ```
/// use hearken::io::sim::Decisions;
///
/// let mut seeded = Decisions::from_seed(7);
/// let drawn: Vec<u32> = (0..10).map(|_| seeded.below(1000)).collect();
/// let mut again = Decisions::from_bytes(seeded.consumed());
/// assert!(drawn.iter().all(|&number| number == again.below(1000)));
/// assert_eq!(again.below(1000), 0);
/// ```
#[derive(Clone, Debug)]
pub struct Decisions {
    /// The bytes known so far. Those before `position` are consumed.
    bytes: Vec<u8>,
    position: usize,
    /// State of the generator that appends bytes (SplitMix64), if there is one.
    generator: Option<u64>,
}

impl Decisions {
    /// Creates decisions from a seeded generator. The sequence of a seed never changes.
    pub fn from_seed(seed: u64) -> Decisions {
        Decisions { bytes: Vec::with_capacity(1024), position: 0, generator: Some(seed) }
    }

    /// Creates decisions from `bytes`, continued by a seeded generator.
    pub fn from_bytes_and_seed(bytes: &[u8], seed: u64) -> Decisions {
        Decisions { generator: Some(seed), ..Decisions::from_bytes(bytes) }
    }

    /// Creates decisions from `bytes`, followed by zeros.
    pub fn from_bytes(bytes: &[u8]) -> Decisions {
        Decisions { bytes: bytes.to_vec(), position: 0, generator: None }
    }

    /// Returns the bytes consumed so far. [`from_bytes`](Decisions::from_bytes) with these bytes
    /// repeats the decisions.
    pub fn consumed(&self) -> &[u8] {
        &self.bytes[..self.position.min(self.bytes.len())]
    }

    /// Returns a number below `limit`, or 0 if `limit` is 0. Consumes one byte for a limit of up to
    /// 256, two for up to 65,536, otherwise four; none for a limit of 0 or 1.
    #[inline]
    pub fn below(&mut self, limit: u32) -> u32 {
        let limit_wide = u64::from(limit);
        match limit {
            0 | 1 => 0,
            2..=256 => ((limit_wide * u64::from(self.byte())) >> 8) as u32,
            257..=65_536 => ((limit_wide * u64::from(self.word())) >> 16) as u32,
            _ => {
                let number = u64::from(self.word()) << 16 | u64::from(self.word());
                ((limit_wide * number) >> 32) as u32
            }
        }
    }

    /// Returns true with a probability of `per_mille` thousandths. Consumes two bytes, or none if
    /// the probability is 0.
    #[inline]
    pub fn chance(&mut self, per_mille: u32) -> bool {
        per_mille > 0
            && u32::from(self.word()) * 1000 >= 65_536 * (1000 - per_mille.min(1000)).max(1)
    }

    #[inline]
    fn word(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    #[inline]
    fn byte(&mut self) -> u8 {
        if self.position == self.bytes.len() {
            self.extend();
        }
        let byte = self.bytes.get(self.position).copied().unwrap_or(0);
        self.position += 1;
        byte
    }

    #[cold]
    fn extend(&mut self) {
        let Some(state) = &mut self.generator else { return };
        for _ in 0..8 {
            *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = *state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            self.bytes.extend_from_slice(&(z ^ (z >> 31)).to_le_bytes());
        }
    }
}
