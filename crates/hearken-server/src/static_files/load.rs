//! Answering with a file that is in no cache, and keeping it in one.

use std::rc::Rc;
use std::time::SystemTime;

use hearken_http::parse_http_date;
use rustix::fs::FileType;
use rustix::io::Errno;

use super::entry::{self, Content, Entry, LastCheck};
use super::file_version::{FileStatus, FileVersion};
use super::root::open_regular;
use super::{Answer, Exchange, Site, generated, media_type};

/// How often a file that changes while it is read is read again.
const MAX_READS: usize = 3;

impl Site {
    /// Answers with a file that is not in a cache, and puts it there.
    pub(super) fn load(
        &mut self,
        path: &[u8],
        key: &[u8],
        query: Option<&[u8]>,
        exchange: &Exchange<'_, '_>,
        out: &mut Vec<u8>,
    ) -> Answer<'static> {
        self.root.refresh();
        let answer = match self.read(path) {
            Ok(Found::File(file)) => self.serve(file, path, key, exchange, out),
            Ok(Found::Directory) if !key.ends_with(b"/") => exchange.redirect(key, query, out),
            Ok(Found::Directory | Found::Other) => exchange.error(404, out),
            Err(failed) => exchange.error(generated::error_status(failed), out),
        };
        self.root.fill_reserve(&mut self.reserve);
        answer
    }

    fn serve(
        &mut self,
        File { content, version: stamp, is_stable: settled, has_links }: File,
        path: &[u8],
        key: &[u8],
        exchange: &Exchange<'_, '_>,
        out: &mut Vec<u8>,
    ) -> Answer<'static> {
        let mut salt = 0;
        if !settled {
            // It cannot be told from what it may yet become: this name is for once.
            self.salt = self.salt.wrapping_add(1);
            salt = self.salt;
        }
        // An answer does not tell of a change that is later than itself.
        let date = parse_http_date(exchange.date.as_bytes());
        let modified = stamp.modified().map(|modified| modified.min(date.unwrap_or(modified)));
        let turn = self.turn;
        let location = settled.then(|| self.root.location(path, has_links, turn)).flatten();
        let seen = location.map(|location| LastCheck { location, version: stamp, turn });
        let keep = seen.is_some();
        let etag = stamp.fingerprint(salt);
        let mut entry = Entry::new(content, &media_type::content_type(path), etag, modified, seen);
        let answer = entry.answer(exchange, out).append_to(out);
        if keep && entry.is_in_memory() {
            let weight = entry.weight() + key.len();
            self.small_files.insert(key, entry, weight);
        } else if keep {
            self.large_files.insert(key, entry, 1);
        }
        answer
    }

    /// Opens a file and, if it is small, reads it.
    fn read(&mut self, path: &[u8]) -> Result<Found, Errno> {
        match self.try_read(path) {
            Err(Errno::MFILE | Errno::NFILE) => {
                self.large_files.remove_if(Entry::is_idle);
                self.reserve.clear();
                self.try_read(path)
            }
            read => read,
        }
    }

    fn try_read(&self, path: &[u8]) -> Result<Found, Errno> {
        let (found, has_links) = self.root.find(path)?;
        let file = match FileStatus::from_fd(&found)?.kind {
            FileType::RegularFile => open_regular(&found)?,
            FileType::Directory => return Ok(Found::Directory),
            _ => return Ok(Found::Other),
        };
        drop(found);
        let mut unsteady = None;
        for _ in 0..MAX_READS {
            // Taken before the stamp: what is settled then was so when it was looked at.
            let now = SystemTime::now();
            let FileStatus { version: stamp, .. } = FileStatus::from_fd(&file)?;
            let settled = stamp.is_stable(now);
            if stamp.size > self.max_small_bytes {
                let content = Content::File { file: Rc::new(file), length: stamp.size };
                return Ok(Found::File(File {
                    content,
                    version: stamp,
                    is_stable: settled,
                    has_links,
                }));
            }
            let bytes = entry::read(&file, stamp.size as usize)?;
            let steady =
                bytes.len() as u64 == stamp.size && FileStatus::from_fd(&file)?.version == stamp;
            let (content, settled) = (Content::Memory(bytes.into()), settled && steady);
            let file = File { content, version: stamp, is_stable: settled, has_links };
            if steady {
                return Ok(Found::File(file));
            }
            unsteady = Some(file);
        }
        unsteady.map(Found::File).ok_or(Errno::AGAIN)
    }
}

/// What a path leads to.
enum Found {
    File(File),
    Directory,
    Other,
}

/// A file that was opened, and read if it is small.
struct File {
    content: Content,
    version: FileVersion,
    /// Whether the stamp stands for these bytes, and no others later.
    is_stable: bool,
    /// Whether there may be a symbolic link on the way to it.
    has_links: bool,
}
