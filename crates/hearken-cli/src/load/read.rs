//! Reading results from files, which may contain anything.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use hearken_load::{Report, SCHEMA};
use serde::Deserialize;

use crate::Failure;

/// Maximum size of a result in bytes. A day in intervals of one second takes a twentieth of it.
const MAX_SIZE: u64 = 1 << 28;

/// The field that identifies the kind and version of a result.
#[derive(Deserialize)]
struct Header {
    schema: Option<String>,
}

/// Reads and checks a result.
pub(super) fn read(path: &Path) -> Result<Report, Failure> {
    let failure = |reason: String| {
        let text = format!("cannot read result '{}': {reason}", path.display());
        Failure::usage(text.replace(char::is_control, "?"))
    };
    let mut bytes = Vec::new();
    let mut file = File::open(path).map_err(|error| failure(error.to_string()))?.take(MAX_SIZE + 1);
    file.read_to_end(&mut bytes).map_err(|error| failure(error.to_string()))?;
    if bytes.len() as u64 > MAX_SIZE {
        return Err(failure(format!("larger than {} MiB", MAX_SIZE >> 20)));
    }
    let invalid =
        |error: serde_json::Error| failure(format!("not a result of hearken load: {error}"));
    let Header { schema } = serde_json::from_slice(&bytes).map_err(invalid)?;
    match schema {
        Some(schema) if schema == SCHEMA => {}
        Some(schema) => {
            let schema: String = schema.chars().take(40).collect();
            return Err(failure(format!(
                "schema '{schema}' is not supported; this version reads {SCHEMA}"
            )));
        }
        None => {
            let reason = "not a result of hearken load --json: field 'schema' is missing";
            return Err(failure(reason.to_owned()));
        }
    }
    let mut report: Report = serde_json::from_slice(&bytes).map_err(invalid)?;
    report.validate().map_err(|error| failure(error.to_string()))?;
    report.sanitise();
    Ok(report)
}
