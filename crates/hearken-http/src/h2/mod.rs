//! HTTP/2 (RFC 9113) without I/O, for servers and clients.
//!
//! A [`Connection`] converts received bytes to [events](Event) and commands to bytes. Heads are translated
//! to the form of HTTP/1.1, so that a [`Request`](crate::Request) or [`Response`](crate::Response) is
//! processed and forwarded like one of HTTP/1.1. Messages that RFC 9113 section 8 forbids are rejected
//! before the translation. [`Limits`] bound the memory and the work that a peer can cause.
//!
//! ```
//! use std::sync::Arc;
//!
//! use hearken_http::RequestParser;
//! use hearken_http::h2::{Config, Connection, Event, HeadBuffer};
//!
//! let (config, mut head) = (Arc::new(Config::default()), HeadBuffer::new());
//! let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
//! let mut client = Connection::client(Arc::clone(&config), &mut to_server);
//! let mut server = Connection::server(config, &mut to_client);
//!
//! let bytes = b"GET /index.html HTTP/1.1\r\nHost: example.org\r\n\r\n";
//! let request = RequestParser::new().parse(bytes, &Default::default())?.unwrap();
//! client.send_request(&request, true, &mut to_server)?;
//!
//! let mut input = to_server.as_slice();
//! while let Some(event) = server.receive(&mut input, &mut head, &mut to_client)? {
//!     if let Event::Request { stream, request, .. } = event {
//!         assert_eq!(request.raw_target, b"/index.html");
//!         server.respond(stream, 200, [("Content-Length", "5")], false, &mut to_client);
//!         server.send_data(stream, b"hello", true, &mut to_client);
//!     }
//! }
//!
//! let (mut input, mut content) = (to_client.as_slice(), Vec::new());
//! while let Some(event) = client.receive(&mut input, &mut head, &mut to_server)? {
//!     match event {
//!         Event::Response { response, .. } => assert_eq!(response.status, 200),
//!         Event::Data { data, .. } => content.extend_from_slice(data),
//!         _ => {}
//!     }
//! }
//! assert_eq!(content, b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Turns
//!
//! A server calls [`Connection::receive`] until it returns `None`, processes the events, and sends the
//! output of all streams at once. Then it calls [`Connection::output_sent`]. While output is waiting to be
//! sent, it receives nothing more. When all output was sent, it takes streams from
//! [`Connection::next_writable`] and continues their content.
//!
//! # Priorities
//!
//! The Priority field and PRIORITY_UPDATE frames (RFC 9218) determine the order in which waiting streams
//! continue. The priorities of RFC 7540 are ignored.

mod budget;
mod connection;
mod error;
mod event;
mod frame;
mod head_buffer;
mod hpack;
mod limits;
mod priority;
mod request_head;
mod response_head;
mod settings;
mod stream;

pub use connection::{Connection, Unavailable, is_preface};
pub use error::{ConnectionError, ErrorCode};
pub use event::Event;
pub use frame::PREFACE;
pub use head_buffer::HeadBuffer;
pub use limits::{Config, Limits};
pub use priority::Priority;
pub use stream::StreamId;

/// The protocol's name in ALPN.
pub const ALPN: &[u8] = b"h2";
