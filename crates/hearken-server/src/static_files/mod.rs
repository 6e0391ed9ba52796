//! Serves the files of a directory over HTTP, without sockets.
//!
//! A [`Site`] receives a parsed request, appends the head of the response to a buffer, and returns
//! the body to send after it. It never opens a file outside its directory: the kernel resolves each
//! path within the directory (`RESOLVE_BENEATH`), including symbolic links. It opens only regular
//! files: it finds a file with `O_PATH`, and then opens it through `/proc/thread-self/fd`.
//!
//! | part | contents |
//! |---|---|
//! | `url_path` | canonical URL paths of files |
//! | `files` | operations of the file system |
//! | `memory` | a file system in memory, for simulations |
//! | `root` | opens files beneath a directory |
//! | `location` | checks that the path of a cached file still refers to it, beneath the root |
//! | `file_version` | detects changes of a file |
//! | `entry` | a file with its prepared head: 200, 206, 304, 412, 416 |
//! | `load` | responds with a file that is not cached, and caches it |
//! | `cache` | bounded cache of entries (CLOCK algorithm) |
//! | `generated` | responses without a file: errors, redirects, OPTIONS |
//! | `media_type` | `Content-Type` by file name |
//!
//! # Caching and consistency
//! Small files are cached in memory. Large files are kept open. Both caches are bounded. Before it
//! uses an entry, the site checks once per event-loop turn that the path still refers to the same
//! file beneath the root. The size, modification time and change time must be the same, too. So a
//! response is never older than the turn in which it is sent.
//!
//! File times come from a coarse clock, so a file that changed within the last 20 ms may change again
//! without a new time. Such a file is served with an ETag that is never reused, and is not cached.

use std::cell::Cell;
use std::hash::{BuildHasher, DefaultHasher, Hasher, RandomState};
use std::io;
use std::path::PathBuf;

use hearken_http::path::resolve;
use hearken_http::{DateCache, Method, Request};

mod cache;
mod entry;
mod file_version;
mod files;
mod generated;
pub(crate) mod handler;
mod load;
mod location;
mod media_type;
#[cfg(feature = "simulation")]
pub(crate) mod memory;
mod root;
mod url_path;

pub use crate::front::Answer;
use cache::Cache;
use entry::Entry;
pub use files::{Disk, Files};
use root::Root;

/// Settings of a directory to serve.
#[derive(Clone, Debug)]
pub struct SiteConfig {
    /// Path of the directory.
    pub root: PathBuf,
    /// Whether to serve names that start with a dot. `/.well-known/` is always served.
    pub dotfiles: bool,
    /// Name of the file that is served for a directory.
    pub index: String,
    /// Maximum size in bytes of the cache of small files.
    pub max_cache_bytes: usize,
    /// Maximum size in bytes of a cached file. Larger files are sent from their descriptor.
    pub max_cached_file_bytes: usize,
    /// Maximum number of large files kept open between requests.
    pub max_open_files: usize,
    /// Maximum size in bytes of a request body (413). The body is discarded.
    pub max_body_bytes: u64,
    /// Time in seconds in Strict-Transport-Security of all responses, if they have this field.
    pub hsts: Option<u64>,
}

impl Default for SiteConfig {
    fn default() -> SiteConfig {
        SiteConfig {
            root: PathBuf::from("."),
            dotfiles: false,
            index: "index.html".to_owned(),
            max_cache_bytes: 64 * 1024 * 1024,
            max_cached_file_bytes: 64 * 1024,
            max_open_files: 64,
            max_body_bytes: 1024 * 1024,
            hsts: None,
        }
    }
}

/// A directory that one thread serves.
#[derive(Debug)]
pub struct Site<F: Files = Disk> {
    root: Root<F>,
    dotfiles: bool,
    hsts: Option<u64>,
    index: String,
    max_small_bytes: u64,
    small_files: Cache<Entry>,
    large_files: Cache<Entry>,
    turn: u64,
    /// Descriptors that are closed to open a file when no other descriptors are available.
    reserve: Vec<F::File>,
    random: Random,
    path: Vec<u8>,
    key: Vec<u8>,
}

/// A request and the parameters of its response.
struct Exchange<'e, 'b> {
    request: &'e Request<'b>,
    /// Time in seconds in Strict-Transport-Security, if the response has this field.
    hsts: Option<u64>,
    date: &'e DateCache,
    keep_alive: bool,
}

