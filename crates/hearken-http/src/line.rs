//! Field lines, and how far the search for the end of a head has got.

use crate::block::{Block, Pair};
use crate::error::Reject;
use crate::scan;

/// What stands at the start of a line of the field section.
pub(crate) enum Line<'b> {
    /// A whole field line, and what follows it.
    Field { field: Field<'b>, rest: &'b [u8] },
    /// The blank line, and the body after it.
    Blank { rest: &'b [u8] },
    /// The bytes end before the line does.
    Partial,
}

/// A field line.
pub(crate) struct Field<'b> {
    /// All of it but its end.
    pub(crate) line: &'b [u8],
    pub(crate) name_len: usize,
}

impl<'b> Field<'b> {
    #[inline(always)]
    pub(crate) fn name(&self) -> &'b [u8] {
        self.line.get(..self.name_len).unwrap_or_default()
    }

    /// What follows the colon, not trimmed.
    #[inline(always)]
    pub(crate) fn value(&self) -> &'b [u8] {
        self.line.get(self.name_len + 1..).unwrap_or_default()
    }
}

/// Reads the line that `bytes` starts with: RFC 9112 section 5, without obs-fold.
#[inline(always)]
pub(crate) fn field_line(bytes: &[u8]) -> Result<Line<'_>, Reject> {
    // Most lines show all that they have in two blocks, and the whole of their name in one.
    let (name_len, len) = match bytes.first_chunk() {
        Some(chunk) => {
            let pair = Pair::from(chunk);
            let len = match pair.text() {
                Pair::LEN => scan::plain_text_from(bytes, Pair::LEN),
                len => len,
            };
            (pair.low.name(), len)
        }
        None => match bytes {
            [b'\r', b'\n', rest @ ..] => return Ok(Line::Blank { rest }),
            _ => near_end(bytes),
        },
    };
    let Some((line, end)) = bytes.split_at_checked(len) else {
        return unusual_line(bytes);
    };
    let Some((b"\r\n", rest)) = end.split_first_chunk() else {
        return unusual_line(bytes);
    };
    match line.get(name_len) {
        Some(b':') if name_len > 0 => {
            return Ok(Line::Field { field: Field { line, name_len }, rest });
        }
        None if line.is_empty() => return Ok(Line::Blank { rest }),
        Some(_) if name_len == Block::LEN => {
            let name_len = scan::token_from(line, name_len);
            if line.get(name_len) == Some(&b':') {
                return Ok(Line::Field { field: Field { line, name_len }, rest });
            }
        }
        _ => {}
    }
    unusual_line(bytes)
}

/// How long the name and the whole of a line are that starts less than two blocks before the end;
/// a long name is cut off at a block.
#[inline(never)]
fn near_end(bytes: &[u8]) -> (usize, usize) {
    let block = Block::new(bytes);
    let len = match block.text() {
        Block::LEN => scan::text_near_end(bytes, Block::LEN),
        len => len,
    };
    (block.name(), len)
}

/// Reads any line: one that is incomplete, bad, or has tabs in it or an odd name.
#[inline(never)]
fn unusual_line(bytes: &[u8]) -> Result<Line<'_>, Reject> {
    if let Some(rest) = bytes.strip_prefix(b"\r\n") {
        return Ok(Line::Blank { rest });
    }
    let name_len = scan::token(bytes);
    let (name, rest) = bytes.split_at(name_len);
    let value = match rest {
        [b':', value @ ..] if !name.is_empty() => value,
        [b'\r'] if name.is_empty() => return Ok(Line::Partial),
        [] => return Ok(Line::Partial),
        [stop, ..] => return Err(bad_name(name, *stop)),
    };
    let text_len = scan::text(value);
    let (line, end) = bytes.split_at(name_len + 1 + text_len);
    match end {
        [b'\r', b'\n', rest @ ..] => Ok(Line::Field { field: Field { line, name_len }, rest }),
        [] | [b'\r'] => Ok(Line::Partial),
        [stop, ..] => Err(bad_control(*stop)),
    }
}

#[cold]
fn bad_name(name: &[u8], stop: u8) -> Reject {
    Reject::bad(match (name, stop) {
        ([], b'\r' | b'\n') => bad_control(stop).reason,
        (_, b'\r' | b'\n') => "field line without a colon",
        ([], b' ' | b'\t') => "folded or indented field line",
        ([], b':') => "empty field name",
        (_, b' ' | b'\t') => "space before the colon of a field",
        _ => "field name is not a token",
    })
}

/// The reject for a byte that ended a run of text and is not the CR of a CRLF.
#[cold]
pub(crate) fn bad_control(stop: u8) -> Reject {
    Reject::bad(match stop {
        b'\r' => "CR without LF",
        b'\n' => "LF without CR",
        _ => "control character",
    })
}

/// How long the empty line is that may stand before a request line.
const EMPTY_LINE: usize = 2;

/// Where the search for the end of an incomplete head stands.
///
/// Lets a head that trickles in cost one look at each byte, and one parse once it is whole.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Progress {
    /// Where the first line not known to be good starts.
    line: u32,
    /// Where the first byte not looked at is; 0 before the first parse.
    scanned: u32,
}

impl Progress {
    /// Whether nothing was looked at yet.
    #[inline]
    pub(crate) fn is_start(&self) -> bool {
        self.scanned == 0
    }

    /// Whether parsing `window` from its start would say more than that it is incomplete.
    #[inline]
    pub(crate) fn is_worth_parsing(&mut self, window: &[u8]) -> bool {
        self.scanned == 0 || self.look_on(window)
    }

    /// Looks at the bytes that are new. Whether they end the head, break a rule, or end a
    /// request line.
    fn look_on(&mut self, window: &[u8]) -> bool {
        let (mut line, mut at) = (self.line as usize, self.scanned as usize);
        loop {
            let rest = window.get(at..).unwrap_or_default();
            let text = scan::text(rest);
            at += text;
            match rest.get(text..).unwrap_or_default() {
                [] | [b'\r'] => {
                    self.line = clamp(line);
                    self.scanned = clamp(at);
                    return false;
                }
                // The first line is no field, whatever it looks like.
                [b'\r', b'\n', ..]
                    if line > EMPTY_LINE
                        && matches!(
                            field_line(window.get(line..).unwrap_or_default()),
                            Ok(Line::Field { .. })
                        ) =>
                {
                    at += 2;
                    line = at;
                }
                _ => return true,
            }
        }
    }

    /// The answer to a head that is good but incomplete, and ends with the first bytes of `line`:
    /// more is waited for, unless `window` is not `all` there is: then it is too long.
    #[cold]
    #[inline(never)]
    pub(crate) fn incomplete<T>(
        &mut self,
        line: &[u8],
        window: &[u8],
        all: &[u8],
    ) -> Result<Option<T>, Reject> {
        if window.len() < all.len() {
            *self = Progress::default();
            return Err(Reject::new(431, "head is too long"));
        }
        self.line = clamp(window.len() - line.len());
        self.scanned = clamp(window.len() - usize::from(window.last() == Some(&b'\r')));
        Ok(None)
    }

    /// Whether the request line is still incomplete, one empty line before it aside.
    pub(crate) fn is_in_first_line(&self) -> bool {
        self.line as usize <= EMPTY_LINE
    }
}

/// Where a head has more than 4 GiB, what is beyond them is looked at again.
fn clamp(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(u32::MAX)
}
