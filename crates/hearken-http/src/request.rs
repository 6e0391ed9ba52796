//! Parsed request heads.

use std::fmt;

use crate::conditional::TagList;
use crate::fields::{FieldValues, Fields};
use crate::framing::Body;
use crate::method::Method;
use crate::request_fields::FieldSet;
use crate::request_parts::RequestParts;
use crate::rewrite_span::RewriteSpan;
use crate::target::Target;
use crate::upgrade_protocols;
use crate::version::Version;

/// A parsed request head, borrowed from the bytes that it was parsed from.
///
/// Public fields contain the parts that every server needs. Methods search the head for the other fields.
/// Methods that are named after a field return immediately if the field is absent.
///
/// ```
/// use hearken_http::{Body, Limits, RequestParser, Version};
///
/// let bytes = b"PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nIf-Match: *\r\n\r\nabc";
/// let request = RequestParser::new().parse(bytes, &Limits::default())?.unwrap();
/// assert_eq!(request.version, Version::Http11);
/// assert_eq!(request.host, Some(&b"a"[..]));
/// assert_eq!(request.body, Body::Length(3));
/// assert!(request.if_match().is_some());
/// assert_eq!(request.field("Content-Length"), Some(&b"3"[..]));
/// # Ok::<(), hearken_http::Reject>(())
/// ```
#[derive(Clone, Copy)]
pub struct Request<'b> {
    /// Request method.
    pub method: Method<'b>,
    /// Request-target as received.
    pub raw_target: &'b [u8],
    /// HTTP version of the client.
    pub version: Version,
    /// Authority of an absolute target, else the value of the Host field. It is valid, or empty if the Host
    /// field is empty. `None` only in HTTP/1.0.
    pub host: Option<&'b [u8]>,
    /// Framing of the body after the head.
    pub body: Body,
    /// Whether the client wants a persistent connection (RFC 9112 section 9.3).
    pub keep_alive: bool,
    /// Whether the client waits for status 100 before it sends the body (RFC 9110 section 10.1.1). Always
    /// false in HTTP/1.0 and without a body.
    pub expect_continue: bool,
    /// Length of the head in bytes, including its blank line.
    pub head_len: usize,
    /// Length of the target before its query.
    pub(crate) path_len: u32,
    pub(crate) present: FieldSet,
    /// Span of the lines that are not forwarded unchanged. `bytes` starts with the head, including an empty
    /// line before it.
    pub(crate) rewrite_span: RewriteSpan,
    pub(crate) bytes: &'b [u8],
    /// Position of the first field line.
    pub(crate) fields_at: u32,
}

impl<'b> Request<'b> {
    /// Returns the request as offsets into its head, for later use with a copy of the head.
    #[inline]
    pub fn parts(&self) -> RequestParts {
        RequestParts::from_request(self)
    }

