//! Detects changes of files.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The state of files, from which a change is recognised.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Stamps(Vec<Option<Stamp>>);

/// Device, inode, size, and times of modification and status change.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Stamp([i128; 5]);

impl Stamps {
    /// Returns the state of files. Symbolic links are followed.
    pub(super) fn of<'a>(paths: impl Iterator<Item = &'a Path>) -> Stamps {
        Stamps(paths.map(|path| fs::metadata(path).ok().map(|file| Stamp::of(&file))).collect())
    }
}

impl Stamp {
    fn of(file: &fs::Metadata) -> Stamp {
        let nanoseconds = |seconds: i64, rest: i64| i128::from(seconds) << 32 | i128::from(rest);
        Stamp([
            file.dev().into(),
            file.ino().into(),
            file.size().into(),
            nanoseconds(file.mtime(), file.mtime_nsec()),
            nanoseconds(file.ctime(), file.ctime_nsec()),
        ])
    }
}
