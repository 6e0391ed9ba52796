//! Translation of decoded fields into the head of an HTTP/1.1 request.
//!
//! The parser of HTTP/1.1 would return the same request for the head. Fields are collected and validated by
//! the code of that parser.

use super::head_buffer::{GAP, HeadBuffer, Problem, Span, prepend};
use super::priority::Priority;
use crate::authority::{self, parse_common_host_line};
use crate::error::Reject;
use crate::fields::Fields;
use crate::framing::Body;
use crate::limits::Limits;
use crate::method::Method;
use crate::request::Request;
use crate::request_fields::RequestFields;
use crate::request_line::MAX_METHOD_BYTES;
use crate::scan;
use crate::version::Version;

const END_OF_LINE: &[u8] = b" HTTP/1.1\r\nHost: ";

/// A translated request.
#[derive(Debug)]
pub(super) struct RequestHead<'s> {
    pub(super) request: Request<'s>,
    pub(super) form: Form,
    pub(super) priority: Option<Priority>,
    /// Value of Content-Length.
    pub(super) content_length: Option<u64>,
}

/// The form of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Plain,
    /// CONNECT, RFC 9113 section 8.5.
    Connect,
    /// Extended CONNECT, RFC 8441, which is translated into GET with an Upgrade field.
    Upgrade,
}

impl HeadBuffer {
    /// Translates the fields of a request. `has_body` is false if the stream has ended. `nonce` determines
    /// the key of a WebSocket request.
    pub(super) fn request(
        &mut self,
        limits: &Limits,
        has_body: bool,
        nonce: u64,
    ) -> Result<RequestHead<'_>, Problem> {
        self.check()?;
        let form = self.form()?;
        let authority = self.authority()?;
        self.finish_lines(form, has_body, nonce);

        let values = &self.values;
        let authority = authority.slice(values);
        let (method, target) = match form {
            Form::Plain => (self.pseudo.method.slice(values), self.pseudo.path.slice(values)),
            Form::Connect => (self.pseudo.method.slice(values), authority),
            Form::Upgrade => (&b"GET"[..], self.pseudo.path.slice(values)),
        };
        let path_len = check_target(target, method, limits)?;
        let (method_len, target_at) = (method.len(), method.len() + 1);
        let target_end = target_at + target.len();
        let fields_at = target_end + b" HTTP/1.1\r\n".len();
        let lines_at = target_end + END_OF_LINE.len() + authority.len() + 2;
        let start =
            prepend(&mut self.lines, [method, b" ", target, END_OF_LINE, authority, b"\r\n"]);

