//! The contract of `Io`, clause by clause, for every mechanism under every policy.
//!
//! The clauses speak operations and completions only: each is a function over [`Case`], which makes
//! a fresh `impl Io`, so that any other implementation is put through them by one more line below.
//! [`checked::Checked`] asserts, at every completion of every test, what must hold always;
//! [`net::Net`] drives it. Those in [`machine`] need this machine as well: threads, sockets of
//! the standard library, a descriptor table.

use hearken::io::readiness::{InterestPolicy, Order, Policy, ReadinessIo};
use hearken::mechanism::Open;

mod checked;
mod connections;
mod deadlines;
mod listeners;
mod machine;
mod model;
mod net;
mod pool;
mod receiving;
mod sending;
mod turns;

/// What is put through the clauses.
struct Case<'a, I> {
    /// Makes one.
    io: &'a dyn Fn() -> I,
    /// True if it is known, and documented, that waits return although there is nothing to do.
    spins: bool,
    /// How many bytes a connection may receive or send before it is another's turn, if that is few.
    share: Option<usize>,
    /// How many connections a listener accepts in a turn, if that is limited.
    accepts: Option<u32>,
    /// True if an exchange on a connection that has seen one changes no interest.
    steady: bool,
}

/// Calls `$callback!` with `$args` and with the list of the clauses.
macro_rules! for_each_clause {
    ($callback:ident!($($args:tt)*)) => {
        $callback! {
            ($($args)*)
            listeners: {
                a_free_port, an_address_in_use, each_connection_once, in_turns, nothing_while_stopped,
                stopped_amid_accepting, closed_with_connections_waiting,
            }
            receiving: {
                one_byte, one_kibibyte, one_mebibyte, nothing_before_start, pool_exhausted,
                pool_exhausted_while_sending, buffers_go_round, idle_owns_nothing, stopped, stopped_at_each_piece,
                end_with_the_data, end_later, end_while_stopped, end_only, end_is_final,
                half_closed_is_served, reset, reset_while_stopped,
            }
            sending: {
                in_order, bodies, large_file, truncated_file, to_a_reset_peer, queued_to_a_reset_peer,
                before_connected, delivered, shutdown_is_heard, after_shutdown, lends_back,
            }
            connections: {
                both_addresses, refused, from_a_source, from_a_bad_source, started_before_connected,
                dead_tokens, closed_while_handled, closed_by_another, slots_return,
                aborted, counted,
            }
            deadlines: {
                never_early, moved, cancelled, gone_with_its_owner, past, amid_traffic,
                amid_traffic_one_at_a_time, until, sleeps,
            }
            turns: {
                flood_received, flood_that_ends, flood_answered, flood_sent, flood_of_a_file, one_completion_at_a_time,
                one_at_a_time_amid_a_flood, counters_grow, steady,
            }
            model: { any_script, }
            machine: {
                woken_before_the_wait, woken_in_the_wait, woken_completion_names_nothing,
                peers_of_the_standard_library, descriptors_run_out, descriptors_do_not_leak,
                descriptors_of_any_number,
            }
        }
    };
}

/// One test for each clause.
macro_rules! tests {
    (($mechanism:ty, $policy:ident) $($group:ident: { $($clause:ident,)* })*) => {
        mod $policy {
            $(mod $group {
                $(#[test]
                fn $clause() {
                    crate::over::<$mechanism>(crate::policy::$policy(), |case| {
                        crate::$group::$clause(case);
                    });
                })*
            })*
        }
    };
}

/// One module for each mechanism, with one for each policy.
macro_rules! mechanisms {
    ($($module:ident => $mechanism:ty,)*) => {
        $(mod $module {
            for_each_clause!(tests!($mechanism, default));
            for_each_clause!(tests!($mechanism, wait_first));
            for_each_clause!(tests!($mechanism, accept_one));
            for_each_clause!(tests!($mechanism, accept_all));
            for_each_clause!(tests!($mechanism, every_state));
            for_each_clause!(tests!($mechanism, once));
            for_each_clause!(tests!($mechanism, tiny));
            for_each_clause!(tests!($mechanism, batch_of_one));
            for_each_clause!(tests!($mechanism, wait_first_every_state));
        })*
    };
}

hearken::for_each_mechanism!(mechanisms);

/// The policies.
mod policy {
    use super::{InterestPolicy, Order, Policy};

    pub(crate) fn default() -> Policy {
        Policy::default()
    }

    pub(crate) fn wait_first() -> Policy {
        Policy { order: Order::WaitFirst, ..Policy::default() }
    }

    pub(crate) fn accept_one() -> Policy {
        Policy { accept_limit: std::num::NonZeroU32::new(1), ..Policy::default() }
    }

    pub(crate) fn accept_all() -> Policy {
        Policy { accept_limit: None, ..Policy::default() }
    }

    pub(crate) fn every_state() -> Policy {
        Policy { interest: InterestPolicy::EveryState, ..Policy::default() }
    }

    pub(crate) fn once() -> Policy {
        Policy { interest: InterestPolicy::Once, ..Policy::default() }
    }

    pub(crate) fn tiny() -> Policy {
        Policy { turn_bytes: 1000, buffers: 2, buffer_size: 64, ..Policy::default() }
    }

    pub(crate) fn batch_of_one() -> Policy {
        Policy { batch: 1, ..Policy::default() }
    }

    pub(crate) fn wait_first_every_state() -> Policy {
        Policy { order: Order::WaitFirst, ..every_state() }
    }
}

/// Hands `clause` a case of readiness over `M`, unless the kernel refuses `M`.
fn over<M: Open>(policy: Policy, clause: impl FnOnce(&Case<'_, ReadinessIo<M>>)) {
    if let Err(reason) = M::open() {
        eprintln!("not tested: {} cannot be had here: {reason}", M::NAME);
        return;
    }
    let edge = M::SEMANTICS.trigger == hearken::mechanism::Trigger::Edge;
    clause(&Case {
        io: &|| ReadinessIo::new(M::open().unwrap(), policy).unwrap(),
        spins: M::SEMANTICS.registers_both || (policy.interest == InterestPolicy::Once && !edge),
        share: (policy.turn_bytes < 10_000).then_some(policy.turn_bytes),
        accepts: policy.accept_limit.map(std::num::NonZeroU32::get),
        steady: policy.order == Order::TryFirst && policy.interest != InterestPolicy::EveryState,
    });
}
