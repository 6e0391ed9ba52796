//! The behaviour of the proxy, a small test for each clause.

mod fields;
mod forward;
mod limits;
mod observing;
mod policy;
mod proxy_protocol;
mod proxy_protocol_networks;
mod reuse;
mod stopping;
mod timeouts;
mod tunnels;

use crate::Test;
use crate::common::wire::find;
use crate::common::{Connection, Message};

/// Lists tests with their names.
macro_rules! tests {
    ($($module:ident: $($test:ident)+;)+) => {
        &[$($(
            (concat!(stringify!($module), "::", stringify!($test)), $module::$test as Test),
        )+)+]
    };
}

/// Tests that depend little on the mechanism: they run over a readiness mechanism and io_uring.
pub(crate) const REPRESENTATIVE_TESTS: &[(&str, Test)] = tests! {
    reuse:
        silently_closed_connections_are_not_reused
        connections_are_not_reused_after_their_announced_timeout;
    limits:
        closes_the_longest_idle_connection
        closes_connections_without_a_request
        keeps_requests_in_flight
        lingering_close_is_bounded_in_bytes
        a_loop_is_answered_with_508
        a_loop_without_via_is_answered_with_508;
    timeouts:
        uploads_below_the_minimum_rate_end
        slow_uploads_end_at_the_request_timeout
        uploads_wait_for_a_slow_server;
    fields:
        unverified_fields_about_the_client;
    proxy_protocol_networks:
        headers_from_listed_networks_are_accepted
        headers_from_other_networks_are_rejected
        other_networks_need_no_header;
    tunnels:
        only_the_requested_protocol_is_switched_to
        versions_of_http_and_tls_are_not_upgraded_to;
    observing:
        a_stalled_log_reader_delays_no_request
        rejected_requests_are_logged_with_input_and_reason;
};

pub(crate) const TESTS: &[(&str, Test)] = tests! {
    reuse:
        reuses_upstream_connections
        closes_upstream_connections_without_keepalive
        keeps_idle_connections_up_to_the_limit
        retries_safe_requests_lost_on_a_reused_connection
        sends_a_lost_request_at_most_twice
        discards_unsolicited_responses
        discards_unsolicited_responses_after_long_bodies
        forwards_responses_before_the_request_is_complete
        retries_refused_connections_on_another_server
        answers_502_when_all_servers_refuse
        retries_only_safe_requests_after_a_close
        retries_requests_lost_at_a_server_shutdown
        retries_on_the_same_server_with_hash_balancing
        connects_to_unix_sockets;
    limits:
        limits_and_queues_requests_per_server
        queued_requests_time_out
        queued_requests_use_a_server_that_returns
        rejects_bodies_over_the_limit
        rejects_heads_over_the_limit
        disconnected_clients_leave_the_queue;
    timeouts:
        exchanges_time_out
        idle_connections_time_out
        slow_heads_time_out
        connection_attempts_time_out
        uploads_that_the_server_does_not_read_time_out
        downloads_that_the_client_does_not_read_time_out
        downloads_below_the_minimum_rate_are_reset
        slow_servers_do_not_time_out_slow_clients
        stalls_in_both_directions_time_out
        notices_disconnects_behind_pipelined_requests
        half_closed_clients_may_count_as_disconnected;
    policy:
        round_robin_follows_weights
        least_connections_selects_the_idle_server
        hashing_maps_equal_keys_to_one_server
        backup_servers_are_used_after_failures
        administrators_drain_and_restore_servers
        health_checks_take_servers_down_and_up
        resolves_server_names
        failed_servers_are_paused_and_tried_again;
    fields:
        removes_hop_by_hop_fields
        adds_date
        replaces_fields_about_the_client
        appends_keeps_or_removes_fields_about_the_client
        sets_or_keeps_host
        appends_via
        answers_requests_with_max_forwards_zero
        upgrades_http_1_0_requests;
    forward:
        forwards_absolute_targets
        opens_connect_tunnels
        rejects_disallowed_targets;
    tunnels:
        tunnels_messages_in_both_directions
        forwards_a_half_close_by_the_client
        forwards_a_half_close_by_the_server
        tunnels_long_streams
        forwards_bytes_sent_with_the_upgrade
        forwards_resets
        forwards_refused_upgrades;
    proxy_protocol:
        accepts_headers
        rejects_malformed_headers
        sends_headers;
    observing:
        metrics_count_requests_and_connections
        logs_combined_lines
        logs_json_objects
        logs_content_without_chunk_framing;
    stopping:
        finishes_requests_in_flight
        closes_idle_clients
        closes_connections_after_the_grace_period
        closes_tunnels_after_the_grace_period
        resets_and_logs_responses_cut_by_the_grace_period;
};

/// Returns a request without content to `site.test`.
pub(crate) fn get(target: &str) -> String {
    request("GET", target, "")
}

/// Returns a request with these field lines. They may end with an empty line and content.
pub(crate) fn request(method: &str, target: &str, more: &str) -> String {
    let more = if more.contains("\r\n\r\n") { more.to_owned() } else { format!("{more}\r\n") };
    format!("{method} {target} HTTP/1.1\r\nHost: site.test\r\n{more}")
}

pub(crate) fn post(target: &str, body: &str) -> String {
    request("POST", target, &format!("Content-Length: {}\r\n\r\n{body}", body.len()))
}

/// Sends a request and reads the response.
#[track_caller]
pub(crate) fn exchange(connection: &mut Connection, request: impl AsRef<[u8]>) -> Message {
    connection.send(request);
    connection.expect_response()
}

/// Returns whether `text` contains `part`.
fn has(text: &str, part: &str) -> bool {
    part.is_empty() || find(text.as_bytes(), part.as_bytes()).is_some()
}
