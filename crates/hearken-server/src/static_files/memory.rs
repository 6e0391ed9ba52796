//! A file system in memory, for simulations.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fd::OwnedFd;
use rustix::fs::{FileType, MemfdFlags, memfd_create};
use rustix::io::Errno;

use super::file_version::{FileStatus, FileVersion};
use super::files::Files;

/// Maximum number of descriptors of file contents that each thread keeps open.
const MAX_DESCRIPTORS: usize = 64;

/// Maximum length of a name in bytes (`NAME_MAX`).
const MAX_NAME: usize = 255;

/// An operation of the file system that can fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Operation {
    /// Finding a directory to serve.
    FindRoot,
    /// Finding a file without following symbolic links. `ELOOP` lets the site follow links.
    Find,
    /// Finding a file that may be behind symbolic links.
    FindFollowingLinks,
    /// Opening a file.
    Open,
    /// Reserving a descriptor.
    Reserve,
    /// Reading the status of an open file.
    Status,
    /// Reading the status of a path.
    PathStatus,
    /// Checking whether a path is a symbolic link. Any fault means that it is one.
    CheckLink,
    /// Reading a file.
    Read,
    /// Preparing to send a file that is not cached in memory.
    Send,
}

/// A fault of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The operation fails with this error number.
    Error(i32),
    /// [`Read`](Operation::Read) and [`Send`](Operation::Send) find only this number of bytes, as if
    /// the file had been truncated after its status was read. Other operations ignore it.
    Truncated(u64),
}

/// A function that decides whether an operation on a path fails. Paths have no leading slash.
type Decide = dyn FnMut(Operation, &[u8]) -> Option<Fault>;

/// A directory tree in memory. Clones share the tree.
///
/// Paths are absolute. Parent directories are created as necessary. `time` is the time of day of a
/// change, as the time since 1970-01-01 00:00:00 UTC.
#[derive(Clone)]
pub struct Memory(Rc<Shared>);

struct Shared {
    tree: RefCell<Tree>,
    now: Box<dyn Fn() -> Duration>,
    decide: RefCell<Box<Decide>>,
}

/// Files and directories by path, without a leading slash.
#[derive(Debug, Default)]
struct Tree {
    inodes: BTreeMap<Vec<u8>, Rc<Inode>>,
    last_number: u64,
}

#[derive(Debug)]
struct Inode {
    number: u64,
    kind: FileType,
    data: RefCell<Data>,
}

#[derive(Debug, Default)]
struct Data {
    content: Rc<[u8]>,
    modified: Duration,
    changed: Duration,
}

/// A file that was found or opened.
#[derive(Clone, Debug)]
pub struct MemoryFile {
    path: Vec<u8>,
    inode: Rc<Inode>,
}

impl Memory {
    /// Creates an empty directory tree. `now` returns the time of day. `decide` decides which
    /// operations fail.
    pub fn new(
        now: impl Fn() -> Duration + 'static,
        decide: impl FnMut(Operation, &[u8]) -> Option<Fault> + 'static,
    ) -> Memory {
        let memory = Memory(Rc::new(Shared {
            tree: RefCell::default(),
            now: Box::new(now),
            decide: RefCell::new(Box::new(decide)),
        }));
        memory.insert(Vec::new(), FileType::Directory, Data::default());
        memory
    }

    /// Creates a directory, unless it exists.
    pub fn create_directory(&self, path: impl AsRef<Path>, time: Duration) {
        let path = key(path.as_ref().as_os_str().as_bytes());
        self.create_directories(&path, time);
        if self.get(&path).is_none_or(|inode| inode.kind != FileType::Directory) {
            self.insert(path, FileType::Directory, Data::at(time));
        }
    }

    /// Writes a file in place, or creates it. The content of a file that is open changes, too, unless
    /// a response is already being sent from its descriptor.
    pub fn write(&self, path: impl AsRef<Path>, content: impl Into<Rc<[u8]>>, time: Duration) {
        let path = key(path.as_ref().as_os_str().as_bytes());
        let data = Data { content: content.into(), ..Data::at(time) };
        match self.get(&path).filter(|inode| inode.kind == FileType::RegularFile) {
            Some(inode) => *inode.data.borrow_mut() = data,
            None => {
                self.create_directories(&path, time);
                self.insert(path, FileType::RegularFile, data);
            }
        }
    }

