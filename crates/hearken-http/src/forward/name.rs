//! The names of the fields that are not passed on as they are.

use crate::class::same_name;
use crate::known;

/// What a field is to an intermediary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Name {
    /// Passed on, unless the Connection field names it.
    Other,
    /// Of one connection only, whatever is said (RFC 9110 section 7.6.1).
    HopByHop,
    Host,
    Length,
    Te,
    Upgrade,
    Expect,
    MaxForwards,
    Forwarded,
    XForwardedFor,
    XForwardedHost,
    XForwardedProto,
    /// Another field about the client, which is believed in the same cases as X-Forwarded-For.
    AboutClient,
    /// What nobody means and CGI makes `HTTP_PROXY` of, which programs obey.
    Proxy,
    /// What a request and a response never have: one of those of one connection, or that frame a message,
    /// with `_` for `-`.
    Alias,
    /// Another of those above, with `_` for `-`.
    RequestAlias,
}

/// The longest name that is told from [`Name::Other`].
const LONGEST: usize = 25;

/// What the field of this name is.
#[inline]
pub(super) fn name(name: &[u8]) -> Name {
    // Those of responses are among those of requests.
    if !known::NAMES.may_have(name, name.len()) {
        return Name::Other;
    }
    match exactly(name) {
        Name::Other if name.len() <= LONGEST && name.contains(&b'_') => alias(name),
        found => found,
    }
}

#[inline]
fn exactly(name: &[u8]) -> Name {
    match name.len() {
        2 if name.eq_ignore_ascii_case(b"te") => Name::Te,
        4 if same_name(name, b"host") => Name::Host,
        5 if same_name(name, b"proxy") => Name::Proxy,
        6 if same_name(name, b"expect") => Name::Expect,
        7 if same_name(name, b"upgrade") => Name::Upgrade,
        9 if same_name(name, b"forwarded") => Name::Forwarded,
        9 if same_name(name, b"x-real-ip") => Name::AboutClient,
        10 if same_name(name, b"connection") => Name::HopByHop,
        10 if same_name(name, b"keep-alive") => Name::HopByHop,
        12 if same_name(name, b"max-forwards") => Name::MaxForwards,
        14 if same_name(name, b"content-length") => Name::Length,
        14 if same_name(name, b"http2-settings") => Name::HopByHop,
        14 if same_name(name, b"true-client-ip") => Name::AboutClient,
        15 if same_name(name, b"x-forwarded-for") => Name::XForwardedFor,
        15 if same_name(name, b"x-forwarded-ssl") => Name::AboutClient,
        16 if same_name(name, b"x-forwarded-host") => Name::XForwardedHost,
        16 if same_name(name, b"x-forwarded-port") => Name::AboutClient,
        16 if same_name(name, b"proxy-connection") => Name::HopByHop,
        17 if same_name(name, b"x-forwarded-proto") => Name::XForwardedProto,
        17 if same_name(name, b"transfer-encoding") => Name::HopByHop,
        18 if same_name(name, b"x-forwarded-scheme") => Name::AboutClient,
        18 if same_name(name, b"x-forwarded-prefix") => Name::AboutClient,
        18 if same_name(name, b"x-forwarded-server") => Name::AboutClient,
        18 if same_name(name, b"proxy-authenticate") => Name::HopByHop,
        19 if same_name(name, b"proxy-authorization") => Name::HopByHop,
        25 if same_name(name, b"proxy-authentication-info") => Name::HopByHop,
        _ => Name::Other,
    }
}

#[cold]
fn alias(name: &[u8]) -> Name {
    let mut hyphens = [0; LONGEST];
    for (to, &from) in hyphens.iter_mut().zip(name) {
        *to = if from == b'_' { b'-' } else { from };
    }
    match exactly(hyphens.get(..name.len()).unwrap_or_default()) {
        Name::Other => Name::Other,
        Name::HopByHop | Name::Length => Name::Alias,
        _ => Name::RequestAlias,
    }
}
