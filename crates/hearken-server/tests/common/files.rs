//! Directories to serve.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::OnceLock;

use tempfile::TempDir;

use super::client::request;
use super::ms;

/// Size of `/large` in bytes. More than the initial buffers of two sockets.
pub(crate) const LARGE: usize = 4 << 20;
/// Size of `/huge` in bytes. More than the buffers of two sockets at most (`tcp_wmem`, `tcp_rmem`).
pub(crate) const HUGE: u64 = 48 << 20;

/// A directory with files.
pub(crate) struct Site(TempDir);

impl Site {
    /// Creates a directory with `/small`, `/inline`, `/cached`, `/empty` and `/mark`.
    pub(crate) fn new() -> Site {
        let site = Site(tempfile::tempdir().unwrap());
        site.add("small", b"small\n");
        site.add("inline", &pattern()[..4000]);
        site.add("cached", &pattern()[..50_000]);
        site.add("empty", b"");
        site.add("mark", site.root().as_os_str().as_encoded_bytes());
        site
    }

    /// Adds `/large`, the [`LARGE`] bytes of [`pattern`].
    pub(crate) fn with_large() -> Site {
        let site = Site::new();
        site.add("large", pattern());
        site
    }

    /// Adds `/huge`, [`HUGE`] zeros.
    pub(crate) fn with_huge() -> Site {
        let site = Site::new();
        File::create(site.root().join("huge")).unwrap().set_len(HUGE).unwrap();
        site
    }

    /// Returns whether a server of this directory listens on `addr`.
    ///
    /// A released port may belong to another test's server, or to the client itself.
    pub(crate) fn is_served_at(&self, addr: SocketAddr) -> bool {
        let Ok(mut stream) = TcpStream::connect(addr) else { return false };
        let mut response = Vec::new();
        stream.set_read_timeout(Some(ms(500))).unwrap();
        let _ = stream.write_all(&request("GET /mark", "Connection: close\r\n"));
        let _ = stream.read_to_end(&mut response);
        String::from_utf8_lossy(&response).ends_with(self.root().to_str().unwrap())
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.0.path().to_owned()
    }

    pub(crate) fn add(&self, name: &str, bytes: &[u8]) {
        fs::write(self.0.path().join(name), bytes).unwrap();
    }
}

/// Returns [`LARGE`] bytes: the numbers from 0 in eight bytes each.
pub(crate) fn pattern() -> &'static [u8] {
    static PATTERN: OnceLock<Vec<u8>> = OnceLock::new();
    PATTERN.get_or_init(|| (0..LARGE as u64 / 8).flat_map(u64::to_le_bytes).collect())
}
