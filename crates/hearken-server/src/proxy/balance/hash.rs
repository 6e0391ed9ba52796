//! Hash functions and random numbers for load balancing.

const A: u64 = 0x9e37_79b9_7f4a_7c15;
const B: u64 = 0xd6e8_feb8_6659_fd93;
const C: u64 = 0xa076_1d64_78bd_642f;

/// Computes a fast hash that is the same on every machine. It has no secret key, so clients that
/// choose the hashed value can choose the server.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut state = A;
    for word in words {
        state = fold(state ^ u64::from_le_bytes(*word), B);
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    state = fold(state ^ u64::from_le_bytes(last), C);
    mix(state ^ bytes.len() as u64)
}

/// Returns the next random number (wyrand by Wang Yi).
pub(super) fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(C);
    fold(*state, *state ^ B)
}

/// Returns a random number less than `bound`, which is not 0 (method of Lemire, without rejection).
pub(in crate::proxy) fn below(state: &mut u64, bound: u64) -> u64 {
    ((u128::from(random(state)) * u128::from(bound)) >> 64) as u64
}

/// Mixes all bits (finaliser of MurmurHash3).
#[inline]
pub(in crate::proxy) fn mix(mut value: u64) -> u64 {
    value = (value ^ value >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    value = (value ^ value >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    value ^ value >> 33
}

/// Combines both halves of the 128-bit product.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}
