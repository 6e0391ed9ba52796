//! A running server, seen through sockets: one test for each clause, over every mechanism in the
//! table, and io_uring; and the clauses that depend on it, under every policy, over one of each kind.
//!
//! A clause is a function of a [`Way`](support::Way) to serve. A mechanism that this kernel
//! refuses is skipped, and says so. Times are waited for with a lower bound where the server
//! promises one, and an upper bound that only a hang exceeds.

mod bodies;
mod connection_limit;
mod descriptors;
mod failing;
mod logging;
mod patience;
mod refusals;
mod requests;
mod routes;
mod starting;
mod stopping;
mod support;
mod torture;

/// One test for each clause of each module, as `$way` has it.
macro_rules! suite {
    ($way:expr; $($module:ident: $($clause:ident)+;)+) => {
        $($(
            #[test]
            fn $clause() {
                if let Some(way) = $way.available() {
                    crate::$module::$clause(&way);
                }
            }
        )+)+
    };
}

/// All clauses.
macro_rules! all_clauses {
    ($name:ident, $way:expr) => {
        mod $name {
            suite! { $way;
                requests:
                    files_of_every_size
                    many_on_one_connection
                    a_hundred_in_one_write
                    a_byte_at_a_time
                    split_anywhere
                    old_clients
                    close_is_closed
                    close_with_more_behind_it
                    several_clients_at_a_time;
                bodies:
                    discarded_before_the_answer
                    arriving_while_an_earlier_answer_is_sent
                    ending_early
                    malformed_chunks
                    over_the_limit
                    continue_is_sent_to_who_waits;
                refusals:
                    each_with_its_status
                    nothing_is_smuggled
                    reach_who_still_sends
                    come_after_what_was_asked_before
                    an_endless_head_is_cut;
                patience:
                    deadlines
                    rates;
                failing:
                    half_closed_clients_get_all
                    half_closed_with_requests_left
                    resets_concern_nobody_else
                    a_file_that_shrinks;
                descriptors:
                    beyond_the_limit_they_wait
                    the_limit_is_over_all_workers
                    fewer_connections_than_workers
                    without_descriptors
                    without_a_reserve
                    more_than_one_table_holds;
                stopping:
                    finishes_what_is_in_flight
                    grace_ends
                    answers_what_was_sent_before
                    finishes_a_head_that_has_begun
                    a_last_answer_survives_what_the_client_still_sends
                    is_prompt_with_nothing_open
                    dropping_stops;
                starting:
                    four_workers_on_one_address
                    on_ipv6
                    two_servers;
                torture:
                    scripts;
            }
        }
    };
}

macro_rules! over_mechanisms {
    ($($name:ident => $mechanism:ty,)*) => {
        $(all_clauses! { $name, crate::support::Way::of::<$mechanism>() })*
    };
}

hearken::for_each_mechanism!(over_mechanisms);
all_clauses! { uring, crate::support::Way::named("uring") }
all_clauses! { uring_tiny, crate::support::Way::named("uring:sends=ring:buffers=2:size=64:completions=16") }

/// Clauses that depend on the mechanism so little that one of each kind is enough.
macro_rules! some_clauses {
    ($($name:ident => $events:literal,)*) => {$(
        mod $name {
            suite! { crate::support::Way::named($events);
                connection_limit:
                    the_longest_idle_connection_makes_room
                    silent_connections_make_room
                    requests_in_flight_are_not_closed;
                descriptors:
                    idle_connections_make_room_in_a_full_table;
                routes:
                    each_path_has_its_handler
                    one_connection_reaches_every_handler
                    requests_with_a_body_reach_their_handler
                    a_proxied_request_does_not_delay_files;
                patience:
                    uploads_above_the_minimum_rate_outlast_the_body_timeout
                    uploads_below_the_minimum_rate_end
                    slow_uploads_end_at_the_request_timeout;
                refusals:
                    lingering_close_is_bounded_in_bytes;
                logging:
                    a_log_that_nobody_reads_delays_no_request
                    rejected_requests_are_logged_with_input_and_reason;
            }
        }
    )*};
}

mod some {
    some_clauses! {
        epoll_edge => "epoll-edge",
        uring => "uring",
    }
}

/// What waiting and accepting may break, under each policy.
macro_rules! over_policies {
    ($($name:ident => $mechanism:ty,)*) => {
        over_policies! { wait_first, |policy| policy.order = hearken::io::readiness::Order::WaitFirst; $($name => $mechanism,)* }
        over_policies! { accept_one, |policy| policy.accept_limit = std::num::NonZeroU32::new(1);
            $($name => $mechanism,)* }
        over_policies! { interest_at_every_state,
            |policy| policy.interest = hearken::io::readiness::InterestPolicy::EveryState; $($name => $mechanism,)* }
        over_policies! { interest_once,
            |policy| policy.interest = hearken::io::readiness::InterestPolicy::Once; $($name => $mechanism,)* }
        over_policies! { as_the_papers, |policy| {
            policy.order = hearken::io::readiness::Order::WaitFirst;
            policy.accept_limit = std::num::NonZeroU32::new(1);
            policy.interest = hearken::io::readiness::InterestPolicy::EveryState;
        }; $($name => $mechanism,)* }
    };
    ($policy:ident, $change:expr; $($name:ident => $mechanism:ty,)*) => {
        mod $policy {$(
            mod $name {
                suite! { crate::support::Way::of::<$mechanism>().with_policy($change);
                    requests:
                        files_of_every_size
                        a_hundred_in_one_write
                        split_anywhere
                        several_clients_at_a_time;
                    bodies:
                        discarded_before_the_answer
                        arriving_while_an_earlier_answer_is_sent
                        continue_is_sent_to_who_waits;
                    refusals:
                        reach_who_still_sends;
                    failing:
                        half_closed_clients_get_all
                        half_closed_with_requests_left
                        resets_concern_nobody_else;
                    descriptors:
                        beyond_the_limit_they_wait;
                    stopping:
                        answers_what_was_sent_before
                        finishes_what_is_in_flight;
                    torture:
                        scripts;
                }
            }
        )*}
    };
}

// One that is level-triggered, and one that is edge-triggered: what policies mean is the library's,
// whose own suite has every mechanism.
over_policies! {
    poll => hearken::mechanism::poll::Poll,
    epoll_edge => hearken::mechanism::epoll::Epoll<hearken::mechanism::epoll::Edge>,
}
