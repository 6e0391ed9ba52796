//! How readers that are not strict take bytes apart into messages.

use std::fmt::Write;

/// What a reader does that a strict one does not. What is well-formed, all read alike.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reading {
    pub(super) name: &'static str,
    /// Lines end with LF alone, too.
    bare_lf: bool,
    /// Lines end with CR alone, too.
    bare_cr: bool,
    /// A line that begins with a space goes on with the one before.
    folds: bool,
    /// The blanks before a colon, and before a name, are taken off.
    trims: bool,
    /// `_` in a name is `-`.
    underscore: bool,
    /// What follows NUL is not there.
    nul: bool,
    /// Of both, Content-Length is the one that counts; else Transfer-Encoding.
    length_first: bool,
    /// Of several lengths, or codings, the last counts; else the first.
    last: bool,
    /// `chunked` may stand anywhere in the value.
    substring: bool,
    /// Only the whole value is looked at, with control characters taken off.
    controls: bool,
    /// A number ends where its digits end, and may begin with a sign, or with `0x`.
    loose_numbers: bool,
    /// Numbers have 64 bits, and what is beyond them is not seen.
    narrow: bool,
    /// What follows a chunk's data is skipped up to the next line, whatever it is.
    loose_chunk_end: bool,
    /// Trailers count as fields of the next message's kind: a length among them counts.
    trailers_count: bool,
    /// Any blanks may stand between the parts of the first line, and the version may be missing.
    loose_first_line: bool,
    /// Connection's options name fields that are to be dropped before lengths are looked for.
    drops_named: bool,
}

const STRICT: Reading = Reading {
    name: "strict",
    bare_lf: false,
    bare_cr: false,
    folds: false,
    trims: false,
    underscore: false,
    nul: false,
    length_first: false,
    last: false,
    substring: false,
    controls: false,
    loose_numbers: false,
    narrow: false,
    loose_chunk_end: false,
    trailers_count: false,
    loose_first_line: false,
    drops_named: false,
};

/// All readers, the strict one first.
pub(super) const READINGS: &[Reading] = &[
    STRICT,
    Reading { name: "bare LF", bare_lf: true, ..STRICT },
    Reading { name: "bare CR", bare_cr: true, ..STRICT },
    Reading { name: "folded lines", folds: true, ..STRICT },
    Reading { name: "blanks before colons", trims: true, ..STRICT },
    Reading { name: "underscores", underscore: true, ..STRICT },
    Reading { name: "NUL ends", nul: true, ..STRICT },
    Reading { name: "length first", length_first: true, ..STRICT },
    Reading { name: "last counts", last: true, ..STRICT },
    Reading { name: "last length first", last: true, length_first: true, ..STRICT },
    Reading { name: "chunked anywhere", substring: true, ..STRICT },
    Reading { name: "controls taken off", controls: true, ..STRICT },
    Reading { name: "loose numbers", loose_numbers: true, ..STRICT },
    Reading { name: "loose numbers of lengths", loose_numbers: true, length_first: true, ..STRICT },
    Reading { name: "narrow numbers", narrow: true, ..STRICT },
    Reading { name: "loose chunk ends", loose_chunk_end: true, bare_lf: true, ..STRICT },
    Reading { name: "trailers count", trailers_count: true, ..STRICT },
    Reading { name: "loose first lines", loose_first_line: true, ..STRICT },
    Reading { name: "named fields dropped", drops_named: true, ..STRICT },
    Reading {
        name: "all of it",
        bare_lf: true,
        bare_cr: true,
        folds: true,
        trims: true,
        underscore: true,
        nul: true,
        substring: true,
        controls: true,
        loose_numbers: true,
        loose_chunk_end: true,
        loose_first_line: true,
        ..STRICT
    },
];

/// Whose messages they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    Requests,
    Responses,
}

/// What ends a reading before its bytes end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Wrong {
    /// More was to come.
    Cut,
    /// It cannot be read.
    Bad(String),
}

