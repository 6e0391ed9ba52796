//! How far a run of bytes of one class goes, looked at eight bytes at a time.

use crate::class::{self, HOST, PATH, TARGET, TEXT, TOKEN};

const ONES: u64 = u64::MAX / 255;
const HIGH: u64 = ONES * 0x80;

/// The high bit of every lane of `word` that holds a byte of `low..=high`, both ASCII.
#[inline]
fn between(word: u64, low: u8, high: u8) -> u64 {
    // Seven bits and a constant of at most 0x80 never carry into the next lane.
    let seven = word & !HIGH;
    let from_low = seven + ONES * (0x80 - u64::from(low));
    let above_high = seven + ONES * (0x7f - u64::from(high));
    from_low & !above_high & !word & HIGH
}

/// The high bit of every lane that holds an ASCII letter.
#[inline]
fn letters(word: u64) -> u64 {
    between(word | (ONES * 0x20), b'a', b'z')
}

/// The length of the run of `class` at the start of `bytes`. `usual` marks the lanes of a word
/// that are surely of the class; the table decides about the others.
#[inline]
fn run(bytes: &[u8], class: u8, usual: impl Fn(u64) -> u64) -> usize {
    let mut at = 0;
    while let Some(word) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let unusual = !usual(u64::from_le_bytes(*word)) & HIGH;
        if unusual == 0 {
            at += 8;
            continue;
        }
        at += (unusual.trailing_zeros() / 8) as usize;
        match bytes.get(at) {
            Some(&byte) if class::is(byte, class) => at += 1,
            _ => return at,
        }
    }
    at + class::run(bytes.get(at..).unwrap_or_default(), class)
}

/// The run of [`TOKEN`] at the start of `bytes`.
#[inline]
pub(crate) fn token(bytes: &[u8]) -> usize {
    run(bytes, TOKEN, |word| letters(word) | between(word, b'-', b'-'))
}

/// The run of [`TEXT`] at the start of `bytes`.
#[inline]
pub(crate) fn text(bytes: &[u8]) -> usize {
    run(bytes, TEXT, |word| between(word, b' ', b'~') | word)
}

/// The run of [`PATH`] at the start of `bytes`.
#[inline]
pub(crate) fn path(bytes: &[u8]) -> usize {
    run(bytes, PATH, visible)
}

/// The run of [`TARGET`] at the start of `bytes`.
#[inline]
pub(crate) fn target(bytes: &[u8]) -> usize {
    run(bytes, TARGET, visible)
}

/// The run of [`HOST`] at the start of `bytes`.
#[inline]
pub(crate) fn host(bytes: &[u8]) -> usize {
    run(bytes, HOST, |word| letters(word) | between(word, b'-', b'.') | between(word, b'0', b'9'))
}

/// The lanes that hold visible ASCII other than `#` and `?`.
#[inline]
fn visible(word: u64) -> u64 {
    between(word, b'!', b'~') & !between(word, b'#', b'#') & !between(word, b'?', b'?')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn runs_are_those_of_the_table(
            mut bytes in proptest::collection::vec(
                prop_oneof![9 => b'a'..=b'z', 1 => any::<u8>()], 0..40),
            stop: u8,
            at in 0usize..40,
        ) {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = stop;
            }
            prop_assert_eq!(token(&bytes), class::run(&bytes, TOKEN));
            prop_assert_eq!(text(&bytes), class::run(&bytes, TEXT));
            prop_assert_eq!(path(&bytes), class::run(&bytes, PATH));
            prop_assert_eq!(target(&bytes), class::run(&bytes, TARGET));
            prop_assert_eq!(host(&bytes), class::run(&bytes, HOST));
        }
    }
}
