//! Files with one history, which tests replay.
//!
//! A file contains lines `key: value`, and comments that start with `#`. The bytes are in
//! hexadecimal, on several indented lines.

use std::fmt::Write as _;
use std::path::Path;
use std::{fs, io};

use crate::finding::Finding;
use crate::kinds::{self, Kind};

/// Version of the format, and of the meaning of decisions.
const FORMAT: &str = "1";
/// Number of bytes per line.
const LINE_BYTES: usize = 40;
/// Maximum number of lines that describe the finding.
const MAX_COMMENT_LINES: usize = 3;

/// A stored history.
#[derive(Clone, Debug)]
pub struct HistoryFile {
    /// The kind.
    pub kind: &'static dyn Kind,
    /// The decisions.
    pub decisions: Vec<u8>,
}

/// The reason why a file cannot be used.
#[derive(Debug)]
pub enum FileError {
    /// The file cannot be read.
    Read(io::Error),
    /// A line is not valid.
    Line(usize, String),
    /// A key is missing.
    Missing(&'static str),
}

impl std::fmt::Display for FileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FileError::Read(error) => write!(f, "{error}"),
            FileError::Line(line, reason) => write!(f, "line {line}: {reason}"),
            FileError::Missing(key) => write!(f, "the key '{key}' is missing"),
        }
    }
}

impl std::error::Error for FileError {}

impl HistoryFile {
    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read or is not valid.
    pub fn read(path: &Path) -> Result<HistoryFile, FileError> {
        HistoryFile::parse(&fs::read_to_string(path).map_err(FileError::Read)?)
    }

    /// Parses the contents of a file.
    ///
    /// # Errors
    /// A line is not valid, or a key is missing.
    pub fn parse(text: &str) -> Result<HistoryFile, FileError> {
        let (mut format, mut kind, mut decisions) = (None, None, None);
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default();
            let invalid = |reason: String| FileError::Line(index + 1, reason);
            if line.trim().is_empty() {
                continue;
            }
            if line.starts_with(' ') {
                let bytes: &mut Vec<u8> =
                    decisions.as_mut().ok_or_else(|| invalid("no key precedes it".to_owned()))?;
                bytes.extend(parse_hex(line.trim()).map_err(invalid)?);
                continue;
            }
            let (key, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.trim();
            match key {
                "format" if value == FORMAT => format = Some(()),
                "format" => {
                    let reason = format!("unsupported format '{value}' (expected '{FORMAT}')");
                    return Err(invalid(reason));
                }
                "kind" => {
                    let found = kinds::find(value);
                    kind = Some(found.ok_or_else(|| invalid(format!("unknown kind '{value}'")))?);
                }
                "decisions" => decisions = Some(parse_hex(value).map_err(invalid)?),
                _ => return Err(invalid(format!("unknown key '{key}'"))),
            }
        }
        format.ok_or(FileError::Missing("format"))?;
        Ok(HistoryFile {
            kind: kind.ok_or(FileError::Missing("kind"))?,
            decisions: decisions.ok_or(FileError::Missing("decisions"))?,
        })
    }

    /// Returns the contents of the file, with the finding as a comment.
    pub fn render(&self, finding: Option<&Finding>) -> String {
        let mut text = String::new();
        let comment = finding.map(ToString::to_string).unwrap_or_default();
        // Backtraces follow the message of a panic.
        for line in comment.lines().take(MAX_COMMENT_LINES) {
            let _ = writeln!(text, "# {line}");
        }
        let _ = writeln!(text, "format: {FORMAT}\nkind: {}\ndecisions:", self.kind.name());
        for bytes in self.decisions.chunks(LINE_BYTES) {
            text.push_str("  ");
            for byte in bytes {
                let _ = write!(text, "{byte:02x}");
            }
            text.push('\n');
        }
        text
    }
}

fn parse_hex(text: &str) -> Result<Vec<u8>, String> {
    let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect();
    match digits {
        Some(digits) if digits.len() % 2 == 0 => {
            Ok(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
        }
        _ => Err(format!("'{text}' is not a sequence of hexadecimal bytes")),
    }
}
