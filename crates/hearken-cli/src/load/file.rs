//! A file that a result is written to.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::Failure;

/// Opened before there is a result, so that one that cannot be written is not measured; what an earlier
/// one has left there stays until then.
pub(crate) struct ResultFile {
    path: PathBuf,
    file: File,
}

impl ResultFile {
    pub(crate) fn open(path: &Path) -> Result<ResultFile, Failure> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let cannot = |error| format!("cannot write to {}: {error}", path.display());
        let file = file.map_err(|error| Failure::usage(cannot(error)))?;
        Ok(ResultFile { path: path.to_owned(), file })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Has it contain these bytes and nothing else.
    pub(crate) fn write(mut self, bytes: &[u8]) -> Result<(), Failure> {
        // A pipe or a device has no length.
        let regular = self.file.metadata().is_ok_and(|metadata| metadata.is_file());
        let emptied = if regular { self.file.set_len(0) } else { Ok(()) };
        emptied.and_then(|()| self.file.write_all(bytes)).map_err(|error| {
            Failure::runtime(format!("writing the result to {}: {error}", self.path.display()))
        })
    }
}
