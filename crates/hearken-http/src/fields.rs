//! Iteration over the field lines of a parsed head.

use std::iter::FusedIterator;

use crate::class;
use crate::field_line::{Line, parse_field_line};

/// An iterator over the fields of a head in their original order, as `(name, value)`.
///
/// It parses the head again and allocates nothing. Names keep their case; values have no surrounding
/// spaces and tabs.
///
/// ```
/// use hearken_http::{Limits, RequestParser};
///
/// let bytes = b"GET / HTTP/1.1\r\nHost: a\r\nAccept:  */* \r\n\r\n";
/// let request = RequestParser::new().parse(bytes, &Limits::default())?.unwrap();
/// let fields: Vec<_> = request.fields().collect();
/// assert_eq!(fields, [(&b"Host"[..], &b"a"[..]), (b"Accept", b"*/*")]);
/// # Ok::<(), hearken_http::Reject>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Fields<'b> {
    rest: &'b [u8],
}

impl<'b> Fields<'b> {
    /// Creates an iterator from the first field line of a parsed head on.
    #[inline]
    pub(crate) fn new(rest: &'b [u8]) -> Self {
        Self { rest }
    }

    /// Creates an iterator over the lines of a trailer section, as
    /// [`BodyReader::read_with_trailers`](crate::BodyReader::read_with_trailers) returns them.
    pub fn of_lines(lines: &'b [u8]) -> Self {
        Self::new(lines)
    }

    /// Creates an iterator over the fields of a complete message that is known to be valid, for example
    /// because a [`ResponseHead`](crate::ResponseHead) has written its head.
    ///
    /// ```
    /// use hearken_http::Fields;
    ///
    /// let mut fields = Fields::of_message(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx");
    /// assert!(fields.by_ref().eq([(&b"Content-Length"[..], &b"1"[..])]));
    /// assert_eq!(fields.content(), b"x");
    /// ```
    #[inline]
    pub fn of_message(bytes: &'b [u8]) -> Self {
        let end = bytes.iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |at| at + 1);
        Self { rest: bytes.get(end..).unwrap_or_default() }
    }

    /// Returns the bytes after the head. All fields must have been iterated over.
    #[inline]
    pub fn content(self) -> &'b [u8] {
        match parse_field_line(self.rest) {
            Ok(Line::Blank { rest }) => rest,
            _ => &[],
        }
    }
}

impl<'b> Iterator for Fields<'b> {
    type Item = (&'b [u8], &'b [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let Ok(Line::Field { field, rest }) = parse_field_line(self.rest) else {
            return None;
        };
        self.rest = rest;
        Some((field.name(), class::trim(field.value())))
    }
}

impl FusedIterator for Fields<'_> {}

/// An iterator over the values of all fields with one name, in their original order.
#[derive(Debug, Clone, Copy)]
pub struct FieldValues<'b, 'n> {
    fields: Fields<'b>,
    name: &'n str,
}

impl<'b, 'n> FieldValues<'b, 'n> {
    pub(crate) fn new(fields: Fields<'b>, name: &'n str) -> Self {
        Self { fields, name }
    }
}

impl<'b> Iterator for FieldValues<'b, '_> {
    type Item = &'b [u8];

    fn next(&mut self) -> Option<Self::Item> {
        let name = self.name.as_bytes();
        self.fields.find_map(|(n, value)| n.eq_ignore_ascii_case(name).then_some(value))
    }
}

impl FusedIterator for FieldValues<'_, '_> {}
