//! The proxy between clients and origins that misbehave in every way: over every mechanism, and
//! io_uring.
//!
//! The harness has its own parser, clients and origins over blocking sockets. A mechanism that this
//! kernel refuses is skipped, and says so. Whatever is waited for has an upper bound that only a hang
//! exceeds. `cargo test -p hearken-server --test proxy -- epoll-edge::` runs one mechanism's.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

mod behaviour;
mod harness;
mod matrix;
mod memory;
mod smuggling;

use harness::{Way, process};

/// Set where every mechanism that needs no privilege must be tested: one that is refused then fails.
const REQUIRED: &str = "HEARKEN_REQUIRE_MECHANISMS";

fn main() -> ExitCode {
    if process::is_child() {
        process::run();
        return ExitCode::SUCCESS;
    }
    let trials = Way::all().iter().flat_map(of_way).collect();
    let mut arguments = Arguments::from_args();
    // Most of the time they wait.
    let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    arguments.test_threads.get_or_insert(3 * threads);
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// A test, as a function of how events are had.
type Test = fn(&Way);

fn of_way(way: &Way) -> Vec<Trial> {
    if let Err(reason) = way.probe() {
        let must = std::env::var_os(REQUIRED).is_some() && !way.needs_privileges();
        let name = format!("{} cannot be had here: {reason}", way.name());
        let fail = || Err(Failed::from("it is required, and was skipped"));
        return vec![Trial::test(name, fail).with_ignored_flag(!must)];
    }
    let mut tests: Vec<(&str, Test)> = Vec::new();
    tests.push(if way.is_usual() {
        ("matrix::covering", |way| matrix::run(way, matrix::Extent::Covering))
    } else {
        ("matrix::some", |way| matrix::run(way, matrix::Extent::Some))
    });
    tests.push(("matrix::conversations", |way| {
        matrix::conversation::run(way, if way.is_usual() { 400 } else { 40 });
    }));
    tests.extend(smuggling::TESTS);
    if way.workers == 1 {
        // What each worker has a share of cannot be told of few requests.
        tests.extend(behaviour::TESTS);
        tests.extend(memory::TESTS);
        if way.is_usual() || way.name() == "uring" {
            tests.extend(behaviour::SOME);
        }
    }
    let mut trials: Vec<Trial> =
        tests.into_iter().map(|(name, test)| trial(way, name, test)).collect();
    if way.is_usual() {
        // 83,747 cases: minutes.
        let whole = trial(way, "matrix::whole", |way| matrix::run(way, matrix::Extent::Whole));
        trials.push(whole.with_ignored_flag(true));
    }
    trials
}

fn trial(way: &Way, name: &str, test: Test) -> Trial {
    let owned = way.clone();
    Trial::test(format!("{}::{name}", way.name()), move || {
        // In a thread of its own: a ring that goes interrupts the thread that had it, somewhat later.
        let alone = std::thread::spawn(move || test(&owned));
        alone.join().map_err(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let said = panic.downcast_ref::<&str>().map(ToString::to_string);
            Failed::from(text.or(said).unwrap_or_else(|| "it panicked".to_owned()))
        })
    })
}
