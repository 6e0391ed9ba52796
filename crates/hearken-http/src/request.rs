//! What a request says.

use std::fmt;

use crate::conditional::TagList;
use crate::fields::{FieldValues, Fields};
use crate::framing::Body;
use crate::hop_span::HopSpan;
use crate::known::Known;
use crate::method::Method;
use crate::parts::RequestParts;
use crate::target::Target;
use crate::upgrade;
use crate::version::Version;

/// A parsed request head. Borrows everything from the bytes it was parsed from.
///
/// Holds what every server asks for. The other fields are looked for when they are asked for, in
/// the head that was parsed; for those with a method of their own it is known whether they are
/// there, so that to ask in vain costs nothing.
#[derive(Clone, Copy)]
pub struct Request<'b> {
    /// What to do.
    pub method: Method<'b>,
    /// The request-target as it was sent, for logs and for forwarding.
    pub raw_target: &'b [u8],
    /// The version the client speaks.
    pub version: Version,
    /// The authority of an absolute target, else the Host field; valid, or empty when the Host
    /// field was. `None` only in HTTP/1.0.
    pub host: Option<&'b [u8]>,
    /// How the body that follows the head is delimited.
    pub body: Body,
    /// Whether the client wants the connection kept open (RFC 9112 section 9.3).
    pub keep_alive: bool,
    /// Whether the client waits for `100 Continue` before it sends its body (RFC 9110 section
    /// 10.1.1). Never true in HTTP/1.0 or without a body.
    pub expect_continue: bool,
    /// Bytes of the head, its blank line included: the body starts here.
    pub head_len: usize,
    /// Where in the target the query starts.
    pub(crate) path_len: u32,
    pub(crate) known: Known,
    /// The lines that are not passed on as they are; `bytes` starts with the head, and with an empty
    /// line if there is one before it.
    pub(crate) hop_span: HopSpan,
    pub(crate) bytes: &'b [u8],
    /// Where the first field line starts.
    pub(crate) fields_at: u32,
}

impl<'b> Request<'b> {
    /// Returns the request as offsets into its head, to be used again with a copy of the head.
    #[inline]
    pub fn parts(&self) -> RequestParts {
        RequestParts::of(self)
    }

    /// What to do it to.
    #[inline]
    pub fn target(&self) -> Target<'b> {
        // It has been parsed before, so that it cannot fail.
        Target::parse(&self.method, self.raw_target, self.path_len as usize)
            .unwrap_or(Target::Asterisk)
    }

    /// Whether it is for the whole of a representation in whatever state: there is neither a Range
    /// field nor a precondition.
    #[inline]
    pub fn is_plain(&self) -> bool {
        !self.known.has(Known::SELECTING)
    }

    /// Returns the value of If-Match, on however many lines.
    #[inline]
    pub fn if_match(&self) -> Option<TagList<'b>> {
        self.tags(Known::IF_MATCH, "If-Match")
    }

    /// Returns the value of If-Modified-Since; empty, and so malformed, if there are several lines.
    #[inline]
    pub fn if_modified_since(&self) -> Option<&'b [u8]> {
        self.single(Known::IF_MODIFIED_SINCE, "If-Modified-Since")
    }

    /// Returns the value of If-None-Match, on however many lines.
    #[inline]
    pub fn if_none_match(&self) -> Option<TagList<'b>> {
        self.tags(Known::IF_NONE_MATCH, "If-None-Match")
    }

    /// Returns the value of If-Range; empty, and so malformed, if there are several lines.
    #[inline]
    pub fn if_range(&self) -> Option<&'b [u8]> {
        self.single(Known::IF_RANGE, "If-Range")
    }

    /// Returns the value of If-Unmodified-Since; empty, and so malformed, if there are several lines.
    #[inline]
    pub fn if_unmodified_since(&self) -> Option<&'b [u8]> {
        self.single(Known::IF_UNMODIFIED_SINCE, "If-Unmodified-Since")
    }

    /// Returns the value of Range; empty, and so malformed, if there are several lines.
    #[inline]
    pub fn range(&self) -> Option<&'b [u8]> {
        self.single(Known::RANGE, "Range")
    }

    /// The first Upgrade field, when the Connection field names it and the version is 1.1.
    #[inline]
    pub fn upgrade(&self) -> Option<&'b [u8]> {
        self.known(Known::UPGRADE, "Upgrade")
    }

    /// Returns the protocols of the Upgrade fields, `name` or `name/version`, when the Connection field
    /// names `upgrade` and the version is 1.1.
    pub fn upgrade_protocols(&self) -> impl Iterator<Item = &'b [u8]> + use<'b> {
        let is_there = self.known.has(Known::UPGRADE);
        upgrade::protocols(is_there.then(|| self.field_values("Upgrade")))
    }

    #[inline]
    fn known(&self, which: Known, name: &str) -> Option<&'b [u8]> {
        if self.known.has(which) { self.field(name) } else { None }
    }

    #[inline]
    fn tags(&self, which: Known, name: &'static str) -> Option<TagList<'b>> {
        if self.known.has(which) { TagList::of(self.field_values(name)) } else { None }
    }

    /// Returns the value of a field that is no list. Lines that are joined are malformed.
    #[inline]
    fn single(&self, which: Known, name: &str) -> Option<&'b [u8]> {
        if !self.known.has(which) {
            return None;
        }
        let mut values = self.field_values(name);
        values.next().map(|value| if values.next().is_none() { value } else { b"" })
    }

    /// The value of the first field of this name, in any case.
    #[inline(never)]
    pub fn field(&self, name: &str) -> Option<&'b [u8]> {
        self.field_values(name).next()
    }

    /// Every field in the order they came.
    pub fn fields(&self) -> Fields<'b> {
        Fields::new(self.bytes.get(self.fields_at as usize..).unwrap_or_default())
    }

    /// The value of every field of this name, in any case.
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
