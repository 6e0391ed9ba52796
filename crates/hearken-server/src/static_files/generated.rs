//! Responses without a file: errors, redirects, OPTIONS.

use hearken::io::Body;
use hearken_http::{Method, ResponseHead, Version, head, reason};
use rustix::io::Errno;

use super::{Answer, Exchange};

const ALLOW: &str = "GET, HEAD, OPTIONS";

/// Returns the status for an error of open or read.
pub(super) fn error_status(failed: Errno) -> u16 {
    match failed {
        Errno::ACCESS | Errno::PERM => 403,
        Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::INVAL | Errno::ILSEQ => 404,
        // A loop of links, a link out of the root, a socket, a missing device.
        Errno::LOOP | Errno::XDEV | Errno::NXIO | Errno::NODEV => 404,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => 503,
        _ => 500,
    }
}

/// Appends Strict-Transport-Security with a time in seconds, if there is one.
pub(super) fn write_hsts(out: &mut Vec<u8>, hsts: Option<u64>) {
    if let Some(seconds) = hsts {
        head::field(out, "Strict-Transport-Security", format!("max-age={seconds}"));
    }
}

impl Exchange<'_, '_> {
    /// Responds with an error and a line of text.
    #[cold]
    pub(super) fn error(&self, status: u16, out: &mut Vec<u8>) -> Answer<'static> {
        head::status_line(out, status);
        match status {
            405 => head::field(out, "Allow", ALLOW),
            503 => head::field(out, "Retry-After", "1"),
            _ => {}
        }
        self.finish_text(status, out)
    }

    /// Responds with 416 (Range Not Satisfiable) for a file of `length` bytes.
    #[cold]
    pub(super) fn unsatisfiable(&self, length: u64, out: &mut Vec<u8>) -> Answer<'static> {
        ResponseHead::new(out, 416).content_range_unsatisfied(length);
        self.finish_text(416, out)
    }

    /// Redirects (301) from a directory's path without the final slash, `key`, to the one with it.
    #[cold]
    pub(super) fn redirect(
        &self,
        key: &[u8],
        query: Option<&[u8]>,
        out: &mut Vec<u8>,
    ) -> Answer<'static> {
        let mut location = [key, b"/"].concat();
        if let Some(query) = query {
            location.push(b'?');
            location.extend_from_slice(query);
        }
        ResponseHead::new(out, 301).field("Location", location);
        self.finish_text(301, out)
    }

    /// Responds to OPTIONS.
    #[cold]
    pub(super) fn options(&self, out: &mut Vec<u8>) -> Answer<'static> {
        ResponseHead::new(out, 204).field("Allow", ALLOW);
        write_hsts(out, self.hsts);
        out.extend_from_slice(b"Date: ");
        self.end_head(out);
        Answer { ready: &[], body: Body::None, status: 204, length: 0 }
    }

    /// Ends a head after `Date: `, with the date and the Connection field.
    #[inline]
    pub(super) fn end_head(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.date.as_bytes());
        out.extend_from_slice(match (self.request.version, self.keep_alive) {
            (Version::Http11, true) | (Version::Http10, false) | (Version::Http2, _) => b"\r\n\r\n",
            (Version::Http11, false) => b"\r\nConnection: close\r\n\r\n",
            (Version::Http10, true) => b"\r\nConnection: keep-alive\r\n\r\n",
        });
    }

    /// Returns whether the request is a HEAD request, whose response has no body.
    #[inline]
    pub(super) fn is_head(&self) -> bool {
        self.request.method == Method::Head
    }

    fn finish_text(&self, status: u16, out: &mut Vec<u8>) -> Answer<'static> {
        let text = format!("{status} {}\n", reason(status));
        let length = text.len() as u64;
        head::field_u64(out, "Content-Length", length);
        head::field(out, "Content-Type", "text/plain; charset=utf-8");
        head::field(out, "X-Content-Type-Options", "nosniff");
        write_hsts(out, self.hsts);
        out.extend_from_slice(b"Date: ");
        self.end_head(out);
        if self.is_head() {
            return Answer { ready: &[], body: Body::None, status, length: 0 };
        }
        out.extend_from_slice(text.as_bytes());
        Answer { ready: &[], body: Body::None, status, length }
    }
}
