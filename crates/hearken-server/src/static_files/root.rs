//! Opening files beneath a directory, and nowhere else.

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

/// Does not wait for the holder of a lease on the file.
const READ_ONLY: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);
/// Finds a file without opening it: to open a FIFO or a device has effects.
const PATH_ONLY: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
const DIRECTORY_ONLY: OFlags = PATH_ONLY.union(OFlags::DIRECTORY);

/// How often a lookup that raced with a rename is tried again.
const MAX_ATTEMPTS: usize = 8;

/// A directory that nothing is opened outside of.
#[derive(Debug)]
pub(super) struct Root {
    /// Absolute, but with its symbolic links: where one is turned to another directory, as a
    /// deployment does, that is then served.
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
        let (directory, stamp) = open_directory(&path)?;
        Ok(Root { path, directory, version: stamp, directories: Directories::default() })
    }

    /// Opens the directory that the path now leads to, if it is another. If there is none, the
    /// directory that is open stays.
    pub(super) fn refresh(&mut self) -> bool {
        if self.path_version().is_none_or(|now| now.same_file(&self.version)) {
            return false;
        }
        match open_directory(&self.path) {
            Ok((directory, stamp)) => {
                self.directory = directory;
                self.version = stamp;
                true
            }
            Err(_) => false,
        }
    }

    /// Whether the path leads to the directory that is open.
    pub(super) fn is_current(&self) -> bool {
        self.path_version().is_some_and(|now| now.same_file(&self.version))
    }

    /// Returns the stamp of what the path leads to.
    fn path_version(&self) -> Option<FileVersion> {
        let path = CString::new(self.path.as_os_str().as_bytes()).ok()?;
        FileStatus::from_path(&path).ok().map(|status| status.version)
    }

    /// Finds a file: `relative` is its normalised path, without a slash before it. Returns whether there
    /// may be a symbolic link on the way, too.
    ///
    /// The descriptor is good only to look at the file, and for [`open_regular`].
    pub(super) fn find(&self, relative: &[u8]) -> Result<(OwnedFd, bool), Errno> {
        match self.resolve(relative, ResolveFlags::NO_SYMLINKS) {
            Err(Errno::LOOP) => self.find_following_links(relative).map(|found| (found, true)),
            found => found.map(|found| (found, false)),
        }
    }

    /// Finds a file, whatever links there are on the way.
    pub(super) fn find_following_links(&self, relative: &[u8]) -> Result<OwnedFd, Errno> {
        self.resolve(relative, ResolveFlags::empty())
    }

    fn resolve(&self, relative: &[u8], resolve: ResolveFlags) -> Result<OwnedFd, Errno> {
        let resolve = resolve | ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        for _ in 0..MAX_ATTEMPTS {
            match openat2(&self.directory, relative, PATH_ONLY, Mode::empty(), resolve) {
                // A `..` in a symbolic link, and a rename at the same time: is it still beneath?
                Err(Errno::AGAIN | Errno::INTR) => {}
                // Not in this kernel, or not for us: a seccomp filter that does not know it.
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

    /// Fills a reserve of as many descriptors as it takes to open a file, as far as there are any.
    pub(super) fn fill_reserve(&self, reserve: &mut Vec<OwnedFd>) {
        while reserve.len() < 2
            && let Ok(spare) = self.directory.try_clone()
        {
            reserve.push(spare);
        }
    }
}

fn open_directory(path: &Path) -> io::Result<(OwnedFd, FileVersion)> {
    let directory = openat(CWD, path, DIRECTORY_ONLY, Mode::empty())?;
    // May we search it?
    openat(&directory, c".", DIRECTORY_ONLY, Mode::empty())?;
    reopen(&directory, DIRECTORY_ONLY).map_err(|failed| {
        let reason = format!("cannot open files through /proc/thread-self/fd: {failed}");
        io::Error::new(failed.kind(), reason)
    })?;
    let stamp = FileStatus::from_fd(&directory)?.version;
    Ok((directory, stamp))
}

/// Opens a file for reading that was found and is a regular file: the same, whatever its path leads to now.
pub(super) fn open_regular(found: &OwnedFd) -> Result<OwnedFd, Errno> {
    reopen(found, READ_ONLY)
}

/// Opens what a descriptor refers to. The kernel has no other way to open just that.
/// A thread may have descriptors of its own.
fn reopen(found: &OwnedFd, flags: OFlags) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/thread-self/fd/{}", found.as_raw_fd());
    retry_interrupted(|| openat(CWD, &*path, flags, Mode::empty()))
}

/// Finds it one name at a time, and follows no symbolic link: stricter than need be, but it cannot
/// escape.
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

    /// Where `openat2` is refused, the walk must open what it would, but for symbolic links.
    #[test]
    fn walk_stays_beneath() {
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
    fn what_cannot_be_served() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        fs::write(&file, "").unwrap();
        assert_eq!(Root::open(&file).unwrap_err().kind(), io::ErrorKind::NotADirectory);
        let none = place.path().join("none");
        assert_eq!(Root::open(&none).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn follows_a_turned_link() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
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
