//! Responses with files that are not cached.

use hearken_http::parse_http_date;
use rustix::fs::FileType;
use rustix::io::Errno;

use super::entry::{Content, Entry, LastCheck};
use super::file_version::{FileStatus, FileVersion};
use super::files::Files;
use super::{Answer, Exchange, Random, Site, generated, media_type};

/// Maximum number of times to read a file that changes while it is read.
const MAX_READS: usize = 3;

impl<F: Files> Site<F> {
    /// Answers with a file that is not cached, and caches it.
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
        File { content, version, is_stable, has_links }: File,
        path: &[u8],
        key: &[u8],
        exchange: &Exchange<'_, '_>,
        out: &mut Vec<u8>,
    ) -> Answer<'static> {
        let mut salt = 0;
        if !is_stable {
            // A later version may be indistinguishable, so this ETag is used only once.
            salt = self.random.next();
        }
        // RFC 9110 section 8.8.2.1: Last-Modified must not be later than Date.
        let date = parse_http_date(exchange.date.as_bytes());
        let modified = version.modified().map(|modified| modified.min(date.unwrap_or(modified)));
        let turn = self.turn;
        let location = is_stable.then(|| self.root.location(path, has_links, turn)).flatten();
        let last_check = location.map(|location| LastCheck { location, version, turn });
        let is_cacheable = last_check.is_some();
        let etag = version.fingerprint(salt);
        let random = Random::new(self.random.next());
        let content_type = media_type::content_type(path);
        let mut entry =
            Entry::new(content, &content_type, exchange.hsts, etag, random, modified, last_check);
        let answer = entry.answer(exchange, out).append_to(out);
        if is_cacheable && entry.is_in_memory() {
            let weight = entry.weight() + key.len();
            self.small_files.insert(key, entry, weight);
        } else if is_cacheable {
            self.large_files.insert(key, entry, 1);
        }
        answer
    }

    /// Opens a file, and reads it if it is small. Frees descriptors if none is available.
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
        let files = &self.root.files;
        let (found, has_links) = self.root.find(path)?;
        let file = match files.status(&found)?.kind {
            FileType::RegularFile => files.open(&found)?,
            FileType::Directory => return Ok(Found::Directory),
            _ => return Ok(Found::Other),
        };
        drop(found);
        let mut changing = None;
        for _ in 0..MAX_READS {
            // The time must be from before the status, so that a stable version was stable then.
            let now = files.now();
            let FileStatus { version, .. } = files.status(&file)?;
            let is_stable = version.is_stable(now);
            if version.size > self.max_small_bytes {
                let file = files.descriptor_of(file)?;
                let content = Content::File { file, length: version.size };
                return Ok(Found::File(File { content, version, is_stable, has_links }));
            }
            let mut bytes = vec![0; version.size as usize];
            let count = files.read_at(&file, &mut bytes, 0)?;
            bytes.truncate(count);
            let is_unchanged =
                bytes.len() as u64 == version.size && files.status(&file)?.version == version;
            let (content, is_stable) = (Content::Memory(bytes.into()), is_stable && is_unchanged);
            let file = File { content, version, is_stable, has_links };
            if is_unchanged {
                return Ok(Found::File(file));
            }
            changing = Some(file);
        }
        changing.map(Found::File).ok_or(Errno::AGAIN)
    }
}

/// The result of a lookup.
enum Found {
    File(File),
    Directory,
    Other,
}

/// A file that was opened, and read if it is small.
struct File {
    content: Content,
    version: FileVersion,
    /// Whether the version identifies this content.
    is_stable: bool,
    /// Whether the path may contain symbolic links.
    has_links: bool,
}