    /// Replaces a file by a new one, as by rename(2), or creates it.
    pub fn replace(&self, path: impl AsRef<Path>, content: impl Into<Rc<[u8]>>, time: Duration) {
        let path = key(path.as_ref().as_os_str().as_bytes());
        self.create_directories(&path, time);
        let data = Data { content: content.into(), ..Data::at(time) };
        self.insert(path, FileType::RegularFile, data);
    }

    /// Shortens a file to at most `length` bytes, in place. Does nothing if it does not exist.
    pub fn truncate(&self, path: impl AsRef<Path>, length: usize, time: Duration) {
        if let Some(inode) = self.get(&key(path.as_ref().as_os_str().as_bytes())) {
            let content = inode.data.borrow().content.clone();
            let content = content[..length.min(content.len())].into();
            *inode.data.borrow_mut() = Data { content, ..Data::at(time) };
        }
    }

    /// Sets the modification time of a file at `time`. Does nothing if it does not exist.
    pub fn set_modified(&self, path: impl AsRef<Path>, modified: Duration, time: Duration) {
        if let Some(inode) = self.get(&key(path.as_ref().as_os_str().as_bytes())) {
            let mut data = inode.data.borrow_mut();
            (data.modified, data.changed) = (modified, time);
        }
    }

    /// Removes a file, or a directory with its content.
    pub fn remove(&self, path: impl AsRef<Path>) {
        let path = key(path.as_ref().as_os_str().as_bytes());
        self.0.tree.borrow_mut().inodes.retain(|other, _| {
            other.strip_prefix(&*path).is_none_or(|rest| !matches!(rest.first(), None | Some(b'/')))
        });
    }

    fn create_directories(&self, path: &[u8], time: Duration) {
        for at in (0..path.len()).filter(|&at| path[at] == b'/') {
            if self.get(&path[..at]).is_none_or(|inode| inode.kind != FileType::Directory) {
                self.insert(path[..at].to_vec(), FileType::Directory, Data::at(time));
            }
        }
    }

    fn insert(&self, path: Vec<u8>, kind: FileType, data: Data) {
        let mut tree = self.0.tree.borrow_mut();
        tree.last_number += 1;
        let inode = Inode { number: tree.last_number, kind, data: RefCell::new(data) };
        tree.inodes.insert(path, Rc::new(inode));
    }

    fn get(&self, path: &[u8]) -> Option<Rc<Inode>> {
        self.0.tree.borrow().inodes.get(path).cloned()
    }

    /// Returns the length to which the file is truncated during the operation.
    fn decide(&self, operation: Operation, path: &[u8]) -> Result<Option<u64>, Errno> {
        match (self.0.decide.borrow_mut())(operation, path) {
            None => Ok(None),
            Some(Fault::Error(number)) => Err(Errno::from_raw_os_error(number)),
            Some(Fault::Truncated(length)) => Ok(Some(length)),
        }
    }

    fn lookup(&self, path: Vec<u8>) -> Result<MemoryFile, Errno> {
        if let Some(inode) = self.get(&path) {
            return Ok(MemoryFile { path, inode });
        }
        if path.split(|&byte| byte == b'/').any(|name| name.len() > MAX_NAME) {
            return Err(Errno::NAMETOOLONG);
        }
        let mut parents = (0..path.len()).filter(|&at| path[at] == b'/');
        let is_file = |at| self.get(&path[..at]).is_some_and(|it| it.kind != FileType::Directory);
        Err(if parents.any(is_file) { Errno::NOTDIR } else { Errno::NOENT })
    }

    fn status_of(&self, operation: Operation, path: &CStr) -> Result<FileStatus, Errno> {
        let path = key(path.to_bytes());
        self.decide(operation, &path)?;
        self.lookup(path).map(|file| file.inode.status())
    }
}

