//! Requests of every framing.

use crate::common::wire::Field;
use crate::common::{Kind, content};

use super::response::{chunks, fields};

/// The framing and the connection options of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RequestKind {
    Get,
    Head,
    Empty,
    Small,
    Large,
    Chunked,
    ChunkedLarge,
    /// A chunked body with extensions and trailers.
    ChunkedFancy,
    /// Waits for 100 (Continue) before the body.
    Expecting,
    /// Three requests at once. The first is the request of the case.
    Pipelined,
    Old,
    OldKept,
    Upgrade,
}

impl RequestKind {
    pub(crate) fn is_large(self) -> bool {
        matches!(self, RequestKind::Large | RequestKind::ChunkedLarge)
    }
}

pub(crate) const REQUEST_KINDS: &[RequestKind] = &[
    RequestKind::Get,
    RequestKind::Head,
    RequestKind::Empty,
    RequestKind::Small,
    RequestKind::Large,
    RequestKind::Chunked,
    RequestKind::ChunkedLarge,
    RequestKind::ChunkedFancy,
    RequestKind::Expecting,
    RequestKind::Pipelined,
    RequestKind::Old,
    RequestKind::OldKept,
    RequestKind::Upgrade,
];

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) bytes: Vec<u8>,
    /// Length of the head in bytes.
    pub(crate) head: usize,
    /// Offsets of the chunks.
    pub(crate) chunks: Vec<usize>,
    pub(crate) method: &'static str,
    pub(crate) target: String,
    /// The fields that must reach the origin.
    pub(crate) fields: Vec<Field>,
    pub(crate) body: &'static [u8],
    pub(crate) trailers: Vec<Field>,
    pub(crate) expects: bool,
    pub(crate) http10: bool,
}

impl Request {
    pub(crate) fn kind(&self) -> Kind {
        if self.method == "HEAD" { Kind::Bodiless } else { Kind::Response }
    }

    pub(crate) fn is_safe(&self) -> bool {
        matches!(self.method, "GET" | "HEAD")
    }

    pub(crate) fn has_body(&self) -> bool {
        self.head < self.bytes.len()
    }
}

pub(crate) const LARGE: usize = 300 << 10;

/// Builds the request with this id.
pub(crate) fn build_request(request_kind: RequestKind, id: u64) -> Request {
    let (method, length) = match request_kind {
        RequestKind::Head => ("HEAD", 0),
        RequestKind::Empty => ("POST", 0),
        RequestKind::Small | RequestKind::Chunked => {
            ("POST", 17 + usize::try_from(id % 50).unwrap_or(0))
        }
        RequestKind::Large | RequestKind::ChunkedLarge => ("PUT", LARGE),
        RequestKind::ChunkedFancy => ("POST", 5000),
        RequestKind::Expecting => ("POST", 2000),
        _ => ("GET", 0),
    };
    let body = content(id, length);
    let http10 = matches!(request_kind, RequestKind::Old | RequestKind::OldKept);
    let target = format!("/a%20b/{id}?q={id}&x=%2F..");
    let version = if http10 { "1.0" } else { "1.1" };
    let kept =
        [("x-id", id.to_string()), ("x-double", "one".to_owned()), ("x-empty", String::new())];
    let mut end_to_end_fields: Vec<Field> =
        kept.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    end_to_end_fields.push(("x-double".to_owned(), "two, \"3\"".to_owned()));
    end_to_end_fields.push(("cookie".to_owned(), format!("id={id}; b=\"c\"")));
    let mut head = format!("{method} {target} HTTP/{version}\r\nHost: site.test\r\n");
    head.push_str(&fields(&end_to_end_fields));
    let mut options = Vec::new();
    if id.is_multiple_of(3) {
        head.push_str("X-Hop: of one connection\r\n");
        options.push("X-Hop");
    }
    match request_kind {
        RequestKind::OldKept => options.push("keep-alive"),
        RequestKind::Upgrade => {
            head.push_str("Upgrade: echo\r\n");
            options.push("Upgrade");
        }
        _ => {}
    }
    if !options.is_empty() {
        head.push_str(&format!("Connection: {}\r\n", options.join(", ")));
    }
    let chunked = matches!(
        request_kind,
        RequestKind::Chunked | RequestKind::ChunkedLarge | RequestKind::ChunkedFancy
    );
    if chunked {
        head.push_str("Transfer-Encoding: chunked\r\n");
    } else if matches!(
        request_kind,
        RequestKind::Empty | RequestKind::Small | RequestKind::Large | RequestKind::Expecting
    ) {
        head.push_str(&format!("Content-Length: {length}\r\n"));
    }
    let expects = request_kind == RequestKind::Expecting;
    if expects {
        head.push_str("Expect: 100-continue\r\n");
    }
    head.push_str("\r\n");
    let mut bytes = head.into_bytes();
    let (head, mut marks, mut trailers) = (bytes.len(), Vec::new(), Vec::new());
    if chunked {
        let with_trailers = request_kind == RequestKind::ChunkedFancy;
        if with_trailers {
            trailers.push(("x-sum".to_owned(), format!("{id}")));
            trailers.push(("x-end".to_owned(), "yes".to_owned()));
        }
        marks = chunks(&mut bytes, body, with_trailers, &trailers);
    } else {
        bytes.extend_from_slice(body);
    }
    Request {
        bytes,
        head,
        chunks: marks,
        method,
        target,
        fields: end_to_end_fields,
        body,
        trailers,
        expects,
        http10,
    }
}
