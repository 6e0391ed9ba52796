//! The contract of `Io`, clause by clause, for every mechanism under every policy, and for io_uring.
//!
//! The clauses speak operations and completions only: each is a function over [`Case`], which makes
//! a fresh `impl Io`, so that any other implementation is put through them by one more function below.
//! [`checked::Checked`] asserts, at every completion of every test, what must hold always;
//! [`net::Net`] drives it. Those in [`machine`] need this machine as well: threads, sockets of
//! the standard library, a descriptor table.

use std::process::ExitCode;

use hearken::io::Relay;
use hearken::io::readiness::{InterestPolicy, Order, Policy, ReadinessIo};
use hearken::mechanism::Trigger;

mod checked;
mod connections;
mod deadlines;
mod hop;
mod listeners;
mod machine;
mod model;
mod net;
mod receiving;
mod relay_ends;
mod relaying;
mod sending;
#[path = "../suite/mod.rs"]
mod suite;
mod turns;
mod unix;
mod uring;

/// What is put through the clauses.
struct Case<'a, I> {
    /// Makes one.
    io: &'a dyn Fn() -> I,
    /// True if it is known, and documented, that waits return although there is nothing to do.
    spins: bool,
    /// How many bytes a connection may receive or send before it is another's turn, if that is few.
    share: Option<usize>,
    /// The same, if the time that a turn has for large transfers is up after one of them.
    hurry: Option<usize>,
    /// How many connections a listener accepts in a turn, if that is limited.
    accepts: Option<u32>,
    /// True if an exchange on a connection that has seen one changes no interest.
    steady: bool,
}

