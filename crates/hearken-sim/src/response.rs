//! Reads responses on the client's side, independently of the parsers under test.

/// The head of a response.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Head {
    /// Status code.
    pub status: u16,
    /// Names in lower case, and values.
    pub fields: Vec<(String, String)>,
}

impl Head {
    /// Returns the value of a field, whose name is in lower case.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| &**value)
    }

    /// Returns whether the connection closes after the response.
    pub fn closes(&self) -> bool {
        self.field("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }

    /// Returns the value of Content-Length.
    pub fn content_length(&self) -> Option<u64> {
        self.field("content-length").and_then(|value| value.parse().ok())
    }

    fn parse(bytes: &[u8]) -> Result<Head, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "the head is not UTF-8")?;
        let mut lines = text.split("\r\n");
        let status_line = lines.next().unwrap_or_default();
        let code = status_line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3));
        let status = code.and_then(|code| code.parse().ok());
        let status = status.ok_or_else(|| format!("invalid status line '{status_line}'"))?;
        let mut fields = Vec::new();
        for line in lines.take_while(|line| !line.is_empty()) {
            let (name, value) =
                line.split_once(':').ok_or_else(|| format!("invalid field line '{line}'"))?;
            fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        Ok(Head { status, fields })
    }
}

/// A part of a response.
#[derive(PartialEq, Eq, Debug)]
pub enum Part<'b> {
    /// The head of an interim response, which has no body.
    Interim(Head),
    /// The head of the final response.
    Head(Head),
    /// A piece of the body.
    Body(&'b [u8]),
    /// The end of the response.
    End,
}

/// The framing of a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Body {
    Length(u64),
    /// The size line of a chunk, or the trailer section, comes next.
    ChunkLine,
    Chunk(u64),
    /// The line break after a chunk.
    ChunkEnd,
    Trailer,
    UntilClose,
}

/// Maximum size of a head. No program under test writes a larger one.
const MAX_HEAD: usize = 16 * 1024;

/// A reader of the responses of one connection.
#[derive(Debug, Default)]
pub struct ResponseReader {
    /// Bytes of an incomplete head or line.
    pending: Vec<u8>,
    body: Option<Body>,
}

impl ResponseReader {
    /// Returns whether a response has begun and not ended.
    pub fn is_within_response(&self) -> bool {
        self.body.is_some() || !self.pending.is_empty()
    }

    /// Returns whether the end of the connection ends the response.
    pub fn ends_with_connection(&self) -> bool {
        self.body == Some(Body::UntilClose)
    }

