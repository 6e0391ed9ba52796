//! A file as it was read, and where in it something is wrong.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::Failure;

/// The longest file.
const LONGEST: u64 = 1 << 20;

/// Something that is wrong.
#[derive(Debug)]
pub(crate) struct Wrong {
    /// Where in the text, in bytes.
    pub(crate) at: usize,
    pub(crate) what: String,
}

/// A file, as it was read.
pub(crate) struct Text {
    pub(crate) name: String,
    pub(crate) text: String,
}

impl Text {
    /// The text of a file; `-` is standard input.
    pub(crate) fn read(path: &Path) -> Result<Text, Failure> {
        let stdin = path == Path::new("-");
        let name = if stdin { "stdin".to_owned() } else { path.display().to_string() };
        let cannot = |error: io::Error| Failure::usage(format!("{name}: cannot be read: {error}"));
        let from: Box<dyn Read> = match stdin {
            true => Box::new(io::stdin()),
            false => Box::new(File::open(path).map_err(cannot)?),
        };
        let mut bytes = Vec::new();
        from.take(LONGEST + 1).read_to_end(&mut bytes).map_err(cannot)?;
        if bytes.len() as u64 > LONGEST {
            let what =
                format!("{name}: longer than {} MiB, which no configuration is", LONGEST >> 20);
            return Err(Failure::usage(what));
        }
        match String::from_utf8(bytes) {
            Ok(text) => Ok(Text { name, text }),
            Err(error) => {
                let at = error.utf8_error().valid_up_to();
                let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
                let wrong = Wrong { at, what: "this is not UTF-8; write it as text".to_owned() };
                Err(Text { name, text }.wrong(vec![wrong]))
            }
        }
    }

    /// `FILE:LINE:COLUMN: WHAT`; columns are counted in characters.
    pub(crate) fn at(&self, wrong: &Wrong) -> String {
        let mut at = wrong.at.min(self.text.len());
        while !self.text.is_char_boundary(at) {
            at -= 1;
        }
        let before = &self.text[..at];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        format!("{}:{line}:{column}: {}", self.name, wrong.what)
    }

    /// All of it, in the order of the file.
    pub(crate) fn wrong(&self, mut all: Vec<Wrong>) -> Failure {
        all.sort_by_key(|wrong| wrong.at);
        told(&all.iter().map(|wrong| self.at(wrong)).collect::<Vec<_>>())
    }
}

/// A failure that is several, each on a line of its own.
pub(crate) fn told(lines: &[String]) -> Failure {
    Failure::usage(lines.join("\nhearken: "))
}
