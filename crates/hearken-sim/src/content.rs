//! Contents of bodies: sections of one random sequence, so that a misplaced byte is noticed.

use std::sync::LazyLock;

/// Period of the sequence in bytes.
pub const PERIOD: usize = 1 << 16;

/// The sequence, twice, so that a section up to its period is contiguous.
static SEQUENCE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut bytes: Vec<u8> = (0..PERIOD)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect();
    bytes.extend_from_within(..);
    bytes
});

/// Returns whether the content that starts at `phase` in the sequence has `bytes` at `offset`.
pub fn contains(phase: usize, mut offset: u64, bytes: &[u8]) -> bool {
    bytes.chunks(PERIOD).all(|piece| {
        let start = (phase + (offset % PERIOD as u64) as usize) % PERIOD;
        offset += piece.len() as u64;
        SEQUENCE[start..start + piece.len()] == *piece
    })
}

/// Appends the first `length` bytes of the content that starts at `phase`.
pub fn append(phase: usize, length: u64, out: &mut Vec<u8>) {
    let end = out.len() + length as usize;
    let mut start = phase % PERIOD;
    while out.len() < end {
        let count = (end - out.len()).min(PERIOD);
        out.extend_from_slice(&SEQUENCE[start..start + count]);
        start = (start + count) % PERIOD;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_recognised_at_their_position_only() {
        let mut content = Vec::new();
        append(7, 200_000, &mut content);
        assert_eq!(content.len(), 200_000);
        assert!(contains(7, 0, &content) && contains(7, 70_000, &content[70_000..150_000]));
        assert!(!contains(7, 1, &content[..8]) && !contains(8, 0, &content[..8]));
    }
}
