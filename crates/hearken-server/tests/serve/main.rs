//! Tests of the server: static files, bodies, timeouts, limits, start, stop, access log, admin.
//! Clauses run over every mechanism. Those that depend on policies run pairwise with these.
//! One case: `cargo test -p hearken-server --test serve -- epoll_edge::serves_files_of_every_size`
//! One module: `cargo test -p hearken-server --test serve -- static_files::`
//! All policies: `cargo test -p hearken-server --test serve -- --ignored`

mod access_log;
mod admin;
mod bodies;
#[path = "../common/mod.rs"]
mod common;
mod connection_limit;
mod descriptors;
mod disconnects;
mod metrics;
mod models;
mod proxy_protocol;
mod random_scripts;
mod rejected;
mod requests;
mod routes;
mod starting;
mod static_files;
mod stopping;
mod timeouts;

/// Runs the server of a [`common::process::Process`]. In other processes it does nothing.
#[test]
fn server_process() {
    common::process::run_server();
}

/// Defines a test for each clause of each module, with the setup `$setup`.
macro_rules! suite {
    ($setup:expr; $($module:ident: $($clause:ident)+;)+) => {
        $($(
            #[test]
            fn $clause() {
                if let Some(setup) = $setup.available() {
                    crate::$module::$clause(&setup);
                }
            }
        )+)+
    };
}

/// Defines a test for each clause that depends on the mechanism.
macro_rules! all_clauses {
    ($name:ident, $setup:expr) => {
        mod $name {
            suite! { $setup;
                requests:
                    serves_files_of_every_size
                    answers_many_requests_on_one_connection
                    answers_a_hundred_pipelined_requests
                    parses_requests_byte_by_byte
                    parses_requests_split_at_any_byte
                    closes_http_1_0_connections_without_keep_alive
                    closes_after_connection_close
                    ignores_requests_after_connection_close
                    clients_that_do_not_read_delay_no_others;
                bodies:
                    discards_request_bodies
                    receives_a_body_while_sending_an_earlier_response
                    closes_at_an_end_of_stream_within_a_body
                    rejects_malformed_chunks
                    rejects_bodies_over_the_limit
                    sends_100_continue_to_waiting_clients;
                rejected:
                    rejects_malformed_requests_with_their_status
                    rejects_ambiguous_framing
                    error_responses_reach_clients_that_still_send
                    error_responses_follow_earlier_responses
                    closes_at_an_endless_head;
                timeouts:
                    slow_and_idle_clients_time_out
                    clients_below_the_minimum_rate_are_reset;
                disconnects:
                    half_closed_clients_receive_whole_responses
                    pipelined_requests_are_answered_after_a_half_close
                    resets_do_not_affect_other_clients
                    closes_when_a_file_shrinks;
                descriptors:
                    clients_over_the_connection_limit_wait
                    the_connection_limit_is_shared_by_workers
                    the_connection_limit_may_be_below_the_worker_count
                    keeps_serving_at_the_descriptor_limit
                    keeps_serving_without_reserved_descriptors
                    workers_have_separate_descriptor_tables;
                stopping:
                    finishes_requests_in_flight
                    closes_connections_after_the_grace_period
                    answers_requests_sent_before_the_stop
                    finishes_request_heads_that_have_begun
                    late_requests_do_not_reset_the_last_response
                    stops_at_once_without_open_connections
                    dropping_the_server_stops_it;
                starting:
                    four_workers_share_an_address
                    serves_over_ipv6
                    two_servers_are_independent;
                random_scripts:
                    random_scripts_get_the_expected_responses;
            }
        }
    };
}

macro_rules! over_mechanisms {
    ($($name:ident => $mechanism:ty,)*) => {
        $(all_clauses! { $name, crate::common::Setup::new::<$mechanism>() })*
    };
}

hearken::for_each_mechanism!(over_mechanisms);
all_clauses! { uring, crate::common::Setup::named("uring") }
all_clauses! { uring_small, crate::common::Setup::named(crate::common::server::SMALL_URING) }

/// Event threads, over a representative of each kind of mechanism and over io_uring.
mod tasks {
    all_clauses! { epoll_edge, crate::common::Setup::tasks("epoll-edge") }
    all_clauses! { poll, crate::common::Setup::tasks("poll") }
    all_clauses! { uring, crate::common::Setup::tasks("uring") }
    all_clauses! { uring_small, crate::common::Setup::tasks(crate::common::server::SMALL_URING) }
}

/// Threads that share or exchange connections.
mod sharing {
    all_clauses! { threads, crate::common::Setup::model("threads") }
    all_clauses! { pool, crate::common::Setup::model("pool") }
    all_clauses! { hand_over, crate::common::Setup::model("hand-over") }
    all_clauses! { shared, crate::common::Setup::model("shared") }
    all_clauses! { migrate, crate::common::Setup::model("migrate") }
}

