//! Forwarding of protocol upgrades, RFC 9110 section 7.8.

use crate::request::Request;
use crate::request_fields::FieldSet;
use crate::response::Response;
use crate::scan;

/// Maximum number of protocols in a message that are compared.
const MAX_PROTOCOLS: usize = 16;

/// The treatment of the Upgrade fields of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UpgradeAction {
    /// No protocol may be forwarded.
    Remove,
    Keep,
    /// Forwarded without the protocols that may not be forwarded.
    Filter,
}

impl UpgradeAction {
    #[inline]
    pub(super) fn for_request(request: &Request<'_>) -> Self {
        if request.present.has(FieldSet::UPGRADE) {
            Self::for_protocols(request)
        } else {
            Self::Remove
        }
    }

    #[cold]
    fn for_protocols(request: &Request<'_>) -> Self {
        let (mut forwards, mut removes) = (false, false);
        for protocol in request.upgrade_protocols() {
            let forwardable = is_forwardable(protocol);
            forwards |= forwardable;
            removes |= !forwardable;
        }
        match (forwards, removes) {
            (false, _) => Self::Remove,
            (true, false) => Self::Keep,
            (true, true) => Self::Filter,
        }
    }
}

/// Appends the Upgrade field with the protocols that may be forwarded.
#[cold]
pub(super) fn write(out: &mut Vec<u8>, request: &Request<'_>) {
    let mut separator: &[u8] = b"\r\nUpgrade: ";
    for protocol in request.upgrade_protocols().filter(|protocol| is_forwardable(protocol)) {
        out.extend_from_slice(separator);
        out.extend_from_slice(protocol);
        separator = b", ";
    }
}

/// Returns whether a protocol may be forwarded. HTTP and TLS are excluded because the proxy could not
/// parse the messages that follow.
fn is_forwardable(protocol: &[u8]) -> bool {
    let (name, version) = protocol.split_at(scan::token_len(protocol));
    let is_valid = match version {
        [] => !name.is_empty(),
        [b'/', version @ ..] => {
            !name.is_empty() && !version.is_empty() && scan::token_len(version) == version.len()
        }
        _ => false,
    };
    let excluded: [&[u8]; 4] = [b"h2", b"h2c", b"http", b"tls"];
    is_valid && !excluded.iter().any(|excluded| name.eq_ignore_ascii_case(excluded))
}

/// Returns whether [`request`](super::request) forwards an Upgrade field. It never forwards HTTP and TLS.
#[inline]
pub fn forwards_upgrade(request: &Request<'_>) -> bool {
    UpgradeAction::for_request(request) != UpgradeAction::Remove
}

/// Returns whether a response switches to protocols that the forwarded request offered.
///
/// True for a 101 whose Upgrade field contains only such protocols. Names are compared without case,
/// versions exactly.
pub fn may_switch(request: &Request<'_>, response: &Response<'_>) -> bool {
    let was_offered = |protocol: &[u8]| {
        let mut offers = request.upgrade_protocols().take(MAX_PROTOCOLS);
        offers.any(|offer| is_forwardable(offer) && is_same(offer, protocol))
    };
    let mut protocols = response.upgrade_protocols();
    let named = protocols.by_ref().take(MAX_PROTOCOLS);
    let mut count = 0;
    let all = named.inspect(|_| count += 1).all(was_offered);
    response.status == 101 && all && count > 0 && protocols.next().is_none()
}

/// Returns whether two protocols are equal.
fn is_same(a: &[u8], b: &[u8]) -> bool {
    let name_len = scan::token_len(a);
    a.len() == b.len()
        && a.get(..name_len).is_some_and(|name| {
            b.get(..name_len).is_some_and(|other| name.eq_ignore_ascii_case(other))
        })
        && a.get(name_len..) == b.get(name_len..)
}
