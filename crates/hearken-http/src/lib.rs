//! HTTP/1.1 and HTTP/2 message parsing, writing and forwarding without I/O.
//!
//! The crate reads no sockets. Parsers neither allocate nor copy: a parsed [`Request`] or [`Response`]
//! borrows from the buffer of the caller. They implement the grammar of RFC 9110 and RFC 9112 strictly,
//! because two parsers that disagree about the end of a message permit request smuggling. Ambiguous
//! messages are rejected with a [`Reject`].
//!
//! | Task | API |
//! |---|---|
//! | Parse requests | [`RequestParser`], then [`BodyReader`] |
//! | Store a request | [`RequestParts`] with a copy of the head |
//! | Parse responses | [`ResponseParser`], then [`BodyReader`] |
//! | Write heads | [`head`], [`ResponseHead`] with a [`DateCache`] |
//! | Forward messages | [`forward`] |
//! | Exchange messages in HTTP/2 | [`h2`] |
//! | Decide between status 200, 206, 304, 412 and 416 | [`conditional`], [`range`] |
//! | Convert a request-target to a file path | [`path`] |
//!
//! ```
//! use hearken_http::{DateCache, Limits, Method, RequestParser, ResponseHead, Target};
//!
//! let bytes = b"GET /index.html?x=1 HTTP/1.1\r\nHost: example.org\r\n\r\n";
//! let mut parser = RequestParser::new();
//! assert!(parser.parse(&bytes[..20], &Limits::default())?.is_none()); // incomplete
//! let request = parser.parse(bytes, &Limits::default())?.expect("complete head");
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
mod field_line;
mod fields;
pub mod forward;
mod framing;
pub mod h2;
pub mod head;
mod limits;
mod method;
mod name_filter;
pub mod path;
pub mod range;
mod request;
mod request_fields;
mod request_line;
mod request_parser;
mod request_parts;
mod response;
mod rewrite_span;
mod scan;
mod status_line;
mod target;
mod upgrade_protocols;
mod version;

pub use body::{BodyReader, BodySegment};
pub use date::{DateCache, format_http_date, parse_http_date};
pub use error::{Malformed, Reject};
pub use fields::{FieldValues, Fields};
pub use framing::{Body, ResponseBody};
pub use head::{ResponseHead, reason};
pub use limits::Limits;
pub use method::Method;
pub use request::Request;
pub use request_parser::RequestParser;
pub use request_parts::RequestParts;
pub use response::{Response, ResponseParser};
pub use target::Target;
pub use version::Version;

/// Compiles the example in the README as a documentation test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
