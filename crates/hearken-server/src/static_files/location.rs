//! The location of a cached file, to check that its path still refers to it, beneath the root.
//!
//! The kernel resolves a path beneath a directory only to open it, and opening takes three system
//! calls. For a path without symbolic links, a cheaper check suffices:
//!
//! - No directory in the path is a link. This is checked once per turn and directory, so files of the
//!   same directory share it. A file in the root itself needs no such check.
//! - statx(2) of the path, without following a link in the last component, returns the same version.
//!
//! A path without links cannot leave the root. The times of directories are not used, because a file
//! system may take them from a coarse clock.
//!
//! A file behind a link or many directories is opened again, beneath the root and with `O_PATH`.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::CString;
use std::hash::BuildHasherDefault;
use std::rc::{Rc, Weak};

use rustix::io::Errno;

use super::cache::Fx;
use super::file_version::FileStatus;
use super::files::Files;
use super::root::Root;

/// Maximum number of directories that are checked one by one. More would cost more than an open.
const MAX_DIRECTORIES: usize = 4;

/// The location of a file beneath the root.
#[derive(Debug)]
pub(super) enum Location {
    /// A path without symbolic links, and the directory of the file if that is not the root.
    Plain { path: CString, parent: Option<Rc<Directory>> },
    /// Any path, relative to the root.
    Linked(Box<[u8]>),
}

impl Location {
    /// Returns the current status of the file, or an error if the path may leave the root.
    #[inline]
    pub(super) fn status<F: Files>(&self, turn: u64, root: &Root<F>) -> Result<FileStatus, Errno> {
        match self {
            Self::Plain { path, parent } => {
                if parent.as_ref().is_some_and(|parent| !parent.is_without_links(turn, &root.files))
                {
                    return Err(Errno::XDEV);
                }
                root.files.path_status_no_follow(path)
            }
            Self::Linked(path) if root.is_current() => {
                root.files.status(&root.find_following_links(path)?)
            }
            Self::Linked(_) => Err(Errno::XDEV),
        }
    }

    /// Returns the memory use in bytes, without the shared directories.
    pub(super) fn weight(&self) -> usize {
        match self {
            Self::Plain { path, .. } => path.as_bytes().len(),
            Self::Linked(path) => path.len(),
        }
    }
}

/// A directory beneath the root whose path has no symbolic link.
#[derive(Debug)]
pub(super) struct Directory {
    path: CString,
    parent: Option<Rc<Directory>>,
    /// The turn of the last check that found no links.
    turn: Cell<u64>,
}

impl Directory {
    /// Returns whether the path has no link in this turn.
    #[inline]
    fn is_without_links(&self, turn: u64, files: &impl Files) -> bool {
        self.turn.get() == turn || self.check_links(turn, files)
    }

    /// Checks the path for links.
    fn check_links(&self, turn: u64, files: &impl Files) -> bool {
        let has_no_links =
            self.parent.as_ref().is_none_or(|parent| parent.is_without_links(turn, files))
                && files.is_not_link(&self.path);
        if has_no_links {
            self.turn.set(turn);
        }
        has_no_links
    }
}

/// The directories of cached files, by path relative to the root.
#[derive(Debug, Default)]
pub(super) struct Directories {
    by_path: HashMap<Box<[u8]>, Weak<Directory>, BuildHasherDefault<Fx>>,
    /// Number of directories at which unused ones are removed.
    cleanup_at: usize,
}

impl Directories {
    /// Returns the location of a file that was opened by this path in this turn.
    pub(super) fn location(
        &mut self,
        root: &[u8],
        relative: &[u8],
        has_links: bool,
        turn: u64,
    ) -> Option<Location> {
        let slashes = (0..relative.len()).filter(|&at| relative[at] == b'/');
        if has_links || slashes.clone().count() > MAX_DIRECTORIES {
            return Some(Location::Linked(relative.into()));
        }
        let absolute = |path: &[u8]| CString::new([root, b"/", path].concat()).ok();
        let mut parent = None;
        for slash in slashes {
            let path = relative.get(..slash)?;
            let known = self.by_path.get(path).and_then(Weak::upgrade);
            parent = Some(match known {
                Some(directory) => directory,
                None => {
                    let turn = Cell::new(turn);
                    let directory = Rc::new(Directory { path: absolute(path)?, parent, turn });
                    self.insert(path, &directory);
                    directory
                }
            });
        }
        Some(Location::Plain { path: absolute(relative)?, parent })
    }

    fn insert(&mut self, path: &[u8], directory: &Rc<Directory>) {
        if self.by_path.len() >= self.cleanup_at {
            self.by_path.retain(|_, directory| directory.strong_count() > 0);
            self.cleanup_at = 2 * self.by_path.len() + 64;
        }
        self.by_path.insert(path.into(), Rc::downgrade(directory));
    }
}
