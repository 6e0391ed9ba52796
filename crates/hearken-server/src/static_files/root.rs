//! Opens files beneath a directory, and never outside it.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

use super::file_version::{FileStatus, FileVersion};
use super::location::{Directories, Location};

/// Flags to open a file for reading. `NONBLOCK` avoids waiting for the holder of a lease.
const READ_ONLY: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);
/// Flags to find a file without opening it, because opening a FIFO or a device has side effects.
const PATH_ONLY: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
const DIRECTORY_ONLY: OFlags = PATH_ONLY.union(OFlags::DIRECTORY);

/// Maximum number of lookups of a path when renames interfere.
const MAX_ATTEMPTS: usize = 8;

/// A directory beneath which files are opened.
#[derive(Debug)]
pub(super) struct Root {
    /// Absolute path with unresolved symbolic links, so that a deployment can switch a link to
    /// another directory.
    path: PathBuf,
    directory: OwnedFd,
    version: FileVersion,
    directories: Directories,
}

impl Root {
    pub(super) fn open(path: &Path) -> io::Result<Root> {
        if !fs::metadata(path)?.is_dir() {
            return Err(Errno::NOTDIR.into());
        }
        let path = std::path::absolute(path)?;
        let (directory, version) = open_directory(&path)?;
        Ok(Root { path, directory, version, directories: Directories::default() })
    }

