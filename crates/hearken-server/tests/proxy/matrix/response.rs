//! Responses of every framing.

use crate::common::content;
use crate::common::wire::Field;

/// The framing of a response, and the interim responses before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ResponseKind {
    NoContent,
    NotModified,
    Empty,
    Small,
    Large,
    Chunked,
    ChunkedLarge,
    /// A chunked body with extensions and trailers.
    ChunkedFancy,
    UntilClose,
    Old,
    OldUntilClose,
    OldKept,
    /// A final response after 102 (Processing).
    Interim,
    /// A final response after 103 (Early Hints).
    Hints,
    /// A final response after a hundred of 103.
    Flood,
    Switching,
}

impl ResponseKind {
    pub(crate) fn is_large(self) -> bool {
        matches!(self, ResponseKind::Large | ResponseKind::ChunkedLarge)
    }
}

pub(crate) const RESPONSE_KINDS: &[ResponseKind] = &[
    ResponseKind::NoContent,
    ResponseKind::NotModified,
    ResponseKind::Empty,
    ResponseKind::Small,
    ResponseKind::Large,
    ResponseKind::Chunked,
    ResponseKind::ChunkedLarge,
    ResponseKind::ChunkedFancy,
    ResponseKind::UntilClose,
    ResponseKind::Old,
    ResponseKind::OldUntilClose,
    ResponseKind::OldKept,
    ResponseKind::Interim,
    ResponseKind::Hints,
    ResponseKind::Flood,
    ResponseKind::Switching,
];

/// A response.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) bytes: Vec<u8>,
    /// Offsets of the begin and the end of the final head.
    pub(crate) from: usize,
    pub(crate) head: usize,
    /// Offsets of the chunks.
    pub(crate) chunks: Vec<usize>,
    pub(crate) status: u16,
    pub(crate) fields: Vec<Field>,
    pub(crate) body: &'static [u8],
    pub(crate) trailers: Vec<Field>,
    pub(crate) length: Option<usize>,
    pub(crate) chunked: bool,
    /// Number of interim responses.
    pub(crate) interim: usize,
    /// Whether the end of the connection delimits the body.
    pub(crate) until_close: bool,
    /// Whether the connection ends after the response.
    pub(crate) closes: bool,
}

pub(crate) const LARGE: usize = 1 << 20;

