//! The clauses of the contract of `Io`, over any implementation. The crates with implementations
//! include these modules.

use hearken::io::Relay;

use crate::{
    connections, deadlines, listeners, machine, model, receiving, relay_ends, relaying, sending,
    turns, unix,
};

/// An implementation of `Io` under test, and the properties of its settings that clauses depend on.
pub(crate) struct Case<'a, I> {
    /// Creates an instance.
    pub(crate) io: &'a dyn Fn() -> I,
    /// Whether waits are documented to return although there is nothing to do.
    pub(crate) wakes_when_idle: bool,
    /// Maximum number of bytes that a connection transfers per turn, if it is small.
    pub(crate) turn_bytes: Option<usize>,
    /// Maximum number of bytes of large transfers per turn, if the time for them ends after one
    /// transfer.
    pub(crate) bulk_bytes: Option<usize>,
    /// Maximum number of connections that a listener accepts per turn, if it is limited.
    pub(crate) accept_limit: Option<u32>,
    /// Maximum number of waits until the mechanism reports an event of an inactive connection.
    pub(crate) max_waits: u32,
    /// Whether an exchange on a connection that completed one before changes no interest.
    pub(crate) keeps_interest: bool,
    /// Whether new connections exchange messages before they are idle.
    pub(crate) has_handshake: bool,
}

/// A function that tests one clause of the contract.
pub(crate) type Clause<I> = fn(&Case<'_, I>);

/// Lists the clauses with their names, for any implementation.
macro_rules! clauses {
    ($($group:ident: $($clause:ident)*;)*) => {
        pub(crate) fn clauses<I: Relay>() -> Vec<(&'static str, Clause<I>)> {
            vec![$($(
                (concat!(stringify!($group), "::", stringify!($clause)), $group::$clause as Clause<I>),
            )*)*]
        }
    };
}

clauses! {
    listeners:
        port_zero_selects_a_free_port
        refuses_an_address_in_use_unless_shared
        deferred_connections_are_accepted_with_their_first_bytes
        accepts_each_connection_once
        accepts_no_more_than_the_limit_per_turn
        accepts_nothing_while_stopped
        stopping_while_accepting_loses_no_connection
        reports_the_peer_address_on_request
        closing_resets_connections_in_the_backlog;
    receiving:
        one_byte_both_ways
        one_kibibyte_both_ways
        one_mebibyte_both_ways
        receives_nothing_before_start
        resumes_when_a_buffer_returns_to_an_exhausted_pool
        sends_while_the_pool_is_exhausted
        waiting_connections_receive_buffers_in_turn
        idle_connections_hold_no_buffer
        receives_nothing_while_stopped
        stopping_at_each_piece_loses_nothing
        end_follows_the_data_it_arrived_with
        end_arrives_after_the_data_was_received
        end_is_reported_after_restart
        end_without_data_is_reported
        end_is_reported_once
        half_closed_peer_receives_a_long_response
        reset_is_reported_once
        reset_is_reported_after_restart;
    sending:
        sends_complete_in_order
        nothing_overtakes_a_pending_send
        final_send_arrives_before_the_end
        sends_heads_and_bodies_of_every_kind
        sends_a_file_larger_than_socket_buffers
        truncated_file_fails_its_send
        send_to_a_reset_peer_fails_once
        reset_fails_the_pending_send_only_once
        sends_before_the_connection_is_established
        delivered_bytes_grow_to_all_bytes
        receives_after_its_own_shutdown
        send_after_shutdown_fails
        head_buffer_returns_while_the_body_is_pending
        final_send_is_delivered_and_closes
        final_send_can_be_abandoned_and_can_fail;
    connections:
        local_and_peer_addresses_match
        refused_connect_is_reported
        connects_from_a_source_address
        connects_with_a_small_receive_buffer
        refuses_a_source_address_of_another_host
        receives_immediately_if_started_before_connected
        operations_on_closed_tokens_do_nothing
        no_completion_follows_a_close_in_its_handler
        no_completion_follows_a_close_in_another_handler
        reused_slots_receive_no_stale_completions
        abort_resets_the_connection
        open_counts_listeners_and_connections;
    unix:
        transfers_both_ways
        accepts_clients_of_the_standard_library
        half_close_keeps_the_other_direction
        connect_fails_immediately_without_a_listener
        refuses_invalid_paths
        full_backlog_is_reported
        is_usable_before_connected_is_reported
        abort_closes_the_connection;
    relaying:
        relays_exactly_the_requested_bytes
        slow_sink_pauses_the_relay
        each_small_message_arrives
        relays_both_ways_at_once
        relays_behind_pending_sends
        relay_does_not_starve_other_connections
        relays_after_received_bytes
        loses_nothing_with_one_completion_per_turn;
    relay_ends:
        end_is_reported_after_all_bytes
        reset_of_either_side_ends_the_relay
        closing_either_side_ends_the_relay
        impossible_relays_are_refused
        deadlines_continue_during_a_relay
        urgent_data_is_discarded;
    deadlines:
        deadlines_expire_once_and_never_early
        moved_deadlines_expire_at_their_new_time
        cancelled_deadlines_do_not_expire
        closing_cancels_the_deadline
        past_deadlines_expire_immediately
        expires_during_constant_traffic
        expires_during_traffic_with_one_completion_per_turn
        waits_end_at_the_given_time
        idle_instances_sleep;
    turns:
        received_flood_does_not_starve_others
        ended_flood_does_not_starve_others
        answered_flood_does_not_starve_others
        sent_flood_does_not_starve_others
        file_transfer_does_not_starve_others
        requests_precede_downloads
        downloads_take_turns
        loses_nothing_with_one_completion_per_turn
        one_completion_per_turn_serves_others_during_a_flood
        counters_grow
        steady_exchanges_change_no_interest;
    model:
        any_script_preserves_the_stream;
    machine:
        wake_ups_before_a_wait_end_it
        another_thread_ends_a_wait
        woken_completions_have_no_connection
        serves_clients_of_the_standard_library
        instances_share_a_listener
        adopts_sockets_of_the_standard_library
        reports_watched_descriptors_once_per_start
        released_connections_continue_in_another_instance
        receives_from_an_active_peer_after_exhaustion
        listener_stops_without_free_descriptors
        descriptors_do_not_leak
        relays_need_and_leak_no_descriptors
        descriptor_numbers_may_exceed_fd_setsize;
}
