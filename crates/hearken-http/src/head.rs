//! Functions that write message heads.
//!
//! The functions append to a buffer. [`ResponseHead`] chains them. They replace control characters other
//! than tabs with spaces, so that a value cannot start a new line.
//!
//! ```
//! use hearken_http::head;
//!
//! let mut out = Vec::new();
//! head::request_line(&mut out, "GET", "/");
//! head::field(&mut out, "Host", "example.org\r\nX-Injected: 1");
//! head::end(&mut out);
//! assert_eq!(out, b"GET / HTTP/1.1\r\nHost: example.org  X-Injected: 1\r\n\r\n");
//! ```

use crate::class::{self, TARGET, TEXT, TOKEN};
use crate::date::DateCache;
use crate::scan;
use crate::version::Version;

macro_rules! statuses {
    ($($code:literal $reason:literal)*) => {
        /// Returns the reason phrase of a status code, RFC 9110 section 15. Returns `""` for an unknown code.
        ///
        /// ```
        /// assert_eq!(hearken_http::reason(404), "Not Found");
        /// ```
        pub fn reason(status: u16) -> &'static str {
            match status {
                $($code => $reason,)*
                _ => "",
            }
        }

        fn full_status_line(status: u16) -> Option<&'static str> {
            match status {
                $($code => Some(concat!("HTTP/1.1 ", $code, " ", $reason, "\r\n")),)*
                _ => None,
            }
        }
    };
}

statuses! {
    100 "Continue"
    101 "Switching Protocols"
    103 "Early Hints"
    200 "OK"
    201 "Created"
    202 "Accepted"
    203 "Non-Authoritative Information"
    204 "No Content"
    205 "Reset Content"
    206 "Partial Content"
    300 "Multiple Choices"
    301 "Moved Permanently"
    302 "Found"
    303 "See Other"
    304 "Not Modified"
    305 "Use Proxy"
    307 "Temporary Redirect"
    308 "Permanent Redirect"
    400 "Bad Request"
    401 "Unauthorized"
    402 "Payment Required"
    403 "Forbidden"
    404 "Not Found"
    405 "Method Not Allowed"
    406 "Not Acceptable"
    407 "Proxy Authentication Required"
    408 "Request Timeout"
    409 "Conflict"
    410 "Gone"
    411 "Length Required"
    412 "Precondition Failed"
    413 "Content Too Large"
    414 "URI Too Long"
    415 "Unsupported Media Type"
    416 "Range Not Satisfiable"
    417 "Expectation Failed"
    421 "Misdirected Request"
    422 "Unprocessable Content"
    425 "Too Early"
    426 "Upgrade Required"
    428 "Precondition Required"
    429 "Too Many Requests"
    431 "Request Header Fields Too Large"
    451 "Unavailable For Legal Reasons"
    500 "Internal Server Error"
    501 "Not Implemented"
    502 "Bad Gateway"
    503 "Service Unavailable"
    504 "Gateway Timeout"
    505 "HTTP Version Not Supported"
    507 "Insufficient Storage"
    508 "Loop Detected"
    511 "Network Authentication Required"
}

/// Appends a status line such as `HTTP/1.1 200 OK`. Writes a status outside `100..=999` as 500.
#[inline]
pub fn status_line(out: &mut Vec<u8>, status: u16) {
    let status = if (100..=999).contains(&status) { status } else { 500 };
    if let Some(line) = full_status_line(status) {
        out.extend_from_slice(line.as_bytes());
    } else {
        out.extend_from_slice(b"HTTP/1.1 ");
        write_decimal(out, status.into());
        out.extend_from_slice(b" \r\n");
    }
}

/// Appends a request line such as `GET / HTTP/1.1`.
///
/// Percent-encodes bytes in the target that are invalid there and replaces those in the method with `_`.
/// Writes an empty method as `GET` and an empty target as `/`.
pub fn request_line(out: &mut Vec<u8>, method: impl AsRef<[u8]>, target: impl AsRef<[u8]>) {
    write_token(out, method.as_ref(), b"GET");
    out.push(b' ');
    let target = match target.as_ref() {
        [] => b"/",
        target => target,
    };
    for &byte in target {
        if class::is(byte, TARGET) {
            out.push(byte);
        } else {
            let digits = b"0123456789ABCDEF";
            let digit = |nibble: u8| digits[usize::from(nibble & 15)];
            out.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte)]);
        }
    }
    out.extend_from_slice(b" HTTP/1.1\r\n");
}

