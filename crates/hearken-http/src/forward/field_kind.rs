//! Classification of the fields that are not forwarded unchanged.

use crate::class::eq_ignore_case;
use crate::request_fields;

/// The kind of a field in forwarding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldKind {
    /// Forwarded unless it is a Connection option.
    Other,
    /// Always removed (RFC 9110 section 7.6.1).
    HopByHop,
    Host,
    ContentLength,
    Te,
    Upgrade,
    Expect,
    MaxForwards,
    Forwarded,
    XForwardedFor,
    XForwardedHost,
    XForwardedProto,
    /// Another field about the client, treated like X-Forwarded-For.
    ClientInfo,
    /// `Proxy`, which CGI maps to `HTTP_PROXY`. Programs interpret that variable as their proxy.
    Proxy,
    /// A hop-by-hop or framing field with `_` in place of `-`. Removed from requests and responses.
    Alias,
    /// Another special field with `_` in place of `-`. Removed from requests.
    RequestAlias,
}

/// Length of the longest name that is not [`FieldKind::Other`].
const MAX_NAME_LEN: usize = 25;

/// Returns the kind of the field with this name.
#[inline]
pub(super) fn classify(name: &[u8]) -> FieldKind {
    // The filter for requests includes the names in responses.
    if !request_fields::NAMES.may_contain(name, name.len()) {
        return FieldKind::Other;
    }
    match classify_exact(name) {
        FieldKind::Other if name.len() <= MAX_NAME_LEN && name.contains(&b'_') => {
            classify_alias(name)
        }
        found => found,
    }
}

#[inline]
fn classify_exact(name: &[u8]) -> FieldKind {
    match name.len() {
        2 if name.eq_ignore_ascii_case(b"te") => FieldKind::Te,
        4 if eq_ignore_case(name, b"host") => FieldKind::Host,
        5 if eq_ignore_case(name, b"proxy") => FieldKind::Proxy,
        6 if eq_ignore_case(name, b"expect") => FieldKind::Expect,
        7 if eq_ignore_case(name, b"upgrade") => FieldKind::Upgrade,
        9 if eq_ignore_case(name, b"forwarded") => FieldKind::Forwarded,
        9 if eq_ignore_case(name, b"x-real-ip") => FieldKind::ClientInfo,
        10 if eq_ignore_case(name, b"connection") => FieldKind::HopByHop,
        10 if eq_ignore_case(name, b"keep-alive") => FieldKind::HopByHop,
        12 if eq_ignore_case(name, b"max-forwards") => FieldKind::MaxForwards,
        14 if eq_ignore_case(name, b"content-length") => FieldKind::ContentLength,
        14 if eq_ignore_case(name, b"http2-settings") => FieldKind::HopByHop,
        14 if eq_ignore_case(name, b"true-client-ip") => FieldKind::ClientInfo,
        15 if eq_ignore_case(name, b"x-forwarded-for") => FieldKind::XForwardedFor,
        15 if eq_ignore_case(name, b"x-forwarded-ssl") => FieldKind::ClientInfo,
        16 if eq_ignore_case(name, b"x-forwarded-host") => FieldKind::XForwardedHost,
        16 if eq_ignore_case(name, b"x-forwarded-port") => FieldKind::ClientInfo,
        16 if eq_ignore_case(name, b"proxy-connection") => FieldKind::HopByHop,
        17 if eq_ignore_case(name, b"x-forwarded-proto") => FieldKind::XForwardedProto,
        17 if eq_ignore_case(name, b"transfer-encoding") => FieldKind::HopByHop,
        18 if eq_ignore_case(name, b"x-forwarded-scheme") => FieldKind::ClientInfo,
        18 if eq_ignore_case(name, b"x-forwarded-prefix") => FieldKind::ClientInfo,
        18 if eq_ignore_case(name, b"x-forwarded-server") => FieldKind::ClientInfo,
        18 if eq_ignore_case(name, b"proxy-authenticate") => FieldKind::HopByHop,
        19 if eq_ignore_case(name, b"proxy-authorization") => FieldKind::HopByHop,
        25 if eq_ignore_case(name, b"proxy-authentication-info") => FieldKind::HopByHop,
        _ => FieldKind::Other,
    }
}

#[cold]
fn classify_alias(name: &[u8]) -> FieldKind {
    let mut hyphens = [0; MAX_NAME_LEN];
    for (to, &from) in hyphens.iter_mut().zip(name) {
        *to = if from == b'_' { b'-' } else { from };
    }
    match classify_exact(hyphens.get(..name.len()).unwrap_or_default()) {
        FieldKind::Other => FieldKind::Other,
        FieldKind::HopByHop | FieldKind::ContentLength => FieldKind::Alias,
        _ => FieldKind::RequestAlias,
    }
}
