//! `EventQueue` and the timing wheel: events, classes and process-wide interest, over every mechanism, and models.
//! All tests: `cargo test -p hearken --test queue`; of one mechanism: `... -- events::epoll-edge`.
//! One case: `cargo test -p hearken --test queue -- --exact classes::poll::none_is_starved`.
//! An ignored trial reports a mechanism that is not available; `HEARKEN_REQUIRE_MECHANISMS=1` makes it fail instead.
//! `PROPTEST_CASES=10000` runs more cases of the property tests, which are in `model` and `timer`.

mod classes;
mod events;
mod model;
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
    trials.extend(suite::plain_trials("timer", timer::tests()));
    suite::run(trials)
}
