//! Requests, of every framing.

use crate::harness::wire::Field;
use crate::harness::{Kind, content};

use super::answer::{chunks, fields};

/// How a request is framed, and what it asks of the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asks {
    Get,
    Head,
    Empty,
    Small,
    Large,
    Chunked,
    ChunkedLarge,
    /// With extensions and trailers.
    ChunkedFancy,
    /// Waits for 100 before its body.
    Expecting,
    /// Three at once, the first of which is the one that is asked about.
    Pipelined,
    Old,
    OldKept,
    Upgrade,
}

impl Asks {
    pub(crate) fn is_large(self) -> bool {
        matches!(self, Asks::Large | Asks::ChunkedLarge)
    }
}

pub(crate) const ASKS: &[Asks] = &[
    Asks::Get,
    Asks::Head,
    Asks::Empty,
    Asks::Small,
    Asks::Large,
    Asks::Chunked,
    Asks::ChunkedLarge,
    Asks::ChunkedFancy,
    Asks::Expecting,
    Asks::Pipelined,
    Asks::Old,
    Asks::OldKept,
    Asks::Upgrade,
];

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) bytes: Vec<u8>,
    /// Where the head ends.
    pub(crate) head: usize,
    /// Where each chunk begins.
    pub(crate) chunks: Vec<usize>,
    pub(crate) method: &'static str,
    pub(crate) target: String,
    /// What has to reach the origin: fields, body, trailers.
    pub(crate) fields: Vec<Field>,
    pub(crate) body: &'static [u8],
    pub(crate) trailers: Vec<Field>,
    pub(crate) expects: bool,
    pub(crate) old: bool,
}

impl Ask {
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

/// The request of this id.
pub(crate) fn ask(asks: Asks, id: u64) -> Ask {
    let (method, length) = match asks {
        Asks::Head => ("HEAD", 0),
        Asks::Empty => ("POST", 0),
        Asks::Small | Asks::Chunked => ("POST", 17 + usize::try_from(id % 50).unwrap_or(0)),
        Asks::Large | Asks::ChunkedLarge => ("PUT", LARGE),
        Asks::ChunkedFancy => ("POST", 5000),
        Asks::Expecting => ("POST", 2000),
        _ => ("GET", 0),
    };
    let body = content(id, length);
    let old = matches!(asks, Asks::Old | Asks::OldKept);
    let target = format!("/a%20b/{id}?q={id}&x=%2F..");
    let version = if old { "1.0" } else { "1.1" };
    let kept =
        [("x-id", id.to_string()), ("x-double", "one".to_owned()), ("x-empty", String::new())];
    let mut passed: Vec<Field> =
        kept.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    passed.push(("x-double".to_owned(), "two, \"3\"".to_owned()));
    passed.push(("cookie".to_owned(), format!("id={id}; b=\"c\"")));
    let mut head = format!("{method} {target} HTTP/{version}\r\nHost: site.test\r\n");
    head.push_str(&fields(&passed));
    let mut options = Vec::new();
    if id.is_multiple_of(3) {
        head.push_str("X-Hop: of one connection\r\n");
        options.push("X-Hop");
    }
    match asks {
        Asks::OldKept => options.push("keep-alive"),
        Asks::Upgrade => {
            head.push_str("Upgrade: echo\r\n");
            options.push("Upgrade");
        }
        _ => {}
    }
    if !options.is_empty() {
        head.push_str(&format!("Connection: {}\r\n", options.join(", ")));
    }
    let chunked = matches!(asks, Asks::Chunked | Asks::ChunkedLarge | Asks::ChunkedFancy);
    if chunked {
        head.push_str("Transfer-Encoding: chunked\r\n");
    } else if matches!(asks, Asks::Empty | Asks::Small | Asks::Large | Asks::Expecting) {
        head.push_str(&format!("Content-Length: {length}\r\n"));
    }
    let expects = asks == Asks::Expecting;
    if expects {
        head.push_str("Expect: 100-continue\r\n");
    }
    head.push_str("\r\n");
    let mut bytes = head.into_bytes();
    let (head, mut marks, mut trailers) = (bytes.len(), Vec::new(), Vec::new());
    if chunked {
        let fancy = asks == Asks::ChunkedFancy;
        if fancy {
            trailers.push(("x-sum".to_owned(), format!("{id}")));
            trailers.push(("x-end".to_owned(), "yes".to_owned()));
        }
        marks = chunks(&mut bytes, body, fancy, &trailers);
    } else {
        bytes.extend_from_slice(body);
    }
    Ask { bytes, head, chunks: marks, method, target, fields: passed, body, trailers, expects, old }
}
