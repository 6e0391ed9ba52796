//! A file with its prepared head, and the answers that are made of it.

use std::rc::Rc;

use bytes::Bytes;
use hearken::io::{Body, FilePart};
use hearken_http::conditional::{Conditions, EntityTag, Outcome, Validators, evaluate, if_range};
use hearken_http::range::{self, RangeOutcome};
use hearken_http::{
    DateCache, Method, ResponseHead, Version, format_http_date, head, parse_http_date,
};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, pread};

use super::beneath::Root;
use super::location::Location;
use super::stamp::Stamp;
use super::{Answer, Exchange};

/// Up to what size a body is kept behind its head, to be sent with it as one.
const INLINE: usize = 16 * 1024;

/// Up to what size an answer is kept in two forms, the other for a connection that it ends.
const TWICE: usize = 2048;

/// How long a date is, in bytes.
const DATE: usize = "Thu, 01 Jan 1970 00:00:00 GMT".len();

/// What an entry takes in memory, about, beside its bytes: itself, its slot and key in the cache.
const OVERHEAD: usize = 384;

/// A file's bytes.
#[derive(Debug)]
pub(super) enum Content {
    Memory(Bytes),
    Open { file: Rc<OwnedFd>, length: u64 },
}

/// A file that can be answered with.
#[derive(Debug)]
pub(super) struct Entry {
    /// A whole answer, as it is to most requests: the head of a 200, with room for the date, and
    /// behind it the body if that is short. In the head are from `described` on the fields that a
    /// 206 has too, from `validators` on those of a 304, and at `dated` the date.
    answer: Box<[u8]>,
    /// The same for a connection that is closed after it, once that was asked for.
    last: Option<Box<[u8]>>,
    described: usize,
    validators: usize,
    dated: usize,
    /// What date is there, in seconds since 1970.
    date: u64,
    length: u64,
    /// Where the bytes are if they are not in `answer`.
    content: Option<Content>,
    etag: [u8; 16],
    modified: Option<u64>,
    seen: Option<Seen>,
}

/// Where an entry's file was last seen unchanged.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) location: Location,
    pub(super) stamp: Stamp,
    pub(super) turn: u64,
}

impl Entry {
    /// Prepares the answers. `modified` is in seconds since 1970; without `seen` the entry is not
    /// to be kept.
    pub(super) fn new(
        content: Content,
        content_type: &str,
        etag: u64,
        modified: Option<u64>,
        seen: Option<Seen>,
    ) -> Entry {
        let (length, inline) = match &content {
            Content::Memory(bytes) if bytes.len() <= INLINE => (bytes.len() as u64, &**bytes),
            Content::Memory(bytes) => (bytes.len() as u64, &[][..]),
            Content::Open { length, .. } => (*length, &[][..]),
        };
        let mut head = Vec::with_capacity(384 + inline.len());
        ResponseHead::new(&mut head, 200).content_length(length);
        let described = head.len();
        head::field(&mut head, "Content-Type", content_type);
        head::field(&mut head, "X-Content-Type-Options", "nosniff");
        head::field(&mut head, "Accept-Ranges", "bytes");
        let validators = head.len();
        let text = format!("{etag:016x}");
        head::field(&mut head, "ETag", format!("\"{text}\""));
        if let Some(modified) = modified {
            head::field(&mut head, "Last-Modified", format_http_date(modified));
        }
        head.extend_from_slice(b"Date: ");
        let dated = head.len();
        head.extend_from_slice(&[b' '; DATE]);
        head.extend_from_slice(b"\r\n\r\n");
        head.extend_from_slice(inline);
        let content = (inline.len() as u64 != length).then_some(content);
        let mut etag = [b'0'; 16];
        etag.copy_from_slice(text.as_bytes());
        Entry {
            answer: head.into(),
            last: None,
            described,
            validators,
            dated,
            date: u64::MAX,
            length,
            content,
            etag,
            modified,
            seen,
        }
    }

    /// Whether its path leads to the same file, unchanged, or did when it was last looked at in
    /// this turn.
    #[inline]
    pub(super) fn is_current(&mut self, turn: u64, root: &Root) -> bool {
        match &mut self.seen {
            Some(seen) if seen.turn == turn => true,
            Some(seen) => {
                let same =
                    seen.location.status(turn, root).is_ok_and(|now| now.stamp == seen.stamp);
                if same {
                    seen.turn = turn;
                }
                same
            }
            None => false,
        }
    }

    /// Whether nothing is being sent from its descriptor.
    pub(super) fn is_idle(&self) -> bool {
        match &self.content {
            Some(Content::Open { file, .. }) => Rc::strong_count(file) == 1,
            _ => true,
        }
    }

    pub(super) fn is_in_memory(&self) -> bool {
        !matches!(self.content, Some(Content::Open { .. }))
    }

    /// What it takes in memory, in bytes, about.
    pub(super) fn weight(&self) -> usize {
        let bytes = match &self.content {
            Some(Content::Memory(bytes)) => bytes.len(),
            _ => 0,
        };
        let path = self.seen.as_ref().map_or(0, |seen| seen.location.weight());
        let forms = if self.answer.len() <= TWICE { 2 } else { 1 };
        OVERHEAD + bytes + forms * self.answer.len() + path
    }