/// A message as a reader sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Seen {
    pub(super) start: String,
    pub(super) body: Vec<u8>,
    /// How many Via lines of the proxy's it has.
    pub(super) via: usize,
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reading {
    /// The messages, and what is wrong behind them, if something is.
    pub(super) fn read(&self, bytes: &[u8], side: Side) -> (Vec<Seen>, Option<Wrong>) {
        let mut cursor = Cursor { bytes, at: 0 };
        let mut all = Vec::new();
        while cursor.at < bytes.len() {
            match self.message(&mut cursor, side) {
                Ok(seen) => all.push(seen),
                Err(wrong) => return (all, Some(wrong)),
            }
        }
        (all, None)
    }

    fn line<'a>(&self, cursor: &mut Cursor<'a>) -> Result<&'a [u8], Wrong> {
        let rest = &cursor.bytes[cursor.at..];
        for (at, &byte) in rest.iter().enumerate() {
            let crlf = byte == b'\r' && rest.get(at + 1) == Some(&b'\n');
            let length = match byte {
                _ if crlf => 2,
                b'\n' if self.bare_lf => 1,
                b'\r' if self.bare_cr => 1,
                _ => continue,
            };
            cursor.at += at + length;
            return Ok(&rest[..at]);
        }
        Err(Wrong::Cut)
    }

    fn message(&self, cursor: &mut Cursor<'_>, side: Side) -> Result<Seen, Wrong> {
        let mut first = self.line(cursor)?;
        if self.loose_first_line {
            while first.is_empty() {
                first = self.line(cursor)?;
            }
        }
        let start = show(first);
        self.judge_first(first, side)?;
        if side == Side::Requests && self.loose_first_line && !start.contains("HTTP/") {
            // HTTP/0.9
            return Ok(Seen { start, body: Vec::new(), via: 0 });
        }
        let mut fields: Vec<(String, Vec<u8>)> = Vec::new();
        loop {
            let line = self.line(cursor)?;
            if line.is_empty() {
                break;
            }
            self.field(line, &mut fields)?;
        }
        if self.drops_named {
            let named: Vec<String> = fields
                .iter()
                .filter(|(name, _)| name == "connection")
                .flat_map(|(_, value)| {
                    show(value).split(',').map(str::to_owned).collect::<Vec<_>>()
                })
                .map(|option| option.trim().to_ascii_lowercase())
                .collect();
            fields.retain(|(name, _)| !named.contains(name));
        }
        let is_ours =
            |(name, value): &&(String, Vec<u8>)| name == "via" && show(value).contains("hearken");
        let via = fields.iter().filter(is_ours).count();
        let body = self.body(cursor, &mut fields, side, &start)?;
        Ok(Seen { start, body, via })
    }

    fn judge_first(&self, first: &[u8], side: Side) -> Result<(), Wrong> {
        let fine = match side {
            Side::Responses => first.starts_with(b"HTTP/1."),
            Side::Requests if self.loose_first_line => !first.is_empty(),
            Side::Requests => {
                let parts: Vec<&[u8]> = first.split(|&byte| byte == b' ').collect();
                parts.len() == 3
                    && parts[2].starts_with(b"HTTP/1.")
                    && parts.iter().all(|part| !part.is_empty())
            }
        };
        if fine { Ok(()) } else { Err(Wrong::Bad(format!("the first line {:?}", show(first)))) }
    }

    fn field(&self, line: &[u8], fields: &mut Vec<(String, Vec<u8>)>) -> Result<(), Wrong> {
        let blank = |byte: &u8| matches!(byte, b' ' | b'\t' | 0x0b | 0x0c);
        if line.first().is_some_and(blank) {
            if self.folds
                && let Some((_, value)) = fields.last_mut()
            {
                value.push(b' ');
                value.extend_from_slice(line);
                return Ok(());
            }
            if !self.trims {
                return Err(Wrong::Bad(format!("the field line {:?}", show(line))));
            }
        }
        let colon = line.iter().position(|&byte| byte == b':');
        let colon = colon.ok_or_else(|| Wrong::Bad(format!("the field line {:?}", show(line))))?;
        let (mut name, mut value) = (show(&line[..colon]), line[colon + 1..].to_vec());
        if self.nul {
            name = name.split('\0').next().unwrap_or_default().to_owned();
            let end = value.iter().position(|&byte| byte == 0).unwrap_or(value.len());
            value.truncate(end);
        }
        if self.trims {
            name = name.trim().to_owned();
        }
        if self.controls {
            name.retain(|c| !c.is_control());
            value.retain(|&byte| byte > 0x1f && byte != 0x7f);
        }
        name = name.to_ascii_lowercase();
        if self.underscore {
            name = name.replace('_', "-");
        }
        fields.push((name, value));
        Ok(())
    }

    fn body(
        &self,
        cursor: &mut Cursor<'_>,
        fields: &mut Vec<(String, Vec<u8>)>,
        side: Side,
        start: &str,
    ) -> Result<Vec<u8>, Wrong> {
        let one = |name: &str| {
            let mut values = fields.iter().filter(|(of, _)| of == name).map(|(_, value)| value);
            let value = if self.last { values.next_back() } else { values.next() };
            value.map(|value| show(value).trim_matches([' ', '\t']).to_owned())
        };
        let (length, coding) = (one("content-length"), one("transfer-encoding"));
        let status = start.get(9..12).unwrap_or_default();
        if side == Side::Responses && (status.starts_with('1') || matches!(status, "204" | "304")) {
            return Ok(Vec::new());
        }
        let chunked = coding.as_ref().is_some_and(|coding| {
            let coding = coding.to_ascii_lowercase();
            let last = coding.rsplit(',').next().unwrap_or_default().trim();
            last == "chunked" || self.substring && coding.contains("chunked")
        });
        match length {
            Some(length) if self.length_first || !chunked => {
                let length = self.number(&length, 10)?;
                cursor.take(length)
            }
            _ if chunked => self.chunks(cursor, fields),
            _ if side == Side::Responses => {
                let rest = cursor.bytes[cursor.at..].to_vec();
                cursor.at = cursor.bytes.len();
                Ok(rest)
            }
            _ => Ok(Vec::new()),
        }
    }

    fn chunks(
        &self,
        cursor: &mut Cursor<'_>,
        fields: &mut Vec<(String, Vec<u8>)>,
    ) -> Result<Vec<u8>, Wrong> {
        let mut body = Vec::new();
        loop {
            let line = show(self.line(cursor)?);
            let size = line.split(';').next().unwrap_or_default().trim_matches([' ', '\t']);
            let size = self.number(size, 16)?;
            if size == 0 {
                break;
            }
            body.extend(cursor.take(size)?);
            let end = self.line(cursor)?;
            if !end.is_empty() && !self.loose_chunk_end {
                return Err(Wrong::Bad(format!("{:?} behind a chunk", show(end))));
            }
        }
        loop {
            let line = self.line(cursor)?;
            if line.is_empty() {
                break;
            }
            if self.trailers_count {
                let before = fields.len();
                self.field(line, fields)?;
                let framing = ["content-length", "transfer-encoding", "host"];
                if fields.get(before).is_some_and(|(name, _)| framing.contains(&name.as_str())) {
                    return Err(Wrong::Bad(format!("the trailer {:?}", show(line))));
                }
            }
        }
        Ok(body)
    }

    fn number(&self, text: &str, radix: u32) -> Result<usize, Wrong> {
        let mut digits = text;
        if self.loose_numbers {
            digits = digits.trim().trim_start_matches('+');
            if radix == 16 {
                digits = digits.trim_start_matches("0x").trim_start_matches("0X");
            }
            let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
            digits = &digits[..end];
            if digits.is_empty() {
                return Ok(0);
            }
        }
        let all = digits.chars().all(|c| c.is_digit(radix)) && !digits.is_empty();
        let number = u128::from_str_radix(digits, radix).ok().filter(|_| all);
        let number = number.ok_or_else(|| Wrong::Bad(format!("the number {text:?}")))?;
        let number = if self.narrow { number & u128::from(u64::MAX) } else { number };
        usize::try_from(number).map_err(|_| Wrong::Bad(format!("the number {text:?}")))
    }
}

impl Cursor<'_> {
    fn take(&mut self, count: usize) -> Result<Vec<u8>, Wrong> {
        let end = self.at.checked_add(count).filter(|&end| end <= self.bytes.len());
        let end = end.ok_or(Wrong::Cut)?;
        let taken = self.bytes[self.at..end].to_vec();
        self.at = end;
        Ok(taken)
    }
}

/// Bytes as characters.
fn show(bytes: &[u8]) -> String {
    let mut text = String::new();
    for &byte in bytes {
        let _ = text.write_char(char::from(byte));
    }
    text
}
