//! Parsing of field lines and search for the end of an incomplete head.

use crate::block::{Block, Pair};
use crate::error::Reject;
use crate::scan;

/// The result of parsing the next line of a field section.
pub(crate) enum Line<'b> {
    /// A complete field line and the bytes after it.
    Field { field: Field<'b>, rest: &'b [u8] },
    /// The blank line and the bytes after it.
    Blank { rest: &'b [u8] },
    /// An incomplete line.
    Partial,
}

/// A field line.
pub(crate) struct Field<'b> {
    /// Complete line without CRLF.
    pub(crate) line: &'b [u8],
    pub(crate) name_len: usize,
}

impl<'b> Field<'b> {
    #[inline(always)]
    pub(crate) fn name(&self) -> &'b [u8] {
        self.line.get(..self.name_len).unwrap_or_default()
    }

    /// Returns the bytes after the colon, including whitespace.
    #[inline(always)]
    pub(crate) fn value(&self) -> &'b [u8] {
        self.line.get(self.name_len + 1..).unwrap_or_default()
    }
}

/// Parses the line that `bytes` starts with: RFC 9112 section 5, without obs-fold.
#[inline(always)]
pub(crate) fn parse_field_line(bytes: &[u8]) -> Result<Line<'_>, Reject> {
    // Most lines fit into two blocks, and their name into one.
    let (name_len, len) = match bytes.first_chunk() {
        Some(chunk) => {
            let pair = Pair::from(chunk);
            let len = match pair.text_prefix() {
                Pair::LEN => scan::plain_text_end(bytes, Pair::LEN),
                len => len,
            };
            (pair.low.name_prefix(), len)
        }
        None => match bytes {
            [b'\r', b'\n', rest @ ..] => return Ok(Line::Blank { rest }),
            _ => measure_near_end(bytes),
        },
    };
    let Some((line, end)) = bytes.split_at_checked(len) else {
        return parse_uncommon_line(bytes);
    };
    let Some((b"\r\n", rest)) = end.split_first_chunk() else {
        return parse_uncommon_line(bytes);
    };
    match line.get(name_len) {
        Some(b':') if name_len > 0 => {
            return Ok(Line::Field { field: Field { line, name_len }, rest });
        }
        None if line.is_empty() => return Ok(Line::Blank { rest }),
        Some(_) if name_len == Block::LEN => {
            let name_len = scan::token_end(line, name_len);
            if line.get(name_len) == Some(&b':') {
                return Ok(Line::Field { field: Field { line, name_len }, rest });
            }
        }
        _ => {}
    }
    parse_uncommon_line(bytes)
}

/// Returns the lengths of the name and of the line if less than two blocks remain. A name longer than a
/// block is truncated to a block.
#[inline(never)]
fn measure_near_end(bytes: &[u8]) -> (usize, usize) {
    let block = Block::new(bytes);
    let len = match block.text_prefix() {
        Block::LEN => scan::text_end_in_tail(bytes, Block::LEN),
        len => len,
    };
    (block.name_prefix(), len)
}

/// Parses any line, including incomplete and invalid lines, and lines with tabs or unusual names.
#[inline(never)]
fn parse_uncommon_line(bytes: &[u8]) -> Result<Line<'_>, Reject> {
    if let Some(rest) = bytes.strip_prefix(b"\r\n") {
        return Ok(Line::Blank { rest });
    }
    let name_len = scan::token_len(bytes);
    let (name, rest) = bytes.split_at(name_len);
    let value = match rest {
        [b':', value @ ..] if !name.is_empty() => value,
        [b'\r'] if name.is_empty() => return Ok(Line::Partial),
        [] => return Ok(Line::Partial),
        [stop, ..] => return Err(invalid_name(name, *stop)),
    };
    let text_len = scan::text_len(value);
    let (line, end) = bytes.split_at(name_len + 1 + text_len);
    match end {
        [b'\r', b'\n', rest @ ..] => Ok(Line::Field { field: Field { line, name_len }, rest }),
        [] | [b'\r'] => Ok(Line::Partial),
        [stop, ..] => Err(invalid_control(*stop)),
    }
}

#[cold]
fn invalid_name(name: &[u8], stop: u8) -> Reject {
    Reject::bad(match (name, stop) {
        ([], b'\r' | b'\n') => invalid_control(stop).reason,
        (_, b'\r' | b'\n') => "field line without a colon",
        ([], b' ' | b'\t') => "field line starts with whitespace: line folding is not supported",
        ([], b':') => "empty field name",
        (_, b' ' | b'\t') => "whitespace between field name and colon",
        _ => "invalid byte in a field name: expected a token",
    })
}

/// Returns the error for the byte `stop`, which ends a run of text without being part of a CRLF.
#[cold]
pub(crate) fn invalid_control(stop: u8) -> Reject {
    Reject::bad(match stop {
        b'\r' => "CR without LF: expected CRLF at the end of a line",
        b'\n' => "LF without CR: expected CRLF at the end of a line",
        _ => "control character in the message head",
    })
}

/// Length of the empty line that may precede a request line.
const EMPTY_LINE: usize = 2;

/// The progress of the search for the end of an incomplete head.
///
/// A head that arrives in small pieces costs one scan of each byte, and one parse when it is complete.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Progress {
    /// Start of the first line that is not known to be valid.
    line: u32,
    /// Position of the first byte that was not scanned; 0 before the first parse.
    scanned: u32,
}

impl Progress {
    /// Returns whether no byte has been scanned yet.
    #[inline]
    pub(crate) fn is_start(&self) -> bool {
        self.scanned == 0
    }

    /// Returns whether the head in `window` may be complete or invalid, so that it must be parsed.
    #[inline]
    pub(crate) fn needs_parsing(&mut self, window: &[u8]) -> bool {
        self.scanned == 0 || self.scan_new_bytes(window)
    }

    /// Scans the new bytes. Returns whether they end the head, are invalid, or end a request line.
    fn scan_new_bytes(&mut self, window: &[u8]) -> bool {
        let (mut line, mut at) = (self.line as usize, self.scanned as usize);
        loop {
            let rest = window.get(at..).unwrap_or_default();
            let text = scan::text_len(rest);
            at += text;
            match rest.get(text..).unwrap_or_default() {
                [] | [b'\r'] => {
                    self.line = clamp(line);
                    self.scanned = clamp(at);
                    return false;
                }
                // The first line is not a field line, even if it resembles one.
                [b'\r', b'\n', ..]
                    if line > EMPTY_LINE
                        && matches!(
                            parse_field_line(window.get(line..).unwrap_or_default()),
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

    /// Records that a valid head is incomplete and ends with `line`. Fails with 431 if `window` is shorter
    /// than `all`, because the head then exceeds its limit.
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
            return Err(Reject::new(431, "message head exceeds the maximum size"));
        }
        self.line = clamp(window.len() - line.len());
        self.scanned = clamp(window.len() - usize::from(window.last() == Some(&b'\r')));
        Ok(None)
    }

    /// Returns whether the request line is incomplete, not counting an empty line before it.
    pub(crate) fn is_in_first_line(&self) -> bool {
        self.line as usize <= EMPTY_LINE
    }
}

/// Limits a position to 32 bits. Bytes after the first 4 GiB are scanned again.
fn clamp(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(u32::MAX)
}
