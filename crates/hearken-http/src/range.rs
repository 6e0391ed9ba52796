//! Byte ranges, RFC 9110 section 14.

use crate::class;

/// Maximum number of ranges in a Range field, before overlapping ranges are merged.
pub const MAX_RANGES: usize = 16;

/// A byte range of a representation with zero-based, inclusive bounds: `first <= last`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRange {
    /// Position of the first byte.
    pub first: u64,
    /// Position of the last byte.
    pub last: u64,
}

impl ByteRange {
    /// Returns the number of bytes, at most `u64::MAX`.
    pub fn length(&self) -> u64 {
        (self.last - self.first).saturating_add(1)
    }

    /// Returns whether the ranges overlap or are adjacent.
    fn touches(&self, other: &ByteRange) -> bool {
        self.first <= other.last.saturating_add(1) && other.first <= self.last.saturating_add(1)
    }
}

/// The result of evaluating a Range field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RangeOutcome {
    /// The complete representation with status 200. A server may ignore a Range field that is malformed, uses
    /// another unit or has more than [`MAX_RANGES`] ranges.
    Full,
    /// Status 206 with this range, which lies within the representation.
    Single(ByteRange),
    /// Status 206 of the type `multipart/byteranges` with these ranges, at least two, in this order.
    /// They neither overlap nor are adjacent.
    Multiple(Vec<ByteRange>),
    /// Status 416: each range starts after the end of the representation.
    Unsatisfiable,
}

/// Parses the value of a Range field for a representation of `len` bytes.
///
/// The parser accepts numbers of any length and clamps range ends to `len`. It ignores ranges that start
/// after the end if other ranges do not. Overlapping and adjacent ranges are merged at the position of
/// the first (RFC 9110 section 15.3.7.2). A suffix range of an empty representation results in
/// [`Full`](RangeOutcome::Full), because no Content-Range can express it.
///
/// ```
/// use hearken_http::range::{ByteRange, RangeOutcome, parse};
///
/// let part = |first, last| ByteRange { first, last };
/// assert_eq!(parse(b"bytes=0-4", 10), RangeOutcome::Single(part(0, 4)));
/// assert_eq!(parse(b"bytes=8-", 10), RangeOutcome::Single(part(8, 9)));
/// assert_eq!(parse(b"bytes=-3", 10), RangeOutcome::Single(part(7, 9)));
/// assert_eq!(parse(b"bytes=10-", 10), RangeOutcome::Unsatisfiable);
/// assert_eq!(parse(b"bytes=0-1,3-4", 10), RangeOutcome::Multiple(vec![part(0, 1), part(3, 4)]));
/// assert_eq!(parse(b"bytes=0-1,2-4", 10), RangeOutcome::Single(part(0, 4)));
/// ```
pub fn parse(value: &[u8], len: u64) -> RangeOutcome {
    let ranges = parse_ranges(value, len);
    match ranges.as_deref() {
        None => RangeOutcome::Full,
        Some([]) => RangeOutcome::Unsatisfiable,
        Some([part]) => RangeOutcome::Single(*part),
        Some(_) => RangeOutcome::Multiple(ranges.unwrap_or_default()),
    }
}

/// Returns the merged ranges. Returns `None` if the server ignores the field.
fn parse_ranges(value: &[u8], len: u64) -> Option<Vec<ByteRange>> {
    let (unit, set) = value.split_at_checked(b"bytes".len())?;
    let set = set.strip_prefix(b"=")?;
    if !unit.eq_ignore_ascii_case(b"bytes") {
        return None;
    }
    let mut parts: Vec<ByteRange> = Vec::new();
    let mut is_empty = true;
    for (count, spec) in set.split(|&byte| byte == b',').map(class::trim).enumerate() {
        if count >= MAX_RANGES {
            return None;
        }
        if spec.is_empty() {
            continue;
        }
        is_empty = false;
        if let Some(part) = parse_range(spec, len)? {
            merge(&mut parts, part);
        }
    }
    (!is_empty).then_some(parts)
}

/// Merges `part` with all ranges that it touches, at the position of the first of these.
fn merge(parts: &mut Vec<ByteRange>, mut part: ByteRange) {
    let position = parts.iter().position(|other| other.touches(&part)).unwrap_or(parts.len());
    parts.retain(|other| {
        let touches = other.touches(&part);
        if touches {
            part.first = part.first.min(other.first);
            part.last = part.last.max(other.last);
        }
        !touches
    });
    parts.insert(position, part);
}

/// Returns the requested bytes, `Some(None)` if none exist, or `None` if the range is malformed.
fn parse_range(spec: &[u8], len: u64) -> Option<Option<ByteRange>> {
    let (first, last) = match parse_bounds(spec)? {
        (None, None | Some(0)) => return Some(None),
        // No Content-Range can express an empty range.
        (None, Some(_)) if len == 0 => return None,
        (None, Some(suffix)) => (len.saturating_sub(suffix), len - 1),
        (Some(first), Some(last)) if first > last => return None,
        (Some(first), _) if first >= len => return Some(None),
        (Some(first), last) => (first, last.unwrap_or(u64::MAX).min(len - 1)),
    };
    Some(Some(ByteRange { first, last }))
}

/// Returns the bounds of `first-last`, of which one may be missing. Returns `None` if malformed.
fn parse_bounds(range: &[u8]) -> Option<(Option<u64>, Option<u64>)> {
    let (first, last) = range.split_at(memchr::memchr(b'-', range)?);
    let last = last.get(1..)?;
    if first.is_empty() && last.is_empty() {
        return None;
    }
    Some((parse_number(first)?, parse_number(last)?))
}

/// Parses decimal digits, saturating at [`u64::MAX`]. Returns `Some(None)` for an empty slice.
fn parse_number(digits: &[u8]) -> Option<Option<u64>> {
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
