//! The contract of `Mechanism`: one test for each clause, over every mechanism in the table and
//! every word of its options.
//!
//! A clause is a function of a [`Watch`](support::Watch) and holds for all mechanisms. Where
//! mechanisms may differ, it uses their `Semantics`.

mod closing;
mod counting;
mod ending;
mod interest;
mod kinds;
mod nesting;
mod priority;
mod registration;
mod signals;
pub(crate) mod support;
mod trigger;
mod waiting;

use hearken::mechanism::{Registry, find};
use libtest_mimic::Trial;
use support::Watch;

use crate::suite::{self, Subject};

/// Lists the clauses with their names.
macro_rules! clauses {
    ($($chapter:ident: $($clause:ident)*;)*) => {
        [$($((concat!(stringify!($chapter), "::", stringify!($clause)), $chapter::$clause as fn(Watch)),)*)*]
    };
}

/// Returns a trial for each clause over each mechanism.
pub(crate) fn trials() -> Vec<Trial> {
    let clauses = clauses! {
        registration:
            at_most_once_at_a_time
            a_refused_call_changes_nothing
            refuses_descriptors_that_it_cannot_watch
            ready_before_declare_is_reported
            a_removed_token_is_refused;
        waiting:
            a_timeout_is_never_early
            with_nothing_registered_it_sleeps
            without_a_timeout_it_waits_for_an_event
            a_timeout_beyond_the_clock_waits_indefinitely
            at_most_max
            any_max_is_accepted
            none_starves
            none_starves_while_others_are_added_and_removed
            a_batch_contains_each_descriptor_once
            a_batch_is_valid_until_the_next_wait;
        trigger:
            readable_events_repeat_according_to_the_trigger
            writable_events_repeat_according_to_the_trigger
            the_end_of_the_stream_is_an_event
            new_space_is_reported
            new_space_on_tcp_is_always_reported
            a_change_reports_current_readiness
            pending_connections_are_events;
        interest:
            reports_only_requested_directions
            an_empty_interest_is_silent
            unrequested_readiness_does_not_end_every_wait
            hang_up_does_not_end_every_wait_without_interest
            events_without_interest_are_reported_when_interest_returns
            an_event_is_filtered_by_the_current_interest;
        ending:
            half_close_is_readable
            half_close_does_not_affect_writability
            half_close_after_data_is_reported_with_them
            a_reader_that_stops_at_a_short_read_reaches_the_end
            reset_is_readable
            reset_is_writable
            close_is_readable
            close_is_writable
            hang_up_is_writable_without_space
            a_refused_connect_is_writable
            a_completed_connect_is_writable
            a_pipe_without_writers_is_readable
            a_pipe_without_readers_is_writable
            a_pipe_that_loses_its_readers_ends_a_wait;
        closing:
            a_number_reused_after_closing_is_new
            a_number_reused_after_revoking_is_new
            a_revoked_descriptor_is_silent_while_a_duplicate_is_open
            closing_one_does_not_affect_others
            a_batch_drops_events_of_removed_tokens
            a_batch_drops_events_of_reused_slots
            dropping_the_registry_closes_its_sources;
        kinds:
            pipes
            unix_streams
            unix_datagrams
            tcp
            udp
            eventfds
            numbers_above_fd_setsize
            two_thousand_descriptors
            adding_and_removing;
        priority:
            urgent_data_is_an_event
            urgent_data_is_reported_with_other_data
            other_data_is_not_priority_data
            hang_up_is_reported_with_an_interest_in_priority_data_alone
            exclusive_interest_in_priority_data_is_refused;
        signals:
            a_handler_interrupts_a_wait
            events_follow_an_interrupted_wait
            a_pending_signal_interrupts_a_wait_whose_mask_allows_it
            a_blocked_signal_does_not_interrupt_a_wait
            a_wait_with_a_mask_reports_events
            a_wait_with_a_mask_ends_with_its_timeout;
        nesting:
            the_descriptor_is_readable_when_there_are_events;
        counting:
            counters_are_exact
            dropped_events_are_counted
            overflows_only_if_documented;
    };
    // Hands descriptors to the second thread after the first wait, which the defaults rarely do.
    let threaded = Subject::Adapted("threaded-locality", || {
        find("locality:tuning=fixed:n=2:sleep-us=100:threads=2").expect("valid").open()
    });
    suite::trials_over("contract", suite::subjects().chain([threaded]), |subject| {
        let trial = |(name, clause): (&str, fn(Watch))| {
            suite::trial("contract", subject, name, move |subject| {
                clause(Watch(Registry::new(suite::open(subject))));
            })
        };
        clauses.into_iter().map(trial).collect()
    })
}
