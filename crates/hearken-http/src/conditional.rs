//! Conditional requests, RFC 9110 section 13.

use std::fmt;

use crate::class;
use crate::date::parse_http_date;
use crate::fields::FieldValues;
use crate::method::Method;
use crate::request::Request;

/// Maximum number of entity tags in a list that are compared. Later tags match nothing.
const MAX_TAGS: usize = 256;

/// An entity tag, RFC 9110 section 8.8.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntityTag<'b> {
    /// Whether the tag has the `W/` prefix.
    pub weak: bool,
    /// Opaque part between the quotes.
    pub opaque: &'b [u8],
}

impl<'b> EntityTag<'b> {
    /// Parses `"x"` or `W/"x"`. Returns `None` for anything else.
    ///
    /// ```
    /// use hearken_http::conditional::EntityTag;
    ///
    /// let weak = EntityTag::parse(b"W/\"1\"").unwrap();
    /// let strong = EntityTag::parse(b"\"1\"").unwrap();
    /// assert!(weak.weak_eq(&strong));
    /// assert!(!weak.strong_eq(&strong));
    /// assert!(strong.strong_eq(&strong));
    /// ```
    pub fn parse(bytes: &'b [u8]) -> Option<Self> {
        match Self::split(bytes)? {
            (tag, []) => Some(tag),
            _ => None,
        }
    }

    /// Parses the tag that `bytes` starts with. Returns the tag and the remaining bytes.
    fn split(bytes: &'b [u8]) -> Option<(Self, &'b [u8])> {
        let (weak, quoted) = match bytes {
            [b'W', b'/', rest @ ..] => (true, rest),
            _ => (false, bytes),
        };
        let text = quoted.strip_prefix(b"\"")?;
        let (opaque, rest) = text.split_at(memchr::memchr(b'"', text)?);
        let is_etagc = |&byte: &u8| byte > b' ' && byte != 0x7f;
        opaque.iter().all(is_etagc).then_some((Self { weak, opaque }, rest.get(1..)?))
    }

    /// Compares with the strong comparison of RFC 9110 section 8.8.3.2: both tags are strong and equal.
    pub fn strong_eq(&self, other: &EntityTag<'_>) -> bool {
        !self.weak && !other.weak && self.opaque == other.opaque
    }

    /// Compares with the weak comparison of RFC 9110 section 8.8.3.2, which ignores weakness.
    pub fn weak_eq(&self, other: &EntityTag<'_>) -> bool {
        self.opaque == other.opaque
    }
}

/// Validators of the current representation.
#[derive(Debug, Clone, Copy, Default)]
pub struct Validators<'v> {
    /// Entity tag.
    pub etag: Option<EntityTag<'v>>,
    /// Modification time in seconds after 1970-01-01 00:00:00 UTC.
    pub last_modified: Option<u64>,
}

/// A list of entity tags, or `*`: the value of a field that may span several lines (RFC 9110 section
/// 5.3).
///
/// ```
/// use hearken_http::conditional::TagList;
///
/// assert_eq!(TagList::from(b"\"a,b\" , W/\"c\",").tags().count(), 2);
/// assert_eq!(TagList::from(b"\"a\" \"b\"").tags().count(), 1);
/// ```
#[derive(Clone, Copy)]
pub struct TagList<'b> {
    first: &'b [u8],
    others: Option<FieldValues<'b, 'static>>,
}

impl<'b> TagList<'b> {
    /// Creates a list from the values of the field. Returns `None` if there are none.
    pub(crate) fn from_values(mut values: FieldValues<'b, 'static>) -> Option<Self> {
        Some(Self { first: values.next()?, others: Some(values) })
    }

    /// Returns the values of the field lines.
    pub fn values(&self) -> impl Iterator<Item = &'b [u8]> + use<'b> {
        std::iter::once(self.first).chain(self.others.into_iter().flatten())
    }

    /// Returns the entity tags up to the first syntax error.
    pub fn tags(&self) -> impl Iterator<Item = EntityTag<'b>> + use<'b> {
        let mut lines = self.values();
        // `None` after a syntax error.
        let mut rest = lines.next();
        std::iter::from_fn(move || {
            let list = loop {
                match class::trim(rest?) {
                    [b',', after @ ..] => rest = Some(after),
                    [] => rest = lines.next(),
                    list => break list,
                }
            };
            rest = None;
            let (tag, after) = EntityTag::split(list)?;
            // A comma or the end of the list follows each tag.
            rest = match class::trim(after) {
                [] => Some(&[]),
                after => after.strip_prefix(b","),
            };
            Some(tag)
        })
    }

    /// Returns whether the list matches the current representation.
    fn matches(
        &self,
        exists: bool,
        etag: Option<EntityTag<'_>>,
        equals: fn(&EntityTag<'b>, &EntityTag<'_>) -> bool,
    ) -> bool {
        if self.values().eq([b"*"]) {
            return exists;
        }
        etag.is_some_and(|etag| self.tags().take(MAX_TAGS).any(|tag| equals(&tag, &etag)))
    }
}

