//! Memory in which decoded fields become the head of an HTTP/1.1 message.

use super::hpack::FieldClass;
use crate::error::Reject;
use crate::limits::Limits;

/// Bytes before the field lines, for the lines that are known last. Longer ones move the field lines.
pub(super) const GAP: usize = 512;
/// Maximum capacity in bytes of a buffer that is retained.
const MAX_RETAINED_BYTES: usize = 64 * 1024;

/// Memory for decoded heads, which [`Connection::receive`](super::Connection::receive) reuses.
///
/// All connections of a thread can share one, because an [`Event`](super::Event) borrows it only until the
/// next call.
#[derive(Debug)]
pub struct HeadBuffer {
    /// Field lines from [`GAP`] on.
    pub(super) lines: Vec<u8>,
    /// Values of pseudo-header fields and of Host.
    pub(super) values: Vec<u8>,
    pub(super) pseudo: Pseudo,
    /// Values of Cookie fields, separated by `"; "`.
    pub(super) cookies: Vec<u8>,
    /// Lines that the parser of HTTP/1.1 requests examines.
    pub(super) relevant: Vec<RelevantLine>,
    /// Position of the last Priority value after [`GAP`].
    pub(super) priority: Span,
    pub(super) has_content_length: bool,
    /// Whether a regular field occurred.
    has_fields: bool,
    kind: Kind,
    /// The first class of fields that are more than copied.
    special: FieldClass,
    /// Maximum length of `lines` and of the other buffers.
    max_len: usize,
    remaining_fields: usize,
    problem: Option<Problem>,
}

/// The values of pseudo-header fields and of Host. An absent value is empty.
#[derive(Debug, Default)]
pub(super) struct Pseudo {
    pub(super) method: Span,
    pub(super) scheme: Span,
    pub(super) authority: Span,
    pub(super) path: Span,
    pub(super) protocol: Span,
    pub(super) status: Span,
    pub(super) host: Span,
}

/// The position of a value.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Span {
    start: u32,
    len: u32,
}

impl Span {
    pub(super) fn is_empty(self) -> bool {
        self.len == 0
    }

    #[inline(always)]
    pub(super) fn slice(self, bytes: &[u8]) -> &[u8] {
        let start = self.start as usize;
        bytes.get(start..start + self.len as usize).unwrap_or_default()
    }
}

/// The position of a line after [`GAP`] and the lengths of the line, without CRLF, and of its name.
#[derive(Debug, Clone, Copy)]
pub(super) struct RelevantLine {
    pub(super) start: u32,
    pub(super) len: u32,
    pub(super) name_len: u32,
}

/// The kind of a field section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Request,
    Response,
    Trailers,
    /// Fields that are decoded only because they change the dynamic table.
    Discarded,
}

/// A reason not to deliver a field section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Problem {
    /// The message is malformed, RFC 9113 section 8.1.1.
    Malformed(&'static str),
    /// The request is well-formed but rejected with a status.
    Rejected(Reject),
}

impl HeadBuffer {
    /// Creates a buffer.
    pub fn new() -> Self {
        Self {
            lines: Vec::new(),
            values: Vec::new(),
            pseudo: Pseudo::default(),
            cookies: Vec::new(),
            relevant: Vec::new(),
            priority: Span::default(),
            has_content_length: false,
            has_fields: false,
            kind: Kind::Discarded,
            special: FieldClass::PLAIN,
            max_len: 0,
            remaining_fields: 0,
            problem: None,
        }
    }

    /// Removes the content and prepares for a field section of this kind.
    #[inline]
    pub(super) fn begin(&mut self, kind: Kind, limits: &Limits) {
        for buffer in [&mut self.lines, &mut self.values, &mut self.cookies] {
            if buffer.capacity() > MAX_RETAINED_BYTES {
                *buffer = Vec::new();
            }
            buffer.clear();
        }
        self.lines.resize(GAP, 0);
        self.pseudo = Pseudo::default();
        self.relevant.clear();
        self.priority = Span::default();
        (self.has_content_length, self.has_fields) = (false, false);
        self.kind = kind;
        self.special = match kind {
            Kind::Request => FieldClass::RELEVANT,
            Kind::Response => FieldClass::CONTENT_LENGTH,
            Kind::Trailers => FieldClass::TE,
            Kind::Discarded => FieldClass::PLAIN,
        };
        self.max_len = GAP + limits.max_head_bytes;
        self.remaining_fields = limits.max_fields;
        self.problem = None;
    }

