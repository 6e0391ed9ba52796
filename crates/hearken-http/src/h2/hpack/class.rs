//! Classes of fields, by which a decoded field is processed.

use crate::name_filter::NameFilter;
use crate::request_fields;
use crate::scan;

/// The class of a field: its name's class, and whether its value is valid.
///
/// A class is compared with a threshold to find out whether a field needs more than a copy of its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::h2) struct FieldClass(u8);

impl FieldClass {
    /// Any other field.
    pub(in crate::h2) const PLAIN: Self = Self(0);
    /// A field that the parser of HTTP/1.1 requests examines.
    pub(in crate::h2) const RELEVANT: Self = Self(1);
    pub(in crate::h2) const COOKIE: Self = Self(2);
    pub(in crate::h2) const HOST: Self = Self(3);
    pub(in crate::h2) const PRIORITY: Self = Self(4);
    /// The first class that is special in requests and responses.
    pub(in crate::h2) const CONTENT_LENGTH: Self = Self(5);
    pub(in crate::h2) const TE: Self = Self(6);
    pub(in crate::h2) const METHOD: Self = Self(7);
    pub(in crate::h2) const SCHEME: Self = Self(8);
    pub(in crate::h2) const AUTHORITY: Self = Self(9);
    pub(in crate::h2) const PATH: Self = Self(10);
    pub(in crate::h2) const PROTOCOL: Self = Self(11);
    pub(in crate::h2) const STATUS: Self = Self(12);
    pub(in crate::h2) const UNKNOWN_PSEUDO: Self = Self(13);
    /// A connection-specific field, RFC 9113 section 8.2.2.
    pub(in crate::h2) const CONNECTION: Self = Self(14);
    pub(in crate::h2) const INVALID_NAME: Self = Self(15);

    /// Flag of an invalid value, which makes the class greater than all others.
    const INVALID_VALUE: u8 = 0x80;

    /// Returns the class of the name, without the flag of the value.
    #[inline]
    pub(in crate::h2) fn name(self) -> Self {
        Self(self.0 & !Self::INVALID_VALUE)
    }

    /// Returns whether a name of this class is that of a known pseudo-header field.
    #[inline]
    pub(in crate::h2) fn is_pseudo(self) -> bool {
        (Self::METHOD..=Self::STATUS).contains(&self)
    }

    /// Returns whether the value is valid.
    #[inline]
    pub(in crate::h2) fn has_valid_value(self) -> bool {
        self.0 & Self::INVALID_VALUE == 0
    }

    /// Returns the class of a field with this class of name and this value.
    #[inline(always)]
    pub(super) fn with_value(self, value: &[u8]) -> Self {
        match is_valid_value(value) {
            true => self.name(),
            false => Self(self.0 | Self::INVALID_VALUE),
        }
    }

    /// Returns the class of the field whose line starts with a name of this length.
    #[inline(always)]
    pub(super) fn of_name(line: &[u8], name_len: usize) -> Self {
        let name = line.get(..name_len).unwrap_or_default();
        if !is_valid_name(name) {
            return Self::of_invalid_name(name);
        }
        if NAMES.may_contain(line, name_len) || request_fields::NAMES.may_contain(line, name_len) {
            return Self::of_special_name(line, name_len);
        }
        Self::PLAIN
    }

    #[inline(never)]
    fn of_special_name(line: &[u8], name_len: usize) -> Self {
        match line.get(..name_len).unwrap_or_default() {
            b"cookie" => Self::COOKIE,
            b"host" => Self::HOST,
            b"te" => Self::TE,
            b"priority" => Self::PRIORITY,
            b"content-length" => Self::CONTENT_LENGTH,
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding"
            | b"upgrade" => Self::CONNECTION,
            _ if request_fields::NAMES.may_contain(line, name_len) => Self::RELEVANT,
            _ => Self::PLAIN,
        }
    }

    #[cold]
    fn of_invalid_name(name: &[u8]) -> Self {
        match name {
            b":method" => Self::METHOD,
            b":scheme" => Self::SCHEME,
            b":authority" => Self::AUTHORITY,
            b":path" => Self::PATH,
            b":protocol" => Self::PROTOCOL,
            b":status" => Self::STATUS,
            [b':', ..] => Self::UNKNOWN_PSEUDO,
            _ => Self::INVALID_NAME,
        }
    }
}

/// Names with a class of their own.
static NAMES: NameFilter = NameFilter::new(&[
    "cookie",
    "host",
    "te",
    "priority",
    "content-length",
    "connection",
    "keep-alive",
    "proxy-connection",
    "transfer-encoding",
    "upgrade",
]);

/// Returns whether `name` is a token without uppercase letters.
#[inline(always)]
fn is_valid_name(name: &[u8]) -> bool {
    scan::lowercase_token_len(name) == name.len() && !name.is_empty()
}

/// Returns whether `value` is a field value without surrounding whitespace.
#[inline(always)]
fn is_valid_value(value: &[u8]) -> bool {
    let is_outer = |byte: Option<&u8>| !matches!(byte, Some(b' ' | b'\t'));
    is_outer(value.first()) && is_outer(value.last()) && scan::is_text(value)
}
