//! Integers of RFC 7541 section 5.1.

use super::HpackError;

/// Maximum number of bytes after the prefix.
const MAX_BYTES: usize = 4;

/// Decodes an integer whose first byte, `first`, has a prefix of `bits` bits. Returns the value and the
/// bytes after it.
#[inline(always)]
pub(super) fn decode(first: u8, bits: u32, rest: &[u8]) -> Result<(usize, &[u8]), HpackError> {
    let max = (1 << bits) - 1;
    let prefix = first & max as u8;
    if usize::from(prefix) < max {
        return Ok((prefix.into(), rest));
    }
    match rest {
        [byte @ ..0x80, rest @ ..] => Ok((max + usize::from(*byte), rest)),
        _ => decode_long(max, rest),
    }
}

#[cold]
#[inline(never)]
fn decode_long(prefix: usize, rest: &[u8]) -> Result<(usize, &[u8]), HpackError> {
    let mut value = prefix;
    for (at, byte) in rest.iter().enumerate().take(MAX_BYTES) {
        value += usize::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Ok((value, rest.get(at + 1..).unwrap_or_default()));
        }
    }
    Err(match rest.len() {
        0..MAX_BYTES => HpackError("incomplete integer in a field block"),
        _ => HpackError("integer in a field block is too large"),
    })
}

/// Appends an integer with a prefix of `bits` bits. `first` contains the other bits of the first byte.
#[inline(always)]
pub(super) fn encode(out: &mut Vec<u8>, first: u8, bits: u32, value: usize) {
    let max = (1 << bits) - 1;
    if value < max {
        return out.push(first | value as u8);
    }
    match value - max {
        rest @ ..0x80 => out.extend_from_slice(&[first | max as u8, rest as u8]),
        _ => encode_long(out, first, max, value),
    }
}

#[inline(never)]
fn encode_long(out: &mut Vec<u8>, first: u8, max: usize, value: usize) {
    out.push(first | max as u8);
    let mut value = value - max;
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 7541 appendix C.1.
    #[test]
    fn coding_is_that_of_the_standard() {
        for (value, bits, coded) in
            [(10, 5, &[0x0a][..]), (1337, 5, &[0x1f, 0x9a, 0x0a]), (42, 8, &[0x2a])]
        {
            let mut out = Vec::new();
            encode(&mut out, 0, bits, value);
            assert_eq!(out, coded);
            assert_eq!(decode(coded[0], bits, &coded[1..]), Ok((value, &[][..])));
        }
    }

    #[test]
    fn incomplete_and_large_integers_are_errors() {
        assert!(decode(0x1f, 5, &[]).is_err());
        assert!(decode(0x1f, 5, &[0x80, 0x80]).is_err());
        assert!(decode(0x1f, 5, &[0x80, 0x80, 0x80, 0x80, 0x01]).is_err());
        assert_eq!(
            decode(0x1f, 5, &[0xff, 0xff, 0xff, 0x7f, 9]),
            Ok((31 + (1 << 28) - 1, &[9][..]))
        );
    }
}
