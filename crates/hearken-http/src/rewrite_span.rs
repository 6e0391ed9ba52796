//! Position of the lines in a head that an intermediary does not forward unchanged.

use std::ops::Range;

/// The span from the first to the last line that is removed or rewritten when the head is forwarded. The
/// lines outside are forwarded unchanged, so they need no second look.
///
/// Positions are stored as the number of bytes after them, which the parser knows. They fit into 32 bits
/// because [`Limits::window`](crate::Limits) limits heads to 4 GiB.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RewriteSpan {
    /// Distance from the start of the first line to the end of the bytes; 0 if the span is empty.
    from: u32,
    /// Distance from the end of the last line to the end of the bytes.
    to: u32,
    /// Whether the span contains lines that may be forwarded.
    has_forwarded: bool,
}

impl RewriteSpan {
    /// Adds a line that may be forwarded. `line` is its length without CRLF; `after` bytes follow the CRLF.
    #[inline]
    pub(crate) fn add(&mut self, line: usize, after: usize) {
        self.add_removed(line, after);
        self.has_forwarded = true;
    }

    /// Adds a line that is never forwarded. Takes the same arguments as [`add`](Self::add).
    #[inline]
    pub(crate) fn add_removed(&mut self, line: usize, after: usize) {
        let from = (line + b"\r\n".len() + after) as u32;
        let after = after as u32;
        if self.from == 0 {
            self.from = from;
        } else {
            self.has_forwarded |= self.to != from;
        }
        self.to = after;
    }

    /// Returns whether the span contains no lines.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.from == 0
    }

    /// Returns the positions in the `len` bytes that the head was parsed from.
    #[inline(always)]
    pub(crate) fn range(&self, len: usize) -> Range<usize> {
        len.saturating_sub(self.from as usize)..len.saturating_sub(self.to as usize)
    }

    /// Returns the span relative to the same bytes without the last `tail`, which lie after the span.
    #[inline]
    pub(crate) fn without_tail(self, tail: usize) -> Self {
        let tail = tail as u32;
        let (from, to) = (self.from.saturating_sub(tail), self.to.saturating_sub(tail));
        Self { from, to, ..self }
    }

    /// Returns whether no line in the span is forwarded.
    #[inline(always)]
    pub(crate) fn is_all_removed(&self) -> bool {
        !self.has_forwarded
    }
}
