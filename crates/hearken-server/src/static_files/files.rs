//! The file system that a site reads, and its implementation by the kernel.

use std::ffi::CStr;
use std::fmt::Debug;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::rc::Rc;
use std::time::SystemTime;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2, readlinkat_raw};
use rustix::io::{Errno, pread};

use super::file_version::FileStatus;

/// Flags to open a file for reading. `NONBLOCK` avoids waiting for the holder of a lease.
const READ_ONLY: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);
/// Flags to find a file without opening it, because opening a FIFO or a device has side effects.
const PATH_ONLY: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
const DIRECTORY_ONLY: OFlags = PATH_ONLY.union(OFlags::DIRECTORY);

/// Maximum number of lookups of a path when renames interfere.
const MAX_ATTEMPTS: usize = 8;

/// The file system that a [`Site`](super::Site) reads.
#[doc(hidden)]
pub trait Files: Clone + Debug + 'static {
    /// A file or directory that was found or opened.
    type File: Debug;

    /// Finds a directory by its absolute path, and checks that files beneath it can be opened.
    fn find_directory(&self, path: &Path) -> io::Result<Self::File>;

    /// Finds a file beneath a directory by its normalised relative path.
    ///
    /// # Errors
    /// `LOOP` if the path contains a symbolic link, unless `follows_links`.
    fn find(
        &self,
        directory: &Self::File,
        relative: &[u8],
        follows_links: bool,
    ) -> Result<Self::File, Errno>;

    /// Opens a regular file that was found, for reading. Its path may have changed since.
    fn open(&self, found: &Self::File) -> Result<Self::File, Errno>;

    /// Duplicates a file that was found or opened.
    fn duplicate(&self, file: &Self::File) -> io::Result<Self::File>;

    /// Returns the status of a file that was found or opened.
    fn status(&self, file: &Self::File) -> Result<FileStatus, Errno>;

    /// Returns the status of the file that an absolute path refers to.
    fn path_status(&self, path: &CStr) -> Result<FileStatus, Errno>;

    /// Returns the status of an absolute path, without following a symbolic link in its last
    /// component.
    fn path_status_no_follow(&self, path: &CStr) -> Result<FileStatus, Errno>;

    /// Returns whether an absolute path exists and its last component is not a symbolic link.
    fn is_not_link(&self, path: &CStr) -> bool;

    /// Reads bytes of an open file at `offset`, until `bytes` is full or the file ends. Returns the
    /// number of bytes read.
    fn read_at(&self, file: &Self::File, bytes: &mut [u8], offset: u64) -> Result<usize, Errno>;

    /// Returns the descriptor of an open file, to send its content.
    fn descriptor_of(&self, file: Self::File) -> Result<Rc<OwnedFd>, Errno>;

    /// Returns the time of the clock that stamps changes of files.
    fn now(&self) -> SystemTime;
}

/// The file system of the kernel.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

impl Files for Disk {
    type File = OwnedFd;

    fn find_directory(&self, path: &Path) -> io::Result<OwnedFd> {
        let directory = openat(CWD, path, DIRECTORY_ONLY, Mode::empty())?;
        // Checks the search permission.
        openat(&directory, c".", DIRECTORY_ONLY, Mode::empty())?;
        reopen(&directory, DIRECTORY_ONLY).map_err(|failed| {
            let reason = format!(
                "cannot open files through /proc/thread-self/fd (is /proc mounted?): {failed}"
            );
            io::Error::new(failed.kind(), reason)
        })?;
        Ok(directory)
    }

    fn find(
        &self,
        directory: &OwnedFd,
        relative: &[u8],
        follows_links: bool,
    ) -> Result<OwnedFd, Errno> {
        let mut resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        resolve.set(ResolveFlags::NO_SYMLINKS, !follows_links);
        for _ in 0..MAX_ATTEMPTS {
            match openat2(directory, relative, PATH_ONLY, Mode::empty(), resolve) {
                // A link contains `..` and a concurrent rename may have moved its target.
                Err(Errno::AGAIN | Errno::INTR) => {}
                // The kernel lacks openat2, or a seccomp filter rejects it.
                Err(Errno::NOSYS | Errno::PERM) => {
                    return find_by_component(directory.as_fd(), relative);
                }
                found => return found,
            }
        }
        Err(Errno::AGAIN)
    }

    fn open(&self, found: &OwnedFd) -> Result<OwnedFd, Errno> {
        reopen(found, READ_ONLY)
    }

    fn duplicate(&self, file: &OwnedFd) -> io::Result<OwnedFd> {
        file.try_clone()
    }

    fn status(&self, file: &OwnedFd) -> Result<FileStatus, Errno> {
        FileStatus::from_fd(file)
    }

    fn path_status(&self, path: &CStr) -> Result<FileStatus, Errno> {
        FileStatus::from_path(path)
    }

    #[inline]
    fn path_status_no_follow(&self, path: &CStr) -> Result<FileStatus, Errno> {
        FileStatus::from_path_no_follow(path)
    }

    #[inline]
    fn is_not_link(&self, path: &CStr) -> bool {
        // Cheaper than statx(2): readlinkat(2) fails with EINVAL if the path is not a link.
        readlinkat_raw(CWD, path, &mut [MaybeUninit::uninit(); 1]).err() == Some(Errno::INVAL)
    }

    fn read_at(&self, file: &OwnedFd, bytes: &mut [u8], offset: u64) -> Result<usize, Errno> {
        read_at(file, bytes, offset)
    }

    fn descriptor_of(&self, file: OwnedFd) -> Result<Rc<OwnedFd>, Errno> {
        Ok(Rc::new(file))
    }

    fn now(&self) -> SystemTime {
        SystemTime::now()
    }
}

/// Opens the file of an `O_PATH` descriptor. The kernel provides only `/proc` for this. The path names
/// the thread, because a thread may have its own descriptor table.
fn reopen(found: &OwnedFd, flags: OFlags) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/thread-self/fd/{}", found.as_raw_fd());
    retry_interrupted(|| openat(CWD, &*path, flags, Mode::empty()))
}

/// Finds a file one path component at a time, without following symbolic links. This is stricter
/// than `openat2`, but it cannot leave the root either.
fn find_by_component(root: BorrowedFd<'_>, relative: &[u8]) -> Result<OwnedFd, Errno> {
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

/// Reads bytes at `offset` until `bytes` is full or the file ends. Returns the number of bytes read.
pub(super) fn read_at(file: &OwnedFd, bytes: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut count = 0;
    while count < bytes.len() {
        match pread(file, &mut bytes[count..], offset + count as u64) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(Errno::INTR) => {}
            Err(failed) => return Err(failed),
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use std::fs;
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
        let root = Disk.find_directory(&inner).unwrap();
        let open = |path: &str| {
            find_by_component(root.as_fd(), path.as_bytes()).and_then(|found| Disk.open(&found))
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
}