    /// Returns the first problem of the section.
    #[inline]
    pub(super) fn check(&self) -> Result<(), Problem> {
        self.problem.map_or(Ok(()), Err)
    }

    /// Returns a value that `span` refers to.
    #[inline(always)]
    pub(super) fn value(&self, span: Span) -> &[u8] {
        span.slice(&self.values)
    }

    /// Returns the buffer to whose end the decoder appends a line before it calls
    /// [`finish_line`](Self::finish_line).
    #[inline(always)]
    pub(super) fn lines(&mut self) -> &mut Vec<u8> {
        &mut self.lines
    }

    /// Adds the line of a table entry.
    #[inline(always)]
    pub(super) fn add_line(&mut self, line: &[u8], name_len: usize, class: FieldClass) {
        let start = self.lines.len();
        if class < self.special {
            self.lines.extend_from_slice(line);
            return self.count_line();
        }
        self.add_special_line(line, start, name_len, class);
    }

    #[inline(never)]
    fn add_special_line(&mut self, line: &[u8], start: usize, name_len: usize, class: FieldClass) {
        match self.examine(line, name_len, class) {
            Ok(true) => {
                self.lines.extend_from_slice(line);
                self.keep_line(start, line.len(), name_len, class);
            }
            Ok(false) => {}
            Err(problem) => self.fail(problem),
        }
    }

    /// Adds the line that was appended from `start` on.
    #[inline(always)]
    pub(super) fn finish_line(&mut self, start: usize, name_len: usize, class: FieldClass) {
        if class < self.special {
            return self.count_line();
        }
        self.finish_special_line(start, name_len, class);
    }

    /// Applies the limits after a regular line was added.
    #[inline(always)]
    fn count_line(&mut self) {
        self.has_fields = true;
        match self.remaining_fields.checked_sub(1) {
            Some(remaining) if self.lines.len() + self.cookies.len() <= self.max_len => {
                self.remaining_fields = remaining;
            }
            _ => self.exceed(),
        }
    }

    #[cold]
    fn exceed(&mut self) {
        self.fail(Problem::Rejected(match self.remaining_fields {
            0 => Reject::new(431, "too many fields in the message head"),
            _ => Reject::new(431, "message head exceeds the maximum size"),
        }));
    }

    /// Stores the first problem. The rest of the section is decoded without storing it.
    #[cold]
    fn fail(&mut self, problem: Problem) {
        self.problem.get_or_insert(problem);
        self.special = FieldClass::PLAIN;
        self.lines.truncate(GAP);
    }

    /// Adds the last line, whose class is not below `special`.
    #[inline(never)]
    fn finish_special_line(&mut self, start: usize, name_len: usize, class: FieldClass) {
        let mut lines = std::mem::take(&mut self.lines);
        let line = lines.get(start..).unwrap_or_default();
        let (len, result) = (line.len(), self.examine(line, name_len, class));
        if result != Ok(true) {
            lines.truncate(start);
        }
        self.lines = lines;
        match result {
            Ok(true) => self.keep_line(start, len, name_len, class),
            Ok(false) => {}
            Err(problem) => self.fail(problem),
        }
    }

    /// Adds the position of a special line that belongs to the head.
    #[inline(always)]
    fn keep_line(&mut self, start: usize, len: usize, name_len: usize, class: FieldClass) {
        if self.kind == Kind::Request {
            let (start, len) = ((start - GAP) as u32, (len - b"\r\n".len()) as u32);
            let name_len = name_len as u32;
            self.relevant.push(RelevantLine { start, len, name_len });
            if class == FieldClass::PRIORITY {
                let before = name_len + b": ".len() as u32;
                self.priority = Span { start: start + before, len: len - before };
            }
        }
        self.count_line();
    }

