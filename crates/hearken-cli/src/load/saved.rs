//! The directory in which `hearken load ab` stores the result of each run.

use std::fs;
use std::path::{Path, PathBuf};

use hearken_load::Report;

use super::to_json;
use crate::Failure;

/// A directory for results. It is empty at first, so that results of earlier runs are not mixed with new ones.
pub(super) struct SavedRuns {
    dir: PathBuf,
    /// Digits of the number of a run in file names.
    digits: usize,
}

impl SavedRuns {
    /// Creates the directory, or uses an empty one.
    pub(super) fn create(dir: &Path, runs: usize) -> Result<SavedRuns, Failure> {
        let path = dir.display();
        let cannot =
            |error| Failure::usage(format!("cannot save results in directory '{path}': {error}"));
        fs::create_dir_all(dir).map_err(cannot)?;
        if fs::read_dir(dir).map_err(cannot)?.next().is_some() {
            return Err(Failure::usage(format!(
                "cannot save results in directory '{path}': it is not empty"
            )));
        }
        Ok(SavedRuns { dir: dir.to_owned(), digits: runs.to_string().len() })
    }

    /// Writes the result of a run. Pairs are numbered from 0, and file names from 1.
    pub(super) fn write(&self, side: &str, pair: usize, report: &Report) -> Result<(), Failure> {
        let (side, number, digits) = (side.to_lowercase(), pair + 1, self.digits);
        let path = self.dir.join(format!("{side}-{number:0digits$}.json"));
        let json = to_json(report).map_err(Failure::runtime)?;
        fs::write(&path, json).map_err(|error| {
            Failure::runtime(format!("cannot write the result to '{}': {error}", path.display()))
        })
    }
}
