//! Parsing of Upgrade fields, RFC 9110 section 7.8.

use crate::class::trim;
use crate::fields::FieldValues;

/// Returns the protocols of Upgrade fields, `name` or `name/version`, without empty elements.
pub(crate) fn parse<'b>(
    values: Option<FieldValues<'b, 'static>>,
) -> impl Iterator<Item = &'b [u8]> {
    let elements = values.into_iter().flatten().flat_map(|value| value.split(|&byte| byte == b','));
    elements.map(trim).filter(|protocol| !protocol.is_empty())
}
