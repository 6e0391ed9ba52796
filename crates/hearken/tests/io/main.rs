//! The contract of `Io`, over every mechanism and policy, over io_uring and over a simulated
//! network; and the buffer pool.
//! All tests: `cargo test -p hearken --test io`; some: `... -- epoll-edge`, or `... -- uring`.
//! One: `cargo test -p hearken --test io -- --exact poll::tiny::sending::sends_complete_in_order`.
//! By default, cases are selected pairwise from the product of mechanisms, policies and clauses.
//! All cases, which take minutes: `cargo test -p hearken --test io -- --include-ignored`.
//!
//! The clauses use operations and completions only. Each clause is a function over [`Case`], which
//! creates a new `impl Io`, so another implementation needs only one more function like
//! [`over_readiness`]. [`Checked`](hearken::io::sim::Checked) asserts at every completion of every test what must
//! always hold, and [`net::Net`] drives it. The clauses in [`machine`] also use threads, sockets of
//! the standard library, and the descriptor table.

use std::cell::Cell;
use std::collections::HashMap;
use std::process::ExitCode;

use hearken::io::Relay;
use hearken::io::readiness::{ClosePolicy, InterestPolicy, Order, Policy, ReadinessIo};
use hearken::mechanism::Trigger;
use libtest_mimic::Trial;

mod clauses;
mod connections;
mod deadlines;
mod hop;
mod listeners;
mod machine;
mod model;
mod net;
mod pool;
mod receiving;
mod relay_ends;
mod relaying;
mod sending;
mod sim_kernel;
mod sim_only;
mod sim_ring;
mod sim_settings;
#[path = "../suite/mod.rs"]
mod suite;
mod turns;
mod unix;
mod uring_only;
mod uring_settings;

use clauses::{Case, Clause, clauses};
use suite::{AnyMechanism, MechanismTarget, Subject, Target};

/// Clauses that only test something under one policy or setting, with its name.
const POLICY_OF_CLAUSE: &[(&str, &str)] = &[
    ("listeners::accepts_no_more_than_the_limit_per_turn", "accept_one"),
    ("turns::ended_flood_does_not_starve_others", "tiny"),
    ("turns::requests_precede_downloads", "hurried"),
    ("turns::downloads_take_turns", "hurried"),
];

/// Returns the policy or setting without which a clause tests nothing.
fn policy_of_clause(clause: &str) -> Option<&'static str> {
    POLICY_OF_CLAUSE.iter().find(|(name, _)| *name == clause).map(|(_, policy)| *policy)
}

fn main() -> ExitCode {
    let _programs = suite::load_kernel_programs();
    let mut trials = readiness_trials();
    trials.extend(suite::trials_over("", uring_settings::ALL.iter().copied(), uring_trials));
    trials.extend(suite::trials_over("", sim_settings::ALL.iter().copied(), |setting| {
        sim_trials(setting, |_| true, sim_settings::over_sim)
    }));
    trials.extend(sim_kernel_trials());
    trials.extend(suite::trials_over("", sim_ring::all(), |setting| {
        let mut trials = sim_trials(
            setting,
            |clause| sim_ring::is_selected(setting, clause),
            sim_ring::over_sim,
        );
        trials.retain(|trial| !sim_ring::is_excluded(setting, trial.name()));
        trials
    }));
    trials.extend(suite::plain_trials("uring_only", uring_only::tests()));
    trials.extend(suite::plain_trials("sim_kernel", sim_kernel::tests()));
    trials.extend(suite::plain_trials("sim_only", sim_only::tests()));
    trials.extend(suite::plain_trials("sim_ring", sim_ring::tests()));
    trials.extend(suite::plain_trials("pool", pool::tests()));
    suite::run(trials)
}

/// Returns the trials of `Io` over mechanisms. Each mechanism runs each clause under one policy by
/// default.
fn readiness_trials() -> Vec<Trial> {
    let ranks = ranks();
    suite::trials_over("", suite::subjects(), |subject| {
        trials_of_policies(subject, ranks[&subject.to_string()], 1, &clauses(), over_readiness)
    })
}

/// Returns the trials of `Io` over simulated mechanisms. Each runs a third of the clauses by default,
/// each under one policy.
fn sim_kernel_trials() -> Vec<Trial> {
    let rank = Cell::new(0);
    suite::trials_over("", sim_kernel::all(), |setting| {
        rank.set(rank.get() + 1);
        let mut clauses = clauses();
        clauses.retain(|(clause, _)| !setting.excludes(clause));
        trials_of_policies(setting, rank.get(), 3, &clauses, sim_kernel::over_sim)
    })
}

