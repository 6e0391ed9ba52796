//! What the suites share that run over every mechanism: which those are, with every option, and how
//! one that cannot be had here is reported.
//!
//! Filter by name as with any test: `cargo test -p hearken --test contract -- uring-poll`.

// Each suite uses a part of it.
#![allow(dead_code)]

pub(crate) mod adapted;

use std::cell::RefCell;
use std::fmt;
use std::process::ExitCode;

use hearken::Mechanism;
use hearken::mechanism::{Entry, Spec, TABLE, Unavailable};
use libtest_mimic::{Arguments, Failed, Trial};

/// Set where every mechanism that needs no privilege must be tested: one that is refused then fails.
const REQUIRED: &str = "HEARKEN_REQUIRE_MECHANISMS";

/// Any mechanism, as who chooses at run time has it.
pub(crate) type Any = Box<dyn Mechanism>;

/// Every mechanism with its defaults, and with every other word of every option.
pub(crate) fn variants() -> impl Iterator<Item = Spec> {
    TABLE.iter().flat_map(Entry::variants)
}

/// What a suite runs over.
pub(crate) trait Variant: Clone + fmt::Display + Send + 'static {
    fn try_open(&self) -> Result<Any, Unavailable>;
    /// Whether it can be had here.
    fn probe(&self) -> Result<(), Unavailable> {
        self.try_open().map(drop)
    }
    fn is_privileged(&self) -> bool;
}

impl Variant for Spec {
    fn try_open(&self) -> Result<Any, Unavailable> {
        self.open()
    }

    fn is_privileged(&self) -> bool {
        self.needs_privileges()
    }
}

/// A mechanism of the table, or an adapter over one.
#[derive(Clone)]
pub(crate) enum Subject {
    Listed(Spec),
    /// Also a mechanism that only adapters are for.
    Adapted(&'static str, adapted::Opens),
}

impl Subject {
    /// The mechanism's name, if it is one of the table with its defaults.
    pub(crate) fn plain(&self) -> Option<&'static str> {
        match self {
            Subject::Listed(spec) => is_default(spec).then_some(spec.entry.name),
            Subject::Adapted(..) => None,
        }
    }
}

impl Variant for Subject {
    fn try_open(&self) -> Result<Any, Unavailable> {
        match self {
            Subject::Listed(spec) => spec.open(),
            Subject::Adapted(_, open) => open(),
        }
    }

    fn is_privileged(&self) -> bool {
        matches!(self, Subject::Listed(spec) if spec.is_privileged())
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Listed(spec) => spec.fmt(f),
            Subject::Adapted(name, _) => f.write_str(name),
        }
    }
}

/// True if it is with its defaults.
pub(crate) fn is_default(spec: &Spec) -> bool {
    spec.to_string() == spec.entry.name
}

/// Opens what was found to be available.
pub(crate) fn open(variant: &impl Variant) -> Any {
    variant.try_open().unwrap_or_else(|reason| panic!("{variant}: {reason}"))
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
    run_over(variants(), trials)
}

/// As [`run`], and over the adapters: for a suite that says what was used up.
pub(crate) fn run_adapted(trials: impl Fn(&Subject) -> Vec<Trial>) -> ExitCode {
    run_all(adapted_trials(trials))
}

/// The trials of such a suite.
pub(crate) fn adapted_trials(trials: impl Fn(&Subject) -> Vec<Trial>) -> Vec<Trial> {
    let adapted = adapted::ALL.iter().map(|(name, open)| Subject::Adapted(name, *open));
    trials_over(variants().map(Subject::Listed).chain(adapted), trials)
}

fn run_over<V: Variant>(
    variants: impl Iterator<Item = V>,
    trials: impl Fn(&V) -> Vec<Trial>,
) -> ExitCode {
    run_all(trials_over(variants, trials))
}

/// Runs what was asked for of them.
pub(crate) fn run_all(trials: Vec<Trial>) -> ExitCode {
    // Loaded once, where they can be: they are found loaded by each instance then.
    let _programs = hearken::mechanism::bpf::Programs::load();
    let mut arguments = Arguments::from_args();
    // Trials wait as much as they compute.
    let threads = std::thread::available_parallelism().map_or(2, |cores| 2 * cores.get());
    arguments.test_threads.get_or_insert(threads);
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// What `trials` makes for each variant that can be had.
pub(crate) fn trials_over<V: Variant>(
    variants: impl Iterator<Item = V>,
    trials: impl Fn(&V) -> Vec<Trial>,
) -> Vec<Trial> {
    // To find out what can be had.
    let _programs = hearken::mechanism::bpf::Programs::load();
    let mut all = Vec::new();
    for variant in variants {
        match variant.probe() {
            Ok(()) => all.extend(trials(&variant)),
            Err(reason) => {
                let required = std::env::var_os(REQUIRED).is_some();
                let must = required && !variant.is_privileged();
                let name = format!("{variant} cannot be had here: {reason}");
                let fail = move || Err(Failed::from("it is required, and was skipped"));
                all.push(Trial::test(name, fail).with_ignored_flag(!must));
            }
        }
    }
    all
}

/// A test of a variant.
pub(crate) fn trial<V: Variant>(
    variant: &V,
    name: &str,
    test: impl FnOnce(&V) + Send + 'static,
) -> Trial {
    let owned = variant.clone();
    let name = format!("{variant}::{name}");
    Trial::test(name.clone(), move || {
        // In a thread of its own: a ring that goes interrupts the thread that had it, somewhat later.
        let alone = std::thread::spawn(move || {
            CURRENT.set(name);
            test(&owned);
        });
        alone.join().map_err(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let said = panic.downcast_ref::<&str>().map(ToString::to_string);
            Failed::from(text.or(said).unwrap_or_else(|| "it panicked".to_owned()))
        })
    })
}
