//! A file that describes a workload, read line by line: bounded, with errors that name the line.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::config::LoadError;

/// The longest line, and the longest file.
const LINE_MAX: usize = 64 * 1024;
const FILE_MAX: u64 = 1 << 30;

/// The lines of a file, or what else its separator ends.
#[derive(Debug)]
pub(super) struct Lines {
    path: PathBuf,
    input: BufReader<File>,
    separator: u8,
    number: u64,
    left: u64,
}

impl Lines {
    pub(super) fn open(path: &Path, separator: u8) -> Result<Lines, LoadError> {
        let file = File::open(path).map_err(|error| whole(path, error.to_string()))?;
        let input = BufReader::with_capacity(LINE_MAX, file);
        Ok(Lines { path: path.to_owned(), input, separator, number: 0, left: FILE_MAX })
    }

    /// Fills `line` with the next, without what ends it; `false` after the last.
    pub(super) fn next(&mut self, line: &mut Vec<u8>) -> Result<bool, LoadError> {
        line.clear();
        let mut input = (&mut self.input).take(LINE_MAX as u64 + 2);
        let count = input
            .read_until(self.separator, line)
            .map_err(|error| whole(&self.path, error.to_string()))?;
        if count == 0 {
            return Ok(false);
        }
        self.number += 1;
        self.left = self
            .left
            .checked_sub(count as u64)
            .ok_or_else(|| whole(&self.path, "it has more than 1 GiB; split it".to_owned()))?;
        if line.last() == Some(&self.separator) {
            line.pop();
            if self.separator == b'\n' && line.last() == Some(&b'\r') {
                line.pop();
            }
        }
        if line.len() > LINE_MAX {
            return Err(self.wrong("it has more than 64 KiB"));
        }
        Ok(true)
    }

    /// What is wrong with the line that was read last.
    pub(super) fn wrong(&self, reason: impl Into<String>) -> LoadError {
        let reason = reason.into();
        LoadError::File { path: self.path.clone(), line: Some(self.number), reason }
    }
}

/// What is wrong with a file as a whole.
pub(super) fn whole(path: &Path, reason: String) -> LoadError {
    LoadError::File { path: path.to_owned(), line: None, reason }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::Lines;

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
    fn lines_and_their_ends() {
        let lines = read(b"a\n\nb\r\n c", b'\n').unwrap();
        assert_eq!(lines, [&b"a"[..], b"", b"b", b" c"]);
        assert_eq!(read(b"/a\0/b\n\0", b'\0').unwrap(), [&b"/a"[..], b"/b\n"]);
        assert!(read(b"", b'\n').unwrap().is_empty());
    }

    #[test]
    fn bounds() {
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
}
