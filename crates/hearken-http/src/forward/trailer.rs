//! Trailer fields that are not passed on.

/// Whether the trailer field of this name may be passed on: not one that frames, routes, authenticates
/// or controls the message, or says how its content is to be read (RFC 9110 section 6.5.1). Whoever
/// merged it into the head would come to a head that nobody checked.
pub(super) fn may_pass(name: &[u8]) -> bool {
    !KEPT_BACK.iter().any(|kept_back| is_same(name, kept_back.as_bytes()))
        && !PREFIXES.iter().any(|prefix| {
            name.get(..prefix.len()).is_some_and(|start| is_same(start, prefix.as_bytes()))
        })
}

/// Without case, and `_` for `-`, as origins that hand fields on as variables read both as one.
fn is_same(name: &[u8], lower: &[u8]) -> bool {
    name.len() == lower.len()
        && name.iter().zip(lower).all(|(&byte, &lower)| {
            byte.to_ascii_lowercase() == lower || (byte == b'_' && lower == b'-')
        })
}

/// Whole families of names.
const PREFIXES: [&str; 4] = ["x-forwarded-", "proxy-", "if-", "access-control-"];

const KEPT_BACK: [&str; 38] = [
    // Framing.
    "content-length",
    "transfer-encoding",
    "trailer",
    "connection",
    "keep-alive",
    "te",
    "upgrade",
    "http2-settings",
    // Routing, and who asks.
    "host",
    "forwarded",
    "via",
    "x-real-ip",
    "true-client-ip",
    "cdn-loop",
    "max-forwards",
    "location",
    // Authentication.
    "authorization",
    "www-authenticate",
    "cookie",
    "set-cookie",
    "origin",
    // Control.
    "age",
    "cache-control",
    "expires",
    "date",
    "pragma",
    "expect",
    "range",
    "retry-after",
    "vary",
    "warning",
    "clear-site-data",
    "strict-transport-security",
    // How the content is read.
    "content-encoding",
    "content-type",
    "content-range",
    "content-location",
    "content-security-policy",
];
