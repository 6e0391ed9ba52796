//! A directory turned into HTTP answers, without sockets.
//!
//! A [`Site`] is asked with a parsed request, appends the head of the answer to a buffer, and says
//! what is to be sent after it. Nothing outside its directory is ever opened: the kernel resolves
//! each path beneath it (`RESOLVE_BENEATH`), symbolic links included. Only regular files are opened:
//! a file is found with `O_PATH`, and then opened through `/proc/thread-self/fd`.
//!
//! | part | what is in it |
//! |---|---|
//! | `name` | from a request's path to a file's, and back |
//! | `beneath` | opening files beneath a directory, and nowhere else |
//! | `location` | whether the path of a cached file still leads to it, beneath the root |
//! | `stamp` | by what a file is known to be unchanged |
//! | `entry` | a file with its prepared head: 200, 206, 304, 412, 416 |
//! | `load` | answering with a file that is in no cache, and keeping it in one |
//! | `clock` | the bounded cache of entries |
//! | `plain` | answers that are not a file's: errors, redirects, OPTIONS |
//! | `types` | `Content-Type`, by name |
//!
//! # What is cached, and how stale it may be
//! Small files are kept in memory, of larger ones the descriptor, both within bounds. An entry is
//! used in a turn of the event loop only after the file's path was looked at in that turn, and
//! leads, beneath the root, to the same file with the same size, times of modification and of change.
//! So an answer is never older than the turn it is made in. A file that has changed within the last 20 ms may
//! change again without its times telling (they come from a clock that ticks): it is served, with
//! an ETag that is never used again, but not kept.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::PathBuf;

use hearken_http::path::resolve;
use hearken_http::{DateCache, Method, Request};
use rustix::fd::OwnedFd;

mod cache;
mod entry;
mod file_version;
mod generated;
pub(crate) mod handler;
mod load;
mod location;
mod media_type;
mod root;
mod url_path;

pub use crate::front::Answer;
use cache::Cache;
use entry::Entry;
use root::Root;

/// How a directory is served.
#[derive(Clone, Debug)]
pub struct SiteConfig {
    /// The directory.
    pub root: PathBuf,
    /// Whether names that begin with a dot are served. `/.well-known/` always is.
    pub dotfiles: bool,
    /// The file that is served for its directory.
    pub index: String,
    /// How much memory the cache of small files may take, in bytes.
    pub cache_bytes: usize,
    /// Up to what size a file is small, in bytes. Larger ones are sent from their descriptor.
    pub cache_file_bytes: usize,
    /// How many large files are kept open between requests.
    pub open_files: usize,
    /// Maximum size in bytes of a request's body, which is discarded (413).
    pub body_limit: u64,
}

impl Default for SiteConfig {
    fn default() -> SiteConfig {
        SiteConfig {
            root: PathBuf::from("."),
            dotfiles: false,
            index: "index.html".to_owned(),
            cache_bytes: 64 * 1024 * 1024,
            cache_file_bytes: 64 * 1024,
            open_files: 64,
            body_limit: 1024 * 1024,
        }
    }
}

/// A directory that is being served, by one thread.
#[derive(Debug)]
pub struct Site {
    root: Root,
    dotfiles: bool,
    index: String,
    max_small_bytes: u64,
    small_files: Cache<Entry>,
    large_files: Cache<Entry>,
    turn: u64,
    /// Descriptors that are closed to open a file when there are no others.
    reserve: Vec<OwnedFd>,
    /// Makes the ETag of a file that may yet change one of a kind.
    salt: u64,
    path: Vec<u8>,
    key: Vec<u8>,
}

/// What is asked and how it is to be answered.
struct Exchange<'e, 'b> {
    request: &'e Request<'b>,
    date: &'e DateCache,
    keep_alive: bool,
}