    /// Reads the next part from `bytes`, and removes what it used. Returns `None` if more bytes are
    /// needed. `has_body` is whether a response with a status has a body: none to HEAD does.
    ///
    /// # Errors
    /// The response is malformed.
    pub fn read<'b>(
        &mut self,
        bytes: &mut &'b [u8],
        has_body: impl Fn(u16) -> bool,
    ) -> Result<Option<Part<'b>>, String> {
        loop {
            match self.body {
                None => return self.read_head(bytes, has_body),
                Some(Body::Length(0)) => {
                    self.body = None;
                    return Ok(Some(Part::End));
                }
                Some(Body::Length(rest)) => {
                    let piece = take(bytes, rest);
                    self.body = Some(Body::Length(rest - piece.len() as u64));
                    return Ok((!piece.is_empty()).then_some(Part::Body(piece)));
                }
                Some(Body::UntilClose) => {
                    let piece = take(bytes, u64::MAX);
                    return Ok((!piece.is_empty()).then_some(Part::Body(piece)));
                }
                Some(Body::Chunk(0)) => self.body = Some(Body::ChunkEnd),
                Some(Body::Chunk(rest)) => {
                    let piece = take(bytes, rest);
                    self.body = Some(Body::Chunk(rest - piece.len() as u64));
                    return Ok((!piece.is_empty()).then_some(Part::Body(piece)));
                }
                Some(state @ (Body::ChunkLine | Body::ChunkEnd | Body::Trailer)) => {
                    let Some(line) = self.read_line(bytes)? else { return Ok(None) };
                    match state {
                        Body::ChunkEnd if line.is_empty() => self.body = Some(Body::ChunkLine),
                        Body::ChunkEnd => return Err("no line break after a chunk".to_owned()),
                        Body::Trailer if line.is_empty() => {
                            self.body = None;
                            return Ok(Some(Part::End));
                        }
                        Body::Trailer => {}
                        _ => {
                            let size = line.split(';').next().unwrap_or_default().trim();
                            let size = u64::from_str_radix(size, 16)
                                .map_err(|_| format!("invalid chunk size '{line}'"))?;
                            let next = if size == 0 { Body::Trailer } else { Body::Chunk(size) };
                            self.body = Some(next);
                        }
                    }
                }
            }
        }
    }

    fn read_head<'b>(
        &mut self,
        bytes: &mut &'b [u8],
        has_body: impl Fn(u16) -> bool,
    ) -> Result<Option<Part<'b>>, String> {
        // The end may consist of pending and new bytes.
        let from = self.pending.len().saturating_sub(3);
        let before = self.pending.len();
        let room = (MAX_HEAD + 4).saturating_sub(before).min(bytes.len());
        self.pending.extend_from_slice(&bytes[..room]);
        let end = self.pending[from..].windows(4).position(|four| four == b"\r\n\r\n");
        let Some(end) = end.map(|at| from + at + 4) else {
            *bytes = &bytes[room..];
            if self.pending.len() > MAX_HEAD {
                return Err("the head of a response is too long".to_owned());
            }
            return Ok(None);
        };
        *bytes = &bytes[end - before..];
        let head = Head::parse(&self.pending[..end])?;
        self.pending.clear();
        if head.status < 200 && head.status != 101 {
            return Ok(Some(Part::Interim(head)));
        }
        let is_chunked = head
            .field("transfer-encoding")
            .is_some_and(|value| value.eq_ignore_ascii_case("chunked"));
        self.body = Some(match head.content_length() {
            _ if !has_body(head.status) || matches!(head.status, 204 | 304) => Body::Length(0),
            Some(_) if is_chunked => {
                return Err("a response with Content-Length and Transfer-Encoding".to_owned());
            }
            Some(length) => Body::Length(length),
            None if is_chunked => Body::ChunkLine,
            None => Body::UntilClose,
        });
        Ok(Some(Part::Head(head)))
    }

    /// Reads a line of a chunked body, without its end.
    fn read_line(&mut self, bytes: &mut &[u8]) -> Result<Option<String>, String> {
        while let Some((&byte, rest)) = bytes.split_first() {
            *bytes = rest;
            self.pending.push(byte);
            if let Some(line) = self.pending.strip_suffix(b"\r\n") {
                let line = String::from_utf8_lossy(line).into_owned();
                self.pending.clear();
                return Ok(Some(line));
            }
            if self.pending.len() > MAX_HEAD {
                return Err("a line of a chunked body is too long".to_owned());
            }
        }
        Ok(None)
    }
}

fn take<'b>(bytes: &mut &'b [u8], max: u64) -> &'b [u8] {
    let count = usize::try_from(max).unwrap_or(usize::MAX).min(bytes.len());
    let (piece, rest) = bytes.split_at(count);
    *bytes = rest;
    piece
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a stream in pieces of `size` and returns statuses, bodies and ends.
    fn read_all(stream: &[u8], size: usize) -> String {
        let mut reader = ResponseReader::default();
        let mut seen = String::new();
        for mut piece in stream.chunks(size) {
            while let Some(part) = reader.read(&mut piece, |_| true).unwrap() {
                match part {
                    Part::Interim(head) => seen += &format!("({})", head.status),
                    Part::Head(head) => seen += &format!("{} ", head.status),
                    Part::Body(bytes) => seen += std::str::from_utf8(bytes).unwrap(),
                    Part::End => seen.push('.'),
                }
            }
        }
        seen
    }

    #[test]
    fn reads_pipelined_responses_in_pieces_of_any_size() {
        let stream =
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello\
            HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n\
            HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1;x\r\nd\r\n0\r\n\r\n\
            HTTP/1.1 200 OK\r\n\r\nrest";
        for size in 1..=stream.len() {
            assert_eq!(read_all(stream, size), "(100)200 hello.304 .200 abcd.200 rest", "{size}");
        }
    }
}
