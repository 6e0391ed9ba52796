//! A strict parser of messages, independent of the tested one.

use std::fmt;

/// The name of a field in lower case, and its value.
pub(crate) type Field = (String, String);

/// A message, or the received part of one.
#[derive(Clone, Default)]
pub(crate) struct Message {
    /// The request line or status line.
    pub(crate) start: String,
    pub(crate) fields: Vec<Field>,
    pub(crate) framing: Framing,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<Field>,
}

/// The framing of a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Framing {
    #[default]
    None,
    Length(usize),
    Chunked,
    UntilClose,
}

impl Message {
    pub(crate) fn status(&self) -> u16 {
        self.start.get(9..12).and_then(|digits| digits.parse().ok()).unwrap_or(0)
    }

    /// Returns the values of all fields of this name, joined as a list.
    pub(crate) fn field(&self, name: &str) -> Option<String> {
        let values: Vec<&str> =
            self.fields.iter().filter(|(of, _)| of == name).map(|(_, of)| of.as_str()).collect();
        (!values.is_empty()).then(|| values.join(", "))
    }

    pub(crate) fn names(&self, option: &str) -> bool {
        let options = self.field("connection").unwrap_or_default();
        options.split(',').any(|of| of.trim().eq_ignore_ascii_case(option))
    }

    /// Returns whether the connection is persistent after this message.
    pub(crate) fn keeps(&self) -> bool {
        let old = self.start.contains("HTTP/1.0");
        self.framing != Framing::UntilClose
            && !self.names("close")
            && (!old || self.names("keep-alive"))
    }

    pub(crate) fn method(&self) -> &str {
        self.start.split(' ').next().unwrap_or_default()
    }

    pub(crate) fn target(&self) -> &str {
        self.start.split(' ').nth(1).unwrap_or_default()
    }

    pub(crate) fn text(&self) -> String {
        latin1(&self.body)
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Message { start, fields, framing, body, trailers } = self;
        write!(f, "{start:?} {framing:?} {fields:?} body of {}", body.len())?;
        write!(f, " {:?}", latin1(&body[..body.len().min(60)]))?;
        if trailers.is_empty() { Ok(()) } else { write!(f, " trailers {trailers:?}") }
    }
}

/// The kind of a message, which determines its framing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Request,
    Response,
    /// A response to HEAD.
    Bodiless,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Head,
    Length(usize),
    Size,
    Chunk(usize),
    ChunkEnd,
    Trailers,
    UntilClose,
    Done,
}

/// An incremental parser of successive messages.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) kind: Kind,
    state: State,
    bytes: Vec<u8>,
    at: usize,
    message: Message,
    wrong: Option<String>,
}

