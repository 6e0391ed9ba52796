//! Byte ranges, RFC 9110 section 14.

use crate::class;

/// What to send in answer to a Range field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RangeOutcome {
    /// Everything, with a 200: the field is malformed, in another unit or asks for several
    /// ranges, all of which a server may ignore.
    Whole,
    /// A 206 with these bytes, counted from 0: `first <= last < len`.
    Part {
        /// The first byte to send.
        first: u64,
        /// The last byte to send.
        last: u64,
    },
    /// A 416: the range starts after the end.
    Unsatisfiable,
}

/// Reads the value of a Range field for a representation of `len` bytes.
///
/// An end past `len` is clamped to it, and numbers of any length are read. A range of an empty
/// representation that asks for its last bytes is [`Whole`](RangeOutcome::Whole), as no
/// Content-Range could tell it.
///
/// ```
/// use hearken_http::range::{RangeOutcome, parse};
///
/// assert_eq!(parse(b"bytes=0-4", 10), RangeOutcome::Part { first: 0, last: 4 });
/// assert_eq!(parse(b"bytes=8-", 10), RangeOutcome::Part { first: 8, last: 9 });
/// assert_eq!(parse(b"bytes=-3", 10), RangeOutcome::Part { first: 7, last: 9 });
/// assert_eq!(parse(b"bytes=10-", 10), RangeOutcome::Unsatisfiable);
/// assert_eq!(parse(b"bytes=0-1,3-4", 10), RangeOutcome::Whole);
/// ```
pub fn parse(value: &[u8], len: u64) -> RangeOutcome {
    match spec(value) {
        None => RangeOutcome::Whole,
        Some((None, None | Some(0))) => RangeOutcome::Unsatisfiable,
        Some((None, Some(_))) if len == 0 => RangeOutcome::Whole,
        Some((None, Some(suffix))) => {
            RangeOutcome::Part { first: len.saturating_sub(suffix), last: len - 1 }
        }
        Some((Some(first), Some(last))) if first > last => RangeOutcome::Whole,
        Some((Some(first), _)) if first >= len => RangeOutcome::Unsatisfiable,
        Some((Some(first), last)) => {
            RangeOutcome::Part { first, last: last.unwrap_or(u64::MAX).min(len - 1) }
        }
    }
}

/// The two numbers of `bytes=first-last`, at least one of which is there; `None` if malformed.
fn spec(value: &[u8]) -> Option<(Option<u64>, Option<u64>)> {
    let (unit, range) = value.split_at_checked(b"bytes".len())?;
    let range = range.strip_prefix(b"=")?;
    if !unit.eq_ignore_ascii_case(b"bytes") {
        return None;
    }
    let range = class::trim(range);
    let (first, last) = range.split_at(memchr::memchr(b'-', range)?);
    let last = last.get(1..)?;
    if first.is_empty() && last.is_empty() {
        return None;
    }
    Some((number(first)?, number(last)?))
}

/// The number in `digits`, at most [`u64::MAX`]; `Some(None)` for no digits, `None` for others.
fn number(digits: &[u8]) -> Option<Option<u64>> {
    if digits.is_empty() {
        return Some(None);
    }
    digits
        .iter()
        .try_fold(0u64, |number, &digit| {
            let digit = digit.checked_sub(b'0').filter(|&digit| digit <= 9)?;
            Some(number.saturating_mul(10).saturating_add(digit.into()))
        })
        .map(Some)
}
