//! A file with its prepared head, and the answers that are made of it.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::rc::Rc;

use bytes::Bytes;
use hearken::io::{Body, FilePart};
use hearken_http::conditional::{Conditions, EntityTag, Outcome, Validators, evaluate, if_range};
use hearken_http::range::{self, ByteRange, RangeOutcome};
use hearken_http::{
    DateCache, Method, ResponseHead, Version, format_http_date, head, parse_http_date,
};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, pread};

use super::file_version::FileVersion;
use super::location::Location;
use super::root::Root;
use super::{Answer, Exchange};

/// Up to what size a body is kept behind its head, to be sent with it as one.
const MAX_INLINE: usize = 16 * 1024;

/// Up to what size an answer is kept in two forms, the other for a connection that it ends.
const MAX_CLOSING_ANSWER: usize = 2048;

/// Maximum number of bytes of a file that are put together for several ranges. Of a larger sum, the whole
/// file is sent: it needs no memory.
const MAX_MULTIPART: u64 = 1024 * 1024;

/// How long a date is, in bytes.
const DATE_LENGTH: usize = "Thu, 01 Jan 1970 00:00:00 GMT".len();

/// What an entry takes in memory, about, beside its bytes: itself, its slot and key in the cache.
const OVERHEAD: usize = 384;

/// A file's bytes.
#[derive(Debug)]
pub(super) enum Content {
    Memory(Bytes),
    File { file: Rc<OwnedFd>, length: u64 },
}

/// A file that can be answered with.
#[derive(Debug)]
pub(super) struct Entry {
    /// A whole answer, as it is to most requests: the head of a 200, with room for the date, and
    /// behind it the body if that is short. In the head are from `described` on the fields that a
    /// 206 has too, from `validators` on those of a 304, and at `dated` the date.
    answer: Box<[u8]>,
    /// The same for a connection that is closed after it, once that was asked for.
    closing_answer: Option<Box<[u8]>>,
    content_fields: usize,
    validators: usize,
    date_position: usize,
    /// What date is there, in seconds since 1970.
    date: u64,
    length: u64,
    /// Where the bytes are if they are not in `answer`.
    content: Option<Content>,
    etag: [u8; 16],
    modified: Option<u64>,
    last_check: Option<LastCheck>,
}

