//! HTTP/2 between the proxy and its upstream servers.

mod chain;
mod faults;
mod messages;
mod origin;

use std::net::SocketAddr;

use crate::Test;
use crate::common::server::{enable_admin, upstreams_config};
use crate::common::{RunningServer, Setup};

/// Lists tests with their names.
macro_rules! tests {
    ($($module:ident: $($test:ident)+;)+) => {
        &[$($(
            (concat!("http2::", stringify!($module), "::", stringify!($test)), $module::$test as Test),
        )+)+]
    };
}

pub(crate) const TESTS: &[(&str, Test)] = tests! {
    messages:
        forwards_requests_and_responses
        forwards_content_in_both_directions;
};

/// Starts a proxy of servers with HTTP/2.
fn proxy(
    setup: &Setup,
    origin: SocketAddr,
    change: impl FnOnce(&mut hearken_server::Config),
) -> RunningServer {
    setup.proxy(&[origin], |config| {
        enable_admin(config);
        for server in &mut upstreams_config(config).servers {
            server.http2 = true;
        }
        change(config);
    })
}