/// Appends the field line `name: value`.
///
/// Replaces bytes of `name` that are invalid in a token with `_`, and control characters of `value` other
/// than tabs with a space. Writes an empty name as `_`.
#[inline]
pub fn field(out: &mut Vec<u8>, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
    let value = value.as_ref();
    write_token(out, name.as_ref(), b"_");
    out.extend_from_slice(b": ");
    let start = out.len();
    out.extend_from_slice(value);
    if scan::text_len(value) != value.len() {
        replace(out, start, TEXT, b' ');
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends a field line with a decimal number. Treats the name like [`field`].
pub fn field_u64(out: &mut Vec<u8>, name: impl AsRef<[u8]>, value: u64) {
    write_token(out, name.as_ref(), b"_");
    out.extend_from_slice(b": ");
    write_decimal(out, value);
    out.extend_from_slice(b"\r\n");
}

/// Appends the blank line that ends a head.
#[inline]
pub fn end(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\r\n");
}

fn write_token(out: &mut Vec<u8>, bytes: &[u8], default: &[u8]) {
    let start = out.len();
    out.extend_from_slice(if bytes.is_empty() { default } else { bytes });
    if scan::token_len(bytes) != bytes.len() {
        replace(out, start, TOKEN, b'_');
    }
}

/// Replaces every byte from `start` on that does not belong to `class` with `replacement`.
#[cold]
fn replace(out: &mut [u8], start: usize, class: u8, replacement: u8) {
    for byte in out.iter_mut().skip(start) {
        if !class::is(*byte, class) {
            *byte = replacement;
        }
    }
}

/// Appends a hexadecimal number without leading zeros.
#[inline]
pub(crate) fn write_hex(out: &mut Vec<u8>, number: u64) {
    let count = (u64::BITS - (number | 1).leading_zeros()).div_ceil(4);
    for digit in (0..count).rev() {
        out.push(b"0123456789abcdef"[(number >> (4 * digit) & 15) as usize]);
    }
}

pub(crate) fn write_decimal(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [b'0'; 20];
    let mut len = 0;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
        len += 1;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[digits.len() - len..]);
}

/// A writer that appends a response head to a buffer, field by field.
///
/// ```
/// use hearken_http::ResponseHead;
///
/// let mut out = Vec::new();
/// ResponseHead::new(&mut out, 206)
///     .field("Content-Type", "text/plain")
///     .content_range(0, 4, 10)
///     .content_length(5)
///     .connection_close()
///     .end();
/// assert_eq!(
///     String::from_utf8(out).unwrap(),
///     "HTTP/1.1 206 Partial Content\r\nContent-Type: text/plain\r\n\
///      Content-Range: bytes 0-4/10\r\nContent-Length: 5\r\nConnection: close\r\n\r\n"
/// );
/// ```
#[derive(Debug)]
pub struct ResponseHead<'v> {
    out: &'v mut Vec<u8>,
}

impl<'v> ResponseHead<'v> {
    /// Starts a head with its status line, as [`status_line`] does.
    #[inline]
    pub fn new(out: &'v mut Vec<u8>, status: u16) -> Self {
        status_line(out, status);
        Self { out }
    }

    /// Appends a field, as [`field`] does.
    #[inline]
    pub fn field(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        field(self.out, name, value);
        self
    }

    /// Appends a field with a number, as [`field_u64`] does.
    pub fn field_u64(&mut self, name: impl AsRef<[u8]>, value: u64) -> &mut Self {
        field_u64(self.out, name, value);
        self
    }

    /// Appends `Content-Length`, in bytes.
    #[inline]
    pub fn content_length(&mut self, length: u64) -> &mut Self {
        self.out.extend_from_slice(b"Content-Length: ");
        write_decimal(self.out, length);
        self.out.extend_from_slice(b"\r\n");
        self
    }

    /// Appends `Transfer-Encoding: chunked`.
    pub fn chunked(&mut self) -> &mut Self {
        self.out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
        self
    }

    /// Appends the `Content-Range` of a 206: bytes `first..=last` of `length` (RFC 9110 section 14.4).
    pub fn content_range(&mut self, first: u64, last: u64, length: u64) -> &mut Self {
        self.out.extend_from_slice(b"Content-Range: bytes ");
        write_decimal(self.out, first);
        self.out.push(b'-');
        write_decimal(self.out, last);
        self.out.push(b'/');
        write_decimal(self.out, length);
        self.out.extend_from_slice(b"\r\n");
        self
    }

    /// Appends the `Content-Range` of a 416 for a representation of `length` bytes.
    pub fn content_range_unsatisfied(&mut self, length: u64) -> &mut Self {
        self.out.extend_from_slice(b"Content-Range: bytes */");
        write_decimal(self.out, length);
        self.out.extend_from_slice(b"\r\n");
        self
    }

    /// Appends `Date`.
    #[inline]
    pub fn date(&mut self, date: &DateCache) -> &mut Self {
        self.out.extend_from_slice(date.line());
        self
    }

    /// Appends `Connection: close`.
    pub fn connection_close(&mut self) -> &mut Self {
        self.out.extend_from_slice(b"Connection: close\r\n");
        self
    }

    /// Appends `Connection: keep-alive`, which HTTP/1.0 clients require for a persistent connection.
    pub fn connection_keep_alive(&mut self) -> &mut Self {
        self.out.extend_from_slice(b"Connection: keep-alive\r\n");
        self
    }

    /// Appends the Connection field that a client of `version` needs, if the connection persists or not.
    pub fn persistence(&mut self, keep_alive: bool, version: Version) -> &mut Self {
        if !keep_alive {
            self.connection_close();
        } else if version == Version::Http10 {
            self.connection_keep_alive();
        }
        self
    }

    /// Appends the blank line. Only the body may follow.
    #[inline]
    pub fn end(&mut self) {
        end(self.out);
    }
}
