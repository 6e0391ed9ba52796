//! The journal of a run: a line for each result, so a run that was killed can be resumed.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::plan::PlannedExperiment;
use crate::results::Sample;

/// Name of the journal in the output directory.
pub const FILE: &str = "journal.jsonl";
/// Format name and version.
const SCHEMA: &str = "hearken-lab-journal/1";

/// A line of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Entry {
    /// The first line.
    Header(Header),
    /// Saturation of the reference server of an experiment.
    Saturation {
        /// Name of the experiment.
        experiment: String,
        /// Arrivals per second.
        rate: f64,
    },
    /// A measurement.
    Sample(Sample),
}

/// Identity of a run. Runs with different headers do not share a journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Format name and version.
    schema: String,
    /// Arguments of `hearken lab run`.
    pub arguments: Vec<String>,
    /// Start of the run, RFC 3339.
    pub date: String,
    seed: u64,
    experiments: Vec<(String, String)>,
}

impl Header {
    /// Creates the header of a run that starts now.
    pub fn new(arguments: Vec<String>, seed: u64, experiments: &[PlannedExperiment]) -> Header {
        let date = jiff::Timestamp::now().round(jiff::Unit::Second).unwrap_or_default();
        let text = |planned: &PlannedExperiment| {
            (planned.experiment.name.clone(), planned.experiment.text.clone())
        };
        Header {
            schema: SCHEMA.to_owned(),
            arguments,
            date: date.to_string(),
            seed,
            experiments: experiments.iter().map(text).collect(),
        }
    }

    /// Checks that a run with this header can continue the journal of `earlier`.
    fn check(&self, earlier: &Header) -> Result<(), String> {
        if self.schema != earlier.schema {
            return Err(format!("its format is '{}', expected '{}'", earlier.schema, self.schema));
        }
        let changed = self.experiments.iter().find(|own| !earlier.experiments.contains(own));
        match changed {
            Some((name, _)) => Err(format!("experiment '{name}' has changed since")),
            None if self.arguments != earlier.arguments || self.seed != earlier.seed => {
                Err("it has other arguments".into())
            }
            None => Ok(()),
        }
    }
}

/// An open journal.
#[derive(Debug)]
pub struct Journal {
    file: Option<File>,
    /// Start of the run.
    pub date: String,
    /// Results before the run was resumed.
    pub entries: Vec<Entry>,
}

impl Journal {
    /// Creates a journal in a directory, in place of an earlier one.
    pub fn create(directory: &Path, header: Header) -> Result<Journal, LabError> {
        let path = directory.join(FILE);
        let file = File::create(&path).map_err(LabError::file("create", &path))?;
        let mut journal =
            Journal { file: Some(file), date: header.date.clone(), entries: Vec::new() };
        journal.append(&Entry::Header(header))?;
        Ok(journal)
    }

    /// Creates a journal that is not stored.
    pub fn in_memory(header: &Header) -> Journal {
        Journal { file: None, date: header.date.clone(), entries: Vec::new() }
    }

    /// Opens the journal of an earlier run with the same header, and discards an incomplete last line.
    pub fn resume(directory: &Path, header: &Header) -> Result<Journal, LabError> {
        let path = directory.join(FILE);
        let (earlier, entries, length) = read(directory)?;
        header.check(&earlier).map_err(|problem| {
            LabError::Config(format!("cannot resume '{}': {problem}", path.display()))
        })?;
        let file = OpenOptions::new().append(true).open(&path);
        let file = file.map_err(LabError::file("open", &path))?;
        file.set_len(length).map_err(LabError::file("truncate", &path))?;
        Ok(Journal { file: Some(file), date: earlier.date, entries })
    }

    /// Adds an entry with one system call, so that at most the last line can be incomplete.
    pub fn append(&mut self, entry: &Entry) -> Result<(), LabError> {
        let Some(file) = &mut self.file else { return Ok(()) };
        // Fails only for maps with non-string keys, and there are none.
        let line = serde_json::to_string(entry).unwrap_or_default() + "\n";
        file.write_all(line.as_bytes()).map_err(LabError::file("write", Path::new(FILE)))
    }
}

/// Reads the header of the journal in a directory.
pub fn header(directory: &Path) -> Result<Header, LabError> {
    read(directory).map(|(header, ..)| header)
}

/// Reads the header, the entries and the length of the complete lines.
fn read(directory: &Path) -> Result<(Header, Vec<Entry>, u64), LabError> {
    let path = directory.join(FILE);
    let file = File::open(&path).map_err(LabError::file("open", &path))?;
    let mut reader = BufReader::new(file);
    let (mut header, mut entries, mut length) = (None, Vec::new(), 0);
    let mut line = String::new();
    loop {
        line.clear();
        let bytes = reader.read_line(&mut line).map_err(LabError::file("read", &path))?;
        if !line.ends_with('\n') {
            break;
        }
        match serde_json::from_str(&line) {
            Ok(Entry::Header(first)) => header = Some(first),
            Ok(entry) => entries.push(entry),
            Err(error) => {
                let path = path.display();
                return Err(LabError::Config(format!("'{path}' is not a journal: {error}")));
            }
        }
        length += bytes as u64;
    }
    let none = || LabError::Config(format!("'{}' contains no run", path.display()));
    Ok((header.ok_or_else(none)?, entries, length))
}
