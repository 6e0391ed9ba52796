//! The Huffman code of RFC 7541 appendix B.

/// Number of bits that select an entry of [`PAIRS`].
const PAIR_BITS: u32 = 12;
/// Maximum length of a code in bits.
const MAX_CODE_BITS: usize = 30;
/// The symbol that must not occur. Its first bits pad the last byte.
const END: usize = 256;

/// The length of the code of each symbol in bits. The code is canonical, so the lengths determine it.
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, //
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28, //
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, //
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, //
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, //
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, //
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, //
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, //
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, //
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, //
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, //
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, //
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, //
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, //
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, //
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, //
    30,
];

/// The canonical code: symbols in the order of their codes, and the codes of each length.
struct Code {
    symbols: [u16; 257],
    /// The first code of each length, the number of codes, and the position of the first symbol.
    lengths: [(u32, u32, u32); MAX_CODE_BITS + 1],
    /// The code of each symbol in the upper bits, and its length in the lower eight bits.
    codes: [u64; 257],
}

static CODE: Code = build();

const fn build() -> Code {
    let mut code =
        Code { symbols: [0; 257], lengths: [(0, 0, 0); MAX_CODE_BITS + 1], codes: [0; 257] };
    let (mut next, mut position, mut length) = (0u32, 0, 1);
    while length <= MAX_CODE_BITS {
        next <<= 1;
        code.lengths[length] = (next, 0, position as u32);
        let mut symbol = 0;
        while symbol < LENGTHS.len() {
            if LENGTHS[symbol] as usize == length {
                code.symbols[position] = symbol as u16;
                code.codes[symbol] = (next as u64) << 8 | length as u64;
                code.lengths[length].1 += 1;
                position += 1;
                next += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    code
}

/// The symbols that the next bits start with: up to two symbols in the lower 16 bits, the number of their
/// bits from bit 16 on, and the number of symbols from bit 24 on. The number is 0 if the first code is
/// longer.
static PAIRS: [u32; 1 << PAIR_BITS] = build_pairs();

const fn build_pairs() -> [u32; 1 << PAIR_BITS] {
    let code = build();
    let mut pairs = [0; 1 << PAIR_BITS];
    let mut bits = 0;
    while bits < pairs.len() {
        let (first, first_len) = short_symbol(&code, bits as u32, PAIR_BITS);
        if first_len > 0 {
            let left = PAIR_BITS - first_len;
            let rest = bits as u32 & ((1 << left) - 1);
            let (second, second_len) = short_symbol(&code, rest, left);
            let count = if second_len > 0 { 2 } else { 1 };
            pairs[bits] = first | second << 8 | (first_len + second_len) << 16 | count << 24;
        }
        bits += 1;
    }
    pairs
}

/// Returns the symbol that `count` bits start with and the length of its code, or zeros if it is longer.
const fn short_symbol(code: &Code, bits: u32, count: u32) -> (u32, u32) {
    let mut length = 5;
    while length <= count {
        let (first, codes, position) = code.lengths[length as usize];
        let value = bits >> (count - length);
        if value >= first && value - first < codes {
            return (code.symbols[(position + value - first) as usize] as u32, length);
        }
        length += 1;
    }
    (0, 0)
}

/// A string that is not encoded as RFC 7541 section 5.2 requires.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InvalidCode;

/// Appends the decoded form of `bytes` to `out`. On errors, `out` contains a part of it.
pub(super) fn decode(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), InvalidCode> {
    out.reserve(bytes.len() * 8 / 5 + 8);
    // Number of bits that are decoded.
    let mut at = 0;
    while let Some(chunk) = bytes.get(at / 8..).unwrap_or_default().first_chunk() {
        // At least 57 bits, enough for four pairs.
        let mut window = u64::from_be_bytes(*chunk) << (at % 8);
        let (mut symbols, mut shift) = (0u64, 0);
        for _ in 0..4 {
            let pair = PAIRS[(window >> (64 - PAIR_BITS)) as usize];
            symbols |= u64::from(pair & 0xffff) << shift;
            shift += pair >> 24 << 3;
            let len = pair >> 16 & 0xff;
            window <<= len;
            at += len as usize;
        }
        let end = out.len() + shift as usize / 8;
        out.extend_from_slice(&symbols.to_le_bytes());
        out.truncate(end);
        if shift == 0 {
            let (symbol, len) = long_symbol(window)?;
            out.push(symbol);
            at += len as usize;
        }
    }
    decode_tail(bytes, at, out)
}

/// Decodes the bits from position `at` on, which belong to fewer than eight bytes.
#[inline(always)]
fn decode_tail(bytes: &[u8], at: usize, out: &mut Vec<u8>) -> Result<(), InvalidCode> {
    let mut left = (8 * bytes.len()).checked_sub(at).ok_or(InvalidCode)? as u32;
    if left == 0 {
        return Ok(());
    }
    // Inverted bits, so that ones follow the input, as they pad a valid string.
    let mut inverted = !match bytes.last_chunk() {
        Some(last) => u64::from_be_bytes(*last) << (64 - left),
        None => {
            let number = bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte));
            number << (64 - left)
        }
    };
    inverted &= !(u64::MAX >> left);
    while left > 0 {
        let pair = PAIRS[(!inverted >> (64 - PAIR_BITS)) as usize];
        let (count, mut len) = (pair >> 24, pair >> 16 & 0xff);
        if count == 0 {
            if left < 8 && inverted == 0 {
                return Ok(());
            }
            let (symbol, long) = long_symbol(!inverted)?;
            out.push(symbol);
            len = long;
        } else {
            out.extend_from_slice(&(pair as u16).to_le_bytes());
            out.truncate(out.len() - 2 + count as usize);
        }
        left = left.checked_sub(len).ok_or(InvalidCode)?;
        inverted <<= len;
    }
    Ok(())
}

/// Returns the symbol at the start of `window`, whose code is too long for [`PAIRS`], and the length of the
/// code.
#[cold]
#[inline(never)]
fn long_symbol(window: u64) -> Result<(u8, u32), InvalidCode> {
    for (length, (first, codes, position)) in CODE.lengths.iter().enumerate().skip(5) {
        let value = (window >> (64 - length)) as u32;
        if let Some(offset) = value.checked_sub(*first)
            && offset < *codes
        {
            let symbol = CODE.symbols.get((position + offset) as usize).copied();
            return match symbol.map(u8::try_from) {
                Some(Ok(symbol)) => Ok((symbol, length as u32)),
                _ => Err(InvalidCode),
            };
        }
    }
    Err(InvalidCode)
}

/// Returns the length of the encoded form in bytes.
#[inline]
pub(super) fn encoded_len(bytes: &[u8]) -> usize {
    let bits: usize = bytes.iter().map(|&byte| usize::from(LENGTHS[usize::from(byte)])).sum();
    bits.div_ceil(8)
}

/// Appends the encoded form of `bytes` to `out`.
#[inline]
pub(super) fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    let (mut window, mut used) = (0u64, 0);
    for &byte in bytes {
        let code = CODE.codes[usize::from(byte)];
        let length = code & 0xff;
        window = window << length | code >> 8;
        used += length;
        if used >= 32 {
            used -= 32;
            out.extend_from_slice(&((window >> used) as u32).to_be_bytes());
        }
    }
    // The last byte is padded with the first bits of the symbol `END`, all ones.
    let padding = (8 - used % 8) % 8;
    window = window << padding | ((1 << padding) - 1);
    used += padding;
    while used > 0 {
        used -= 8;
        out.push((window >> used) as u8);
    }
}