/// One of the clauses.
type Clause<I> = fn(&Case<'_, I>);

/// The clauses, each with its name, for any implementation.
macro_rules! clauses {
    ($($group:ident: $($clause:ident)*;)*) => {
        fn clauses<I: Relay>() -> Vec<(&'static str, Clause<I>)> {
            vec![$($(
                (concat!(stringify!($group), "::", stringify!($clause)), $group::$clause as Clause<I>),
            )*)*]
        }
    };
}

clauses! {
    listeners:
        a_free_port
        an_address_in_use
        deferred
        each_connection_once
        in_turns
        nothing_while_stopped
        stopped_amid_accepting
        who_connects
        closed_with_connections_waiting;
    receiving:
        one_byte
        one_kibibyte
        one_mebibyte
        nothing_before_start
        pool_exhausted
        pool_exhausted_while_sending
        buffers_go_round
        idle_owns_nothing
        stopped
        stopped_at_each_piece
        end_with_the_data
        end_later
        end_while_stopped
        end_only
        end_is_final
        half_closed_is_served
        reset
        reset_while_stopped;
    sending:
        in_order
        now_or_later
        before_the_end
        bodies
        large_file
        truncated_file
        to_a_reset_peer
        queued_to_a_reset_peer
        before_connected
        delivered
        shutdown_is_heard
        after_shutdown
        lends_back
        last
        last_given_up;
    connections:
        both_addresses
        refused
        from_a_source
        from_a_bad_source
        started_before_connected
        dead_tokens
        closed_while_handled
        closed_by_another
        slots_return
        aborted
        counted;
    unix:
        streams
        streams_of_the_standard_library
        half_closed
        nothing_there
        bad_paths
        full_backlog
        used_before_it_is_told
        aborted;
    relaying:
        most
        slow_sink
        messages
        tunnel
        behind_sends
        fair
        after_receiving
        one_at_a_time;
    relay_ends:
        end
        reset
        closed
        refused
        deadlines
        urgent;
    deadlines:
        never_early
        moved
        cancelled
        gone_with_its_owner
        past
        amid_traffic
        amid_traffic_one_at_a_time
        until
        sleeps;
    turns:
        flood_received
        flood_that_ends
        flood_answered
        flood_sent
        flood_of_a_file
        requests_before_downloads
        downloads_take_turns
        one_completion_at_a_time
        one_at_a_time_amid_a_flood
        counters_grow
        steady;
    model:
        any_script;
    machine:
        woken_before_the_wait
        woken_in_the_wait
        woken_completion_names_nothing
        peers_of_the_standard_library
        heard_after_a_famine
        descriptors_run_out
        descriptors_do_not_leak
        descriptors_of_relays
        descriptors_of_any_number;
}

fn main() -> ExitCode {
    let by_readiness = |spec: &suite::Subject| {
        let wanted = |policy: &str| match spec.plain() {
            Some(name) if !EVERY_POLICY.contains(&name) => {
                MOST_TELLING.contains(&policy) || IN_FULL.contains(&policy)
            }
            Some(_) => true,
            None => policy == "default",
        };
        let has_every_policy = spec.plain().is_some_and(|name| EVERY_POLICY.contains(&name));
        let policies = policy::ALL.iter().filter(|(name, _)| wanted(name));
        policies
            .flat_map(|(policy, make)| {
                clauses().into_iter().map(move |(name, clause)| {
                    let name = format!("{policy}::{name}");
                    suite::trial(spec, &name, move |spec| over(spec, make(), clause))
                        .with_ignored_flag(!has_every_policy && IN_FULL.contains(policy))
                })
            })
            .collect()
    };
    let by_uring = |setting: &uring::Setting| {
        let clauses = clauses().into_iter();
        clauses
            .map(|(name, clause)| suite::trial(setting, name, move |of| uring::over(of, clause)))
            .collect()
    };
    let mut trials = suite::adapted_trials(by_readiness);
    trials.extend(suite::trials_over(uring::ALL.iter().copied(), by_uring));
    suite::run_all(trials)
}

/// A level-triggered and an edge-triggered mechanism are tested with every policy; the others with
/// those that have found most bugs; variants by an option or an adapter with the default.
const EVERY_POLICY: &[&str] = &["poll", "epoll-edge"];
const MOST_TELLING: &[&str] = &["default", "tiny"];
/// Policies that the other mechanisms are tested with under `--ignored`.
const IN_FULL: &[&str] = &["hurried", "wait_first_every_state"];

/// The policies.
mod policy {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use super::{InterestPolicy, Order, Policy};

    /// A policy with its name.
    type Named = (&'static str, fn() -> Policy);

    pub(crate) const ALL: &[Named] = &[
        ("default", Policy::default),
        ("wait_first", || with(|policy| policy.order = Order::WaitFirst)),
        ("accept_one", || with(|policy| policy.accept_limit = NonZeroU32::new(1))),
        ("accept_all", || with(|policy| policy.accept_limit = None)),
        ("every_state", || with(|policy| policy.interest = InterestPolicy::EveryState)),
        ("once", || with(|policy| policy.interest = InterestPolicy::Once)),
        ("tiny", || {
            with(|policy| {
                (policy.turn_bytes, policy.buffers, policy.buffer_size) = (1000, 2, 64);
            })
        }),
        ("hurried", || {
            with(|policy| {
                (policy.turn_bytes, policy.turn_time) = (64 * 1024, Duration::from_nanos(1));
            })
        }),
        ("batch_of_one", || with(|policy| policy.batch = 1)),
        ("wait_first_every_state", || {
            with(|policy| {
                (policy.order, policy.interest) = (Order::WaitFirst, InterestPolicy::EveryState);
            })
        }),
    ];

    fn with(change: impl FnOnce(&mut Policy)) -> Policy {
        let mut policy = Policy::default();
        change(&mut policy);
        policy
    }
}

/// Hands `clause` a case of readiness over what `spec` says.
fn over(spec: &suite::Subject, policy: Policy, clause: Clause<ReadinessIo<suite::Any>>) {
    let mechanism = suite::open(spec);
    let semantics = mechanism.semantics();
    let edge = semantics.trigger == Trigger::Edge;
    clause(&Case {
        io: &|| ReadinessIo::new(suite::open(spec), policy).unwrap(),
        spins: semantics.registers_both || (policy.interest == InterestPolicy::Once && !edge),
        share: (policy.turn_bytes < 10_000).then_some(policy.turn_bytes),
        hurry: (policy.turn_time.as_nanos() == 1).then_some(policy.turn_bytes),
        accepts: policy.accept_limit.map(std::num::NonZeroU32::get),
        steady: policy.order == Order::TryFirst
            && policy.interest != InterestPolicy::EveryState
            && semantics.trigger != Trigger::OneShot,
    });
}