impl Data {
    /// Creates empty data that was changed at `time`.
    fn at(time: Duration) -> Data {
        Data { content: Rc::default(), modified: time, changed: time }
    }
}

impl Inode {
    fn status(&self) -> FileStatus {
        let data = self.data.borrow();
        let size = data.content.len() as u64;
        let version = FileVersion::new(self.number, size, data.modified, data.changed);
        FileStatus { kind: self.kind, version }
    }

    /// Returns the content, or its first `limit` bytes.
    fn content(&self, limit: Option<u64>) -> Rc<[u8]> {
        let content = self.data.borrow().content.clone();
        match limit.and_then(|limit| usize::try_from(limit).ok()) {
            Some(limit) if limit < content.len() => content[..limit].into(),
            _ => content,
        }
    }
}

impl Files for Memory {
    type File = MemoryFile;

    fn find_directory(&self, path: &Path) -> io::Result<MemoryFile> {
        let path = key(path.as_os_str().as_bytes());
        self.decide(Operation::FindRoot, &path)?;
        let found = self.lookup(path)?;
        match found.inode.kind {
            FileType::Directory => Ok(found),
            _ => Err(Errno::NOTDIR.into()),
        }
    }

    fn find(
        &self,
        directory: &MemoryFile,
        relative: &[u8],
        follows_links: bool,
    ) -> Result<MemoryFile, Errno> {
        let path = key(&[&directory.path, &b"/"[..], relative].concat());
        let operation = if follows_links { Operation::FindFollowingLinks } else { Operation::Find };
        self.decide(operation, &path)?;
        self.lookup(path)
    }

    fn open(&self, found: &MemoryFile) -> Result<MemoryFile, Errno> {
        self.decide(Operation::Open, &found.path)?;
        Ok(found.clone())
    }

    fn duplicate(&self, file: &MemoryFile) -> io::Result<MemoryFile> {
        self.decide(Operation::Reserve, &file.path)?;
        Ok(file.clone())
    }

    fn status(&self, file: &MemoryFile) -> Result<FileStatus, Errno> {
        self.decide(Operation::Status, &file.path)?;
        Ok(file.inode.status())
    }

    fn path_status(&self, path: &CStr) -> Result<FileStatus, Errno> {
        self.status_of(Operation::PathStatus, path)
    }

    fn path_status_no_follow(&self, path: &CStr) -> Result<FileStatus, Errno> {
        self.status_of(Operation::PathStatus, path)
    }

    fn is_not_link(&self, path: &CStr) -> bool {
        self.status_of(Operation::CheckLink, path).is_ok()
    }

    fn read_at(&self, file: &MemoryFile, bytes: &mut [u8], offset: u64) -> Result<usize, Errno> {
        let limit = self.decide(Operation::Read, &file.path)?;
        let content = file.inode.content(limit);
        let start = usize::try_from(offset).map_or(content.len(), |at| at.min(content.len()));
        let count = bytes.len().min(content.len() - start);
        bytes[..count].copy_from_slice(&content[start..start + count]);
        Ok(count)
    }

    fn descriptor_of(&self, file: MemoryFile) -> Result<Rc<OwnedFd>, Errno> {
        let limit = self.decide(Operation::Send, &file.path)?;
        let descriptor = descriptor(file.inode.content(limit))?;
        // The owner determines by the number of references whether the file is in use.
        rustix::io::fcntl_dupfd_cloexec(&*descriptor, 0).map(Rc::new)
    }

    fn now(&self) -> SystemTime {
        UNIX_EPOCH + (self.0.now)()
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("tree", &self.0.tree).finish_non_exhaustive()
    }
}

/// Returns a path without empty segments and without a slash at its ends.
fn key(path: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(path.len());
    for name in path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
        if !key.is_empty() {
            key.push(b'/');
        }
        key.extend_from_slice(name);
    }
    key
}