const _: () = assert!(LENGTHS[END] as usize == MAX_CODE_BITS);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(bytes: &[u8]) -> Result<Vec<u8>, InvalidCode> {
        let mut out = Vec::new();
        decode(bytes, &mut out).map(|()| out)
    }

    /// Decodes bit by bit.
    fn reference(bytes: &[u8]) -> Result<Vec<u8>, InvalidCode> {
        let bits = bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1));
        let (mut out, mut code, mut length) = (Vec::new(), 0u64, 0);
        for bit in bits {
            (code, length) = (code << 1 | u64::from(bit), length + 1);
            let found = (0..=END).find(|&symbol| CODE.codes[symbol] == code << 8 | length);
            match found {
                Some(END) => return Err(InvalidCode),
                Some(symbol) => {
                    out.push(symbol as u8);
                    (code, length) = (0, 0);
                }
                None => {}
            }
        }
        if length < 8 && code == (1 << length) - 1 { Ok(out) } else { Err(InvalidCode) }
    }

    #[test]
    fn decodes_the_examples_of_the_standard() {
        let host = [0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff];
        assert_eq!(decoded(&host).unwrap(), b"www.example.com");
        assert_eq!(decoded(&[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf]).unwrap(), b"no-cache");
    }

    proptest! {
        #[test]
        fn strings_survive_coding(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let mut coded = Vec::new();
            encode(&bytes, &mut coded);
            prop_assert_eq!(coded.len(), encoded_len(&bytes));
            prop_assert_eq!(decoded(&coded), Ok(bytes));
        }

        #[test]
        fn text_survives_coding(text in "[ -~]{0,80}") {
            let mut coded = Vec::new();
            encode(text.as_bytes(), &mut coded);
            prop_assert_eq!(decoded(&coded), Ok(text.into_bytes()));
        }

        #[test]
        fn arbitrary_bytes_are_decoded_as_by_the_reference(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..40),
            ones in 0usize..6,
        ) {
            bytes.extend([0xff].repeat(ones));
            prop_assert_eq!(decoded(&bytes), reference(&bytes));
        }
    }
}
