//! Walking the field lines of a parsed head.

use std::iter::FusedIterator;

use crate::class;
use crate::line::{Line, field_line};

/// The fields of a head in the order they came, as `(name, value)`.
///
/// Walks the raw head again, so it costs a second look at the bytes and no memory. Names keep
/// their case; values are without the spaces and tabs around them.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'b> {
    rest: &'b [u8],
}

impl<'b> Fields<'b> {
    /// The fields of a head that has been parsed, from its first field line on.
    #[inline]
    pub(crate) fn new(rest: &'b [u8]) -> Self {
        Self { rest }
    }
}

impl<'b> Iterator for Fields<'b> {
    type Item = (&'b [u8], &'b [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let Ok(Line::Field { field, rest }) = field_line(self.rest) else {
            return None;
        };
        self.rest = rest;
        Some((field.name(), class::trim(field.value())))
    }
}

impl FusedIterator for Fields<'_> {}

/// The values of every field of one name, in the order they came.
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
