//! What is kept of a request until it has ended, and what is known by then.

use std::net::IpAddr;
use std::time::Duration;

use hearken_http::{Request, Version};

use super::{Line, MOST};

/// The parts of a request that are kept.
#[derive(Clone, Copy)]
enum Part {
    Method,
    Target,
    Host,
    Referer,
    UserAgent,
}

const PARTS: usize = 5;

/// What is kept of a request until it has ended, at most [`MOST`] bytes of each part. Its memory is
/// used again for the next; it has none before the first.
#[derive(Debug, Default)]
pub(crate) struct Logged {
    bytes: Vec<u8>,
    /// Where each part is in `bytes`, if there is such a part.
    parts: [Option<(u16, u16)>; PARTS],
    version: Option<Version>,
}

impl Logged {
    /// Keeps what a line says of a request, in place of what was kept before.
    pub(crate) fn take(&mut self, request: &Request<'_>) {
        self.clear();
        self.version = Some(request.version);
        self.keep(Part::Method, request.method.as_bytes());
        self.keep(Part::Target, request.raw_target);
        if let Some(host) = request.host {
            self.keep(Part::Host, host);
        }
        for (name, value) in request.fields() {
            // The first of several.
            if name.eq_ignore_ascii_case(b"Referer") && self.referer().is_none() {
                self.keep(Part::Referer, value);
            } else if name.eq_ignore_ascii_case(b"User-Agent") && self.user_agent().is_none() {
                self.keep(Part::UserAgent, value);
            }
        }
    }

    /// Keeps nothing: for what could not be read as a request.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.parts = [None; PARTS];
        self.version = None;
    }

    fn keep(&mut self, part: Part, value: &[u8]) {
        let value = value.get(..MOST).unwrap_or(value);
        let start = self.bytes.len();
        self.bytes.extend_from_slice(value);
        // All parts together are shorter than 64 KiB.
        if let Some(place) = self.parts.get_mut(part as usize) {
            *place = Some((start as u16, self.bytes.len() as u16));
        }
    }

    fn part(&self, part: Part) -> Option<&[u8]> {
        let (start, end) = self.parts.get(part as usize).copied().flatten()?;
        self.bytes.get(usize::from(start)..usize::from(end))
    }

    /// The request's first line, if it was read.
    pub(super) fn line(&self) -> Option<Line<'_>> {
        Some(Line {
            method: self.part(Part::Method)?,
            target: self.part(Part::Target)?,
            version: self.version?,
        })
    }

    pub(super) fn host(&self) -> Option<&[u8]> {
        self.part(Part::Host)
    }

    pub(super) fn referer(&self) -> Option<&[u8]> {
        self.part(Part::Referer)
    }

    pub(super) fn user_agent(&self) -> Option<&[u8]> {
        self.part(Part::UserAgent)
    }
}

/// What is known of a request when it has ended.
#[derive(Debug)]
pub(crate) struct End<'a> {
    /// The client's address.
    pub(crate) peer: Option<IpAddr>,
    /// The status that the client was sent; 0 if none was.
    pub(crate) status: u16,
    /// Bytes of content sent to the client.
    pub(crate) sent: u64,
    /// Bytes of content received from it.
    pub(crate) received: u64,
    /// The server that answered, or that failed last.
    pub(crate) server: Option<&'a str>,
    /// On how many servers it was tried.
    pub(crate) tries: u32,
    /// How long it waited for a server to have room.
    pub(crate) queued: Duration,
    /// How long the connection to the server took; zero for one that had been kept.
    pub(crate) connected: Duration,
    /// How long it was until the response's head had come.
    pub(crate) answered: Duration,
    /// How long it was until all had been sent.
    pub(crate) whole: Duration,
    /// How it ended, in a word: `done` if it did well.
    pub(crate) how: &'static str,
}