/// Where an entry's file was last seen unchanged.
#[derive(Debug)]
pub(super) struct LastCheck {
    pub(super) location: Location,
    pub(super) version: FileVersion,
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
        seen: Option<LastCheck>,
    ) -> Entry {
        let (length, inline) = match &content {
            Content::Memory(bytes) if bytes.len() <= MAX_INLINE => (bytes.len() as u64, &**bytes),
            Content::Memory(bytes) => (bytes.len() as u64, &[][..]),
            Content::File { length, .. } => (*length, &[][..]),
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
        head.extend_from_slice(&[b' '; DATE_LENGTH]);
        head.extend_from_slice(b"\r\n\r\n");
        head.extend_from_slice(inline);
        let content = (inline.len() as u64 != length).then_some(content);
        let mut etag = [b'0'; 16];
        etag.copy_from_slice(text.as_bytes());
        Entry {
            answer: head.into(),
            closing_answer: None,
            content_fields: described,
            validators,
            date_position: dated,
            date: u64::MAX,
            length,
            content,
            etag,
            modified,
            last_check: seen,
        }
    }

    /// Whether its path leads to the same file, unchanged, or did when it was last looked at in
    /// this turn.
    #[inline(always)]
    pub(super) fn is_current(&mut self, turn: u64, root: &Root) -> bool {
        matches!(&self.last_check, Some(seen) if seen.turn == turn) || self.is_unchanged(turn, root)
    }

    #[inline(never)]
    fn is_unchanged(&mut self, turn: u64, root: &Root) -> bool {
        let Some(seen) = &mut self.last_check else { return false };
        let same = seen.location.status(turn, root).is_ok_and(|now| now.version == seen.version);
        if same {
            seen.turn = turn;
        }
        same
    }

    /// Whether nothing is being sent from its descriptor.
    pub(super) fn is_idle(&self) -> bool {
        match &self.content {
            Some(Content::File { file, .. }) => Rc::strong_count(file) == 1,
            _ => true,
        }
    }

    pub(super) fn is_in_memory(&self) -> bool {
        !matches!(self.content, Some(Content::File { .. }))
    }

    /// What it takes in memory, in bytes, about.
    pub(super) fn weight(&self) -> usize {
        let bytes = match &self.content {
            Some(Content::Memory(bytes)) => bytes.len(),
            _ => 0,
        };
        let path = self.last_check.as_ref().map_or(0, |seen| seen.location.weight());
        let forms = if self.answer.len() <= MAX_CLOSING_ANSWER { 2 } else { 1 };
        OVERHEAD + bytes + forms * self.answer.len() + path
    }

    /// Answers a GET or HEAD.
    #[inline(always)]
    pub(super) fn answer(&mut self, exchange: &Exchange<'_, '_>, out: &mut Vec<u8>) -> Answer<'_> {
        let request = exchange.request;
        if !request.is_plain() {
            return self.answer_conditional(exchange, out);
        }
        let usual = (request.version == Version::Http11)
            & (request.method == Method::Get)
            & self.content.is_none();
        if !usual {
            return self.answer_full(exchange, out);
        }
        if self.date != exchange.date.unix_seconds() {
            self.set_date(exchange.date);
        }
        if !exchange.keep_alive {
            return self.answer_and_close(exchange, out);
        }
        Answer { ready: &self.answer, body: Body::None, status: 200, length: self.length }
    }

    /// The answer to a usual request for a connection that it ends.
    #[inline(never)]
    fn answer_and_close(&mut self, exchange: &Exchange<'_, '_>, out: &mut Vec<u8>) -> Answer<'_> {
        if self.answer.len() > MAX_CLOSING_ANSWER {
            return self.answer_full(exchange, out);
        }
        let ready = self.closing_answer.get_or_insert_with(|| {
            let (head, rest) = self.answer.split_at(self.date_position + DATE_LENGTH);
            [head, b"\r\nConnection: close", rest].concat().into()
        });
        Answer { ready, body: Body::None, status: 200, length: self.length }
    }

    #[cold]
    fn set_date(&mut self, date: &DateCache) {
        self.date = date.unix_seconds();
        for answer in [Some(&mut self.answer), self.closing_answer.as_mut()].into_iter().flatten() {
            if let Some(room) = answer.get_mut(self.date_position..self.date_position + DATE_LENGTH)
            {
                room.copy_from_slice(date.as_bytes());
            }
        }
    }

    #[inline(never)]
    fn answer_full(&self, exchange: &Exchange<'_, '_>, out: &mut Vec<u8>) -> Answer<'static> {
        out.extend_from_slice(&self.answer[..self.date_position]);
        exchange.end_head(out);
        self.answer_body(200, 0, self.length, exchange, out)
    }

    #[inline(never)]
    fn answer_conditional(
        &self,
        exchange: &Exchange<'_, '_>,
        out: &mut Vec<u8>,
    ) -> Answer<'static> {
        let request = exchange.request;
        let etag = EntityTag { weak: false, opaque: &self.etag };
        let current = Validators { etag: Some(etag), last_modified: self.modified };
        match evaluate(request.method, &Conditions::from(request), Some(&current)) {
            Outcome::Proceed => {}
            Outcome::PreconditionFailed => return exchange.error(412, out),
            Outcome::NotModified => {
                head::status_line(out, 304);
                out.extend_from_slice(&self.answer[self.validators..self.date_position]);
                exchange.end_head(out);
                return Answer { ready: &[], body: Body::None, status: 304, length: 0 };
            }
        }
        // Ranges are defined for GET alone.
        let Some(range) = request.range().filter(|_| request.method == Method::Get) else {
            return self.answer_full(exchange, out);
        };
        let applies = request.if_range().is_none_or(|value| {
            parse_http_date(exchange.date.as_bytes())
                .is_some_and(|now| if_range(value, &current, now))
        });
        let length = self.length;
        match range::parse(range, length) {
            RangeOutcome::Part(part) if applies => {
                let ByteRange { first, last } = part;
                ResponseHead::new(out, 206)
                    .content_range(first, last, length)
                    .content_length(part.length());
                out.extend_from_slice(&self.answer[self.content_fields..self.date_position]);
                exchange.end_head(out);
                self.answer_body(206, first, part.length(), exchange, out)
            }
            RangeOutcome::Parts(parts) if applies => match self.multipart(&parts) {
                Some((boundary, body)) => self.answer_multipart(&boundary, body, exchange, out),
                None => self.answer_full(exchange, out),
            },
            RangeOutcome::Unsatisfiable if applies => exchange.unsatisfiable(length, out),
            _ => self.answer_full(exchange, out),
        }
    }

    /// Answers with a body of several parts.
    #[cold]
    fn answer_multipart(
        &self,
        boundary: &str,
        body: Vec<u8>,
        exchange: &Exchange<'_, '_>,
        out: &mut Vec<u8>,
    ) -> Answer<'static> {
        let length = body.len() as u64;
        let content_type = format!("multipart/byteranges; boundary={boundary}");
        ResponseHead::new(out, 206).content_length(length).field("Content-Type", content_type);
        let (_, others) = self.content_type();
        out.extend_from_slice(others);
        exchange.end_head(out);
        let body = if body.len() <= MAX_INLINE {
            out.extend_from_slice(&body);
            Body::None
        } else {
            Body::Bytes(body.into())
        };
        Answer { ready: &[], body, status: 206, length }
    }

    /// Returns the boundary and the body of a multipart answer (RFC 9110 section 14.6); `None` if it is
    /// too long to be put together in memory, or the file cannot be read any more.
    #[cold]
    fn multipart(&self, parts: &[ByteRange]) -> Option<(String, Vec<u8>)> {
        let total = parts.iter().try_fold(0u64, |total, part| total.checked_add(part.length()))?;
        if total > MAX_MULTIPART {
            return None;
        }
        // Random, so that no file can be made to hold it.
        let boundary = format!("{:016x}", RandomState::new().build_hasher().finish());
        let (content_type, _) = self.content_type();
        let mut body = Vec::with_capacity(total as usize + parts.len() * 192);
        for part in parts {
            let ByteRange { first, last } = *part;
            let content_range =
                format!("Content-Range: bytes {first}-{last}/{}\r\n\r\n", self.length);
            for bytes in
                [b"--", boundary.as_bytes(), b"\r\n", content_type, content_range.as_bytes()]
            {
                body.extend_from_slice(bytes);
            }
            match &self.content {
                None => {
                    let whole = &self.answer[self.answer.len() - self.length as usize..];
                    body.extend_from_slice(&whole[first as usize..=last as usize]);
                }
                Some(Content::Memory(whole)) => {
                    body.extend_from_slice(&whole[first as usize..=last as usize]);
                }
                Some(Content::File { file, .. }) => {
                    let start = body.len();
                    body.resize(start + part.length() as usize, 0);
                    if read_at(file, &mut body[start..], first).ok()? < part.length() as usize {
                        return None;
                    }
                }
            }
            body.extend_from_slice(b"\r\n");
        }
        for bytes in [b"--", boundary.as_bytes(), b"--\r\n"] {
            body.extend_from_slice(bytes);
        }
        Some((boundary, body))
    }

    /// Returns the Content-Type line, and the lines that follow it up to the date.
    fn content_type(&self) -> (&[u8], &[u8]) {
        let lines = &self.answer[self.content_fields..self.date_position];
        let end = lines.iter().position(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        lines.split_at(end)
    }

    /// Adds a part of the file, or says what is to follow.
    fn answer_body(
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
            Some(Content::Memory(bytes)) if part.len() <= MAX_INLINE => {
                out.extend_from_slice(&bytes[part]);
                Body::None
            }
            Some(Content::Memory(bytes)) => Body::Bytes(bytes.slice(part)),
            Some(Content::File { file, .. }) => {
                Body::File(FilePart { file: Rc::clone(file), offset: first, length })
            }
        };
        Answer { ready: &[], body, status, length }
    }
}

/// Reads up to `length` bytes from the beginning of a file; fewer if it has fewer.
pub(super) fn read(file: &OwnedFd, length: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; length];
    let count = read_at(file, &mut bytes, 0)?;
    bytes.truncate(count);
    Ok(bytes)
}

/// Fills `bytes` from `offset` on. Returns how many bytes there were.
fn read_at(file: &OwnedFd, bytes: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut count = 0;
    while count < bytes.len() {
        match pread(file, &mut bytes[count..], offset + count as u64) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(Errno::INTR) => {}
            Err(failed) => return Err(failed),
        }
    }
    Ok(count)
}
