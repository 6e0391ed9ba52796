//! What the suites share that run over every mechanism: which those are, with every option, and how
//! one that cannot be had here is reported.
//!
//! Filter by name as with any test: `cargo test -p hearken --test contract -- uring-poll`.

// Each suite uses a part of it.
#![allow(dead_code)]

use std::cell::RefCell;
use std::process::ExitCode;

use hearken::Mechanism;
use hearken::mechanism::{Entry, Spec, TABLE};
use libtest_mimic::{Arguments, Failed, Trial};

/// Set where every mechanism that needs no privilege must be tested: one that is refused then fails.
const REQUIRED: &str = "HEARKEN_REQUIRE_MECHANISMS";

/// Any mechanism, as who chooses at run time has it.
pub(crate) type Any = Box<dyn Mechanism>;

/// Every mechanism with its defaults, and with every other word of every option.
pub(crate) fn variants() -> impl Iterator<Item = Spec> {
    TABLE.iter().flat_map(Entry::variants)
}

/// True if it is with its defaults.
pub(crate) fn is_default(spec: &Spec) -> bool {
    spec.to_string() == spec.entry.name
}

/// Opens what was found to be available.
pub(crate) fn open(spec: &Spec) -> Any {
    spec.open().unwrap_or_else(|reason| panic!("{spec}: {reason}"))
}

thread_local! {
    static CURRENT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The name of the test that this thread runs.
pub(crate) fn current() -> String {
    CURRENT.with_borrow(String::clone)
}

/// A suite: for each variant that can be had, what `trials` makes for it; for each other, one that is
/// skipped and says why.
pub(crate) fn run(trials: impl Fn(&Spec) -> Vec<Trial>) -> ExitCode {
    let mut all = Vec::new();
    for spec in variants() {
        match spec.probe() {
            Ok(()) => all.extend(trials(&spec)),
            Err(reason) => {
                let required = std::env::var_os(REQUIRED).is_some();
                let must = required && !spec.needs_privileges();
                let name = format!("{spec} cannot be had here: {reason}");
                let fail = move || Err(Failed::from("it is required, and was skipped"));
                all.push(Trial::test(name, fail).with_ignored_flag(!must));
            }
        }
    }
    libtest_mimic::run(&Arguments::from_args(), all).exit_code()
}

/// A test of a variant.
pub(crate) fn trial(spec: &Spec, name: &str, test: impl FnOnce(&Spec) + Send + 'static) -> Trial {
    let owned = spec.clone();
    let name = format!("{spec}::{name}");
    Trial::test(name.clone(), move || {
        CURRENT.set(name);
        test(&owned);
        Ok(())
    })
}
