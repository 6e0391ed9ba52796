//! Detection of forwarding loops.

use super::Rules;
use crate::class::{eq_ignore_case, trim};
use crate::request::Request;
use crate::request_fields::FieldSet;

/// Maximum number of hops of a request. Requests with more are in a loop.
pub const MAX_HOPS: usize = 50;

/// Returns whether a request is in a loop: it [names this proxy](names_this_proxy) or has more than
/// [`MAX_HOPS`] [hops](count_hops). The proxy responds with 508.
#[inline]
pub fn is_loop(rules: &Rules, request: &Request<'_>) -> bool {
    request.present.has(FieldSet::HOPS) && {
        let (hops, named) = scan_fields(request, &rules.received_by);
        named || hops > MAX_HOPS
    }
}

/// Returns the number of intermediaries that have recorded themselves in a request.
///
/// This is the largest number of entries in Via, X-Forwarded-For, Forwarded and CDN-Loop (RFC 8586).
pub fn count_hops(request: &Request<'_>) -> usize {
    if request.present.has(FieldSet::HOPS) { scan_fields(request, &[]).0 } else { 0 }
}

/// Returns whether a Via field names this proxy. Always false if `rules` contain no name.
pub fn names_this_proxy(rules: &Rules, request: &Request<'_>) -> bool {
    request.present.has(FieldSet::HOPS) && scan_fields(request, &rules.received_by).1
}

/// Returns the number of hops, and whether a Via field names `received_by`.
#[inline(never)]
fn scan_fields(request: &Request<'_>, received_by: &[u8]) -> (usize, bool) {
    let [mut via, mut x_forwarded_for, mut forwarded, mut cdn_loop] = [0; 4];
    let mut named = false;
    for (name, value) in request.fields() {
        match name.len() {
            3 if name.eq_ignore_ascii_case(b"via") => {
                for element in elements(value) {
                    via += 1;
                    named |= !received_by.is_empty() && is_received_by(element, received_by);
                }
            }
            8 if eq_ignore_case(name, b"cdn-loop") => cdn_loop += elements(value).count(),
            9 if eq_ignore_case(name, b"forwarded") => forwarded += elements(value).count(),
            15 if eq_ignore_case(name, b"x-forwarded-for") => {
                x_forwarded_for += elements(value).count();
            }
            _ => {}
        }
    }
    (via.max(x_forwarded_for).max(forwarded).max(cdn_loop), named)
}

/// Returns whether a Via element `received-protocol RWS received-by [ RWS comment ]` has this name.
fn is_received_by(element: &[u8], received_by: &[u8]) -> bool {
    let mut words = element.split(|byte| matches!(byte, b' ' | b'\t' | b'('));
    words.next();
    words.find(|word| !word.is_empty()).is_some_and(|name| name.eq_ignore_ascii_case(received_by))
}

/// Returns the elements of a list. Commas in strings and comments separate too, which may overcount.
fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(trim).filter(|element| !element.is_empty())
}
