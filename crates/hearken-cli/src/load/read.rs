//! Results that were stored: whatever is in the file, what comes out can be worked with.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use hearken_load::{Report, SCHEMA};
use serde::Deserialize;

use crate::Failure;

/// A day in intervals of a second is a twentieth of it.
const LARGEST: u64 = 1 << 28;

/// What tells one kind of result from another.
#[derive(Deserialize)]
struct Kind {
    schema: Option<String>,
}

/// The result in a file.
pub(super) fn read(path: &Path) -> Result<Report, Failure> {
    let named = |what: String| {
        let text = format!("{}: {what}", path.display());
        Failure::usage(text.replace(char::is_control, "?"))
    };
    let mut bytes = Vec::new();
    let mut file = File::open(path)
        .map_err(|error| named(format!("cannot read it: {error}")))?
        .take(LARGEST + 1);
    file.read_to_end(&mut bytes).map_err(|error| named(format!("cannot read it: {error}")))?;
    if bytes.len() as u64 > LARGEST {
        return Err(named(format!("it has more than {} MiB: no result has", LARGEST >> 20)));
    }
    let not = |error: serde_json::Error| named(format!("it is no result of hearken load: {error}"));
    let Kind { schema } = serde_json::from_slice(&bytes).map_err(not)?;
    match schema {
        Some(schema) if schema == SCHEMA => {}
        Some(schema) => {
            let schema: String = schema.chars().take(40).collect();
            return Err(named(format!(
                "it is \"{schema}\", and this reads {SCHEMA}: make it anew with this version"
            )));
        }
        None => {
            let what = "it is no result of hearken load: it has no \"schema\"; --json writes one";
            return Err(named(what.to_owned()));
        }
    }
    let mut report: Report = serde_json::from_slice(&bytes).map_err(not)?;
    report.check().map_err(|unsound| named(unsound.to_string()))?;
    report.tidy();
    Ok(report)
}
