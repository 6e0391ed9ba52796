//! The text of a config file, and positions in it.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::Failure;

/// Maximum size of a config file in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// An error at a position.
#[derive(Debug)]
pub(crate) struct Problem {
    /// Offset in the text, in bytes.
    pub(crate) at: usize,
    pub(crate) message: String,
}

/// The text of a config file.
pub(crate) struct Text {
    pub(crate) name: String,
    pub(crate) text: String,
}

impl Text {
    /// Reads a config file; `-` is standard input.
    pub(crate) fn read(path: &Path) -> Result<Text, Failure> {
        let stdin = path == Path::new("-");
        let name = if stdin { "stdin".to_owned() } else { path.display().to_string() };
        let failure = |error: &dyn std::fmt::Display| {
            Failure::usage(format!("cannot read config file '{name}': {error}"))
        };
        let source: io::Result<Box<dyn Read>> = match stdin {
            true => Ok(Box::new(io::stdin())),
            false => File::open(path).map(|file| Box::new(file) as Box<dyn Read>),
        };
        let mut bytes = Vec::new();
        source
            .and_then(|source| source.take(MAX_BYTES + 1).read_to_end(&mut bytes))
            .map_err(|error| failure(&error))?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(failure(&format_args!("larger than {} MiB", MAX_BYTES >> 20)));
        }
        match String::from_utf8(bytes) {
            Ok(text) => Ok(Text { name, text }),
            Err(error) => {
                let at = error.utf8_error().valid_up_to();
                let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
                let problem = Problem { at, message: "not valid UTF-8".to_owned() };
                Err(Text { name, text }.failure(vec![problem]))
            }
        }
    }

    /// Returns `line L, column C: MESSAGE`. Columns are counted in characters.
    pub(crate) fn locate(&self, problem: &Problem) -> String {
        let mut at = problem.at.min(self.text.len());
        while !self.text.is_char_boundary(at) {
            at -= 1;
        }
        let before = &self.text[..at];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        format!("line {line}, column {column}: {}", problem.message)
    }

    /// Returns a failure with all problems, in the order of the file.
    pub(crate) fn failure(&self, mut problems: Vec<Problem>) -> Failure {
        problems.sort_by_key(|problem| problem.at);
        let line =
            |problem| format!("cannot read config file '{}': {}", self.name, self.locate(problem));
        failures(&problems.iter().map(line).collect::<Vec<_>>())
    }
}

/// Returns a failure with several messages, each on a line.
pub(crate) fn failures(lines: &[String]) -> Failure {
    Failure::usage(lines.join("\nhearken: "))
}
