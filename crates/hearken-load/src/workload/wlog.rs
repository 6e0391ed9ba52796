//! httperf's `--wlog B,F`: a file of paths, each ended by a NUL byte, asked for in their order.

use std::path::Path;

use super::lines::{Lines, whole};
use super::message::{Maker, Request};
use super::{Kind, List, STEPS_MAX, TOO_MANY};
use crate::config::LoadError;

/// Reads the file. What is wrong in it is named by the number of the entry, as of a line.
pub(super) fn read(path: &Path, repeat: bool, maker: &mut Maker<'_>) -> Result<Kind, LoadError> {
    let mut entries = Lines::open(path, b'\0')?;
    let (mut entry, mut steps) = (Vec::new(), Vec::new());
    while entries.next(&mut entry)? {
        // httperf leaves out empty ones, too; a newline at the end is an editor's.
        if entry.is_empty() || entry == b"\n" {
            continue;
        }
        let text = str::from_utf8(&entry).map_err(|_| entries.wrong("it is not a path"))?;
        if text.contains('\n') {
            return Err(entries.wrong("it has a line break; a NUL byte ends each path here"));
        }
        if steps.len() >= STEPS_MAX {
            return Err(entries.wrong(TOO_MANY));
        }
        steps.push(
            maker.add(&Request::of(text)).map_err(|reason| entries.wrong(reason.to_string()))?,
        );
    }
    if steps.is_empty() {
        return Err(whole(path, "it names no path; write some, with a NUL byte after each".into()));
    }
    Ok(Kind::List(List { steps: steps.into(), repeat, at: None }))
}
