//! Lenient parsers of messages, as other software may have them.

use std::fmt::Write;

/// The deviations of a parser from a strict one. All parsers agree on well-formed messages.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Parser {
    pub(super) name: &'static str,
    /// Accepts LF as the end of a line.
    bare_lf: bool,
    /// Accepts CR as the end of a line.
    bare_cr: bool,
    /// Appends a line that begins with a space to the line before.
    folds_lines: bool,
    /// Removes white space before and after field names.
    trims_names: bool,
    /// Treats `_` in names as `-`.
    underscore_is_dash: bool,
    /// Truncates names and values at NUL.
    nul_terminates: bool,
    /// Prefers Content-Length to Transfer-Encoding.
    length_first: bool,
    /// Uses the last of several lengths or codings instead of the first.
    last_value_counts: bool,
    /// Finds `chunked` anywhere in the value.
    chunked_anywhere: bool,
    /// Removes control characters from names and values.
    drops_controls: bool,
    /// Ends numbers after their digits, and accepts a sign or `0x` before them.
    loose_numbers: bool,
    /// Truncates numbers to 64 bits.
    wraps_at_64_bits: bool,
    /// Skips any bytes after the data of a chunk, up to the next line.
    loose_chunk_end: bool,
    /// Treats trailers as fields, so that a length among them is an error.
    trailers_count: bool,
    /// Accepts any white space in the start line, and a missing version.
    loose_start_line: bool,
    /// Removes the fields that Connection names before it determines the framing.
    drops_connection_options: bool,
}

const STRICT: Parser = Parser {
    name: "strict",
    bare_lf: false,
    bare_cr: false,
    folds_lines: false,
    trims_names: false,
    underscore_is_dash: false,
    nul_terminates: false,
    length_first: false,
    last_value_counts: false,
    chunked_anywhere: false,
    drops_controls: false,
    loose_numbers: false,
    wraps_at_64_bits: false,
    loose_chunk_end: false,
    trailers_count: false,
    loose_start_line: false,
    drops_connection_options: false,
};

/// All parsers, beginning with the strict one.
pub(super) const PARSERS: &[Parser] = &[
    STRICT,
    Parser { name: "bare LF", bare_lf: true, ..STRICT },
    Parser { name: "bare CR", bare_cr: true, ..STRICT },
    Parser { name: "folded lines", folds_lines: true, ..STRICT },
    Parser { name: "white space before colons", trims_names: true, ..STRICT },
    Parser { name: "underscores", underscore_is_dash: true, ..STRICT },
    Parser { name: "NUL ends", nul_terminates: true, ..STRICT },
    Parser { name: "length first", length_first: true, ..STRICT },
    Parser { name: "last value counts", last_value_counts: true, ..STRICT },
    Parser { name: "last length first", last_value_counts: true, length_first: true, ..STRICT },
    Parser { name: "chunked anywhere", chunked_anywhere: true, ..STRICT },
    Parser { name: "control characters removed", drops_controls: true, ..STRICT },
    Parser { name: "loose numbers", loose_numbers: true, ..STRICT },
    Parser { name: "loose numbers of lengths", loose_numbers: true, length_first: true, ..STRICT },
    Parser { name: "numbers of 64 bits", wraps_at_64_bits: true, ..STRICT },
    Parser { name: "loose chunk ends", loose_chunk_end: true, bare_lf: true, ..STRICT },
    Parser { name: "trailers count", trailers_count: true, ..STRICT },
    Parser { name: "loose start lines", loose_start_line: true, ..STRICT },
    Parser { name: "connection options removed", drops_connection_options: true, ..STRICT },
    Parser {
        name: "all of these",
        bare_lf: true,
        bare_cr: true,
        folds_lines: true,
        trims_names: true,
        underscore_is_dash: true,
        nul_terminates: true,
        chunked_anywhere: true,
        drops_controls: true,
        loose_numbers: true,
        loose_chunk_end: true,
        loose_start_line: true,
        ..STRICT
    },
];

/// The kind of messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    Requests,
    Responses,
}

/// A reason to stop before the end of the bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ParseError {
    /// The message is incomplete.
    Incomplete,
    /// The message is malformed.
    Malformed(String),
}