/// Returns a trial for each policy and clause. One of `share` clauses is selected, under one policy,
/// which both depend on the rank of the target.
fn trials_of_policies<T: Target, I: 'static>(
    target: &T,
    rank: usize,
    share: usize,
    clauses: &[(&'static str, Clause<I>)],
    run: fn(&T, Policy, Clause<I>),
) -> Vec<Trial> {
    let mut trials = Vec::new();
    for (clause_index, &(clause, test)) in clauses.iter().enumerate() {
        let index = suite::pairwise(rank, clause_index, policy::ALL.len());
        let selected = policy_of_clause(clause).unwrap_or(policy::ALL[index].0);
        for (policy, make) in policy::ALL {
            let is_selected =
                *policy == selected && suite::pairwise(rank, clause_index, share) == 0;
            trials.extend(suite::product_trial(is_selected, || {
                let name = format!("{policy}::{clause}");
                suite::trial("", target, &name, move |target| run(target, make(), test))
            }));
        }
    }
    trials
}

/// Returns the rank of each available mechanism among those with the same trigger.
///
/// Selecting by rank lets the mechanisms of each trigger together run every clause under nearly
/// every policy.
fn ranks() -> HashMap<String, usize> {
    let mut counts: [usize; 3] = [0; 3];
    let mut ranks = HashMap::new();
    for subject in suite::subjects() {
        let Ok(mechanism) = subject.try_open() else { continue };
        let count = match mechanism.semantics().trigger {
            Trigger::Level => &mut counts[0],
            Trigger::Edge => &mut counts[1],
            Trigger::OneShot => &mut counts[2],
        };
        ranks.insert(subject.to_string(), *count);
        *count += 1;
    }
    ranks
}

/// Returns the trials of `Io` over io_uring under one setting.
fn uring_trials(setting: &uring_settings::Setting) -> Vec<Trial> {
    let trial = |(index, (clause, test)): (usize, (&'static str, Clause<_>))| {
        let selected = uring_settings::is_selected(setting, index, policy_of_clause(clause));
        suite::product_trial(selected, || {
            suite::trial("", setting, clause, move |setting| {
                uring_settings::over_uring(setting, test);
            })
        })
    };
    clauses().into_iter().enumerate().filter_map(trial).collect()
}

/// Returns the trials of a simulated `Io`: one for each clause that a simulation can run. By
/// default, those run whose index is selected.
fn sim_trials<T: Target, I: Relay + 'static>(
    target: &T,
    is_selected: impl Fn(usize) -> bool,
    run: fn(&T, Clause<I>),
) -> Vec<Trial> {
    let clauses = clauses().into_iter().filter(|(clause, _)| !sim_settings::is_excluded(clause));
    let trial = |(index, (clause, test))| {
        suite::product_trial(is_selected(index), || {
            suite::trial("", target, clause, move |target| run(target, test))
        })
    };
    clauses.enumerate().filter_map(trial).collect()
}

/// The policies.
mod policy {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use hearken::timer::TimerPolicy;

    use super::{ClosePolicy, InterestPolicy, Order, Policy};

    /// A policy with its name.
    type Named = (&'static str, fn() -> Policy);

    pub(crate) const ALL: &[Named] = &[
        ("default", Policy::default),
        ("wait_first", || with(|policy| policy.order = Order::WaitFirst)),
        ("wait_to_receive", || with(|policy| policy.order = Order::WaitToReceive)),
        ("explicit_close", || with(|policy| policy.close = ClosePolicy::Explicit)),
        ("scanned_timers", || with(|policy| policy.timers = TimerPolicy::Scan)),
        ("corked", || with(|policy| policy.cork = true)),
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

/// Runs `clause` over a mechanism under `policy`.
fn over_readiness(subject: &Subject, policy: Policy, clause: Clause<ReadinessIo<AnyMechanism>>) {
    let mechanism = suite::open(subject);
    let semantics = mechanism.semantics();
    let is_edge = semantics.trigger == Trigger::Edge;
    clause(&Case {
        io: &|| ReadinessIo::new(suite::open(subject), policy).unwrap(),
        wakes_when_idle: semantics.registers_both
            || (policy.interest == InterestPolicy::Once && !is_edge),
        turn_bytes: (policy.turn_bytes < 10_000).then_some(policy.turn_bytes),
        bulk_bytes: (policy.turn_time.as_nanos() == 1).then_some(policy.turn_bytes),
        max_waits: mechanism.scan_interval(),
        accept_limit: policy.accept_limit.map(std::num::NonZeroU32::get),
        keeps_interest: policy.order != Order::WaitFirst
            && policy.interest != InterestPolicy::EveryState
            && semantics.trigger != Trigger::OneShot,
        has_handshake: false,
    });
}
