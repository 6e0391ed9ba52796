//! Copying the lines of a head, but for some.

use std::ops::Range;

use crate::class::trim;
use crate::fields::Fields;
use crate::framing::MOST_OPTIONS;
use crate::line::{Field, Line, field_line};

/// Appends the lines of `head` from `from` up to its blank line, those within `span` only if `keep` says
/// so, and without the end of the last. What is kept between two that are not is copied together.
#[inline(always)]
pub(super) fn copy<'b>(
    out: &mut Vec<u8>,
    head: &'b [u8],
    from: usize,
    span: Range<usize>,
    mut keep: impl FnMut(&Field<'b>) -> bool,
) {
    let mut run = from;
    let mut rest = head.get(span.start..).unwrap_or_default();
    let mut at = span.start;
    while at < span.end {
        let Ok(Line::Field { field, rest: next }) = field_line(rest) else {
            break;
        };
        rest = next;
        let end = head.len() - rest.len();
        if !keep(&field) {
            if run < at {
                out.extend_from_slice(head.get(run..at).unwrap_or_default());
            }
            run = end;
        }
        at = end;
    }
    copy_rest(out, head, run);
}

/// Appends the lines of `head` but for those within `span`, and without the end of the last.
#[inline(always)]
pub(super) fn copy_around(out: &mut Vec<u8>, head: &[u8], from: usize, span: Range<usize>) {
    out.extend_from_slice(head.get(from..span.start).unwrap_or_default());
    copy_rest(out, head, span.end);
}

/// Appends the lines of `head` from `run` on, without the end of the last.
#[inline(always)]
pub(super) fn copy_rest(out: &mut Vec<u8>, head: &[u8], run: usize) {
    match head.get(run..head.len().saturating_sub(b"\r\n\r\n".len())) {
        Some(lines) => out.extend_from_slice(lines),
        // The last line was dropped; what is written ends with another.
        None => out.truncate(out.len().saturating_sub(b"\r\n".len())),
    }
}

/// The fields that the Connection fields of a head name.
pub(super) struct Nominated<'b> {
    names: [&'b [u8]; MOST_OPTIONS],
}

impl<'b> Nominated<'b> {
    #[cold]
    pub(super) fn of(fields: Fields<'b>) -> Self {
        let mut names = [&[][..]; MOST_OPTIONS];
        let mut places = names.iter_mut();
        for (_, value) in fields.filter(|(name, _)| name.eq_ignore_ascii_case(b"connection")) {
            for option in value.split(|&byte| byte == b',') {
                if let Some(place) = places.next() {
                    *place = trim(option);
                }
            }
        }
        Self { names }
    }

    pub(super) fn has(&self, name: &[u8]) -> bool {
        self.names.iter().any(|named| named.eq_ignore_ascii_case(name))
    }
}