/// A message as a parser interprets it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ParsedMessage {
    pub(super) start: String,
    pub(super) body: Vec<u8>,
    /// Number of Via lines of the proxy.
    pub(super) via: usize,
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Parser {
    /// Parses messages. Returns them, and the error that follows them.
    pub(super) fn read(
        &self,
        bytes: &[u8],
        side: Side,
    ) -> (Vec<ParsedMessage>, Option<ParseError>) {
        let mut cursor = Cursor { bytes, at: 0 };
        let mut all = Vec::new();
        while cursor.at < bytes.len() {
            match self.message(&mut cursor, side) {
                Ok(seen) => all.push(seen),
                Err(errors) => return (all, Some(errors)),
            }
        }
        (all, None)
    }

    fn line<'a>(&self, cursor: &mut Cursor<'a>) -> Result<&'a [u8], ParseError> {
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
        Err(ParseError::Incomplete)
    }

    fn message(&self, cursor: &mut Cursor<'_>, side: Side) -> Result<ParsedMessage, ParseError> {
        let mut first = self.line(cursor)?;
        if self.loose_start_line {
            while first.is_empty() {
                first = self.line(cursor)?;
            }
        }
        let start = latin1(first);
        self.check_start_line(first, side)?;
        if side == Side::Requests && self.loose_start_line && !start.contains("HTTP/") {
            // HTTP/0.9
            return Ok(ParsedMessage { start, body: Vec::new(), via: 0 });
        }
        let mut fields: Vec<(String, Vec<u8>)> = Vec::new();
        loop {
            let line = self.line(cursor)?;
            if line.is_empty() {
                break;
            }
            self.field(line, &mut fields)?;
        }
        if self.drops_connection_options {
            let named: Vec<String> = fields
                .iter()
                .filter(|(name, _)| name == "connection")
                .flat_map(|(_, value)| {
                    latin1(value).split(',').map(str::to_owned).collect::<Vec<_>>()
                })
                .map(|option| option.trim().to_ascii_lowercase())
                .collect();
            fields.retain(|(name, _)| !named.contains(name));
        }
        let is_of_proxy =
            |(name, value): &&(String, Vec<u8>)| name == "via" && latin1(value).contains("hearken");
        let via = fields.iter().filter(is_of_proxy).count();
        let body = self.body(cursor, &mut fields, side, &start)?;
        Ok(ParsedMessage { start, body, via })
    }

    fn check_start_line(&self, first: &[u8], side: Side) -> Result<(), ParseError> {
        let fine = match side {
            Side::Responses => first.starts_with(b"HTTP/1."),
            Side::Requests if self.loose_start_line => !first.is_empty(),
            Side::Requests => {
                let parts: Vec<&[u8]> = first.split(|&byte| byte == b' ').collect();
                parts.len() == 3
                    && parts[2].starts_with(b"HTTP/1.")
                    && parts.iter().all(|part| !part.is_empty())
            }
        };
        if fine {
            Ok(())
        } else {
            Err(ParseError::Malformed(format!("start line {:?}", latin1(first))))
        }
    }

    fn field(&self, line: &[u8], fields: &mut Vec<(String, Vec<u8>)>) -> Result<(), ParseError> {
        let blank = |byte: &u8| matches!(byte, b' ' | b'\t' | 0x0b | 0x0c);
        if line.first().is_some_and(blank) {
            if self.folds_lines
                && let Some((_, value)) = fields.last_mut()
            {
                value.push(b' ');
                value.extend_from_slice(line);
                return Ok(());
            }
            if !self.trims_names {
                return Err(ParseError::Malformed(format!("field line {:?}", latin1(line))));
            }
        }
        let colon = line.iter().position(|&byte| byte == b':');
        let colon =
            colon.ok_or_else(|| ParseError::Malformed(format!("field line {:?}", latin1(line))))?;
        let (mut name, mut value) = (latin1(&line[..colon]), line[colon + 1..].to_vec());
        if self.nul_terminates {
            name = name.split('\0').next().unwrap_or_default().to_owned();
            let end = value.iter().position(|&byte| byte == 0).unwrap_or(value.len());
            value.truncate(end);
        }
        if self.trims_names {
            name = name.trim().to_owned();
        }
        if self.drops_controls {
            name.retain(|c| !c.is_control());
            value.retain(|&byte| byte > 0x1f && byte != 0x7f);
        }
        name = name.to_ascii_lowercase();
        if self.underscore_is_dash {
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
    ) -> Result<Vec<u8>, ParseError> {
        let one = |name: &str| {
            let mut values = fields.iter().filter(|(of, _)| of == name).map(|(_, value)| value);
            let value = if self.last_value_counts { values.next_back() } else { values.next() };
            value.map(|value| latin1(value).trim_matches([' ', '\t']).to_owned())
        };
        let (length, coding) = (one("content-length"), one("transfer-encoding"));
        let status = start.get(9..12).unwrap_or_default();
        if side == Side::Responses && (status.starts_with('1') || matches!(status, "204" | "304")) {
            return Ok(Vec::new());
        }
        let chunked = coding.as_ref().is_some_and(|coding| {
            let coding = coding.to_ascii_lowercase();
            let last_value_counts = coding.rsplit(',').next().unwrap_or_default().trim();
            last_value_counts == "chunked" || self.chunked_anywhere && coding.contains("chunked")
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
    ) -> Result<Vec<u8>, ParseError> {
        let mut body = Vec::new();
        loop {
            let line = latin1(self.line(cursor)?);
            let size = line.split(';').next().unwrap_or_default().trim_matches([' ', '\t']);
            let size = self.number(size, 16)?;
            if size == 0 {
                break;
            }
            body.extend(cursor.take(size)?);
            let end = self.line(cursor)?;
            if !end.is_empty() && !self.loose_chunk_end {
                return Err(ParseError::Malformed(format!("{:?} after a chunk", latin1(end))));
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
                    return Err(ParseError::Malformed(format!("trailer {:?}", latin1(line))));
                }
            }
        }
        Ok(body)
    }

    fn number(&self, text: &str, radix: u32) -> Result<usize, ParseError> {
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
        let number = number.ok_or_else(|| ParseError::Malformed(format!("number {text:?}")))?;
        let number = if self.wraps_at_64_bits { number & u128::from(u64::MAX) } else { number };
        usize::try_from(number).map_err(|_| ParseError::Malformed(format!("number {text:?}")))
    }
}

impl Cursor<'_> {
    fn take(&mut self, count: usize) -> Result<Vec<u8>, ParseError> {
        let end = self.at.checked_add(count).filter(|&end| end <= self.bytes.len());
        let end = end.ok_or(ParseError::Incomplete)?;
        let taken = self.bytes[self.at..end].to_vec();
        self.at = end;
        Ok(taken)
    }
}

/// Decodes ISO 8859-1.
fn latin1(bytes: &[u8]) -> String {
    let mut text = String::new();
    for &byte in bytes {
        let _ = text.write_char(char::from(byte));
    }
    text
}
