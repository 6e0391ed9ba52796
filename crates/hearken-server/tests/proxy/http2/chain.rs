//! Two proxies between client and origin: the protocols may differ on each side.

use super::proxy;
use crate::common::Setup;
use crate::common::server::upstreams_config;
use crate::matrix::conversation;

/// Forwards random conversations through HTTP/2: what is received equals what was sent in HTTP/1.1.
pub(super) fn forwards_conversations(setup: &Setup) {
    conversation::run_through(setup, if setup.is_default() { 100 } else { 20 }, |setup, origin| {
        let second = setup.proxy(&[origin], |config| upstreams_config(config).passive = None);
        let first = proxy(setup, second.addr(), |config| upstreams_config(config).passive = None);
        vec![first, second]
    });
}
