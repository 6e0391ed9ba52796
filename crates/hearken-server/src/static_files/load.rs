//! Answering with a file that is in no cache, and keeping it in one.

use std::rc::Rc;
use std::time::SystemTime;

use hearken_http::parse_http_date;
use rustix::fs::FileType;
use rustix::io::Errno;

use super::beneath::open_regular;
use super::entry::{self, Content, Entry, Seen};
use super::stamp::{Stamp, Status};
use super::{Answer, Exchange, Site, plain, types};

/// How often a file that changes while it is read is read again.
const TRIES: usize = 3;

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
            Err(failed) => exchange.error(plain::status_of(failed), out),
        };
        self.root.fill(&mut self.reserve);
        answer
    }

    fn serve(
        &mut self,
        File { content, stamp, settled, has_links }: File,
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
        let seen = location.map(|location| Seen { location, stamp, turn });
        let keep = seen.is_some();
        let etag = stamp.fingerprint(salt);
        let mut entry = Entry::new(content, &types::content_type(path), etag, modified, seen);
        let answer = entry.answer(exchange, out).append_to(out);
        if keep && entry.is_in_memory() {
            let weight = entry.weight() + key.len();
            self.small.insert(key, entry, weight);
        } else if keep {
            self.large.insert(key, entry, 1);
        }
        answer
    }

    /// Opens a file and, if it is small, reads it.
    fn read(&mut self, path: &[u8]) -> Result<Found, Errno> {
        match self.try_read(path) {
            Err(Errno::MFILE | Errno::NFILE) => {
                self.large.drop_if(Entry::is_idle);
                self.reserve.clear();
                self.try_read(path)
            }
            read => read,
        }
    }

    fn try_read(&self, path: &[u8]) -> Result<Found, Errno> {
        let (found, has_links) = self.root.find(path)?;
        let file = match Status::of(&found)?.kind {
            FileType::RegularFile => open_regular(&found)?,
            FileType::Directory => return Ok(Found::Directory),
            _ => return Ok(Found::Other),
        };
        drop(found);
        let mut unsteady = None;
        for _ in 0..TRIES {
            // Taken before the stamp: what is settled then was so when it was looked at.
            let now = SystemTime::now();
            let Status { stamp, .. } = Status::of(&file)?;
            let settled = stamp.settled(now);
            if stamp.size > self.small_bytes {
                let content = Content::Open { file: Rc::new(file), length: stamp.size };
                return Ok(Found::File(File { content, stamp, settled, has_links }));
            }
            let bytes = entry::read(&file, stamp.size as usize)?;
            let steady = bytes.len() as u64 == stamp.size && Status::of(&file)?.stamp == stamp;
            let (content, settled) = (Content::Memory(bytes.into()), settled && steady);
            let file = File { content, stamp, settled, has_links };
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
    stamp: Stamp,
    /// Whether the stamp stands for these bytes, and no others later.
    settled: bool,
    /// Whether there may be a symbolic link on the way to it.
    has_links: bool,
}
