//! A cached file with its prepared head, and the responses made from it.

use std::rc::Rc;

use bytes::Bytes;
use hearken::io::{Body, FilePart};
use hearken_http::conditional::{
    EntityTag, Outcome, Preconditions, Validators, evaluate, if_range,
};
use hearken_http::range::{self, ByteRange, RangeOutcome};
use hearken_http::{
    DateCache, Method, ResponseHead, Version, format_http_date, head, parse_http_date,
};
use rustix::fd::OwnedFd;

use super::file_version::FileVersion;
use super::files::{self, Files};
use super::location::Location;
use super::root::Root;
use super::{Answer, Exchange, Random};

/// Maximum size in bytes of a body that is stored after its head, to send both at once.
const MAX_INLINE: usize = 16 * 1024;

/// Maximum size in bytes of a response that is also stored with `Connection: close`.
const MAX_CLOSING_ANSWER: usize = 2048;

/// Maximum total size in bytes of the ranges in a multipart response. For larger requests, the
/// complete file is sent, which needs no memory.
const MAX_MULTIPART: u64 = 1024 * 1024;

/// Length of a date in bytes.
const DATE_LENGTH: usize = "Thu, 01 Jan 1970 00:00:00 GMT".len();

/// Approximate memory use in bytes of an entry without its content: itself, its slot and its key.
const OVERHEAD: usize = 384;

/// The content of a file.
#[derive(Debug)]
pub(super) enum Content {
    Memory(Bytes),
    File { file: Rc<OwnedFd>, length: u64 },
}

/// A file with its prepared responses.
#[derive(Debug)]
pub(super) struct Entry {
    /// A complete response for the usual request: the head of a 200, followed by the body if that
    /// is small. Parts of the head are used for other responses: a 206 has the fields from
    /// `content_fields` on, and a 304 those from `validators` on. The date is at `date_position`.
    answer: Box<[u8]>,
    /// The same response with `Connection: close`, created at its first use.
    closing_answer: Option<Box<[u8]>>,
    content_fields: usize,
    validators: usize,
    date_position: usize,
    /// The date in the response, in seconds since 1970.
    date: u64,
    length: u64,
    /// The content if it is not part of `answer`.
    content: Option<Content>,
    etag: [u8; 16],
    /// Source of the boundaries of multipart bodies.
    random: Random,
    modified: Option<u64>,
    last_check: Option<LastCheck>,
}

/// The last check that found the file of an entry unchanged.
#[derive(Debug)]
pub(super) struct LastCheck {
    pub(super) location: Location,
    pub(super) version: FileVersion,
    pub(super) turn: u64,
}

impl Entry {
    /// Prepares the responses. `modified` is in seconds since 1970. An entry without `last_check` must
    /// not be cached.
    pub(super) fn new(
        content: Content,
        content_type: &str,
        hsts: Option<u64>,
        etag: u64,
        random: Random,
        modified: Option<u64>,
        last_check: Option<LastCheck>,
    ) -> Entry {
        let (length, inline) = match &content {
            Content::Memory(bytes) if bytes.len() <= MAX_INLINE => (bytes.len() as u64, &**bytes),
            Content::Memory(bytes) => (bytes.len() as u64, &[][..]),
            Content::File { length, .. } => (*length, &[][..]),
        };
        let mut head = Vec::with_capacity(384 + inline.len());
        ResponseHead::new(&mut head, 200).content_length(length);
        let content_fields = head.len();
        head::field(&mut head, "Content-Type", content_type);
        head::field(&mut head, "X-Content-Type-Options", "nosniff");
        head::field(&mut head, "Accept-Ranges", "bytes");
        let validators = head.len();
        super::generated::write_hsts(&mut head, hsts);
        let text = format!("{etag:016x}");
        head::field(&mut head, "ETag", format!("\"{text}\""));
        if let Some(modified) = modified {
            head::field(&mut head, "Last-Modified", format_http_date(modified));
        }
        head.extend_from_slice(b"Date: ");
        let date_position = head.len();
        head.extend_from_slice(&[b' '; DATE_LENGTH]);
        head.extend_from_slice(b"\r\n\r\n");
        head.extend_from_slice(inline);
        let content = (inline.len() as u64 != length).then_some(content);
        let mut etag = [b'0'; 16];
        etag.copy_from_slice(text.as_bytes());
        Entry {
            answer: head.into(),
            closing_answer: None,
            content_fields,
            validators,
            date_position,
            date: u64::MAX,
            length,
            content,
            etag,
            random,
            modified,
            last_check,
        }
    }

