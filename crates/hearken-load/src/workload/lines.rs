//! Line-by-line reading of workload files, with limits and errors that contain the line number.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::config::LoadError;

/// Maximum length of a line in bytes.
const MAX_LINE_BYTES: usize = 64 * 1024;
/// Maximum size of a file in bytes.
pub(super) const MAX_FILE_BYTES: u64 = 1 << 30;
pub(super) const FILE_TOO_LARGE: &str = "the file exceeds 1 GiB; split it";

/// A reader of lines, or of entries with another terminator.
#[derive(Debug)]
pub(super) struct Lines {
    path: PathBuf,
    input: BufReader<File>,
    separator: u8,
    number: u64,
    remaining: u64,
}

impl Lines {
    pub(super) fn open(path: &Path, separator: u8) -> Result<Lines, LoadError> {
        let file = File::open(path).map_err(|error| file_error(path, error.to_string()))?;
        let input = BufReader::with_capacity(MAX_LINE_BYTES, file);
        Ok(Lines { path: path.to_owned(), input, separator, number: 0, remaining: MAX_FILE_BYTES })
    }

    /// Reads the next line into `line`, without its terminator. Returns `false` at the end of the file.
    pub(super) fn next(&mut self, line: &mut Vec<u8>) -> Result<bool, LoadError> {
        line.clear();
        let mut input = (&mut self.input).take(MAX_LINE_BYTES as u64 + 2);
        let count = input
            .read_until(self.separator, line)
            .map_err(|error| file_error(&self.path, error.to_string()))?;
        if count == 0 {
            return Ok(false);
        }
        self.number += 1;
        self.remaining = self
            .remaining
            .checked_sub(count as u64)
            .ok_or_else(|| file_error(&self.path, FILE_TOO_LARGE.to_owned()))?;
        if line.last() == Some(&self.separator) {
            line.pop();
            if self.separator == b'\n' && line.last() == Some(&b'\r') {
                line.pop();
            }
        }
        if line.len() > MAX_LINE_BYTES {
            return Err(self.error("the line exceeds 64 KiB"));
        }
        Ok(true)
    }

    /// Creates an error about the line that was read last.
    pub(super) fn error(&self, reason: impl Into<String>) -> LoadError {
        let reason = printable(reason.into());
        LoadError::File { path: self.path.clone(), line: Some(self.number), reason }
    }
}

/// Creates an error about a file.
pub(super) fn file_error(path: &Path, reason: String) -> LoadError {
    LoadError::File { path: path.to_owned(), line: None, reason: printable(reason) }
}

/// Replaces all control characters, because a reason may quote the file and a terminal would interpret them.
fn printable(reason: String) -> String {
    match reason.contains(char::is_control) {
        true => reason.replace(char::is_control, "?"),
        false => reason,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::{Lines, file_error};

    fn read(text: &[u8], separator: u8) -> Result<Vec<Vec<u8>>, String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text).unwrap();
        let mut lines = Lines::open(file.path(), separator).unwrap();
        let (mut line, mut all) = (Vec::new(), Vec::new());
        while lines.next(&mut line).map_err(|error| error.to_string())? {
            all.push(line.clone());
        }
        Ok(all)
    }

    #[test]
    fn reads_lines_without_terminators() {
        let lines = read(b"a\n\nb\r\n c", b'\n').unwrap();
        assert_eq!(lines, [&b"a"[..], b"", b"b", b" c"]);
        assert_eq!(read(b"/a\0/b\n\0", b'\0').unwrap(), [&b"/a"[..], b"/b\n"]);
        assert!(read(b"", b'\n').unwrap().is_empty());
    }

    #[test]
    fn limits_the_length_of_lines() {
        let mut text = vec![b'x'; 64 * 1024];
        text.extend(b"\n");
        assert!(read(&text, b'\n').is_ok());
        text.splice(0..0, *b"a\nx");
        let error = read(&text, b'\n').unwrap_err();
        assert!(error.contains("line 2") && error.contains("64 KiB"), "{error}");
        let error = Lines::open("/nonexistent/file".as_ref(), b'\n').unwrap_err().to_string();
        assert!(error.contains("/nonexistent/file"), "{error}");
        let mut lines = Lines::open("/".as_ref(), b'\n').unwrap();
        assert!(lines.next(&mut Vec::new()).is_err());
    }

    #[test]
    fn errors_contain_no_control_characters() {
        let lines = Lines::open("/dev/null".as_ref(), b'\n').unwrap();
        for error in [lines.error("'\x1b[2J'"), file_error("/f".as_ref(), "'\x1b[2J'".to_owned())] {
            assert!(error.to_string().ends_with("'?[2J'"), "{error:?}");
        }
    }
}
