//! Files for httperf's `--wlog B,F`: paths in order, each terminated by a NUL byte.

use std::path::Path;

use super::lines::{Lines, file_error};
use super::message::{MessageBuilder, Request};
use super::{List, MAX_REQUESTS, Selection, TOO_MANY};
use crate::config::LoadError;

/// Reads the file. Errors refer to the number of the entry in place of a line number.
pub(super) fn read(
    path: &Path,
    repeat: bool,
    builder: &mut MessageBuilder<'_>,
) -> Result<Selection, LoadError> {
    let mut entries = Lines::open(path, b'\0')?;
    let (mut entry, mut steps) = (Vec::new(), Vec::new());
    while entries.next(&mut entry)? {
        // httperf skips empty entries too. Editors add a newline at the end.
        if entry.is_empty() || entry == b"\n" {
            continue;
        }
        let text = str::from_utf8(&entry).map_err(|_| entries.error("invalid UTF-8"))?;
        if text.contains('\n') {
            return Err(entries.error("line break in a path; paths are terminated by NUL bytes"));
        }
        if steps.len() >= MAX_REQUESTS {
            return Err(entries.error(TOO_MANY));
        }
        steps.push(
            builder.add(&Request::new(text)).map_err(|reason| entries.error(reason.to_string()))?,
        );
    }
    if steps.is_empty() {
        return Err(file_error(
            path,
            "no paths in the file; expected a NUL byte after each".into(),
        ));
    }
    Ok(Selection::List(List { steps: steps.into(), repeat, times: None }))
}
