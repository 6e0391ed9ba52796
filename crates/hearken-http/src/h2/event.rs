//! Events of a connection.

use super::error::ErrorCode;
use super::stream::StreamId;
use crate::error::Reject;
use crate::fields::Fields;
use crate::request::Request;
use crate::response::Response;

/// An event that [`Connection::receive`](super::Connection::receive) returns.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'s> {
    /// The head of a request, in the form of HTTP/1.1.
    ///
    /// The body is framed by DATA frames, whatever [`Request::body`] says: a length, or chunked if the
    /// client announced none. An extended CONNECT is a GET request with an Upgrade field. After a response
    /// with status 101 the stream is a tunnel, as it is after a successful response to CONNECT.
    Request {
        /// The new stream.
        stream: StreamId,
        /// The request.
        request: Request<'s>,
        /// Whether the client has ended the stream.
        end: bool,
    },
    /// A request with an intact head that exceeds a limit or cannot be served. The caller responds with the
    /// status.
    Rejected {
        /// The new stream.
        stream: StreamId,
        /// Status and reason.
        reject: Reject,
    },
    /// The head of a response, in the form of HTTP/1.1. Status 101 answers a request for a WebSocket.
    Response {
        /// The stream.
        stream: StreamId,
        /// The response.
        response: Response<'s>,
        /// Whether the server has ended the stream.
        end: bool,
    },
    /// Content. The caller [releases](super::Connection::release) it when it has processed the bytes.
    Data {
        /// The stream.
        stream: StreamId,
        /// The content, possibly empty at the end.
        data: &'s [u8],
        /// Whether the peer has ended the stream.
        end: bool,
    },
    /// A trailer section, which ends the stream.
    Trailers {
        /// The stream.
        stream: StreamId,
        /// The fields. Like those of HTTP/1.1, some may not be forwarded.
        fields: Fields<'s>,
    },
    /// The end of a stream before its time. No command for the stream has an effect any more.
    ///
    /// Also reported for a malformed request, which was not reported before.
    Reset {
        /// The stream.
        stream: StreamId,
        /// Error code.
        code: ErrorCode,
        /// Description of the peer's error, or an empty string if the peer reset the stream.
        reason: &'static str,
    },
    /// A GOAWAY frame: the peer will not process new streams. [`Event::Reset`] with `REFUSED_STREAM`
    /// follows for each request that it did not process.
    Goaway {
        /// Error code.
        code: ErrorCode,
    },
    /// New settings of the peer. Streams that waited may be able to continue.
    Settings,
    /// The acknowledgement of a [`ping`](super::Connection::ping).
    Pong {
        /// Payload of the ping.
        payload: [u8; 8],
    },
}
