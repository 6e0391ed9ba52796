//! Where in a head the lines are that an intermediary does not pass on as they are.

use std::ops::Range;

/// From the first to the last such line. What is before and behind them need not be looked at again.
///
/// Kept as counts of the bytes that follow, which a parser has at hand. A head is shorter than 4 GiB:
/// [`Limits::window`](crate::Limits).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HopSpan {
    /// From the start of the first line to the end of the bytes; 0 if there is none.
    from: u32,
    /// From the end of the last one.
    to: u32,
    /// Whether a line is among them that may be passed on all the same.
    has_others: bool,
}

impl HopSpan {
    /// Takes in a line of so many bytes without its end, behind whose end there are so many.
    #[inline]
    pub(crate) fn add(&mut self, line: usize, after: usize) {
        self.add_dropped(line, after);
        self.has_others = true;
    }

    /// The same of a line that never is passed on.
    #[inline]
    pub(crate) fn add_dropped(&mut self, line: usize, after: usize) {
        let from = (line + b"\r\n".len() + after) as u32;
        let after = after as u32;
        if self.from == 0 {
            self.from = from;
        } else {
            self.has_others |= self.to != from;
        }
        self.to = after;
    }

    /// Whether there are no such lines.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.from == 0
    }

    /// Where the lines are among the `len` bytes that the head was read from.
    #[inline(always)]
    pub(crate) fn within(&self, len: usize) -> Range<usize> {
        len.saturating_sub(self.from as usize)..len.saturating_sub(self.to as usize)
    }

    /// Returns the same span of bytes without the last `tail`, which are behind it.
    #[inline]
    pub(crate) fn before(self, tail: usize) -> Self {
        let tail = tail as u32;
        let (from, to) = (self.from.saturating_sub(tail), self.to.saturating_sub(tail));
        Self { from, to, ..self }
    }

    /// Whether nothing in it is passed on.
    #[inline(always)]
    pub(crate) fn is_dropped(&self) -> bool {
        !self.has_others
    }
}
