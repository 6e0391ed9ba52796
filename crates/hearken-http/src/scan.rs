//! Search for the end of a run of bytes in one class, one or two blocks at a time.

use crate::block::{Block, Pair};
use crate::class::{self, HOST, LOWERCASE_TOKEN, PATH, TARGET, TEXT, TOKEN};

/// Returns the end of the run of `class` that starts at `at`.
///
/// `prefix` returns how many leading bytes of a block certainly belong to the class. The table decides
/// about the byte after them.
#[inline(always)]
fn run_end(bytes: &[u8], mut at: usize, class: u8, prefix: impl Fn(Block) -> usize) -> usize {
    while let Some(rest) = bytes.get(at..) {
        let len = prefix(Block::new(rest));
        at += len;
        if len < Block::LEN {
            match rest.get(len) {
                Some(&byte) if class::is(byte, class) => at += 1,
                _ => return at,
            }
        }
    }
    at
}

/// Returns the length of the run of [`TOKEN`] at the start of `bytes`.
#[inline]
pub(crate) fn token_len(bytes: &[u8]) -> usize {
    token_end(bytes, 0)
}

/// Returns the end of the run of [`TOKEN`] that starts at `at`.
#[inline(never)]
pub(crate) fn token_end(bytes: &[u8], at: usize) -> usize {
    run_end(bytes, at, TOKEN, Block::name_prefix)
}

/// Returns the length of the run of [`LOWERCASE_TOKEN`] at the start of `bytes`.
#[inline]
pub(crate) fn lowercase_token_len(bytes: &[u8]) -> usize {
    run_end(bytes, 0, LOWERCASE_TOKEN, Block::lowercase_name_prefix)
}

/// Returns the length of the run of [`TEXT`] at the start of `bytes`.
#[inline]
pub(crate) fn text_len(bytes: &[u8]) -> usize {
    run_end(bytes, 0, TEXT, Block::text_prefix)
}

/// Returns whether all bytes belong to [`TEXT`].
#[inline(always)]
pub(crate) fn is_text(bytes: &[u8]) -> bool {
    // The last block overlaps with the one before it.
    let is_plain = match bytes.last_chunk() {
        Some(last) => {
            let (blocks, _) = bytes.as_chunks::<{ Block::LEN }>();
            Block::from(last).is_text() && blocks.iter().all(|block| Block::from(block).is_text())
        }
        None => Block::from_short(bytes).text_prefix() >= bytes.len(),
    };
    is_plain || is_text_with_tabs(bytes)
}

#[cold]
#[inline(never)]
fn is_text_with_tabs(bytes: &[u8]) -> bool {
    text_len(bytes) == bytes.len()
}

/// Returns the end of the run of [`TEXT`] that starts at `at`. A tab may end the run too.
#[inline(always)]
pub(crate) fn plain_text_end(bytes: &[u8], at: usize) -> usize {
    let mut rest = bytes.get(at..).unwrap_or_default();
    while let Some((chunk, after)) = rest.split_first_chunk() {
        let run = Pair::from(chunk).text_prefix();
        if run < Pair::LEN {
            return bytes.len() - rest.len() + run;
        }
        rest = after;
    }
    text_end_in_tail(bytes, bytes.len() - rest.len())
}

/// Computes [`plain_text_end`] if less than two blocks remain.
#[inline(never)]
pub(crate) fn text_end_in_tail(bytes: &[u8], at: usize) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    at + match Block::new(rest).text_prefix() {
        Block::LEN => {
            Block::LEN + Block::new(rest.get(Block::LEN..).unwrap_or_default()).text_prefix()
        }
        run => run,
    }
}

/// Returns the end of the run of [`PATH`] that starts at `at`.
#[inline]
pub(crate) fn path_end(bytes: &[u8], at: usize) -> usize {
    run_end(bytes, at, PATH, Block::path_prefix)
}

/// Returns the end of the run of [`TARGET`] that starts at `at`.
#[inline]
pub(crate) fn target_end(bytes: &[u8], at: usize) -> usize {
    run_end(bytes, at, TARGET, Block::target_prefix)
}

/// Returns the length of the run of [`HOST`] at the start of `bytes`.
#[inline]
pub(crate) fn host_len(bytes: &[u8]) -> usize {
    host_end(bytes, 0)
}

/// Returns the end of the run of [`HOST`] that starts at `at`.
#[inline(never)]
pub(crate) fn host_end(bytes: &[u8], at: usize) -> usize {
    run_end(bytes, at, HOST, Block::host_prefix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn runs_end_where_the_class_table_says(
            mut bytes in proptest::collection::vec(
                prop_oneof![30 => b'a'..=b'z', 1 => any::<u8>()], 0..100),
            stop: u8,
            at in 0usize..100,
        ) {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = stop;
            }
            prop_assert_eq!(token_len(&bytes), class::prefix_len(&bytes, TOKEN));
            let lowercase = class::prefix_len(&bytes, LOWERCASE_TOKEN);
            prop_assert_eq!(lowercase_token_len(&bytes), lowercase);
            prop_assert_eq!(text_len(&bytes), class::prefix_len(&bytes, TEXT));
            prop_assert_eq!(is_text(&bytes), class::prefix_len(&bytes, TEXT) == bytes.len());
            let plain = |byte: &u8| *byte != b'\t' && class::is(*byte, TEXT);
            let plain = bytes.iter().position(|byte| !plain(byte)).unwrap_or(bytes.len());
            prop_assert_eq!(plain_text_end(&bytes, 0), plain);
            prop_assert_eq!(path_end(&bytes, 0), class::prefix_len(&bytes, PATH));
            prop_assert_eq!(target_end(&bytes, 0), class::prefix_len(&bytes, TARGET));
            prop_assert_eq!(host_len(&bytes), class::prefix_len(&bytes, HOST));
        }
    }
}
