//! The file that a result is written to.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::Failure;

/// A file for a result. It is opened before the run, so that no result is lost to an error. Its content stays until the
/// result is written.
pub(crate) struct ResultFile {
    path: PathBuf,
    file: File,
    append: bool,
}

impl ResultFile {
    /// Opens a file for writing, and creates it if it does not exist.
    pub(crate) fn open(path: &Path) -> Result<ResultFile, Failure> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let cannot = |error| format!("cannot write to '{}': {error}", path.display());
        let file = file.map_err(|error| Failure::usage(cannot(error)))?;
        Ok(ResultFile { path: path.to_owned(), file, append: false })
    }

    /// Opens a file for writing at its end, and creates it if it does not exist.
    pub(crate) fn append(path: &Path) -> Result<ResultFile, Failure> {
        let file = OpenOptions::new().append(true).create(true).open(path);
        let cannot = |error| format!("cannot write to '{}': {error}", path.display());
        let file = file.map_err(|error| Failure::usage(cannot(error)))?;
        Ok(ResultFile { path: path.to_owned(), file, append: true })
    }

    /// Returns the path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the content of the file, or adds to it if it was opened by [`append`](ResultFile::append).
    pub(crate) fn write(mut self, bytes: &[u8]) -> Result<(), Failure> {
        // A pipe or a device has no length.
        let regular = self.file.metadata().is_ok_and(|metadata| metadata.is_file());
        let truncated = if regular && !self.append { self.file.set_len(0) } else { Ok(()) };
        truncated.and_then(|()| self.file.write_all(bytes)).map_err(|error| {
            let path = self.path.display();
            Failure::runtime(format!("cannot write the result to '{path}': {error}"))
        })
    }
}
