//! Tests of the proxy: behaviour, faults of peers, smuggling, memory, balancing, access rules.
//! Most run over every mechanism. HEARKEN_REQUIRE_MECHANISMS makes unavailable mechanisms an error.
//! One case: `cargo test -p hearken-server --test proxy -- epoll-edge::reuse::connects_to_unix_sockets`
//! One mechanism: `cargo test -p hearken-server --test proxy -- epoll-edge::`
//! All combinations of faults: `cargo test --release -p hearken-server --test proxy -- --ignored`

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

/// Defines the list of tests of a module, which need no mechanism.
macro_rules! test_list {
    ($($test:ident)+) => {
        pub(crate) const TESTS: $crate::Tests =
            &[$((concat!(module_path!(), "::", stringify!($test)), $test),)+];
    };
}
pub(crate) use test_list;

mod access;
mod behaviour;
#[path = "../common/mod.rs"]
mod common;
mod http2;
mod matrix;
mod memory;
mod smuggling;
mod upstreams;

use common::{Setup, process};
use matrix::Selection;

/// Number of tests that run concurrently by default. Most of the time they wait.
const TEST_THREADS: usize = 8;

/// A test of a mechanism.
type Test = fn(&Setup);

/// Names and functions of tests that need no mechanism.
type Tests = &'static [(&'static str, fn())];

fn main() -> ExitCode {
    if process::run_server() {
        return ExitCode::SUCCESS;
    }
    let plain = upstreams::TESTS.iter().copied().flatten().chain(access::TESTS);
    let plain = plain.map(|&(path, test)| {
        // The path begins with the name of this executable.
        let name = path.split_once("::").map_or(path, |(_, name)| name);
        trial(name.to_owned(), test)
    });
    let setups = Setup::all();
    let trials = setups.iter().enumerate().flat_map(|(index, setup)| of_setup(index, setup));
    let trials = trials.chain(plain).collect();
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(TEST_THREADS);
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Returns the tests of the setup with this index.
fn of_setup(index: usize, setup: &Setup) -> Vec<Trial> {
    if let Err(reason) = setup.probe() {
        let name = format!("{} is not available: {reason}", setup.name());
        let fail = || Err(Failed::from("the mechanism is required"));
        return vec![Trial::test(name, fail).with_ignored_flag(!setup.is_required())];
    }
    let mut tests: Vec<(&str, Test)> = Vec::new();
    tests.push(("matrix::conversations", |setup| {
        matrix::conversation::run(setup, if setup.is_default() { 200 } else { 40 });
    }));
    tests.extend(smuggling::TESTS);
    if setup.workers == 1 {
        // The other tests depend on state that several workers divide.
        tests.extend(behaviour::TESTS);
        tests.extend(memory::TESTS);
        tests.extend(http2::TESTS);
        if setup.is_default() || setup.name() == "uring" {
            tests.extend(behaviour::REPRESENTATIVE_TESTS);
        }
    }
    let with_setup = |name: &str, test: Test| {
        let setup_owned = setup.clone();
        trial(format!("{}::{name}", setup.name()), move || test(&setup_owned))
    };
    let mut trials: Vec<Trial> =
        tests.into_iter().map(|(name, test)| with_setup(name, test)).collect();
    let selection = if setup.is_default() { Selection::Pairwise } else { Selection::Share(index) };
    let matrix = |name: &str, selection: Selection| {
        let setup_owned = setup.clone();
        let name = format!("{}::matrix::{name}", setup.name());
        trial(name, move || matrix::run(&setup_owned, selection))
    };
    trials.push(matrix(if setup.is_default() { "pairwise" } else { "share" }, selection));
    if setup.is_default() {
        // 83,747 cases: minutes.
        trials.push(matrix("all", Selection::All).with_ignored_flag(true));
        trials.push(matrix("one_sided", Selection::OneSided).with_ignored_flag(true));
    } else {
        trials.push(matrix("pairwise", Selection::Pairwise).with_ignored_flag(true));
    }
    trials
}

/// Returns a test that runs in a thread of its own, because an io_uring that is closed interrupts the
/// thread that created it somewhat later.
fn trial(name: String, test: impl FnOnce() + Send + 'static) -> Trial {
    Trial::test(name, move || {
        std::thread::spawn(test).join().map_err(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let literal = panic.downcast_ref::<&str>().map(ToString::to_string);
            Failed::from(text.or(literal).unwrap_or_else(|| "the test panicked".to_owned()))
        })
    })
}
