//! Filter for trailer fields.

/// Returns whether the trailer field with this name may be forwarded.
///
/// Fields that frame, route, authenticate or control the message, or that determine the interpretation
/// of its content, must not be forwarded (RFC 9110 section 6.5.1). A recipient that merges them into the
/// head would obtain a head that no proxy has validated.
pub(super) fn is_forwardable(name: &[u8]) -> bool {
    !FORBIDDEN.iter().any(|forbidden| eq_ignore_case_and_underscore(name, forbidden.as_bytes()))
        && !FORBIDDEN_PREFIXES.iter().any(|prefix| {
            name.get(..prefix.len())
                .is_some_and(|start| eq_ignore_case_and_underscore(start, prefix.as_bytes()))
        })
}

/// Compares names without case and with `_` equal to `-`, because CGI maps both to the same variable.
fn eq_ignore_case_and_underscore(name: &[u8], lower: &[u8]) -> bool {
    name.len() == lower.len()
        && name.iter().zip(lower).all(|(&byte, &lower)| {
            byte.to_ascii_lowercase() == lower || (byte == b'_' && lower == b'-')
        })
}

/// Prefixes of names that are never forwarded.
const FORBIDDEN_PREFIXES: [&str; 4] = ["x-forwarded-", "proxy-", "if-", "access-control-"];

const FORBIDDEN: [&str; 38] = [
    // Framing.
    "content-length",
    "transfer-encoding",
    "trailer",
    "connection",
    "keep-alive",
    "te",
    "upgrade",
    "http2-settings",
    // Routing and client identification.
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
    // Interpretation of the content.
    "content-encoding",
    "content-type",
    "content-range",
    "content-location",
    "content-security-policy",
];
