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
        forwards_content_in_both_directions
        forwards_trailers
        forwards_websockets
        forwards_websockets_in_http_1
        checks_the_health_of_servers;
    faults:
        repeats_requests_that_were_not_processed
        refused_requests_fail_after_some_attempts
        completes_requests_after_goaway
        malformed_responses_are_answered_with_502
        incomplete_responses_are_aborted
        repeats_safe_requests_after_a_close
        respects_windows_of_the_server
        slow_clients_do_not_delay_others
        silent_servers_time_out
        stalled_responses_time_out
        resets_the_streams_of_disconnected_clients
        opens_connections_as_streams_are_needed
        answers_control_frames
        repeats_requests_in_http_1;
    chain:
        forwards_conversations;
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