impl Site {
    /// Opens a directory to serve it. Where its path is a symbolic link that is later turned to
    /// another directory, that one is served from then on.
    ///
    /// # Errors
    /// There is no such directory, or it cannot be searched; or `index` is not the name of a file.
    pub fn open(config: &SiteConfig) -> io::Result<Site> {
        let index = config.index.clone();
        if matches!(&*index, "" | "." | "..") || index.contains(['/', '\0']) {
            let reason = format!("{index:?} is not a file name to look for in directories");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let root = Root::open(&config.root)?;
        let mut reserve = Vec::new();
        root.fill_reserve(&mut reserve);
        Ok(Site {
            reserve,
            root,
            dotfiles: config.dotfiles,
            index,
            max_small_bytes: config.cache_file_bytes as u64,
            small_files: Cache::new(config.cache_bytes),
            large_files: Cache::new(config.open_files),
            turn: 0,
            // Random, so that neither another worker nor a later start makes the same.
            salt: RandomState::new().build_hasher().finish(),
            path: Vec::new(),
            key: Vec::new(),
        })
    }

    /// To be called for each turn of the event loop: what was looked at before is looked at again
    /// when it is next used.
    #[inline]
    pub fn new_turn(&mut self) {
        self.turn = self.turn.wrapping_add(1);
    }

    /// Closes large files that were not used since this was last called, as a file that is open
    /// takes space on its disk even when it is deleted. Says whether any are still open: to be
    /// called every few seconds while there are.
    pub fn tidy(&mut self) -> bool {
        self.large_files.remove_unused(Entry::is_idle);
        self.large_files.len() > 0
    }

    /// How many bytes the cache of small files takes, by its own reckoning, and how many large
    /// files are kept open.
    pub fn cached(&self) -> (usize, usize) {
        (self.small_files.weight(), self.large_files.len())
    }

    /// Answers a request: with an answer that is ready, or else by appending the head, and a small
    /// body with it, to `out`.
    ///
    /// The connection is announced to be kept or closed as `keep_alive` says.
    pub fn answer(
        &mut self,
        request: &Request<'_>,
        date: &DateCache,
        keep_alive: bool,
        out: &mut Vec<u8>,
    ) -> Answer<'_> {
        let exchange = Exchange { request, date, keep_alive };
        match request.method {
            Method::Get | Method::Head => {}
            Method::Options => return exchange.options(out),
            Method::Other(_) => return exchange.error(501, out),
            _ => return exchange.error(405, out),
        }
        let Some((path, query)) = request.target().path_and_query() else {
            return exchange.error(400, out);
        };
        // As sent, in nearly all requests, a path is what it is kept under.
        if let Some(at) = self.small_files.find(path)
            && let Some(entry) = self.small_files.entry(at)
            && entry.is_current(self.turn, &self.root)
        {
            return match self.small_files.entry(at) {
                Some(entry) => entry.answer(&exchange, out),
                None => exchange.error(500, out), // It was there.
            };
        }
        match self.try_cached(path, &exchange, out) {
            Some(answer) => answer,
            None => self.find(path, query, &exchange, out),
        }
    }

    fn try_cached(
        &mut self,
        key: &[u8],
        exchange: &Exchange<'_, '_>,
        out: &mut Vec<u8>,
    ) -> Option<Answer<'static>> {
        for cache in [&mut self.small_files, &mut self.large_files] {
            if let Some(entry) = cache.get(key) {
                if entry.is_current(self.turn, &self.root) {
                    return Some(entry.answer(exchange, out).append_to(out));
                }
                cache.remove(key);
            }
        }
        None
    }

    /// Answers what is not kept under the path as it was sent.
    #[cold]
    fn find(
        &mut self,
        raw: &[u8],
        query: Option<&[u8]>,
        exchange: &Exchange<'_, '_>,
        out: &mut Vec<u8>,
    ) -> Answer<'static> {
        // Taken, so that they can be read while the rest is changed; nothing is allocated.
        let (mut path, mut key) = (std::mem::take(&mut self.path), std::mem::take(&mut self.key));
        let answer = match self.locate(raw, &mut path, &mut key) {
            Err(status) => exchange.error(status, out),
            Ok(()) if key != raw => match self.try_cached(&key, exchange, out) {
                Some(answer) => answer,
                None => self.load(&path, &key, query, exchange, out),
            },
            Ok(()) => self.load(&path, &key, query, exchange, out),
        };
        (self.path, self.key) = (path, key);
        answer
    }

    /// Finds what file a request's path names, relative to the root, and under what key it is
    /// kept; or with what status it is refused.
    fn locate(&self, raw: &[u8], path: &mut Vec<u8>, key: &mut Vec<u8>) -> Result<(), u16> {
        let safe = resolve(raw, path).map_err(|refused| refused.status())?;
        if safe.has_dot_segment_file && !self.dotfiles && !url_path::is_well_known(safe.path) {
            return Err(404);
        }
        let is_directory = safe.trailing_slash;
        url_path::encode(safe.path, is_directory, key);
        if is_directory {
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(self.index.as_bytes());
        }
        Ok(())
    }
}