    /// Returns the bytes of the head. Those of an HTTP/2 request are its translation.
    #[inline]
    pub fn head(&self) -> &'b [u8] {
        self.bytes.get(..self.head_len).unwrap_or(self.bytes)
    }

    /// Returns the parsed request-target.
    #[inline]
    pub fn target(&self) -> Target<'b> {
        // The parser has validated the target, so this cannot fail.
        Target::parse(&self.method, self.raw_target, self.path_len as usize)
            .unwrap_or(Target::Asterisk)
    }

    /// Returns whether the request has neither a Range field nor a precondition.
    #[inline]
    pub fn is_plain(&self) -> bool {
        !self.present.has(FieldSet::SELECTIVE)
    }

    /// Returns the value of If-Match, which may span several lines.
    #[inline]
    pub fn if_match(&self) -> Option<TagList<'b>> {
        self.tags(FieldSet::IF_MATCH, "If-Match")
    }

    /// Returns the value of If-Modified-Since. Returns an empty, invalid value if the field is repeated.
    #[inline]
    pub fn if_modified_since(&self) -> Option<&'b [u8]> {
        self.single(FieldSet::IF_MODIFIED_SINCE, "If-Modified-Since")
    }

    /// Returns the value of If-None-Match, which may span several lines.
    #[inline]
    pub fn if_none_match(&self) -> Option<TagList<'b>> {
        self.tags(FieldSet::IF_NONE_MATCH, "If-None-Match")
    }

    /// Returns the value of If-Range. Returns an empty, invalid value if the field is repeated.
    #[inline]
    pub fn if_range(&self) -> Option<&'b [u8]> {
        self.single(FieldSet::IF_RANGE, "If-Range")
    }

    /// Returns the value of If-Unmodified-Since. Returns an empty, invalid value if the field is repeated.
    #[inline]
    pub fn if_unmodified_since(&self) -> Option<&'b [u8]> {
        self.single(FieldSet::IF_UNMODIFIED_SINCE, "If-Unmodified-Since")
    }

    /// Returns the value of Range. Returns an empty, invalid value if the field is repeated.
    #[inline]
    pub fn range(&self) -> Option<&'b [u8]> {
        self.single(FieldSet::RANGE, "Range")
    }

    /// Returns the first Upgrade field if the Connection field names it and the version is 1.1.
    #[inline]
    pub fn upgrade(&self) -> Option<&'b [u8]> {
        self.known(FieldSet::UPGRADE, "Upgrade")
    }

    /// Returns the protocols of the Upgrade fields, `name` or `name/version`, if the Connection field names
    /// `upgrade` and the version is 1.1.
    pub fn upgrade_protocols(&self) -> impl Iterator<Item = &'b [u8]> + use<'b> {
        let is_there = self.present.has(FieldSet::UPGRADE);
        upgrade_protocols::parse(is_there.then(|| self.field_values("Upgrade")))
    }

    #[inline]
    fn known(&self, which: FieldSet, name: &str) -> Option<&'b [u8]> {
        if self.present.has(which) { self.field(name) } else { None }
    }

    #[inline]
    fn tags(&self, which: FieldSet, name: &'static str) -> Option<TagList<'b>> {
        if self.present.has(which) { TagList::from_values(self.field_values(name)) } else { None }
    }

    /// Returns the value of a field that is not a list. Repeated fields are invalid.
    #[inline]
    fn single(&self, which: FieldSet, name: &str) -> Option<&'b [u8]> {
        if !self.present.has(which) {
            return None;
        }
        let mut values = self.field_values(name);
        values.next().map(|value| if values.next().is_none() { value } else { b"" })
    }

    /// Returns the value of the first field with this name, ignoring case.
    #[inline(never)]
    pub fn field(&self, name: &str) -> Option<&'b [u8]> {
        self.field_values(name).next()
    }

    /// Returns all fields in their original order.
    pub fn fields(&self) -> Fields<'b> {
        Fields::new(self.bytes.get(self.fields_at as usize..).unwrap_or_default())
    }

    /// Returns the values of all fields with this name, ignoring case.
    ///
    /// ```
    /// use hearken_http::{Limits, RequestParser};
    ///
    /// let bytes = b"GET / HTTP/1.1\r\nHost: a\r\nCookie: x=1\r\ncookie: y=2\r\n\r\n";
    /// let request = RequestParser::new().parse(bytes, &Limits::default())?.unwrap();
    /// assert!(request.field_values("Cookie").eq([b"x=1", b"y=2"]));
    /// # Ok::<(), hearken_http::Reject>(())
    /// ```
    pub fn field_values<'n>(&self, name: &'n str) -> FieldValues<'b, 'n> {
        FieldValues::new(self.fields(), name)
    }
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("target", &self.target())
            .field("version", &self.version)
            .field("host", &self.host)
            .field("body", &self.body)
            .field("keep_alive", &self.keep_alive)
            .field("expect_continue", &self.expect_continue)
            .field("head_len", &self.head_len)
            .finish_non_exhaustive()
    }
}
