//! Translation of decoded fields into the head of an HTTP/1.1 response, and into trailer fields.

use super::head_buffer::{GAP, HeadBuffer, Problem, prepend};
use crate::fields::Fields;
use crate::framing::ResponseBody;
use crate::limits::Limits;
use crate::method::Method;
use crate::response::{Response, ResponseParser};
use crate::version::Version;

/// The limits were applied when the fields were decoded.
const NO_LIMITS: Limits =
    Limits { max_head_bytes: usize::MAX, max_fields: usize::MAX, max_target_bytes: 0 };

impl HeadBuffer {
    /// Translates the fields of a response to a request with this method. `is_upgrade` means that the
    /// request was an extended CONNECT for a WebSocket. `has_body` is false if the stream has ended.
    pub(super) fn response(
        &mut self,
        method: Method<'_>,
        is_upgrade: bool,
        has_body: bool,
    ) -> Result<Response<'_>, Problem> {
        self.check()?;
        let status = match *self.value(self.pseudo.status) {
            [b'1', b'0', b'1'] => {
                return Err(Problem::Malformed("status 101 does not exist in HTTP/2"));
            }
            [a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9'] => [a, b, c],
            _ => return Err(Problem::Malformed("missing or invalid :status")),
        };
        let is_success = status[0] == b'2';
        if status[0] == b'1' && !has_body {
            return Err(Problem::Malformed("interim response that ends the stream"));
        }
        let switches = is_upgrade && is_success;
        let has_none = switches
            || method == Method::Head
            || method == Method::Connect && is_success
            || status[0] == b'1'
            || matches!(&status, b"204" | b"304");
        if switches {
            self.add_generated_line(b"upgrade", b"websocket");
            self.add_generated_line(b"connection", b"upgrade");
        } else if !has_none && !self.has_content_length {
            self.lines.extend_from_slice(match has_body {
                true => b"transfer-encoding: chunked\r\n",
                false => b"content-length: 0\r\n",
            });
        }
        self.lines.extend_from_slice(b"\r\n");
        let start = match switches {
            true => prepend(&mut self.lines, [b"HTTP/1.1 101 Switching Protocols\r\n"]),
            false => prepend(&mut self.lines, [b"HTTP/1.1 ", &status, b" \r\n"]),
        };
        let bytes = self.lines.get(start..).unwrap_or_default();
        let parsed = ResponseParser::new().parse(bytes, method, &NO_LIMITS);
        let response = match parsed {
            Ok(Some(response)) => response,
            Ok(None) => return Err(Problem::Malformed("incomplete response head")),
            Err(malformed) => return Err(Problem::Malformed(malformed.0)),
        };
        if !has_body && matches!(response.body, ResponseBody::Length(_)) {
            return Err(Problem::Malformed("missing body of a response with Content-Length"));
        }
        Ok(Response { version: Version::Http2, ..response })
    }

    /// Returns the fields of a trailer section.
    pub(super) fn trailers(&mut self) -> Result<Fields<'_>, Problem> {
        self.check()?;
        self.lines.extend_from_slice(b"\r\n");
        Ok(Fields::new(self.lines.get(GAP..).unwrap_or_default()))
    }
}