    /// Opens the directory that the path now refers to, if it has changed. Returns whether it has.
    /// If the path does not refer to a directory, the old one stays open.
    pub(super) fn refresh(&mut self) -> bool {
        if self.path_version().is_none_or(|now| now.same_file(&self.version)) {
            return false;
        }
        match open_directory(&self.path) {
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
        FileStatus::from_path(&path).ok().map(|status| status.version)
    }

    /// Finds a file by its normalised relative path. Returns an `O_PATH` descriptor, for use with
    /// [`open_regular`], and whether the path may contain symbolic links.
    pub(super) fn find(&self, relative: &[u8]) -> Result<(OwnedFd, bool), Errno> {
        match self.resolve(relative, ResolveFlags::NO_SYMLINKS) {
            Err(Errno::LOOP) => self.find_following_links(relative).map(|found| (found, true)),
            found => found.map(|found| (found, false)),
        }
    }

    /// Finds a file and follows symbolic links in its path.
    pub(super) fn find_following_links(&self, relative: &[u8]) -> Result<OwnedFd, Errno> {
        self.resolve(relative, ResolveFlags::empty())
    }

    fn resolve(&self, relative: &[u8], resolve: ResolveFlags) -> Result<OwnedFd, Errno> {
        let resolve = resolve | ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        for _ in 0..MAX_ATTEMPTS {
            match openat2(&self.directory, relative, PATH_ONLY, Mode::empty(), resolve) {
                // A link contains `..` and a concurrent rename may have moved its target.
                Err(Errno::AGAIN | Errno::INTR) => {}
                // The kernel lacks openat2, or a seccomp filter rejects it.
                Err(Errno::NOSYS | Errno::PERM) => {
                    return open_by_component(self.directory.as_fd(), relative);
                }
                opened => return opened,
            }
        }
        Err(Errno::AGAIN)
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
    pub(super) fn fill_reserve(&self, reserve: &mut Vec<OwnedFd>) {
        while reserve.len() < 2
            && let Ok(descriptor) = self.directory.try_clone()
        {
            reserve.push(descriptor);
        }
    }
}

fn open_directory(path: &Path) -> io::Result<(OwnedFd, FileVersion)> {
    let directory = openat(CWD, path, DIRECTORY_ONLY, Mode::empty())?;
    // Checks the search permission.
    openat(&directory, c".", DIRECTORY_ONLY, Mode::empty())?;
    reopen(&directory, DIRECTORY_ONLY).map_err(|failed| {
        let reason =
            format!("cannot open files through /proc/thread-self/fd (is /proc mounted?): {failed}");
        io::Error::new(failed.kind(), reason)
    })?;
    let version = FileStatus::from_fd(&directory)?.version;
    Ok((directory, version))
}

/// Opens a regular file for reading, given its `O_PATH` descriptor. Its path may have changed since.
pub(super) fn open_regular(found: &OwnedFd) -> Result<OwnedFd, Errno> {
    reopen(found, READ_ONLY)
}

/// Opens the file of an `O_PATH` descriptor. The kernel provides only `/proc` for this. The path names
/// the thread, because a thread may have its own descriptor table.
fn reopen(found: &OwnedFd, flags: OFlags) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/thread-self/fd/{}", found.as_raw_fd());
    retry_interrupted(|| openat(CWD, &*path, flags, Mode::empty()))
}

/// Finds a file one path component at a time, without following symbolic links. This is stricter
/// than `openat2`, but it cannot leave the root either.
fn open_by_component(root: BorrowedFd<'_>, relative: &[u8]) -> Result<OwnedFd, Errno> {
    let mut names = relative.split(|&byte| byte == b'/').peekable();
    let mut parent: Option<OwnedFd> = None;
    while let Some(name) = names.next() {
        if matches!(name, b"" | b"." | b"..") {
            return Err(Errno::NOENT);
        }
        let at = parent.as_ref().map_or(root, AsFd::as_fd);
        let flags = if names.peek().is_some() { DIRECTORY_ONLY } else { PATH_ONLY };
        let opened =
            retry_interrupted(|| openat(at, name, flags | OFlags::NOFOLLOW, Mode::empty()))?;
        if names.peek().is_none() {
            return Ok(opened);
        }
        parent = Some(opened);
    }
    Err(Errno::NOENT)
}

fn retry_interrupted<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    // The fallback must open the same files as `openat2`, except through symbolic links.
    #[test]
    fn fallback_stays_beneath_the_root() {
        let outer = tempfile::tempdir().unwrap();
        let inner = outer.path().join("root");
        fs::create_dir_all(inner.join("a/b")).unwrap();
        fs::write(outer.path().join("secret"), "s").unwrap();
        fs::write(inner.join("a/b/file"), "f").unwrap();
        symlink("../secret", inner.join("out")).unwrap();
        symlink("b", inner.join("a/link")).unwrap();
        symlink("b/file", inner.join("a/file")).unwrap();
        symlink("/", inner.join("slash")).unwrap();
        let root = Root::open(&inner).unwrap();
        let open = |path: &str| {
            open_by_component(root.directory.as_fd(), path.as_bytes())
                .and_then(|found| open_regular(&found))
        };
        let opened = open("a/b/file").unwrap();
        let named = fs::metadata(inner.join("a/b/file")).unwrap();
        assert_eq!(FileStatus::from_fd(&opened).unwrap().version.size, named.len());
        for path in [
            "",
            "/",
            "out",
            "a/link/file",
            "a/file",
            "slash/etc/passwd",
            "../secret",
            "a/../../secret",
            "a/b/file/",
            "a/b/file/x",
            "none",
            "a//b/file",
            "./a/b/file",
            "a/b/fi\0le",
            "/etc/passwd",
        ] {
            assert!(open(path).is_err(), "{path:?}");
        }
    }

    #[test]
    fn rejects_roots_that_are_not_directories() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert_eq!(Root::open(&file).unwrap_err().kind(), io::ErrorKind::NotADirectory);
        let none = dir.path().join("none");
        assert_eq!(Root::open(&none).unwrap_err().kind(), io::ErrorKind::NotFound);
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
        let mut root = Root::open(&at("current")).unwrap();
        assert!(root.find(b"one").is_ok() && !root.refresh());
        symlink("two", at("next")).unwrap();
        fs::rename(at("next"), at("current")).unwrap();
        assert!(root.refresh() && root.find(b"two").is_ok() && root.find(b"one").is_err());
        fs::remove_file(at("current")).unwrap();
        assert!(!root.refresh() && root.find(b"two").is_ok());
    }
}