        let bytes = self.lines.get(start..).unwrap_or_default();
        if bytes.len() > limits.max_head_bytes {
            return Err(TOO_LONG);
        }
        let after_line = bytes.get(fields_at..).unwrap_or_default();
        let host = parse_common_host_line(after_line).map(|(host, _)| host);
        let mut fields = RequestFields::new(Version::Http11, host);
        if host.is_none() {
            let line = bytes.get(fields_at..lines_at - 2).unwrap_or_default();
            fields.add(line, b"Host".len(), bytes.len() - lines_at);
        }
        for line in &self.relevant {
            let start = lines_at + line.start as usize;
            let end = start + line.len as usize;
            let line_bytes = bytes.get(start..end).unwrap_or_default();
            fields.add(line_bytes, line.name_len as usize, bytes.len() - end - 2);
        }
        let valid = fields.validate(Version::Http11).map_err(|reject| match reject.status {
            400 => Problem::Malformed(reject.reason),
            _ => Problem::Rejected(reject),
        })?;
        let content_length = match valid.body {
            _ if !self.has_content_length => None,
            Body::Length(length) => Some(length),
            _ => Some(0),
        };
        if form != Form::Plain && content_length.is_some() {
            return Err(Problem::Malformed("Content-Length in a CONNECT request"));
        }
        if !has_body && matches!(content_length, Some(1..)) {
            return Err(Problem::Malformed("missing body of a request with Content-Length"));
        }
        let priority = self.lines.get(start + lines_at..).map(|lines| self.priority.slice(lines));
        let request = Request {
            method: Method::from_token(bytes.get(..method_len).unwrap_or_default()),
            raw_target: bytes.get(target_at..target_end).unwrap_or_default(),
            version: Version::Http2,
            host: valid.host,
            body: valid.body,
            keep_alive: fields.options.is_persistent(),
            expect_continue: valid.expect_continue,
            head_len: bytes.len(),
            path_len: path_len as u32,
            present: fields.present,
            rewrite_span: fields.rewrite_span,
            bytes,
            fields_at: fields_at as u32,
        };
        let priority = priority.filter(|value| !value.is_empty()).and_then(Priority::parse);
        Ok(RequestHead { request, form, priority, content_length })
    }

    /// Returns the form of the request, and checks that its pseudo-header fields are complete.
    #[inline]
    fn form(&self) -> Result<Form, Problem> {
        let pseudo = &self.pseudo;
        let method = self.value(pseudo.method);
        if matches!(Method::from_token(method), Method::Other(_)) {
            check_method(method)?;
        }
        if method == b"CONNECT" || !pseudo.protocol.is_empty() {
            return self.connect_form(method);
        }
        if pseudo.scheme.is_empty() || pseudo.path.is_empty() {
            return Err(MISSING);
        }
        self.check_scheme().map(|()| Form::Plain)
    }

    #[cold]
    fn connect_form(&self, method: &[u8]) -> Result<Form, Problem> {
        let pseudo = &self.pseudo;
        let has_target = !pseudo.scheme.is_empty() && !pseudo.path.is_empty();
        let is_empty = pseudo.scheme.is_empty() && pseudo.path.is_empty();
        let protocol = self.value(pseudo.protocol);
        match (method, protocol) {
            (b"CONNECT", []) if is_empty && !pseudo.authority.is_empty() => Ok(Form::Connect),
            (b"CONNECT", [_, ..]) if has_target && scan::token_len(protocol) == protocol.len() => {
                self.check_scheme().map(|()| Form::Upgrade)
            }
            _ => Err(Problem::Malformed("invalid combination of CONNECT pseudo-header fields")),
        }
    }

    #[inline]
    fn check_scheme(&self) -> Result<(), Problem> {
        match self.value(self.pseudo.scheme) {
            b"https" | b"http" => Ok(()),
            _ => Err(Problem::Rejected(Reject::bad("unsupported scheme: expected http or https"))),
        }
    }

    /// Returns the authority of the request.
    #[inline]
    fn authority(&self) -> Result<Span, Problem> {
        let (authority, host) = (self.pseudo.authority, self.pseudo.host);
        match (authority.is_empty(), host.is_empty()) {
            (false, true) => Ok(authority),
            (true, false) => Ok(host),
            (true, true) => Err(Problem::Malformed("neither :authority nor Host")),
            (false, false) => {
                let is_same = self.value(authority).eq_ignore_ascii_case(self.value(host));
                let different = Problem::Malformed("Host differs from :authority");
                if is_same { Ok(authority) } else { Err(different) }
            }
        }
    }

    /// Appends the lines that follow those of the section, and the blank line.
    #[inline]
    fn finish_lines(&mut self, form: Form, has_body: bool, nonce: u64) {
        if !self.cookies.is_empty() {
            self.lines.extend_from_slice(b"cookie: ");
            self.lines.extend_from_slice(&self.cookies);
            self.lines.extend_from_slice(b"\r\n");
        }
        match form {
            Form::Plain if has_body && !self.has_content_length => {
                self.add_generated_line(b"transfer-encoding", b"chunked");
            }
            Form::Upgrade => self.add_upgrade_lines(nonce),
            _ => {}
        }
        self.lines.extend_from_slice(b"\r\n");
    }

    /// Appends the lines that make an extended CONNECT a request for an upgrade.
    #[cold]
    fn add_upgrade_lines(&mut self, nonce: u64) {
        let protocol = self.value(self.pseudo.protocol).to_vec();
        self.add_generated_line(b"upgrade", &protocol);
        self.add_generated_line(b"connection", b"upgrade");
        let mut fields = Fields::new(self.lines.get(GAP..).unwrap_or_default());
        let has_key = fields.any(|(name, _)| name == b"sec-websocket-key");
        if protocol.eq_ignore_ascii_case(b"websocket") && !has_key {
            self.add_generated_line(b"sec-websocket-key", &websocket_key(nonce));
        }
    }
}

const MISSING: Problem = Problem::Malformed("missing pseudo-header field");
const TOO_LONG: Problem =
    Problem::Rejected(Reject::new(431, "message head exceeds the maximum size"));

#[cold]
fn check_method(method: &[u8]) -> Result<(), Problem> {
    if method.is_empty() {
        return Err(MISSING);
    }
    if scan::token_len(method) != method.len() {
        return Err(Problem::Malformed("invalid method"));
    }
    if method.len() > MAX_METHOD_BYTES {
        return Err(Problem::Rejected(Reject::new(501, "method is longer than 32 bytes")));
    }
    Ok(())
}

/// Returns the length of the target before its query.
#[inline(always)]
fn check_target(target: &[u8], method: &[u8], limits: &Limits) -> Result<usize, Problem> {
    if target.len() > limits.max_target_bytes {
        let reject = Reject::new(414, "request target exceeds the maximum length");
        return Err(Problem::Rejected(reject));
    }
    let path_len = scan::path_end(target, 0);
    let end = match target.get(path_len) {
        Some(b'?') => scan::target_end(target, path_len + 1),
        _ => path_len,
    };
    let is_valid = match target {
        _ if end < target.len() => false,
        [b'/', ..] => method != b"CONNECT",
        b"*" => method == b"OPTIONS",
        _ => method == b"CONNECT" && matches!(authority::split(target), Some((_, Some([_, ..])))),
    };
    if is_valid { Ok(path_len) } else { Err(Problem::Malformed("invalid :path or :authority")) }
}

/// Returns the base64 form of a 16-byte key (RFC 6455 section 4.1) that depends on `nonce`.
fn websocket_key(nonce: u64) -> [u8; 24] {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    // The last digit has only two significant bits.
    let mut key = *b"AAAAAAAAAAAAAAAAAAAAAA==";
    let mut state = nonce;
    for digit in key.iter_mut().take(21) {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        *digit = DIGITS[(state >> 58) as usize];
    }
    key
}
