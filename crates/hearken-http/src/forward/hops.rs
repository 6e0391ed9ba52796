//! The proxies that a request came through, and whether it goes in a circle.

use super::Rules;
use crate::class::trim;
use crate::known::Known;
use crate::request::Request;

/// Number of [`hops`] above which a request goes in a circle.
pub const MOST_HOPS: usize = 100;

/// The fields that intermediaries add to.
const NAMES: [&str; 4] = ["Via", "X-Forwarded-For", "Forwarded", "CDN-Loop"];

/// Returns the number of intermediaries that a request came through, as far as it is told: the number of
/// entries of Via, X-Forwarded-For, Forwarded or CDN-Loop (RFC 8586), whichever has most.
#[inline]
pub fn hops(request: &Request<'_>) -> usize {
    if request.known.has(Known::HOPS) { count(request) } else { 0 }
}

#[inline(never)]
fn count(request: &Request<'_>) -> usize {
    let mut counts = [0; NAMES.len()];
    for (name, value) in request.fields() {
        for (count, counted) in counts.iter_mut().zip(NAMES) {
            if name.eq_ignore_ascii_case(counted.as_bytes()) {
                *count += elements(value).count();
            }
        }
    }
    counts.into_iter().max().unwrap_or_default()
}

/// Whether a Via field names this proxy, so that the request goes in a circle. Where `rules` have no name,
/// it never does.
#[inline]
pub fn names_this_proxy(rules: &Rules, request: &Request<'_>) -> bool {
    request.known.has(Known::HOPS) && names(rules, request)
}

#[inline(never)]
fn names(rules: &Rules, request: &Request<'_>) -> bool {
    !rules.received_by.is_empty()
        && request.field_values("Via").flat_map(elements).any(|element| {
            // `received-protocol RWS received-by [ RWS comment ]`
            let mut words = element
                .split(|byte| matches!(byte, b' ' | b'\t' | b'('))
                .filter(|word| !word.is_empty());
            words.nth(1).is_some_and(|name| name.eq_ignore_ascii_case(&rules.received_by))
        })
}

/// Returns the elements of a list. A comma in a string or comment separates too: it makes one too many.
fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(trim).filter(|element| !element.is_empty())
}