/// Returns a descriptor of a file with this content. Each thread keeps some of them open, because
/// the histories of a simulation have the same files.
fn descriptor(content: Rc<[u8]>) -> Result<Rc<OwnedFd>, Errno> {
    thread_local! {
        static DESCRIPTORS: RefCell<BTreeMap<Rc<[u8]>, Rc<OwnedFd>>> = RefCell::default();
    }
    DESCRIPTORS.with_borrow_mut(|descriptors| {
        if let Some(descriptor) = descriptors.get(&content) {
            return Ok(descriptor.clone());
        }
        let descriptor = Rc::new(memfd_create(c"simulated-file", MemfdFlags::CLOEXEC)?);
        let mut offset = 0;
        while offset < content.len() {
            offset += rustix::io::pwrite(&*descriptor, &content[offset..], offset as u64)?;
        }
        if descriptors.len() >= MAX_DESCRIPTORS {
            descriptors.clear();
        }
        descriptors.insert(content, descriptor.clone());
        Ok(descriptor)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_secs(1_000_000_000);

    fn memory() -> Memory {
        let memory = Memory::new(|| TIME, |_, _| None);
        memory.write("/www/a/b", *b"content", TIME);
        memory
    }

    fn find(memory: &Memory, path: &str) -> Result<MemoryFile, Errno> {
        let root = memory.find_directory(Path::new("/www")).unwrap();
        memory.find(&root, path.as_bytes(), false)
    }

    fn read(memory: &Memory, file: &MemoryFile) -> Vec<u8> {
        let mut bytes = [0; 64];
        let count = memory.read_at(file, &mut bytes, 0).unwrap();
        bytes[..count].to_vec()
    }

    #[test]
    fn paths_have_the_errors_of_the_kernel() {
        let memory = memory();
        assert_eq!(find(&memory, "a").unwrap().inode.kind, FileType::Directory);
        assert_eq!(find(&memory, "a/b").unwrap().inode.kind, FileType::RegularFile);
        assert_eq!(find(&memory, "a/c").unwrap_err(), Errno::NOENT);
        assert_eq!(find(&memory, "a/b/c").unwrap_err(), Errno::NOTDIR);
        assert_eq!(find(&memory, &"x".repeat(256)).unwrap_err(), Errno::NAMETOOLONG);
        memory.remove("/www/a");
        assert_eq!(find(&memory, "a/b").unwrap_err(), Errno::NOENT);
    }

    #[test]
    fn open_files_see_writes_but_not_replacements() {
        let memory = memory();
        let open = find(&memory, "a/b").unwrap();
        let before = memory.status(&open).unwrap().version;
        memory.write("/www/a/b", *b"new", TIME);
        assert_eq!(read(&memory, &open), b"new");
        assert_ne!(memory.status(&open).unwrap().version, before);
        memory.truncate("/www/a/b", 1, TIME);
        assert_eq!(read(&memory, &open), b"n");
        memory.replace("/www/a/b", *b"other", TIME);
        assert_eq!(read(&memory, &open), b"n");
        let replaced = find(&memory, "a/b").unwrap();
        assert_eq!(read(&memory, &replaced), b"other");
        assert!(!replaced.inode.status().version.same_file(&open.inode.status().version));
    }

    #[test]
    fn descriptors_have_the_content_of_the_file() {
        let memory = Memory::new(
            || TIME,
            |operation, path| match operation {
                Operation::Send if path == b"short" => Some(Fault::Truncated(2)),
                Operation::Open if path == b"denied" => Some(Fault::Error(13)),
                _ => None,
            },
        );
        let root = memory.find_directory(Path::new("/")).unwrap();
        for (path, expected) in [("long", "content"), ("short", "co")] {
            memory.write(path, *b"content", TIME);
            let file = memory.find(&root, path.as_bytes(), false).unwrap();
            let descriptor = memory.descriptor_of(memory.open(&file).unwrap()).unwrap();
            assert_eq!(Rc::strong_count(&descriptor), 1);
            let mut bytes = [0; 64];
            let count = rustix::io::pread(&*descriptor, &mut bytes, 0).unwrap();
            assert_eq!(bytes[..count], *expected.as_bytes());
        }
        memory.write("denied", *b"", TIME);
        let denied = memory.find(&root, b"denied", false).unwrap();
        assert_eq!(memory.open(&denied).unwrap_err(), Errno::ACCESS);
    }
}
