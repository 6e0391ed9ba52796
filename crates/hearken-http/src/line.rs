//! Field lines, and how far the search for the end of a head has got.

use crate::class;
use crate::error::Reject;
use crate::scan;

/// What stands at the start of a line of the field section.
pub(crate) enum Line<'b> {
    /// A whole field line; the next line starts at `next`.
    Field { name: &'b [u8], value: &'b [u8], next: usize },
    /// The blank line; the body starts at `next`.
    Blank { next: usize },
    /// The bytes end before the line does.
    Partial,
}

/// Reads the line that starts at `start`: RFC 9112 section 5, without obs-fold.
#[inline]
pub(crate) fn field_line(bytes: &[u8], start: usize) -> Result<Line<'_>, Reject> {
    let line = bytes.get(start..).unwrap_or_default();
    if let [b'\r', b'\n', ..] = line {
        return Ok(Line::Blank { next: start + 2 });
    }
    let (name, rest) = line.split_at(scan::token(line));
    let value = match rest {
        [b':', value @ ..] if !name.is_empty() => value,
        [b'\r'] if name.is_empty() => return Ok(Line::Partial),
        [] => return Ok(Line::Partial),
        [stop, ..] => return Err(bad_name(name, *stop)),
    };
    let (text, rest) = value.split_at(scan::text(value));
    match rest {
        [b'\r', b'\n', ..] => {
            Ok(Line::Field { name, value: class::trim(text), next: bytes.len() - rest.len() + 2 })
        }
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
                [b'\r', b'\n', ..]
                    if matches!(field_line(window, line), Ok(Line::Field { .. })) =>
                {
                    at += 2;
                    line = at;
                }
                _ => return true,
            }
        }
    }

    /// Remembers that `window` is good but incomplete, its last line starting at `line`.
    fn wait(&mut self, line: usize, window: &[u8]) {
        self.line = clamp(line);
        self.scanned = clamp(window.len() - usize::from(window.last() == Some(&b'\r')));
    }

    /// The answer to a head that is good but incomplete: more is waited for, unless it `is_too_long`.
    #[cold]
    pub(crate) fn incomplete<T>(
        &mut self,
        line: usize,
        window: &[u8],
        is_too_long: bool,
    ) -> Result<Option<T>, Reject> {
        if is_too_long {
            *self = Progress::default();
            return Err(Reject::new(431, "head is too long"));
        }
        self.wait(line, window);
        Ok(None)
    }

    /// Whether the request line is still incomplete, one empty line before it aside.
    pub(crate) fn is_in_first_line(&self) -> bool {
        self.line <= 2
    }
}

fn clamp(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(u32::MAX)
}