    /// Returns whether the path refers to the same unchanged file, checked once per turn.
    #[inline(always)]
    pub(super) fn is_current<F: Files>(&mut self, turn: u64, root: &Root<F>) -> bool {
        matches!(&self.last_check, Some(last_check) if last_check.turn == turn)
            || self.is_unchanged(turn, root)
    }

    #[inline(never)]
    fn is_unchanged<F: Files>(&mut self, turn: u64, root: &Root<F>) -> bool {
        let Some(last_check) = &mut self.last_check else { return false };
        let same = last_check
            .location
            .status(turn, root)
            .is_ok_and(|now| now.version == last_check.version);
        if same {
            last_check.turn = turn;
        }
        same
    }

    /// Returns whether no response is being sent from the descriptor.
    pub(super) fn is_idle(&self) -> bool {
        match &self.content {
            Some(Content::File { file, .. }) => Rc::strong_count(file) == 1,
            _ => true,
        }
    }

    pub(super) fn is_in_memory(&self) -> bool {
        !matches!(self.content, Some(Content::File { .. }))
    }

    /// Returns the approximate memory use in bytes.
    pub(super) fn weight(&self) -> usize {
        let bytes = match &self.content {
            Some(Content::Memory(bytes)) => bytes.len(),
            _ => 0,
        };
        let path = self.last_check.as_ref().map_or(0, |last_check| last_check.location.weight());
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
        let usual = (request.version != Version::Http10)
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

    /// Answers a usual request on a connection that closes after the response.
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
            if let Some(slot) = answer.get_mut(self.date_position..self.date_position + DATE_LENGTH)
            {
                slot.copy_from_slice(date.as_bytes());
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
        match evaluate(request.method, &Preconditions::from(request), Some(&current)) {
            Outcome::Proceed => {}
            Outcome::PreconditionFailed => return exchange.error(412, out),
            Outcome::NotModified => {
                head::status_line(out, 304);
                out.extend_from_slice(&self.answer[self.validators..self.date_position]);
                exchange.end_head(out);
                return Answer { ready: &[], body: Body::None, status: 304, length: 0 };
            }
        }
        // Range requests are defined only for GET.
        let Some(range) = request.range().filter(|_| request.method == Method::Get) else {
            return self.answer_full(exchange, out);
        };
        let applies = request.if_range().is_none_or(|value| {
            parse_http_date(exchange.date.as_bytes())
                .is_some_and(|now| if_range(value, &current, now))
        });
        let length = self.length;
        match range::parse(range, length) {
            RangeOutcome::Single(part) if applies => {
                let ByteRange { first, last } = part;
                ResponseHead::new(out, 206)
                    .content_range(first, last, length)
                    .content_length(part.length());
                out.extend_from_slice(&self.answer[self.content_fields..self.date_position]);
                exchange.end_head(out);
                self.answer_body(206, first, part.length(), exchange, out)
            }
            RangeOutcome::Multiple(parts) if applies => match self.multipart(&parts) {
                Some((boundary, body)) => self.answer_multipart(&boundary, body, exchange, out),
                None => self.answer_full(exchange, out),
            },
            RangeOutcome::Unsatisfiable if applies => exchange.unsatisfiable(length, out),
            _ => self.answer_full(exchange, out),
        }
    }

    /// Answers with a multipart body.
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

    /// Returns the boundary and the body of a multipart response (RFC 9110 section 14.6). Returns
    /// `None` if the body would be too large, or the file cannot be read.
    #[cold]
    fn multipart(&self, parts: &[ByteRange]) -> Option<(String, Vec<u8>)> {
        let total = parts.iter().try_fold(0u64, |total, part| total.checked_add(part.length()))?;
        if total > MAX_MULTIPART {
            return None;
        }
        // Random, so that no file can be prepared to contain it.
        let boundary = format!("{:016x}", self.random.next());
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
                    let content = &self.answer[self.answer.len() - self.length as usize..];
                    body.extend_from_slice(&content[first as usize..=last as usize]);
                }
                Some(Content::Memory(content)) => {
                    body.extend_from_slice(&content[first as usize..=last as usize]);
                }
                Some(Content::File { file, .. }) => {
                    let start = body.len();
                    body.resize(start + part.length() as usize, 0);
                    if files::read_at(file, &mut body[start..], first).ok()?
                        < part.length() as usize
                    {
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

    /// Returns the Content-Type line and the lines between it and the date.
    fn content_type(&self) -> (&[u8], &[u8]) {
        let lines = &self.answer[self.content_fields..self.date_position];
        let end = lines.iter().position(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        lines.split_at(end)
    }

    /// Appends a part of the file to `out`, or returns it as the body.
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
        // The length of content in memory fits into `usize`.
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
