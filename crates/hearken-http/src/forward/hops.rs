//! The proxies that a request came through, and whether it goes in a circle.

use super::Rules;
use crate::class::{same_name, trim};
use crate::known::Known;
use crate::request::Request;

/// Number of [`hops`] above which a request goes in a circle.
pub const MOST_HOPS: usize = 50;

/// Whether a request goes in a circle: whether it [names this proxy](names_this_proxy), or has more than
/// [`MOST_HOPS`] [`hops`]. The answer is 508.
#[inline]
pub fn is_loop(rules: &Rules, request: &Request<'_>) -> bool {
    request.known.has(Known::HOPS) && {
        let (hops, named) = walk(request, &rules.received_by);
        named || hops > MOST_HOPS
    }
}

/// Returns the number of intermediaries that a request came through, as far as it is told: the number of
/// entries of Via, X-Forwarded-For, Forwarded or CDN-Loop (RFC 8586), whichever has most.
pub fn hops(request: &Request<'_>) -> usize {
    if request.known.has(Known::HOPS) { walk(request, &[]).0 } else { 0 }
}

/// Whether a Via field names this proxy. Where `rules` have no name, it never does.
pub fn names_this_proxy(rules: &Rules, request: &Request<'_>) -> bool {
    request.known.has(Known::HOPS) && walk(request, &rules.received_by).1
}

/// Returns the number of hops, and whether a Via field names `received_by`.
#[inline(never)]
fn walk(request: &Request<'_>, received_by: &[u8]) -> (usize, bool) {
    let [mut via, mut x_forwarded_for, mut forwarded, mut cdn_loop] = [0; 4];
    let mut named = false;
    for (name, value) in request.fields() {
        match name.len() {
            3 if name.eq_ignore_ascii_case(b"via") => {
                for element in elements(value) {
                    via += 1;
                    named |= !received_by.is_empty() && is_by(element, received_by);
                }
            }
            8 if same_name(name, b"cdn-loop") => cdn_loop += elements(value).count(),
            9 if same_name(name, b"forwarded") => forwarded += elements(value).count(),
            15 if same_name(name, b"x-forwarded-for") => x_forwarded_for += elements(value).count(),
            _ => {}
        }
    }
    (via.max(x_forwarded_for).max(forwarded).max(cdn_loop), named)
}

/// Whether an element of Via, `received-protocol RWS received-by [ RWS comment ]`, has this name.
fn is_by(element: &[u8], received_by: &[u8]) -> bool {
    let mut words = element.split(|byte| matches!(byte, b' ' | b'\t' | b'('));
    words.next();
    words.find(|word| !word.is_empty()).is_some_and(|name| name.eq_ignore_ascii_case(received_by))
}

/// Returns the elements of a list. A comma in a string or comment separates too: it makes one too many.
fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(trim).filter(|element| !element.is_empty())
}
