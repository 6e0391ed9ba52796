//! Conditional requests, RFC 9110 section 13.

use std::fmt;

use crate::class;
use crate::date::parse_http_date;
use crate::fields::FieldValues;
use crate::method::Method;
use crate::request::Request;

/// Most entity tags of one list that are compared; those after them match nothing.
const TAGS: usize = 256;

/// An entity tag, RFC 9110 section 8.8.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntityTag<'b> {
    /// Whether it has the `W/` prefix.
    pub weak: bool,
    /// What stands between the quotes.
    pub opaque: &'b [u8],
}

impl<'b> EntityTag<'b> {
    /// Reads `"x"` or `W/"x"`; `None` for anything else.
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

    /// Reads the tag that `bytes` starts with; returns what follows it too.
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

    /// Whether both are strong and the same, RFC 9110 section 8.8.3.2.
    pub fn strong_eq(&self, other: &EntityTag<'_>) -> bool {
        !self.weak && !other.weak && self.opaque == other.opaque
    }

    /// Whether both are the same but for their weakness.
    pub fn weak_eq(&self, other: &EntityTag<'_>) -> bool {
        self.opaque == other.opaque
    }
}

/// What is known of the current representation.
#[derive(Debug, Clone, Copy, Default)]
pub struct Validators<'v> {
    /// Its entity tag.
    pub etag: Option<EntityTag<'v>>,
    /// When it was last modified, in seconds after 1970-01-01 00:00:00 UTC.
    pub last_modified: Option<u64>,
}

/// A list of entity tags, or `*`: the value of a field, which may be split over several lines (RFC 9110
/// section 5.3).
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
    /// Returns the list of the fields with these values, if there are any.
    pub(crate) fn of(mut values: FieldValues<'b, 'static>) -> Option<Self> {
        Some(Self { first: values.next()?, others: Some(values) })
    }

    /// Returns the values of the lines.
    pub fn values(&self) -> impl Iterator<Item = &'b [u8]> + use<'b> {
        std::iter::once(self.first).chain(self.others.into_iter().flatten())
    }

    /// Returns the entity tags, up to the first byte that does not belong there.
    pub fn tags(&self) -> impl Iterator<Item = EntityTag<'b>> + use<'b> {
        let mut lines = self.values();
        // None after a syntax error.
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
            // A tag is followed by a comma or by nothing.
            rest = match class::trim(after) {
                [] => Some(&[]),
                after => after.strip_prefix(b","),
            };
            Some(tag)
        })
    }

    /// Whether the list names the current representation.
    fn names(
        &self,
        exists: bool,
        etag: Option<EntityTag<'_>>,
        same: fn(&EntityTag<'b>, &EntityTag<'_>) -> bool,
    ) -> bool {
        if self.values().eq([b"*"]) {
            return exists;
        }
        etag.is_some_and(|etag| self.tags().take(TAGS).any(|tag| same(&tag, &etag)))
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

/// The preconditions of a request: the values of the fields of these names.
#[derive(Debug, Clone, Copy, Default)]
pub struct Conditions<'b> {
    /// If-Match
    pub if_match: Option<TagList<'b>>,
    /// If-Unmodified-Since
    pub if_unmodified_since: Option<&'b [u8]>,
    /// If-None-Match
    pub if_none_match: Option<TagList<'b>>,
    /// If-Modified-Since
    pub if_modified_since: Option<&'b [u8]>,
}

impl<'b> From<&Request<'b>> for Conditions<'b> {
    fn from(request: &Request<'b>) -> Self {
        Self {
            if_match: request.if_match(),
            if_unmodified_since: request.if_unmodified_since(),
            if_none_match: request.if_none_match(),
            if_modified_since: request.if_modified_since(),
        }
    }
}

/// What a server is to do about a conditional request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Answer as if there were no condition.
    Proceed,
    /// Answer 304.
    NotModified,
    /// Answer 412.
    PreconditionFailed,
}

/// Evaluates preconditions in the order of RFC 9110 section 13.2.2.
///
/// `current` is `None` when there is no representation. A date that cannot be read, or that
/// there is nothing to compare with, is ignored; a list of tags that cannot be read matches
/// nothing from there on.
///
/// ```
/// use hearken_http::Method;
/// use hearken_http::conditional::{Conditions, EntityTag, Outcome, Validators, evaluate};
///
/// let list = Some(b"\"v1\", \"v2\"".into());
/// let conditions = Conditions { if_none_match: list, ..Default::default() };
/// let current = Validators { etag: EntityTag::parse(b"\"v2\""), last_modified: None };
/// assert_eq!(evaluate(Method::Get, &conditions, Some(&current)), Outcome::NotModified);
/// assert_eq!(evaluate(Method::Put, &conditions, Some(&current)), Outcome::PreconditionFailed);
/// ```
pub fn evaluate(
    method: Method<'_>,
    conditions: &Conditions<'_>,
    current: Option<&Validators<'_>>,
) -> Outcome {
    let etag = current.and_then(|current| current.etag);
    let last_modified = current.and_then(|current| current.last_modified);
    let reads = matches!(method, Method::Get | Method::Head);
    // `Some(true)` when there is such a date and the representation changed after it.
    let changed_since = |field: Option<&[u8]>| Some(last_modified? > parse_http_date(field?)?);

    if let Some(list) = conditions.if_match {
        if !list.names(current.is_some(), etag, EntityTag::strong_eq) {
            return Outcome::PreconditionFailed;
        }
    } else if changed_since(conditions.if_unmodified_since) == Some(true) {
        return Outcome::PreconditionFailed;
    }

    if let Some(list) = conditions.if_none_match {
        match list.names(current.is_some(), etag, EntityTag::weak_eq) {
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

/// Whether a Range field is to be honoured: whether the value of the If-Range field that came
/// with it names the current representation (RFC 9110 section 13.1.5).
///
/// A date does so only when it is the very date of the last change, and that is at least a
/// second before `now`: the file could otherwise change again under the same date.
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