impl Reader {
    pub(crate) fn new(kind: Kind) -> Reader {
        let message = Message::default();
        Reader { kind, state: State::Head, bytes: Vec::new(), at: 0, message, wrong: None }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.at == self.bytes.len() {
            self.bytes.clear();
            self.at = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns whether the head is complete.
    pub(crate) fn has_head(&self) -> bool {
        self.state != State::Head
    }

    pub(crate) fn message(&self) -> &Message {
        &self.message
    }

    /// Returns whether no byte of the next message was received.
    pub(crate) fn is_idle(&self) -> bool {
        self.state == State::Head && self.at == self.bytes.len()
    }

    /// Returns bytes that belong to no message yet.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    /// Takes the bytes after the messages so far.
    pub(crate) fn take_rest(&mut self) -> Vec<u8> {
        let rest = self.bytes.split_off(self.at);
        self.bytes.clear();
        self.at = 0;
        rest
    }

    /// Takes the complete message.
    pub(crate) fn take(&mut self) -> Message {
        self.state = State::Head;
        std::mem::take(&mut self.message)
    }

    /// Handles the end of the stream. Returns whether it completes the message.
    pub(crate) fn close(&mut self) -> bool {
        if self.state == State::UntilClose {
            self.state = State::Done;
        }
        self.state == State::Done
    }

    /// Parses received bytes. Returns whether the message is complete.
    pub(crate) fn advance(&mut self) -> Result<bool, String> {
        match &self.wrong {
            Some(wrong) => Err(wrong.clone()),
            None => self.parse().inspect_err(|wrong| self.wrong = Some(wrong.clone())),
        }
    }

    fn parse(&mut self) -> Result<bool, String> {
        loop {
            match self.state {
                State::Done => return Ok(true),
                State::Head => {
                    let rest = &self.bytes[self.at..];
                    let Some(end) = find(rest, b"\r\n\r\n") else { return Ok(false) };
                    let head = latin1(&rest[..end]);
                    self.at += end + 4;
                    self.state = self.head(&head)?;
                }
                State::Length(left) | State::Chunk(left) => {
                    let rest = &self.bytes[self.at..];
                    let taken = left.min(rest.len());
                    self.message.body.extend_from_slice(&rest[..taken]);
                    self.at += taken;
                    let chunk = matches!(self.state, State::Chunk(_));
                    self.state = match (chunk, left - taken) {
                        (false, 0) => State::Done,
                        (true, 0) => State::ChunkEnd,
                        (false, left) => State::Length(left),
                        (true, left) => State::Chunk(left),
                    };
                    if taken < left {
                        return Ok(false);
                    }
                }
                State::UntilClose => {
                    self.message.body.extend_from_slice(&self.bytes[self.at..]);
                    self.at = self.bytes.len();
                    return Ok(false);
                }
                State::Size => {
                    let Some(line) = self.line() else { return Ok(false) };
                    let digits = line.split([';', ' ', '\t']).next().unwrap_or_default();
                    let fine = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
                    let size = usize::from_str_radix(digits, 16).ok().filter(|_| fine);
                    self.state = match size.ok_or_else(|| format!("chunk size {line:?}"))? {
                        0 => State::Trailers,
                        size => State::Chunk(size),
                    };
                }
                State::ChunkEnd => {
                    let Some(line) = self.line() else { return Ok(false) };
                    if !line.is_empty() {
                        return Err(format!("{line:?} after a chunk"));
                    }
                    self.state = State::Size;
                }
                State::Trailers => {
                    let Some(line) = self.line() else { return Ok(false) };
                    if line.is_empty() {
                        self.state = State::Done;
                    } else {
                        self.message.trailers.push(field(&line)?);
                    }
                }
            }
        }
    }

    fn line(&mut self) -> Option<String> {
        let rest = &self.bytes[self.at..];
        let end = find(rest, b"\r\n")?;
        let line = latin1(&rest[..end]);
        self.at += end + 2;
        Some(line)
    }

    fn head(&mut self, head: &str) -> Result<State, String> {
        let mut lines = head.split("\r\n");
        self.message.start = lines.next().unwrap_or_default().to_owned();
        self.message.fields = lines.map(field).collect::<Result<_, _>>()?;
        let message = &self.message;
        let status = message.status();
        let good = match self.kind {
            Kind::Request => {
                message.start.split(' ').count() == 3 && message.start.contains(" HTTP/1.")
            }
            _ => message.start.starts_with("HTTP/1.") && (100..=599).contains(&status),
        };
        if !good {
            return Err(format!("first line {:?}", message.start));
        }
        let (length, coding) =
            (message.field("content-length"), message.field("transfer-encoding"));
        let bodiless = self.kind == Kind::Bodiless
            || (self.kind == Kind::Response && matches!(status, 100..=199 | 204 | 304));
        let framing = match (length, coding.as_deref()) {
            _ if bodiless => Framing::None,
            (None, Some("chunked")) => Framing::Chunked,
            (_, Some(coding)) => {
                return Err(format!("Transfer-Encoding {coding:?} in {message:?}"));
            }
            (Some(length), None) => {
                let number =
                    length.parse().ok().filter(|_| length.bytes().all(|b| b.is_ascii_digit()));
                match number.ok_or_else(|| format!("Content-Length {length:?}"))? {
                    0 => Framing::None,
                    length => Framing::Length(length),
                }
            }
            (None, None) if self.kind == Kind::Request => Framing::None,
            (None, None) => Framing::UntilClose,
        };
        self.message.framing = framing;
        Ok(match framing {
            Framing::None => State::Done,
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::Size,
            Framing::UntilClose => State::UntilClose,
        })
    }
}

fn field(line: &str) -> Result<Field, String> {
    let (name, value) = line.split_once(':').ok_or_else(|| format!("field line {line:?}"))?;
    let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if name.is_empty() || !name.chars().all(token) || value.contains(['\r', '\n', '\0']) {
        return Err(format!("field line {line:?}"));
    }
    Ok((name.to_ascii_lowercase(), value.trim_matches([' ', '\t']).to_owned()))
}

/// Decodes ISO 8859-1.
pub(crate) fn latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| char::from(byte)).collect()
}

pub(crate) fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}
