//! Opens files beneath a directory, and never outside it.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::file_version::FileVersion;
use super::files::Files;
use super::location::{Directories, Location};

/// A directory beneath which files are opened.
#[derive(Debug)]
pub(super) struct Root<F: Files> {
    pub(super) files: F,
    /// Absolute path with unresolved symbolic links, so that a deployment can switch a link to
    /// another directory.
    path: PathBuf,
    directory: F::File,
    version: FileVersion,
    directories: Directories,
}

impl<F: Files> Root<F> {
    pub(super) fn open(files: F, path: &Path) -> io::Result<Root<F>> {
        let path = std::path::absolute(path)?;
        let (directory, version) = find_directory(&files, &path)?;
        Ok(Root { files, path, directory, version, directories: Directories::default() })
    }

    /// Opens the directory that the path now refers to, if it has changed. Returns whether it has.
    /// If the path does not refer to a directory, the old one stays open.
    pub(super) fn refresh(&mut self) -> bool {
        if self.path_version().is_none_or(|now| now.same_file(&self.version)) {
            return false;
        }
        match find_directory(&self.files, &self.path) {
            Ok((directory, version)) => {
                self.directory = directory;
                self.version = version;
                true
            }
            Err(_) => false,
        }
    }

    /// Returns whether the path refers to the open directory.
    pub(super) fn is_current(&self) -> bool {
        self.path_version().is_some_and(|now| now.same_file(&self.version))
    }

    /// Returns the version of the directory that the path refers to.
    fn path_version(&self) -> Option<FileVersion> {
        let path = CString::new(self.path.as_os_str().as_bytes()).ok()?;
        self.files.path_status(&path).ok().map(|status| status.version)
    }

    /// Finds a file by its normalised relative path. Returns it, and whether the path may contain
    /// symbolic links.
    pub(super) fn find(&self, relative: &[u8]) -> Result<(F::File, bool), Errno> {
        match self.files.find(&self.directory, relative, false) {
            Err(Errno::LOOP) => self.find_following_links(relative).map(|found| (found, true)),
            found => found.map(|found| (found, false)),
        }
    }

    /// Finds a file and follows symbolic links in its path.
    pub(super) fn find_following_links(&self, relative: &[u8]) -> Result<F::File, Errno> {
        self.files.find(&self.directory, relative, true)
    }

    /// Returns the location of a file that was opened in this turn.
    pub(super) fn location(
        &mut self,
        relative: &[u8],
        has_links: bool,
        turn: u64,
    ) -> Option<Location> {
        let root = self.path.as_os_str().as_bytes();
        self.directories.location(root, relative, has_links, turn)
    }

    /// Fills the reserve with the number of descriptors needed to open a file, if available.
    pub(super) fn fill_reserve(&self, reserve: &mut Vec<F::File>) {
        while reserve.len() < 2
            && let Ok(descriptor) = self.files.duplicate(&self.directory)
        {
            reserve.push(descriptor);
        }
    }
}

fn find_directory<F: Files>(files: &F, path: &Path) -> io::Result<(F::File, FileVersion)> {
    let directory = files.find_directory(path)?;
    let version = files.status(&directory)?.version;
    Ok((directory, version))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::super::files::Disk;
    use super::*;

    #[test]
    fn rejects_roots_that_are_not_directories() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert_eq!(Root::open(Disk, &file).unwrap_err().kind(), io::ErrorKind::NotADirectory);
        let none = dir.path().join("none");
        assert_eq!(Root::open(Disk, &none).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn follows_a_changed_link() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["one", "two"] {
            fs::create_dir(at(name)).unwrap();
            fs::write(at(name).join(name), "").unwrap();
        }
        symlink("one", at("current")).unwrap();
        let mut root = Root::open(Disk, &at("current")).unwrap();
        assert!(root.find(b"one").is_ok() && !root.refresh());
        symlink("two", at("next")).unwrap();
        fs::rename(at("next"), at("current")).unwrap();
        assert!(root.refresh() && root.find(b"two").is_ok() && root.find(b"one").is_err());
        fs::remove_file(at("current")).unwrap();
        assert!(!root.refresh() && root.find(b"two").is_ok());
    }
}