/// Builds the response to the request with this id. It announces the end of the connection if `closes`.
pub(crate) fn build_response(
    response_kind: ResponseKind,
    id: u64,
    bodiless: bool,
    closes: bool,
) -> Response {
    use ResponseKind as A;
    let (status, length) = match response_kind {
        A::NoContent => (204, 0),
        A::NotModified => (304, 0),
        A::Switching => (101, 0),
        A::Empty => (404, 0),
        A::Large | A::ChunkedLarge => (200, LARGE),
        A::ChunkedFancy => (200, 5000),
        A::UntilClose | A::OldUntilClose => (203, 3000),
        _ => (
            if id.is_multiple_of(2) { 200 } else { 500 },
            40 + usize::try_from(id % 90).unwrap_or(0),
        ),
    };
    let http10 = matches!(response_kind, A::Old | A::OldUntilClose | A::OldKept);
    let (interim_text, interim) = match response_kind {
        A::Interim => ("HTTP/1.1 102 Processing\r\n\r\n".to_owned(), 1),
        A::Hints => (hints(id), 1),
        A::Flood => (hints(id).repeat(100), 100),
        _ => (String::new(), 0),
    };
    let mut head = interim_text;
    let from = head.len();
    let end_to_end_fields = [
        ("x-origin", id.to_string()),
        ("set-cookie", format!("a={id}; Path=/")),
        ("set-cookie", "b=\"x, y\"".to_owned()),
        ("x-empty", String::new()),
        ("date", "Sun, 06 Nov 1994 08:49:37 GMT".to_owned()),
    ];
    let end_to_end_fields: Vec<Field> =
        end_to_end_fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    head.push_str(&format!("HTTP/1.{} {status} Reason, given\r\n", u8::from(!http10)));
    head.push_str(&fields(&end_to_end_fields));
    let chunked = matches!(response_kind, A::Chunked | A::ChunkedLarge | A::ChunkedFancy);
    let lengthless =
        matches!(response_kind, A::NoContent | A::Switching | A::UntilClose | A::OldUntilClose);
    let named = match response_kind {
        A::NotModified => Some(77),
        _ if chunked || lengthless => None,
        _ => Some(length),
    };
    if let Some(length) = named {
        head.push_str(&format!("Content-Length: {length}\r\n"));
    } else if chunked {
        head.push_str("Transfer-Encoding: chunked\r\n");
    }
    let mut options = Vec::new();
    if id.is_multiple_of(3) {
        head.push_str("X-Hop: of one connection\r\nKeep-Alive: timeout=5\r\n");
        // In HTTP/1.0, Keep-Alive would make the connection persistent.
        options.push(if http10 { "x-hop" } else { "x-hop, Keep-Alive" });
    }
    if closes {
        options.push("close");
    }
    match response_kind {
        A::OldKept => options.push("keep-alive"),
        A::Switching => {
            head.push_str("Upgrade: echo\r\n");
            options.push("Upgrade");
        }
        _ => {}
    }
    if !options.is_empty() {
        head.push_str(&format!("Connection: {}\r\n", options.join(", ")));
    }
    head.push_str("\r\n");
    let mut bytes = head.into_bytes();
    let head = bytes.len();
    let body = if bodiless { &[] } else { content(id, length) };
    let (mut marks, mut trailers) = (Vec::new(), Vec::new());
    if chunked && !bodiless {
        let with_trailers = response_kind == A::ChunkedFancy;
        if with_trailers {
            trailers.push(("x-sum".to_owned(), format!("{id}")));
            trailers.push(("x-end".to_owned(), "yes".to_owned()));
        }
        marks = chunks(&mut bytes, body, with_trailers, &trailers);
    } else {
        bytes.extend_from_slice(body);
    }
    let until_close = !bodiless && matches!(response_kind, A::UntilClose | A::OldUntilClose);
    Response {
        bytes,
        from,
        head,
        chunks: marks,
        status,
        fields: end_to_end_fields,
        body,
        trailers,
        length: named.filter(|_| !bodiless && status != 304),
        chunked: chunked && !bodiless,
        interim,
        until_close,
        closes: closes || until_close || http10 && response_kind != A::OldKept,
    }
}

fn hints(id: u64) -> String {
    format!("HTTP/1.1 103 Early Hints\r\nLink: </{id}.css>; rel=preload\r\n\r\n")
}

/// Formats field lines, with names in lower and upper case.
pub(crate) fn fields(fields: &[Field]) -> String {
    let line = |(index, (name, value)): (usize, &Field)| {
        let name = if index % 2 == 0 { name.to_uppercase() } else { name.clone() };
        format!("{name}: {value}\r\n")
    };
    fields.iter().enumerate().map(line).collect()
}

/// Writes `body` in the chunked coding. Returns the offsets of all chunks, including the last.
pub(crate) fn chunks(
    out: &mut Vec<u8>,
    body: &[u8],
    with_trailers: bool,
    trailers: &[Field],
) -> Vec<usize> {
    let mut marks = Vec::new();
    let (mut rest, mut size) = (body, 7);
    while !rest.is_empty() {
        let (chunk, more) = rest.split_at(size.min(rest.len()));
        marks.push(out.len());
        let extension = if with_trailers { ";a=\"b c\" ; d" } else { "" };
        out.extend_from_slice(format!("{:x}{extension}\r\n", chunk.len()).as_bytes());
        out.extend_from_slice(chunk);
        out.extend_from_slice(b"\r\n");
        (rest, size) = (more, size * 3 + 1);
    }
    marks.push(out.len());
    out.extend_from_slice(if with_trailers { b"000;last\r\n" } else { b"0\r\n" });
    out.extend_from_slice(fields(trailers).as_bytes());
    out.extend_from_slice(b"\r\n");
    marks
}
