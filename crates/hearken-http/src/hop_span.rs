//! Where in a head the lines are that an intermediary does not pass on as they are.

use std::ops::Range;

/// From the first to the last such line. What is before and behind them need not be looked at again.
///
/// Kept as counts of the bytes that follow, which a parser has at hand.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HopSpan {
    /// From the start of the first line to the end of the bytes; 0 if there is none.
    from: usize,
    /// From the end of the last one.
    to: usize,
}

impl HopSpan {
    /// Takes in a line of so many bytes without its end, behind whose end there are so many.
    #[inline(always)]
    pub(crate) fn add(&mut self, line: usize, after: usize) {
        if self.from == 0 {
            self.from = line + b"\r\n".len() + after;
        }
        self.to = after;
    }

    /// Where the lines are among the `len` bytes that the head was read from.
    #[inline(always)]
    pub(crate) fn within(self, len: usize) -> Option<Range<usize>> {
        (self.from > 0).then(|| len.saturating_sub(self.from)..len.saturating_sub(self.to))
    }
}
