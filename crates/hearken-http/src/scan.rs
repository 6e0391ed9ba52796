//! How far a run of bytes of one class goes, looked at a block or two at a time.

use crate::block::{Block, Pair};
use crate::class::{self, HOST, PATH, TARGET, TEXT, TOKEN};

/// Where the run of `class` that starts at `at` ends. `usual` tells how many bytes of a block surely
/// are of the class; the table decides about the one after them.
#[inline(always)]
fn run(bytes: &[u8], mut at: usize, class: u8, usual: impl Fn(Block) -> usize) -> usize {
    while let Some(rest) = bytes.get(at..) {
        let sure = usual(Block::new(rest));
        at += sure;
        if sure < Block::LEN {
            match rest.get(sure) {
                Some(&byte) if class::is(byte, class) => at += 1,
                _ => return at,
            }
        }
    }
    at
}

/// The run of [`TOKEN`] at the start of `bytes`.
#[inline]
pub(crate) fn token(bytes: &[u8]) -> usize {
    token_from(bytes, 0)
}

/// Where the run of [`TOKEN`] that starts at `at` ends.
#[inline(never)]
pub(crate) fn token_from(bytes: &[u8], at: usize) -> usize {
    run(bytes, at, TOKEN, Block::name)
}

/// The run of [`TEXT`] at the start of `bytes`.
#[inline]
pub(crate) fn text(bytes: &[u8]) -> usize {
    run(bytes, 0, TEXT, Block::text)
}

/// Where the run of [`TEXT`] that starts at `at` ends, but for tabs, which may end it too.
#[inline(always)]
pub(crate) fn plain_text_from(bytes: &[u8], at: usize) -> usize {
    let mut rest = bytes.get(at..).unwrap_or_default();
    while let Some((chunk, after)) = rest.split_first_chunk() {
        let run = Pair::from(chunk).text();
        if run < Pair::LEN {
            return bytes.len() - rest.len() + run;
        }
        rest = after;
    }
    text_near_end(bytes, bytes.len() - rest.len())
}

/// [`plain_text_from`] where less than two blocks are left.
#[inline(never)]
pub(crate) fn text_near_end(bytes: &[u8], at: usize) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    at + match Block::new(rest).text() {
        Block::LEN => Block::LEN + Block::new(rest.get(Block::LEN..).unwrap_or_default()).text(),
        run => run,
    }
}

/// Where the run of [`PATH`] that starts at `at` ends.
#[inline]
pub(crate) fn path_from(bytes: &[u8], at: usize) -> usize {
    run(bytes, at, PATH, Block::path)
}

/// Where the run of [`TARGET`] that starts at `at` ends.
#[inline]
pub(crate) fn target_from(bytes: &[u8], at: usize) -> usize {
    run(bytes, at, TARGET, Block::target)
}

/// The run of [`HOST`] at the start of `bytes`.
#[inline]
pub(crate) fn host(bytes: &[u8]) -> usize {
    host_from(bytes, 0)
}

/// Where the run of [`HOST`] that starts at `at` ends.
#[inline(never)]
pub(crate) fn host_from(bytes: &[u8], at: usize) -> usize {
    run(bytes, at, HOST, Block::host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn runs_are_those_of_the_table(
            mut bytes in proptest::collection::vec(
                prop_oneof![30 => b'a'..=b'z', 1 => any::<u8>()], 0..100),
            stop: u8,
            at in 0usize..100,
        ) {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = stop;
            }
            prop_assert_eq!(token(&bytes), class::run(&bytes, TOKEN));
            prop_assert_eq!(text(&bytes), class::run(&bytes, TEXT));
            let plain = |byte: &u8| *byte != b'\t' && class::is(*byte, TEXT);
            let plain = bytes.iter().position(|byte| !plain(byte)).unwrap_or(bytes.len());
            prop_assert_eq!(plain_text_from(&bytes, 0), plain);
            prop_assert_eq!(path_from(&bytes, 0), class::run(&bytes, PATH));
            prop_assert_eq!(target_from(&bytes, 0), class::run(&bytes, TARGET));
            prop_assert_eq!(host(&bytes), class::run(&bytes, HOST));
        }
    }
}
