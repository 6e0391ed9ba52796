//! Tests of process-wide state: signals, descriptor tables, limits, and races for numbers.
//! All tests: `cargo test -p hearken --test process`; of one mechanism: `... -- races::rt-signal`.
//! One: `cargo test -p hearken --test process -- --exact races::poll::threads_compete_for_numbers`.
//! All combinations of mechanism, storm and signal limit: `... -- signals --include-ignored`.
//! `HEARKEN_RACE_ROUNDS=100` repeats the races for minutes instead of seconds.

mod descriptor_tables;
#[path = "../loss/mod.rs"]
mod loss;
mod races;
mod signals;
#[path = "../suite/mod.rs"]
mod suite;
mod uring_refusal;

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = signals::run_child() {
        return code;
    }
    let programs = hearken::mechanism::bpf::Programs::load();
    let mut trials = suite::plain_trials("descriptor_tables", descriptor_tables::tests());
    trials.extend(suite::plain_trials("uring_refusal", uring_refusal::tests()));
    trials.extend(signals::trials());
    trials.extend(races::trials());
    let code = suite::run(trials);
    if let Ok(programs) = programs {
        println!("{} stray signals", programs.unattributed());
    }
    code
}