/// Defines tests for clauses that depend little on the mechanism.
macro_rules! some_clauses {
    ($($name:ident => $setup:expr,)*) => {$(
        mod $name {
            suite! { $setup;
                connection_limit:
                    closes_the_longest_idle_connection
                    closes_connections_without_a_request
                    keeps_requests_in_flight;
                descriptors:
                    closes_idle_connections_at_the_descriptor_limit;
                routes:
                    selects_handlers_by_path
                    one_connection_reaches_all_handlers
                    requests_with_a_body_reach_their_handler
                    a_proxied_request_does_not_delay_files;
                timeouts:
                    uploads_above_the_minimum_rate_outlast_the_body_timeout
                    uploads_below_the_minimum_rate_end
                    slow_uploads_end_at_the_request_timeout;
                rejected:
                    lingering_close_is_bounded_in_bytes;
                access_log:
                    a_stalled_log_reader_delays_no_request
                    rejected_requests_are_logged_with_input_and_reason;
            }
        }
    )*};
}

/// A readiness mechanism and io_uring stand for all.
mod representatives {
    some_clauses! {
        epoll_edge => crate::common::Setup::named("epoll-edge"),
        uring => crate::common::Setup::named("uring"),
        tasks => crate::common::Setup::tasks("epoll-edge"),
        tasks_uring => crate::common::Setup::tasks("uring"),
        threads => crate::common::Setup::model("threads"),
        pool => crate::common::Setup::model("pool"),
    }
}

mod policies {
    use std::num::NonZeroU32;

    use hearken::io::readiness::InterestPolicy::{EveryState, Once, WhenNeeded};
    use hearken::io::readiness::Order::{TryFirst, WaitFirst};
    use hearken::io::readiness::{InterestPolicy, Order};

    use crate::common::Setup;

    /// Returns a setup whose accept limit may be 1.
    fn setup(
        events: &'static str,
        order: Order,
        accept_one: bool,
        interest: InterestPolicy,
    ) -> Setup {
        let accept_limit = NonZeroU32::new(1).filter(|_| accept_one);
        Setup { order, accept_limit, interest, ..Setup::named(events) }
    }

    macro_rules! suite_of {
        ($setup:expr; { $($clauses:tt)+ }) => { suite! { $setup; $($clauses)+ } };
    }

    macro_rules! call_all {
        ($setup:ident; { $($module:ident: $($clause:ident)+;)+ }) => {
            $($(crate::$module::$clause(&$setup);)+)+
        };
    }

    /// Defines the clauses that depend on policies, for each row and for all combinations.
    macro_rules! policy_clauses {
        ($($name:ident => $setup:expr,)+; $clauses:tt) => {
            $(
                mod $name {
                    use super::*;
                    suite_of! { $setup; $clauses }
                }
            )+

            #[test]
            #[ignore = "long; the tests above have every pair of settings"]
            fn every_combination() {
                for events in ["poll", "epoll-edge"] {
                    for order in [TryFirst, WaitFirst] {
                        for accept_one in [false, true] {
                            for interest in [WhenNeeded, EveryState, Once] {
                                let setup = setup(events, order, accept_one, interest);
                                call_all!(setup; $clauses);
                            }
                        }
                    }
                }
            }
        };
    }

    // With the default policies on epoll_edge above, every pair of settings occurs. One mechanism is
    // level-triggered, one edge-triggered. The library tests policies over all mechanisms.
    policy_clauses! {
        poll_wait_first_accept_one => setup("poll", WaitFirst, true, WhenNeeded),
        poll_every_state => setup("poll", TryFirst, false, EveryState),
        epoll_edge_wait_first_accept_one_every_state =>
            setup("epoll-edge", WaitFirst, true, EveryState),
        poll_wait_first_once => setup("poll", WaitFirst, false, Once),
        epoll_edge_accept_one_once => setup("epoll-edge", TryFirst, true, Once),;
    {
        requests:
            serves_files_of_every_size
            answers_a_hundred_pipelined_requests
            parses_requests_split_at_any_byte
            clients_that_do_not_read_delay_no_others;
        bodies:
            discards_request_bodies
            receives_a_body_while_sending_an_earlier_response
            sends_100_continue_to_waiting_clients;
        rejected:
            error_responses_reach_clients_that_still_send;
        disconnects:
            half_closed_clients_receive_whole_responses
            pipelined_requests_are_answered_after_a_half_close
            resets_do_not_affect_other_clients;
        descriptors:
            clients_over_the_connection_limit_wait;
        stopping:
            answers_requests_sent_before_the_stop
            finishes_requests_in_flight;
        random_scripts:
            random_scripts_get_the_expected_responses;
    }
    }
}
