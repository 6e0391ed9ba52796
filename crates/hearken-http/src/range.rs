//! Byte ranges, RFC 9110 section 14.

use crate::class;

/// Maximum number of ranges in a Range field that is honoured, whether or not they overlap.
pub const MOST_RANGES: usize = 16;

/// A part of a representation, counted from 0: `first <= last`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRange {
    /// The first byte.
    pub first: u64,
    /// The last byte.
    pub last: u64,
}

impl ByteRange {
    /// Returns the number of bytes; `u64::MAX` if there is one more.
    pub fn length(&self) -> u64 {
        (self.last - self.first).saturating_add(1)
    }

    /// Whether both overlap or one follows the other.
    fn touches(&self, other: &ByteRange) -> bool {
        self.first <= other.last.saturating_add(1) && other.first <= self.last.saturating_add(1)
    }
}

/// The result of evaluating a Range field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RangeOutcome {
    /// Everything, with a 200: the field is malformed, in another unit or has more than [`MOST_RANGES`]
    /// ranges, so that a server may ignore it.
    Whole,
    /// A 206 with these bytes, all of which there are.
    Part(ByteRange),
    /// A 206 of the type `multipart/byteranges` with these parts, at least two, in this order. They
    /// neither overlap nor follow each other.
    Parts(Vec<ByteRange>),
    /// A 416: each range starts after the end.
    Unsatisfiable,
}

/// Reads the value of a Range field for a representation of `len` bytes.
///
/// An end past `len` is clamped to it, and numbers of any length are read. Ranges after the end are left
/// out if there are others. Ranges that overlap or follow each other are joined in the place of the first
/// (RFC 9110 section 15.3.7.2). A range of an empty representation that asks for its last bytes is
/// [`Whole`](RangeOutcome::Whole), as no Content-Range could express it.
///
/// ```
/// use hearken_http::range::{ByteRange, RangeOutcome, parse};
///
/// let part = |first, last| ByteRange { first, last };
/// assert_eq!(parse(b"bytes=0-4", 10), RangeOutcome::Part(part(0, 4)));
/// assert_eq!(parse(b"bytes=8-", 10), RangeOutcome::Part(part(8, 9)));
/// assert_eq!(parse(b"bytes=-3", 10), RangeOutcome::Part(part(7, 9)));
/// assert_eq!(parse(b"bytes=10-", 10), RangeOutcome::Unsatisfiable);
/// assert_eq!(parse(b"bytes=0-1,3-4", 10), RangeOutcome::Parts(vec![part(0, 1), part(3, 4)]));
/// assert_eq!(parse(b"bytes=0-1,2-4", 10), RangeOutcome::Part(part(0, 4)));
/// ```
pub fn parse(value: &[u8], len: u64) -> RangeOutcome {
    let several = several(value, len);
    match several.as_deref() {
        None => RangeOutcome::Whole,
        Some([]) => RangeOutcome::Unsatisfiable,
        Some([part]) => RangeOutcome::Part(*part),
        Some(_) => RangeOutcome::Parts(several.unwrap_or_default()),
    }
}

/// Returns the joined ranges; `None` if the field is to be ignored.
fn several(value: &[u8], len: u64) -> Option<Vec<ByteRange>> {
    let (unit, set) = value.split_at_checked(b"bytes".len())?;
    let set = set.strip_prefix(b"=")?;
    if !unit.eq_ignore_ascii_case(b"bytes") {
        return None;
    }
    let mut parts: Vec<ByteRange> = Vec::new();
    let mut is_empty = true;
    for (count, spec) in set.split(|&byte| byte == b',').map(class::trim).enumerate() {
        if count >= MOST_RANGES {
            return None;
        }
        if spec.is_empty() {
            continue;
        }
        is_empty = false;
        if let Some(part) = range(spec, len)? {
            join(&mut parts, part);
        }
    }
    (!is_empty).then_some(parts)
}

/// Adds a range in the place of the first that it touches, with all others that it touches.
fn join(parts: &mut Vec<ByteRange>, mut part: ByteRange) {
    let place = parts.iter().position(|other| other.touches(&part)).unwrap_or(parts.len());
    parts.retain(|other| {
        let touches = other.touches(&part);
        if touches {
            part.first = part.first.min(other.first);
            part.last = part.last.max(other.last);
        }
        !touches
    });
    parts.insert(place, part);
}

/// Returns the bytes that a range asks for, if there are any; `None` if it is malformed.
fn range(spec: &[u8], len: u64) -> Option<Option<ByteRange>> {
    let (first, last) = match numbers(spec)? {
        (None, None | Some(0)) => return Some(None),
        // There is no way to say so in a Content-Range.
        (None, Some(_)) if len == 0 => return None,
        (None, Some(suffix)) => (len.saturating_sub(suffix), len - 1),
        (Some(first), Some(last)) if first > last => return None,
        (Some(first), _) if first >= len => return Some(None),
        (Some(first), last) => (first, last.unwrap_or(u64::MAX).min(len - 1)),
    };
    Some(Some(ByteRange { first, last }))
}

/// The two numbers of `first-last`, at least one of which is there; `None` if malformed.
fn numbers(range: &[u8]) -> Option<(Option<u64>, Option<u64>)> {
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
