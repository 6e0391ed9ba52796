//! Tasks, over every mechanism, over io_uring and over simulated networks.
//! All tests: `cargo test -p hearken --test task`; some: `... -- epoll-edge`, or `... -- uring`.
//!
//! A clause is a function over [`Case`], which creates a new `impl Io`. Clients and servers are tasks
//! of one executor, unless a clause says otherwise. [`Checked`](hearken::io::sim::Checked) checks the
//! contract of the `Io` at every completion.

use std::cell::Cell;
use std::process::ExitCode;

use hearken::io::Relay;
use hearken::io::readiness::{Policy, ReadinessIo};
use libtest_mimic::Trial;

mod allocations;
mod channels;
mod driver;
mod examples;
mod executors;
mod net;
mod properties;
mod relays;
#[allow(dead_code)]
#[path = "../io/sim_kernel.rs"]
mod sim_kernel;
#[allow(dead_code)]
#[path = "../io/sim_settings.rs"]
mod sim_settings;
mod streams;
#[path = "../suite/mod.rs"]
mod suite;
mod times;
mod traits;
#[allow(dead_code)]
#[path = "../io/uring_settings.rs"]
mod uring_settings;

use suite::MechanismTarget;

/// An implementation of `Io` under test. The fields are those of `tests/io`, whose settings run here.
#[allow(dead_code)]
struct Case<'a, I> {
    io: &'a dyn Fn() -> I,
    wakes_when_idle: bool,
    turn_bytes: Option<usize>,
    bulk_bytes: Option<usize>,
    accept_limit: Option<u32>,
    max_waits: u32,
    keeps_interest: bool,
    has_handshake: bool,
}

/// A function that tests one property of tasks.
type Clause<I> = fn(&Case<'_, I>);

/// Lists the clauses with their names, for any implementation.
macro_rules! clauses {
    ($($group:ident: $($clause:ident)*;)*) => {
        fn clauses<I: Relay + 'static>() -> Vec<(&'static str, Clause<I>)> {
            vec![$($(
                (concat!(stringify!($group), "::", stringify!($clause)), $group::$clause as Clause<I>),
            )*)*]
        }
    };
}

clauses! {
    streams:
        echoes_bytes_of_all_lengths
        copies_bytes_in_pieces
        returned_bytes_are_received_first
        writes_from_several_pieces
        sends_heads_and_bodies
        half_closed_stream_still_sends
        writes_wait_for_a_slow_peer
        addresses_of_both_sides_match
        refused_connect_fails
        reset_fails_both_directions
        finish_delivers_the_last_bytes
        deadline_fails_operations_until_moved
        streams_close_with_the_last_clone
        reset_ends_the_operations_of_clones
        connects_over_unix_sockets
        dropped_receives_lose_no_bytes
        dropped_write_is_sent_whole_or_not_at_all
        dropped_accepts_lose_no_connection
        held_bytes_do_not_exhaust_the_pool;
    relays:
        relays_both_ways
        relays_up_to_a_maximum
        relay_begins_with_received_bytes
        relay_reports_the_failure_of_either_side
        dropped_relay_continues;
    executors:
        outputs_reach_handles
        panic_ends_only_its_task
        aborted_task_is_dropped
        dropping_an_executor_drops_tasks
        spinning_task_does_not_starve_others
        tasks_that_wake_each_other_do_not_starve_others
        wakers_work_on_other_threads
        stop_ends_listeners
        shut_down_drops_tasks_after_its_grace;
    times:
        sleeps_end_in_order_and_never_early
        timeout_drops_its_future
        moved_sleeps_end_at_their_new_time;
    driver:
        completions_drive_a_server
        unclaimed_completions_reach_their_task
        completions_end_with_a_closed_connection
        passed_completions_reach_their_task
        turns_run_in_parts
        completions_precede_ready_tasks;
    traits:
        futures_io_traits_work
        tokio_traits_work
        hyper_serves_requests;
}

fn main() -> ExitCode {
    let _programs = suite::load_kernel_programs();
    let rank = Cell::new(0);
    let next_rank = || rank.replace(rank.get() + 1);
    let mut trials = suite::trials_over("", suite::subjects(), |subject| {
        let is_common = COMMON.contains(&&*subject.to_string());
        trials_of(subject, next_rank(), if is_common { 1 } else { 4 }, over_readiness)
    });
    trials.extend(suite::trials_over("", uring_settings::ALL.iter().copied(), |setting| {
        trials_of(setting, 0, 1, uring_settings::over_uring)
    }));
    trials.extend(suite::trials_over("", sim_settings::ALL.iter().copied(), |setting| {
        trials_of(setting, 0, 1, sim_settings::over_sim)
    }));
    trials.extend(suite::trials_over("", sim_kernel::all(), |setting| {
        trials_of(setting, next_rank(), 4, |setting, clause| {
            sim_kernel::over_sim(setting, Policy::default(), clause);
        })
    }));
    trials.extend(suite::plain_trials("channels", channels::tests()));
    trials.extend(suite::plain_trials("allocations", allocations::tests()));
    trials.extend(suite::plain_trials("examples", examples::tests()));
    trials.extend(suite::plain_trials("properties", properties::tests()));
    suite::run(trials)
}

/// Returns a trial of each clause. One of `share` clauses runs by default, which depends on the rank
/// of the target.
fn trials_of<T: suite::Target, I: Relay + 'static>(
    target: &T,
    rank: usize,
    share: usize,
    run: fn(&T, Clause<I>),
) -> Vec<Trial> {
    let is_simulated = target.to_string().starts_with("sim");
    let trial = |(index, (clause, test))| {
        if is_simulated && NEEDS_A_KERNEL.contains(&clause) {
            return None;
        }
        suite::product_trial(suite::pairwise(rank, index, share) == 0, || {
            suite::trial("", target, clause, move |target| run(target, test))
        })
    };
    clauses().into_iter().enumerate().filter_map(trial).collect()
}

/// Mechanisms over which every clause runs by default.
const COMMON: &[&str] = &["epoll-edge", "poll"];

/// Clauses that a simulation cannot run.
const NEEDS_A_KERNEL: &[&str] = &["streams::sends_heads_and_bodies"];

/// Runs `clause` over a mechanism.
fn over_readiness(subject: &suite::Subject, clause: Clause<ReadinessIo<suite::AnyMechanism>>) {
    let policy = Policy::default();
    clause(&Case {
        io: &|| ReadinessIo::new(subject.try_open().unwrap(), policy).unwrap(),
        wakes_when_idle: false,
        turn_bytes: None,
        bulk_bytes: None,
        accept_limit: None,
        max_waits: 1,
        keeps_interest: false,
        has_handshake: false,
    });
}