    /// Answers a GET or HEAD.
    #[inline(always)]
    pub(super) fn answer(&mut self, exchange: &Exchange<'_, '_>, out: &mut Vec<u8>) -> Answer<'_> {
        let request = exchange.request;
        if !request.is_plain() {
            return self.conditional(exchange, out);
        }
        let usual = (request.version == Version::Http11)
            & (request.method == Method::Get)
            & self.content.is_none();
        if !usual {
            return self.whole(exchange, out);
        }
        if self.date != exchange.date.unix_seconds() {
            self.set_date(exchange.date);
        }
        if !exchange.keep_alive {
            return self.last(exchange, out);
        }
        Answer { ready: &self.answer, body: Body::None, status: 200, length: self.length }
    }

    /// The answer to a usual request for a connection that it ends.
    #[inline(never)]
    fn last(&mut self, exchange: &Exchange<'_, '_>, out: &mut Vec<u8>) -> Answer<'_> {
        if self.answer.len() > TWICE {
            return self.whole(exchange, out);
        }
        let ready = self.last.get_or_insert_with(|| {
            let (head, rest) = self.answer.split_at(self.dated + DATE);
            [head, b"\r\nConnection: close", rest].concat().into()
        });
        Answer { ready, body: Body::None, status: 200, length: self.length }
    }

    #[cold]
    fn set_date(&mut self, date: &DateCache) {
        self.date = date.unix_seconds();
        for answer in [Some(&mut self.answer), self.last.as_mut()].into_iter().flatten() {
            if let Some(room) = answer.get_mut(self.dated..self.dated + DATE) {
                room.copy_from_slice(date.as_bytes());
            }
        }
    }

    #[inline(never)]
    fn whole(&self, exchange: &Exchange<'_, '_>, out: &mut Vec<u8>) -> Answer<'static> {
        out.extend_from_slice(&self.answer[..self.dated]);
        exchange.end_head(out);
        self.body(200, 0, self.length, exchange, out)
    }

    #[inline(never)]
    fn conditional(&self, exchange: &Exchange<'_, '_>, out: &mut Vec<u8>) -> Answer<'static> {
        let request = exchange.request;
        let etag = EntityTag { weak: false, opaque: &self.etag };
        let current = Validators { etag: Some(etag), last_modified: self.modified };
        match evaluate(request.method, &Conditions::from(request), Some(&current)) {
            Outcome::Proceed => {}
            Outcome::PreconditionFailed => return exchange.error(412, out),
            Outcome::NotModified => {
                head::status_line(out, 304);
                out.extend_from_slice(&self.answer[self.validators..self.dated]);
                exchange.end_head(out);
                return Answer { ready: &[], body: Body::None, status: 304, length: 0 };
            }
        }
        // Ranges are defined for GET alone.
        let Some(range) = request.range().filter(|_| request.method == Method::Get) else {
            return self.whole(exchange, out);
        };
        let applies = request.if_range().is_none_or(|value| {
            parse_http_date(exchange.date.as_bytes())
                .is_some_and(|now| if_range(value, &current, now))
        });
        let length = self.length;
        match range::parse(range, length) {
            RangeOutcome::Part { first, last } if applies => {
                let part = last - first + 1;
                ResponseHead::new(out, 206).content_range(first, last, length).content_length(part);
                out.extend_from_slice(&self.answer[self.described..self.dated]);
                exchange.end_head(out);
                self.body(206, first, part, exchange, out)
            }
            RangeOutcome::Unsatisfiable if applies => exchange.unsatisfiable(length, out),
            _ => self.whole(exchange, out),
        }
    }

    /// Adds a part of the file, or says what is to follow.
    fn body(
        &self,
        status: u16,
        first: u64,
        length: u64,
        exchange: &Exchange<'_, '_>,
        out: &mut Vec<u8>,
    ) -> Answer<'static> {
        if length == 0 || exchange.is_head() {
            return Answer { ready: &[], body: Body::None, status, length: 0 };
        }
        // What is in memory has a length that fits.
        let part = first as usize..(first + length) as usize;
        let body = match &self.content {
            None => {
                let body = self.answer.len() - self.length as usize;
                out.extend_from_slice(&self.answer[body..][part]);
                Body::None
            }
            Some(Content::Memory(bytes)) if part.len() <= INLINE => {
                out.extend_from_slice(&bytes[part]);
                Body::None
            }
            Some(Content::Memory(bytes)) => Body::Bytes(bytes.slice(part)),
            Some(Content::Open { file, .. }) => {
                Body::File(FilePart { file: Rc::clone(file), offset: first, length })
            }
        };
        Answer { ready: &[], body, status, length }
    }
}

/// Reads up to `length` bytes from the beginning of a file; fewer if it has fewer.
pub(super) fn read(file: &OwnedFd, length: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; length];
    let mut at = 0;
    while at < length {
        match pread(file, &mut bytes[at..], at as u64) {
            Ok(0) => break,
            Ok(more) => at += more,
            Err(Errno::INTR) => {}
            Err(failed) => return Err(failed),
        }
    }
    bytes.truncate(at);
    Ok(bytes)
}
