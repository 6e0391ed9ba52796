//! HTTP/1.1 without I/O: bytes in, messages out; messages in, bytes out.
//!
//! Nothing here reads a socket, allocates for a message it parses, or keeps a copy of it: a
//! parsed [`Request`] or [`Response`] borrows from the caller's buffer. The grammar is RFC 9110
//! and RFC 9112 read strictly, because two readers that disagree on where a message ends are a
//! request-smuggling hole; whatever is doubtful is refused with a [`Reject`].
//!
//! | to do this | use |
//! |---|---|
//! | read requests | [`RequestParser`], then [`BodyReader`] |
//! | use a request again later | [`RequestParts`] with a copy of the head |
//! | read responses | [`ResponseParser`], then [`BodyReader`] |
//! | write heads | [`head`], [`ResponseHead`] with a [`DateCache`] |
//! | pass messages on | [`forward`] |
//! | decide 200, 206, 304, 412 or 416 | [`conditional`], [`range`] |
//! | turn a target into a file name | [`path`] |
//!
//! ```
//! use hearken_http::{DateCache, Limits, Method, RequestParser, ResponseHead, Target};
//!
//! let bytes = b"GET /index.html?x=1 HTTP/1.1\r\nHost: example.org\r\n\r\n";
//! let mut parser = RequestParser::new();
//! assert!(parser.parse(&bytes[..20], &Limits::default())?.is_none()); // needs more bytes
//! let request = parser.parse(bytes, &Limits::default())?.expect("the head is whole");
//! assert_eq!(request.method, Method::Get);
//! assert_eq!(request.target(), Target::Origin { path: b"/index.html", query: Some(b"x=1") });
//! assert!(request.keep_alive);
//! assert_eq!(request.head_len, bytes.len());
//!
//! let mut out = Vec::new();
//! ResponseHead::new(&mut out, 200).date(&DateCache::new(784_111_777)).content_length(5).end();
//! assert_eq!(
//!     out,
//!     b"HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Length: 5\r\n\r\n"
//! );
//! # Ok::<(), hearken_http::Reject>(())
//! ```

mod authority;
mod block;
mod body;
mod class;
pub mod conditional;
mod date;
mod error;
mod fields;
pub mod forward;
mod framing;
pub mod head;
mod hop_span;
mod known;
mod lengths;
mod limits;
mod line;
mod method;
mod parser;
mod parts;
pub mod path;
pub mod range;
mod request;
mod request_line;
mod response;
mod scan;
mod status_line;
mod target;
mod upgrade;
mod version;

pub use body::{BodyReader, Piece};
pub use date::{DateCache, format_http_date, parse_http_date};
pub use error::{Malformed, Reject};
pub use fields::{FieldValues, Fields};
pub use framing::{Body, ResponseBody};
pub use head::{ResponseHead, reason};
pub use limits::Limits;
pub use method::Method;
pub use parser::RequestParser;
pub use parts::RequestParts;
pub use request::Request;
pub use response::{Response, ResponseParser};
pub use target::Target;
pub use version::Version;
