//! The access log: a line for each answer, in the combined format that log analysers read, or as a
//! JSON object.
//!
//! Lines are gathered and written once a turn of the event loop, whole, to a file opened for
//! appending: several workers write to one file, and a rotation that copies and truncates it
//! loses nothing but what comes in between.

pub(crate) mod json;
mod logged;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hearken_http::{DateCache, Request, Version};

use crate::proxy::config::LogFormat;

pub(crate) use logged::{End, Logged};

/// How many bytes of a field that a client chose are written.
const MOST: usize = 1024;

#[derive(Debug)]
pub(crate) struct AccessLog {
    file: File,
    path: PathBuf,
    format: LogFormat,
    lines: Vec<u8>,
    /// By the slot of the connection.
    peers: Vec<Option<IpAddr>>,
}

impl AccessLog {
    /// Opens `path` for appending; `-` is standard output.
    pub(crate) fn open(path: &Path) -> io::Result<AccessLog> {
        AccessLog::open_as(path, LogFormat::Combined)
    }

    /// The same, in this format.
    pub(crate) fn open_as(path: &Path, format: LogFormat) -> io::Result<AccessLog> {
        let (file, path) = (appending(path)?, path.to_owned());
        Ok(AccessLog { file, path, format, lines: Vec::new(), peers: Vec::new() })
    }

    /// Goes on in the file that has the name now, once its old one was moved away. Where that cannot be
    /// opened, it goes on in the old one. To be called in the thread whose table has the file.
    pub(crate) fn reopen(&mut self) -> io::Result<()> {
        self.flush();
        self.file = appending(&self.path)?;
        Ok(())
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
        let peer = self.peers.get(slot as usize).copied().flatten();
        let line = request.map(|request| Line {
            method: request.method.as_bytes(),
            target: request.raw_target,
            version: request.version,
        });
        let field = |name| request.and_then(|request| request.field(name));
        let about = [field("Referer"), field("User-Agent")];
        combined(date, peer, line, (status, length), about, &mut self.lines);
    }

    /// Adds the line for a request that has ended, however it did.
    pub(crate) fn finished(&mut self, date: &DateCache, logged: &Logged, end: &End<'_>) {
        match self.format {
            LogFormat::Combined => {
                let about = [logged.referer(), logged.user_agent()];
                let answer = (end.status, end.sent);
                combined(date, end.peer, logged.line(), answer, about, &mut self.lines);
            }
            LogFormat::Json => json::line(date, logged, end, &mut self.lines),
        }
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

/// Has the logs of all workers opened anew, each by its worker.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reopen {
    /// How often it was asked for.
    asked: Arc<AtomicU64>,
    done: u64,
}

impl Reopen {
    /// Asks for it; then the workers are to be woken.
    pub(crate) fn ask(&self) {
        self.asked.fetch_add(1, Ordering::Release);
    }

    /// Does it, if it was asked for.
    pub(crate) fn reopen(&mut self, log: &mut AccessLog) {
        let asked = self.asked.load(Ordering::Acquire);
        if asked != self.done {
            self.done = asked;
            // Where that cannot be opened which has the name now, the old one is better than none.
            let _ = log.reopen();
        }
    }
}

fn appending(path: &Path) -> io::Result<File> {
    if path == Path::new("-") {
        return Ok(io::stdout().as_fd().try_clone_to_owned()?.into());
    }
    OpenOptions::new().append(true).create(true).open(path)
}

/// A request's first line.
#[derive(Clone, Copy)]
struct Line<'a> {
    method: &'a [u8],
    target: &'a [u8],
    version: Version,
}

impl Line<'_> {
    fn protocol(&self) -> &'static str {
        match self.version {
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
        }
    }
}

/// Adds a line in the combined format. What there is not is `-`: so is a status that was not sent.
fn combined(
    date: &DateCache,
    peer: Option<IpAddr>,
    line: Option<Line<'_>>,
    (status, length): (u16, u64),
    about: [Option<&[u8]>; 2],
    out: &mut Vec<u8>,
) {
    // Writing to a vector does not fail.
    let _ = match peer {
        Some(peer) => write!(out, "{peer} - - ["),
        None => write!(out, "- - - ["),
    };
    clock(date, out);
    out.extend_from_slice(b"] \"");
    match line {
        Some(line) => {
            escaped(line.method, out);
            out.push(b' ');
            escaped(line.target, out);
            out.push(b' ');
            out.extend_from_slice(line.protocol().as_bytes());
        }
        None => out.push(b'-'),
    }
    let _ = match status {
        0 => write!(out, "\" - {length}"),
        status => write!(out, "\" {status} {length}"),
    };
    for field in about {
        out.extend_from_slice(b" \"");
        escaped(field.unwrap_or(b"-"), out);
        out.push(b'"');
    }
    out.push(b'\n');
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

#[cfg(test)]
mod tests;