impl<'b> From<&'b [u8]> for TagList<'b> {
    fn from(value: &'b [u8]) -> Self {
        Self { first: value, others: None }
    }
}

impl<'b, const N: usize> From<&'b [u8; N]> for TagList<'b> {
    fn from(value: &'b [u8; N]) -> Self {
        Self::from(value.as_slice())
    }
}

impl fmt::Debug for TagList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.values()).finish()
    }
}

/// The preconditions of a request.
///
/// ```
/// use hearken_http::conditional::Preconditions;
/// use hearken_http::{Limits, RequestParser};
///
/// let bytes = b"GET / HTTP/1.1\r\nHost: a\r\nIf-None-Match: \"v1\"\r\n\r\n";
/// let request = RequestParser::new().parse(bytes, &Limits::default())?.unwrap();
/// let conditions = Preconditions::from(&request);
/// assert!(conditions.if_none_match.is_some());
/// assert!(conditions.if_match.is_none());
/// # Ok::<(), hearken_http::Reject>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Preconditions<'b> {
    /// Value of If-Match.
    pub if_match: Option<TagList<'b>>,
    /// Value of If-Unmodified-Since.
    pub if_unmodified_since: Option<&'b [u8]>,
    /// Value of If-None-Match.
    pub if_none_match: Option<TagList<'b>>,
    /// Value of If-Modified-Since.
    pub if_modified_since: Option<&'b [u8]>,
}

impl<'b> From<&Request<'b>> for Preconditions<'b> {
    fn from(request: &Request<'b>) -> Self {
        Self {
            if_match: request.if_match(),
            if_unmodified_since: request.if_unmodified_since(),
            if_none_match: request.if_none_match(),
            if_modified_since: request.if_modified_since(),
        }
    }
}

/// The result of evaluating preconditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The server processes the request as if it were unconditional.
    Proceed,
    /// The server responds with status 304.
    NotModified,
    /// The server responds with status 412.
    PreconditionFailed,
}

/// Evaluates preconditions in the order of RFC 9110 section 13.2.2.
///
/// `current` is `None` if no representation exists. An invalid date is ignored, as is a date if the
/// representation has none. The tags of a list after a syntax error match nothing.
///
/// ```
/// use hearken_http::Method;
/// use hearken_http::conditional::{Preconditions, EntityTag, Outcome, Validators, evaluate};
///
/// let list = Some(b"\"v1\", \"v2\"".into());
/// let conditions = Preconditions { if_none_match: list, ..Default::default() };
/// let current = Validators { etag: EntityTag::parse(b"\"v2\""), last_modified: None };
/// assert_eq!(evaluate(Method::Get, &conditions, Some(&current)), Outcome::NotModified);
/// assert_eq!(evaluate(Method::Put, &conditions, Some(&current)), Outcome::PreconditionFailed);
/// ```
pub fn evaluate(
    method: Method<'_>,
    conditions: &Preconditions<'_>,
    current: Option<&Validators<'_>>,
) -> Outcome {
    let etag = current.and_then(|current| current.etag);
    let last_modified = current.and_then(|current| current.last_modified);
    let reads = matches!(method, Method::Get | Method::Head);
    // `Some(true)` if both dates exist and the representation changed after the one in the field.
    let changed_since = |field: Option<&[u8]>| Some(last_modified? > parse_http_date(field?)?);

    if let Some(list) = conditions.if_match {
        if !list.matches(current.is_some(), etag, EntityTag::strong_eq) {
            return Outcome::PreconditionFailed;
        }
    } else if changed_since(conditions.if_unmodified_since) == Some(true) {
        return Outcome::PreconditionFailed;
    }

    if let Some(list) = conditions.if_none_match {
        match list.matches(current.is_some(), etag, EntityTag::weak_eq) {
            true if reads => Outcome::NotModified,
            true => Outcome::PreconditionFailed,
            false => Outcome::Proceed,
        }
    } else if reads && changed_since(conditions.if_modified_since) == Some(false) {
        Outcome::NotModified
    } else {
        Outcome::Proceed
    }
}

/// Returns whether an If-Range value matches the current representation (RFC 9110 section 13.1.5).
///
/// A server ignores the Range field of the request if the value does not match.
///
/// A date matches only if it equals the modification time and is at least one second before `now`.
/// Otherwise, the file could change again within the same second.
///
/// ```
/// use hearken_http::conditional::{EntityTag, Validators, if_range};
///
/// let current = Validators { etag: EntityTag::parse(b"\"v2\""), last_modified: Some(0) };
/// assert!(if_range(b"\"v2\"", &current, 100));
/// assert!(if_range(b"Thu, 01 Jan 1970 00:00:00 GMT", &current, 100));
/// assert!(!if_range(b"W/\"v2\"", &current, 100));
/// ```
pub fn if_range(value: &[u8], current: &Validators<'_>, now: u64) -> bool {
    match (EntityTag::parse(value), current.etag, current.last_modified) {
        (Some(wanted), Some(etag), _) => wanted.strong_eq(&etag),
        (None, _, Some(modified)) => modified < now && parse_http_date(value) == Some(modified),
        _ => false,
    }
}
