//! Copying of field lines between heads.

use std::ops::Range;

use crate::class::trim;
use crate::field_line::{Field, Line, parse_field_line};
use crate::fields::Fields;
use crate::framing::MAX_CONNECTION_OPTIONS;

/// Appends the lines of `head` from `from` up to its blank line, without the last CRLF. Lines within
/// `span` are copied only if `keep` returns true. Consecutive lines are copied together.
#[inline(always)]
pub(super) fn copy_filtered<'b>(
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
        let Ok(Line::Field { field, rest: next }) = parse_field_line(rest) else {
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

/// Appends the lines of `head` outside `span`, without the last CRLF.
#[inline(always)]
pub(super) fn copy_outside(out: &mut Vec<u8>, head: &[u8], from: usize, span: Range<usize>) {
    out.extend_from_slice(head.get(from..span.start).unwrap_or_default());
    copy_rest(out, head, span.end);
}

/// Appends the lines of `head` from `run` on, without the last CRLF.
#[inline(always)]
pub(super) fn copy_rest(out: &mut Vec<u8>, head: &[u8], run: usize) {
    match head.get(run..head.len().saturating_sub(b"\r\n\r\n".len())) {
        Some(lines) => out.extend_from_slice(lines),
        // The last line was removed, so the output ends with the CRLF of the line before.
        None => out.truncate(out.len().saturating_sub(b"\r\n".len())),
    }
}

/// The names of the fields that the Connection fields of a head list.
pub(super) struct Nominated<'b> {
    names: [&'b [u8]; MAX_CONNECTION_OPTIONS],
}

impl<'b> Nominated<'b> {
    #[cold]
    pub(super) fn from_fields(fields: Fields<'b>) -> Self {
        let mut names = [&[][..]; MAX_CONNECTION_OPTIONS];
        let mut slots = names.iter_mut();
        for (_, value) in fields.filter(|(name, _)| name.eq_ignore_ascii_case(b"connection")) {
            for option in value.split(|&byte| byte == b',') {
                if let Some(slot) = slots.next() {
                    *slot = trim(option);
                }
            }
        }
        Self { names }
    }

    pub(super) fn contains(&self, name: &[u8]) -> bool {
        self.names.iter().any(|named| named.eq_ignore_ascii_case(name))
    }
}