/// Numbers that cannot be predicted without the seed: boundaries of multipart bodies, and salts that
/// make the ETags of recently changed files unique.
#[derive(Debug)]
struct Random {
    seed: u64,
    count: Cell<u64>,
}

impl Random {
    fn new(seed: u64) -> Random {
        Random { seed, count: Cell::new(0) }
    }

    /// Returns the next number.
    fn next(&self) -> u64 {
        self.count.set(self.count.get().wrapping_add(1));
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.seed);
        hasher.write_u64(self.count.get());
        hasher.finish()
    }
}

impl Site {
    /// Opens a directory to serve it. If its path is a symbolic link that later changes, the site
    /// serves the new directory from then on.
    ///
    /// # Errors
    /// The directory does not exist or is not searchable, or `index` is not a file name.
    pub fn open(config: &SiteConfig) -> io::Result<Site> {
        Site::open_in(Disk, config, RandomState::new().build_hasher().finish())
    }
}

impl<F: Files> Site<F> {
    /// Opens a directory of a file system like [`open`](Site::open). Sites with another `seed` create
    /// different ETags for files that have just changed.
    pub(crate) fn open_in(files: F, config: &SiteConfig, seed: u64) -> io::Result<Site<F>> {
        let index = config.index.clone();
        if matches!(&*index, "" | "." | "..") || index.contains(['/', '\0']) {
            let index = index.escape_debug();
            let reason = format!("index '{index}' is not a file name; remove any slash");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let root = Root::open(files, &config.root)?;
        let mut reserve = Vec::new();
        root.fill_reserve(&mut reserve);
        Ok(Site {
            reserve,
            root,
            dotfiles: config.dotfiles,
            hsts: config.hsts,
            index,
            max_small_bytes: config.max_cached_file_bytes as u64,
            small_files: Cache::new(config.max_cache_bytes),
            large_files: Cache::new(config.max_open_files),
            turn: 0,
            random: Random::new(seed),
            path: Vec::new(),
            key: Vec::new(),
        })
    }

    /// Begins a turn of the event loop. The site checks each cached file again at its next use.
    #[inline]
    pub fn begin_turn(&mut self) {
        self.turn = self.turn.wrapping_add(1);
    }

    /// Closes large files that were not used since the last call, because an open file takes disk
    /// space even after it is deleted. Returns whether any files are still open. If so, call it again
    /// after a few seconds.
    pub fn close_unused(&mut self) -> bool {
        self.large_files.remove_unused(Entry::is_idle);
        self.large_files.len() > 0
    }

    /// Returns the estimated size in bytes of the cache of small files, and the number of large files
    /// kept open.
    pub fn cache_usage(&self) -> (usize, usize) {
        (self.small_files.weight(), self.large_files.len())
    }

    /// Answers a request. Returns a complete prepared response, or appends the head and a small body
    /// to `out`. `keep_alive` is whether the connection stays open after the response.
    pub fn answer(
        &mut self,
        request: &Request<'_>,
        date: &DateCache,
        keep_alive: bool,
        out: &mut Vec<u8>,
    ) -> Answer<'_> {
        let exchange = Exchange { request, hsts: self.hsts, date, keep_alive };
        match request.method {
            Method::Get | Method::Head => {}
            Method::Options => return exchange.options(out),
            Method::Other(_) => return exchange.error(501, out),
            _ => return exchange.error(405, out),
        }
        let Some((path, query)) = request.target().path_and_query() else {
            return exchange.error(400, out);
        };
        // In nearly all requests the path is already canonical, so it is the cache key.
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

    /// Answers a request whose path, as sent, is not the key of a cached file.
    #[cold]
    fn find(
        &mut self,
        raw: &[u8],
        query: Option<&[u8]>,
        exchange: &Exchange<'_, '_>,
        out: &mut Vec<u8>,
    ) -> Answer<'static> {
        // Moves the buffers out, so that `self` can be borrowed. This does not allocate.
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

    /// Converts a request path into the path of the file, relative to the root, and its cache key.
    ///
    /// # Errors
    /// The status of the error response.
    fn locate(&self, raw: &[u8], path: &mut Vec<u8>, key: &mut Vec<u8>) -> Result<(), u16> {
        let safe = resolve(raw, path).map_err(|error| error.status())?;
        if safe.has_hidden_segment && !self.dotfiles && !url_path::is_well_known(safe.path) {
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
