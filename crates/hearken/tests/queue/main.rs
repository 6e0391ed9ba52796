//! `EventQueue` over every mechanism, the timing wheel, and both compared with models.
//! All tests: `cargo test -p hearken --test queue`; of one mechanism: `... -- events::epoll-edge`.
//! One case: `cargo test -p hearken --test queue -- --exact classes::poll::no_class_is_starved`.
//! Ignored trials name unavailable mechanisms. `HEARKEN_REQUIRE_MECHANISMS=1` makes them fail.
//! `PROPTEST_CASES=10000` runs more cases of the property tests, which are in `model` and `timer`.

mod classes;
mod events;
mod model;
mod poller;
mod processwide;
#[path = "../suite/mod.rs"]
mod suite;
mod timer;

use std::process::ExitCode;

fn main() -> ExitCode {
    let _programs = suite::load_kernel_programs();
    let mut trials = events::trials();
    trials.extend(classes::trials());
    trials.extend(processwide::trials());
    trials.extend(model::trials());
    trials.extend(poller::trials());
    trials.extend(suite::plain_trials("timer", timer::tests()));
    suite::run(trials)
}
