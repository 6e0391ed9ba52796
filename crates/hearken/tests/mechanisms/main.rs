//! The contract of `Mechanism`, over every mechanism in every variant, and specific behaviour.
//! All tests: `cargo test -p hearken --test mechanisms`; some: `... -- contract::epoll-edge`.
//! One: `cargo test -p hearken --test mechanisms -- --exact contract::poll::waiting::at_most_max`.
//! Ignored trials name unavailable mechanisms. `HEARKEN_REQUIRE_MECHANISMS=1` makes them fail.
//! `PROPTEST_CASES=10000` runs more cases of the property tests of `locality`.

mod contract;
mod dev_poll;
mod level_adapter;
mod locality;
mod selection;
#[path = "../suite/mod.rs"]
mod suite;
mod uring_poll;

use std::process::ExitCode;

use suite::plain_trials;

fn main() -> ExitCode {
    let _programs = suite::load_kernel_programs();
    let mut trials = contract::trials();
    trials.extend(plain_trials("dev_poll", dev_poll::tests()));
    trials.extend(plain_trials("level_adapter", level_adapter::tests()));
    trials.extend(plain_trials("locality", locality::tests()));
    trials.extend(plain_trials("locality::threads", locality::threads::tests()));
    trials.extend(plain_trials("selection", selection::tests()));
    trials.extend(plain_trials("uring_poll", uring_poll::tests()));
    suite::run(trials)
}
