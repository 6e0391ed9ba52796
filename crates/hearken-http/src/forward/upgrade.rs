//! Upgrades to other protocols, RFC 9110 section 7.8.

use crate::known::Known;
use crate::request::Request;
use crate::response::Response;
use crate::scan;

/// Maximum number of protocols of a message that are compared.
const MOST_PROTOCOLS: usize = 16;

/// The treatment of the Upgrade fields of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Upgrade {
    /// There is none to pass on.
    Dropped,
    AsTheyCame,
    /// Without the protocols that are withheld.
    Rewritten,
}

impl Upgrade {
    #[inline]
    pub(super) fn of(request: &Request<'_>) -> Self {
        if request.known.has(Known::UPGRADE) { Self::of_protocols(request) } else { Self::Dropped }
    }

    #[cold]
    fn of_protocols(request: &Request<'_>) -> Self {
        let (mut passes, mut withholds) = (false, false);
        for protocol in request.upgrade_protocols() {
            let may_pass = may_pass(protocol);
            passes |= may_pass;
            withholds |= !may_pass;
        }
        match (passes, withholds) {
            (false, _) => Self::Dropped,
            (true, false) => Self::AsTheyCame,
            (true, true) => Self::Rewritten,
        }
    }
}

/// Appends the Upgrade field without the protocols that are withheld.
#[cold]
pub(super) fn write(out: &mut Vec<u8>, request: &Request<'_>) {
    let mut separator: &[u8] = b"\r\nUpgrade: ";
    for protocol in request.upgrade_protocols().filter(|protocol| may_pass(protocol)) {
        out.extend_from_slice(separator);
        out.extend_from_slice(protocol);
        separator = b", ";
    }
}

/// Whether a protocol is passed on: not HTTP of another version nor TLS, whose messages the proxy would
/// not see, and nothing that is no protocol.
fn may_pass(protocol: &[u8]) -> bool {
    let (name, version) = protocol.split_at(scan::token(protocol));
    let is_valid = match version {
        [] => !name.is_empty(),
        [b'/', version @ ..] => {
            !name.is_empty() && !version.is_empty() && scan::token(version) == version.len()
        }
        _ => false,
    };
    let withheld: [&[u8]; 4] = [b"h2", b"h2c", b"http", b"tls"];
    is_valid && !withheld.iter().any(|withheld| name.eq_ignore_ascii_case(withheld))
}

/// Whether [`request`](super::request) passes on a wish to upgrade to another protocol. It withholds HTTP and TLS.
#[inline]
pub fn passes_upgrade(request: &Request<'_>) -> bool {
    Upgrade::of(request) != Upgrade::Dropped
}

/// Whether a response switches to protocols that the request asked for and that were passed on: whether
/// it is a 101 with an Upgrade field that names nothing else. Names are compared without case, versions
/// exactly.
pub fn may_switch(request: &Request<'_>, response: &Response<'_>) -> bool {
    let was_asked_for = |protocol: &[u8]| {
        let mut asked = request.upgrade_protocols().take(MOST_PROTOCOLS);
        asked.any(|asked| may_pass(asked) && is_same(asked, protocol))
    };
    let mut protocols = response.upgrade_protocols();
    let named = protocols.by_ref().take(MOST_PROTOCOLS);
    let mut count = 0;
    let all = named.inspect(|_| count += 1).all(was_asked_for);
    response.status == 101 && all && count > 0 && protocols.next().is_none()
}

/// Whether two protocols are the same.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let name_len = scan::token(one);
    one.len() == other.len()
        && one.get(..name_len).is_some_and(|name| {
            other.get(..name_len).is_some_and(|other| name.eq_ignore_ascii_case(other))
        })
        && one.get(name_len..) == other.get(name_len..)
}
