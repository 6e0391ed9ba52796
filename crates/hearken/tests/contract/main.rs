//! The contract of `Mechanism`: one test for each clause, over every mechanism in the table and every
//! word of its options.
//!
//! A clause is a function of a [`Watch`](support::Watch) and holds for all; where mechanisms may
//! differ it asks `Semantics`.

mod closing;
mod counting;
mod ending;
mod interest;
mod kinds;
mod registration;
#[path = "../suite/mod.rs"]
mod suite;
mod support;
mod trigger;
mod waiting;

use std::process::ExitCode;

use hearken::mechanism::Registry;
use support::Watch;

/// The clauses, each with its name.
macro_rules! clauses {
    ($($chapter:ident: $($clause:ident)*;)*) => {
        [$($((concat!(stringify!($chapter), "::", stringify!($clause)), $chapter::$clause as fn(Watch)),)*)*]
    };
}

fn main() -> ExitCode {
    let clauses = clauses! {
        registration:
            at_most_once_at_a_time
            a_refused_call_leaves_all_as_it_was
            what_cannot_be_waited_for_is_refused
            ready_before_declare_is_reported
            a_token_that_is_gone_is_refused;
        waiting:
            a_timeout_is_never_early
            with_nothing_registered_it_sleeps
            without_a_timeout_it_waits_for_an_event
            a_timeout_beyond_the_clock_is_for_ever
            at_most_max
            any_max_will_do
            none_is_passed_over
            none_is_passed_over_while_others_come_and_go
            each_appears_once_in_a_batch
            the_batch_stands_until_the_next_wait;
        trigger:
            data_repeats_as_the_trigger_says
            room_repeats_as_the_trigger_says
            the_end_of_the_stream_is_an_arrival
            room_made_again_is_reported
            room_on_tcp_is_always_reported
            change_answers_for_what_is_ready
            connections_waiting_to_be_accepted_arrive;
        interest:
            only_what_was_asked_for
            an_empty_interest_is_silent
            what_was_not_asked_for_does_not_wake_every_wait
            hang_up_does_not_wake_every_wait_of_an_empty_interest
            what_came_during_silence_is_reported_after
            an_event_answers_the_interest_of_the_moment;
        ending:
            half_close_is_readable
            half_close_leaves_writability_alone
            half_close_behind_data_comes_with_it
            whoever_stops_at_a_short_read_meets_the_end
            reset_is_readable
            reset_is_writable
            close_is_readable
            close_is_writable
            hang_up_is_writable_where_there_is_no_room
            a_refused_connect_is_writable
            a_completed_connect_is_writable
            a_pipe_without_writers_is_readable
            a_pipe_without_readers_is_writable;
        closing:
            a_closed_number_that_returns_is_new
            a_revoked_number_that_returns_is_new
            revoked_means_silent_though_a_duplicate_is_open
            closing_one_leaves_the_others
            a_batch_taken_before_is_told_by_generation
            a_slot_used_again_within_a_batch_is_not_confused
            dropping_the_registry_closes_what_it_owns;
        kinds:
            pipes
            unix_streams
            unix_datagrams
            tcp
            udp
            eventfds
            numbers_above_1024
            two_thousand_descriptors
            coming_and_going;
        counting:
            counters_are_exact
            what_was_dropped_is_counted
            overflows_only_where_it_can;
    };
    suite::run_adapted(|spec| {
        let clause = |(name, clause): (&str, fn(Watch))| {
            suite::trial(spec, name, move |spec| clause(Watch(Registry::new(suite::open(spec)))))
        };
        clauses.into_iter().map(clause).collect()
    })
}