    /// Examines a line whose class is not below `special`. Returns whether it belongs to the lines of the
    /// head.
    #[inline(always)]
    fn examine(
        &mut self,
        line: &[u8],
        name_len: usize,
        class: FieldClass,
    ) -> Result<bool, Problem> {
        if self.problem.is_some() || self.kind == Kind::Discarded {
            return Ok(false);
        }
        if !class.has_valid_value() {
            return Err(Problem::Malformed("invalid field value"));
        }
        let value =
            line.get(name_len + b": ".len()..line.len() - b"\r\n".len()).unwrap_or_default();
        match class.name() {
            class if class.is_pseudo() => self.add_pseudo(value, class).map(|()| false),
            FieldClass::UNKNOWN_PSEUDO => Err(Problem::Malformed("unknown pseudo-header field")),
            FieldClass::INVALID_NAME => Err(Problem::Malformed("invalid field name")),
            FieldClass::CONNECTION => Err(Problem::Malformed("connection-specific field")),
            FieldClass::TE if self.kind == Kind::Request && value != b"trailers" => {
                Err(Problem::Malformed("TE field other than 'trailers'"))
            }
            FieldClass::COOKIE => {
                if !self.cookies.is_empty() {
                    self.cookies.extend_from_slice(b"; ");
                }
                self.cookies.extend_from_slice(value);
                self.count_line();
                Ok(false)
            }
            FieldClass::HOST => {
                if !self.pseudo.host.is_empty() {
                    return Err(Problem::Malformed("repeated Host field"));
                }
                self.pseudo.host = self.add_value(value)?;
                self.count_line();
                Ok(false)
            }
            FieldClass::CONTENT_LENGTH => {
                self.has_content_length = true;
                Ok(true)
            }
            _ => Ok(true),
        }
    }

    /// Adds a pseudo-header field.
    #[inline(always)]
    fn add_pseudo(&mut self, value: &[u8], class: FieldClass) -> Result<(), Problem> {
        if self.has_fields {
            return Err(Problem::Malformed("pseudo-header field after other fields"));
        }
        let is_allowed = match self.kind {
            Kind::Request => class != FieldClass::STATUS,
            Kind::Response => class == FieldClass::STATUS,
            Kind::Trailers | Kind::Discarded => false,
        };
        if !is_allowed {
            return Err(Problem::Malformed("pseudo-header field is not allowed here"));
        }
        let span = self.add_value(value)?;
        let place = match class {
            FieldClass::METHOD => &mut self.pseudo.method,
            FieldClass::SCHEME => &mut self.pseudo.scheme,
            FieldClass::AUTHORITY => &mut self.pseudo.authority,
            FieldClass::PATH => &mut self.pseudo.path,
            FieldClass::PROTOCOL => &mut self.pseudo.protocol,
            _ => &mut self.pseudo.status,
        };
        if !place.is_empty() {
            return Err(Problem::Malformed("repeated pseudo-header field"));
        }
        *place = span;
        Ok(())
    }

    /// Stores a value that is not part of the field lines.
    #[inline(always)]
    fn add_value(&mut self, value: &[u8]) -> Result<Span, Problem> {
        if value.is_empty() {
            return Err(Problem::Malformed("empty pseudo-header field or Host field"));
        }
        let span = Span { start: self.values.len() as u32, len: value.len() as u32 };
        self.values.extend_from_slice(value);
        Ok(span)
    }

    /// Appends a line that the section does not contain.
    #[cold]
    pub(super) fn add_generated_line(&mut self, name: &[u8], value: &[u8]) {
        let start = self.lines.len();
        for part in [name, b": ", value, b"\r\n"] {
            self.lines.extend_from_slice(part);
        }
        self.relevant.push(RelevantLine {
            start: (start - GAP) as u32,
            len: (name.len() + 2 + value.len()) as u32,
            name_len: name.len() as u32,
        });
    }
}

/// Writes `parts` before the field lines, and returns where they start in `lines`.
#[inline(always)]
pub(super) fn prepend<const N: usize>(lines: &mut Vec<u8>, parts: [&[u8]; N]) -> usize {
    let len = parts.iter().map(|part| part.len()).sum();
    let start = match GAP.checked_sub(len) {
        Some(start) => start,
        None => make_room(lines, len),
    };
    let mut place = lines.get_mut(start..).unwrap_or_default();
    for part in parts {
        let Some((first, rest)) = place.split_at_mut_checked(part.len()) else { break };
        first.copy_from_slice(part);
        place = rest;
    }
    start
}

/// Moves the field lines so that `len` bytes fit before them. Returns 0, the position of those bytes.
#[cold]
fn make_room(lines: &mut Vec<u8>, len: usize) -> usize {
    lines.splice(..GAP, std::iter::repeat_n(0, len));
    0
}

impl Default for HeadBuffer {
    fn default() -> Self {
        Self::new()
    }
}
