//! What a proxy does, one small test for each.

mod fields;
mod forward;
mod limits;
mod observing;
mod policy;
mod proxy_protocol_networks;
mod reuse;
mod stopping;
mod timeouts;
mod tunnels;
mod via_proxy_protocol;

use crate::Test;
use crate::harness::wire::find;
use crate::harness::{Link, Message};

/// The tests, each with its name.
macro_rules! tests {
    ($($module:ident: $($test:ident)+;)+) => {
        &[$($(
            (concat!(stringify!($module), "::", stringify!($test)), $module::$test as Test),
        )+)+]
    };
}

/// Tests that depend on the mechanism so little that one of each kind is enough.
pub(crate) const SOME: &[(&str, Test)] = tests! {
    reuse:
        silently_closed_connections_are_not_reused
        connections_are_not_reused_after_their_announced_timeout;
    limits:
        the_longest_idle_connection_makes_room
        silent_connections_make_room
        requests_in_flight_are_not_closed
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
        headers_from_other_networks_are_refused
        other_networks_need_no_header;
    tunnels:
        only_the_requested_protocol_is_switched_to
        versions_of_http_and_tls_are_not_upgraded_to;
    observing:
        a_log_that_nobody_reads_delays_no_request
        rejected_requests_are_logged_with_input_and_reason;
};

pub(crate) const TESTS: &[(&str, Test)] = tests! {
    reuse:
        connections_are_kept
        none_is_kept_where_none_may_be
        no_more_are_kept_than_may_be
        closed_as_it_is_used_again
        closed_again_and_again
        what_nobody_asked_for
        what_nobody_asked_for_behind_a_long_body
        an_answer_before_its_request_is_whole
        refused_and_tried_elsewhere
        nobody_listens
        closed_and_tried_elsewhere
        closed_by_a_server_that_is_ending
        closed_and_tried_where_it_belongs
        at_a_socket_in_the_file_system;
    limits:
        requests_at_a_time
        waiting_for_too_long
        waiting_until_a_server_is_back
        bodies
        heads
        a_queue_whose_clients_leave;
    timeouts:
        as_a_whole
        between_requests
        trickling_heads
        connecting
        an_upload_that_nobody_takes
        a_download_that_nobody_takes
        a_download_that_is_taken_too_slowly
        a_download_that_comes_slowly
        both_ways_at_once
        clients_that_have_left_with_more_to_ask
        half_closed_clients_that_have_left;
    policy:
        in_turn_by_weight
        the_fewest_in_flight
        the_same_for_the_same
        reserves
        taken_out_and_put_back
        asked_whether_it_is_well
        by_its_name
        left_out_after_failures;
    fields:
        of_one_connection
        when_it_came
        about_the_client
        about_the_client_otherwise
        the_host
        via
        for_the_proxy_itself
        old_clients;
    forward:
        absolute_targets
        tunnels
        refusals;
    tunnels:
        echo
        ended_by_the_client_first
        ended_by_the_server_first
        long
        with_bytes_right_behind
        reset
        refused_upgrades;
    via_proxy_protocol:
        taken
        refused
        sent;
    observing:
        metrics
        log_lines
        log_objects;
    stopping:
        finishes_what_is_in_flight
        idle_clients_are_let_go
        grace_ends
        a_tunnel_is_cut_when_grace_ends;
};

/// A request without a body, to `site.test`.
fn get(target: &str) -> String {
    request("GET", target, "")
}

/// A request with these field lines, and the body behind them.
fn request(method: &str, target: &str, more: &str) -> String {
    let more = if more.contains("\r\n\r\n") { more.to_owned() } else { format!("{more}\r\n") };
    format!("{method} {target} HTTP/1.1\r\nHost: site.test\r\n{more}")
}

fn post(target: &str, body: &str) -> String {
    request("POST", target, &format!("Content-Length: {}\r\n\r\n{body}", body.len()))
}

/// Asks and takes the answer.
#[track_caller]
fn ask(link: &mut Link, request: impl AsRef<[u8]>) -> Message {
    link.send(request);
    link.answer()
}

/// Whether `text` has `part`.
fn has(text: &str, part: &str) -> bool {
    part.is_empty() || find(text.as_bytes(), part.as_bytes()).is_some()
}
