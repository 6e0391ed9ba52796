//! The access log: a line for each answer, in the combined format that log analysers read.
//!
//! Lines are gathered and written once a turn of the event loop, whole, to a file opened for
//! appending: several workers write to one file, and a rotation that copies and truncates it
//! loses nothing but what comes in between.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::Path;

use hearken_http::{DateCache, Request, Version};

/// How many bytes of a field that a client chose are written.
const MOST: usize = 1024;

#[derive(Debug)]
pub(crate) struct AccessLog {
    file: File,
    lines: Vec<u8>,
    /// By the slot of the connection.
    peers: Vec<Option<IpAddr>>,
}

impl AccessLog {
    /// Opens `path` for appending; `-` is standard output.
    pub(crate) fn open(path: &Path) -> io::Result<AccessLog> {
        let file = if path == Path::new("-") {
            io::stdout().as_fd().try_clone_to_owned()?.into()
        } else {
            OpenOptions::new().append(true).create(true).open(path)?
        };
        Ok(AccessLog { file, lines: Vec::new(), peers: Vec::new() })
    }

    /// Whose connection it is that has `slot`.
    pub(crate) fn accepted(&mut self, slot: u32, peer: Option<IpAddr>) {
        let slot = slot as usize;
        if slot >= self.peers.len() {
            self.peers.resize(slot + 1, None);
        }
        self.peers[slot] = peer;
    }

    /// Adds the line for an answer; without a request, for what could not be read as one.
    pub(crate) fn answered(
        &mut self,
        slot: u32,
        date: &DateCache,
        request: Option<&Request<'_>>,
        status: u16,
        length: u64,
    ) {
        let out = &mut self.lines;
        // Writing to a vector does not fail.
        let _ = match self.peers.get(slot as usize).copied().flatten() {
            Some(peer) => write!(out, "{peer} - - ["),
            None => write!(out, "- - - ["),
        };
        clock(date, out);
        out.extend_from_slice(b"] \"");
        match request {
            Some(request) => {
                escaped(request.method.as_bytes(), out);
                out.push(b' ');
                escaped(request.raw_target, out);
                let version = match request.version {
                    Version::Http10 => " HTTP/1.0",
                    Version::Http11 => " HTTP/1.1",
                };
                out.extend_from_slice(version.as_bytes());
            }
            None => out.push(b'-'),
        }
        let _ = write!(out, "\" {status} {length} \"");
        let field = |name| request.and_then(|request| request.field(name)).unwrap_or(b"-");
        escaped(field("Referer"), out);
        out.extend_from_slice(b"\" \"");
        escaped(field("User-Agent"), out);
        out.extend_from_slice(b"\"\n");
    }

    /// Writes what was gathered.
    #[inline]
    pub(crate) fn flush(&mut self) {
        if !self.lines.is_empty() {
            // A disk that is full costs lines, not answers.
            let _ = self.file.write_all(&self.lines);
            self.lines.clear();
        }
    }
}

/// `Sat, 21 Nov 2026 06:00:00 GMT` as `21/Nov/2026:06:00:00 +0000`.
fn clock(date: &DateCache, out: &mut Vec<u8>) {
    let parts = [(5..7, "/"), (8..11, "/"), (12..16, ":"), (17..25, " +0000")];
    for (part, after) in parts {
        out.extend_from_slice(date.as_bytes().get(part).unwrap_or_default());
        out.extend_from_slice(after.as_bytes());
    }
}

/// What would end the field or the line, or is not printable, is written as `\xHH`.
fn escaped(bytes: &[u8], out: &mut Vec<u8>) {
    for &byte in bytes.iter().take(MOST) {
        match byte {
            b'"' | b'\\' | 0..=0x1f | 0x7f.. => {
                let _ = write!(out, "\\x{byte:02x}");
            }
            _ => out.push(byte),
        }
    }
}
