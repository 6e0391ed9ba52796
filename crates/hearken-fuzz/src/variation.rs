//! Choices that depend on the input, so that inputs remain plain samples of the format.

use fastrand::Rng;

/// Returns a generator that is seeded with the input.
pub(crate) fn variation(bytes: &[u8]) -> Rng {
    // FNV-1a.
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    Rng::with_seed(hash)
}

/// Splits the input into pieces, as a network may.
pub(crate) fn pieces(bytes: &[u8]) -> Vec<&[u8]> {
    let mut random = variation(bytes);
    let max = [1, 4, 20, bytes.len() + 1][random.usize(..4)];
    let (mut pieces, mut rest) = (Vec::new(), bytes);
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(random.usize(1..=max).min(rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces
}
