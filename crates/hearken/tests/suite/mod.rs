//! Parts that the test executables share: the mechanisms under test, trials over them, and the
//! selection of cases from large cross products.
//!
//! A mechanism that is not available on this machine appears as one ignored trial whose name states
//! the reason.

// Each executable uses only some of these functions.
#![allow(dead_code, unused_macros, unused_imports)]

pub(crate) mod adapted;

use std::cell::RefCell;
use std::fmt;
use std::process::{Command, ExitCode};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use hearken::Mechanism;
use hearken::mechanism::{Entry, Spec, TABLE, Unavailable};
use libtest_mimic::{Arguments, Failed, Trial};
use proptest::test_runner::Config;

/// Name of the environment variable that makes unavailable mechanisms an error unless they need
/// privileges.
const REQUIRED: &str = "HEARKEN_REQUIRE_MECHANISMS";

/// Number of trials that run concurrently by default. Most trials wait more than they compute.
const THREADS: usize = 8;

/// A mechanism that is selected at run time.
pub(crate) type AnyMechanism = Box<dyn Mechanism>;

/// Returns every mechanism with its default options, and with every other value of every option.
pub(crate) fn variants() -> impl Iterator<Item = Spec> {
    TABLE.iter().flat_map(Entry::variants)
}

/// A target of trials, which may be unavailable on this machine.
pub(crate) trait Target: Clone + fmt::Display + Send + 'static {
    /// Checks whether the target is available.
    fn probe(&self) -> Result<(), Unavailable>;

    /// Returns whether the target needs privileges.
    fn is_privileged(&self) -> bool;
}

/// A target that is a mechanism.
pub(crate) trait MechanismTarget: Target {
    /// Opens an instance.
    fn try_open(&self) -> Result<AnyMechanism, Unavailable>;
}

impl Target for Spec {
    fn probe(&self) -> Result<(), Unavailable> {
        self.open().map(drop)
    }

    fn is_privileged(&self) -> bool {
        self.needs_privileges()
    }
}

impl MechanismTarget for Spec {
    fn try_open(&self) -> Result<AnyMechanism, Unavailable> {
        self.open()
    }
}

/// A mechanism of the table, or an adapter over one.
#[derive(Clone)]
pub(crate) enum Subject {
    /// A mechanism of the table.
    Listed(Spec),
    /// An adapter, or a mechanism that exists only to test adapters, with its name.
    Adapted(&'static str, adapted::OpenFn),
}

impl Target for Subject {
    fn probe(&self) -> Result<(), Unavailable> {
        self.try_open().map(drop)
    }

    fn is_privileged(&self) -> bool {
        matches!(self, Subject::Listed(spec) if spec.needs_privileges())
    }
}

impl MechanismTarget for Subject {
    fn try_open(&self) -> Result<AnyMechanism, Unavailable> {
        match self {
            Subject::Listed(spec) => spec.open(),
            Subject::Adapted(_, open) => open(),
        }
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

/// Returns every mechanism of the table in every variant, and every adapter.
pub(crate) fn subjects() -> impl Iterator<Item = Subject> {
    let adapted = adapted::ALL.iter().map(|(name, open)| Subject::Adapted(name, *open));
    variants().map(Subject::Listed).chain(adapted)
}

/// Returns whether all options of `spec` have their default values.
pub(crate) fn is_default(spec: &Spec) -> bool {
    spec.to_string() == spec.entry.name
}

/// Opens a mechanism that is known to be available.
pub(crate) fn open(target: &impl MechanismTarget) -> AnyMechanism {
    target.try_open().unwrap_or_else(|reason| panic!("{target}: {reason}"))
}

thread_local! {
    static CURRENT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Returns the name of the trial that this thread runs.
pub(crate) fn current() -> String {
    CURRENT.with_borrow(String::clone)
}

/// Arguments of the command line.
static ARGUMENTS: LazyLock<Arguments> = LazyLock::new(Arguments::from_args);

/// Runs the trials that the command line selects.
pub(crate) fn run(trials: Vec<Trial>) -> ExitCode {
    let mut arguments = ARGUMENTS.clone();
    arguments.test_threads.get_or_insert(THREADS);
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Loads the kernel programs, if this process may do so. Mechanisms that need them share the loaded
/// programs.
pub(crate) fn load_kernel_programs() -> impl Sized {
    hearken::mechanism::bpf::Programs::load()
}

/// Makes trials for each target that is available, and one trial that reports the reason for each
/// other target.
pub(crate) fn trials_over<T: Target>(
    module: &str,
    targets: impl Iterator<Item = T>,
    trials: impl Fn(&T) -> Vec<Trial>,
) -> Vec<Trial> {
    let mut all = Vec::new();
    for target in targets {
        if !may_contain_selected(&format!("{}{target}", prefix(module))) {
            continue;
        }
        match target.probe() {
            Ok(()) => all.extend(trials(&target)),
            Err(reason) => all.push(unavailable(module, &target, &reason)),
        }
    }
    all
}

/// Returns whether the command line may select trials whose names begin with `prefix`. Child
/// processes select one trial, and save the time to probe and list all others.
fn may_contain_selected(prefix: &str) -> bool {
    let arguments = &*ARGUMENTS;
    match &arguments.filter {
        Some(filter) if arguments.exact => filter.starts_with(prefix),
        _ => true,
    }
}

/// Makes the trial of an unavailable target. It fails if the environment requires the target, and
/// is ignored otherwise.
fn unavailable<T: Target>(module: &str, target: &T, reason: &Unavailable) -> Trial {
    let required = std::env::var_os(REQUIRED).is_some() && !target.is_privileged();
    let name = format!("{}{target} is not available: {reason}", prefix(module));
    let fail =
        move || Err(Failed::from(format!("{REQUIRED} is set, and the mechanism is not available")));
    Trial::test(name, fail).with_ignored_flag(!required)
}

/// Makes a trial of a target.
pub(crate) fn trial<T: Target>(
    module: &str,
    target: &T,
    name: &str,
    test: impl FnOnce(&T) + Send + 'static,
) -> Trial {
    let owned = target.clone();
    plain_trial(format!("{}{target}::{name}", prefix(module)), move || test(&owned))
}

/// Returns the prefix of the names of a module's trials. An executable with a single suite needs
/// none.
fn prefix(module: &str) -> String {
    if module.is_empty() { String::new() } else { format!("{module}::") }
}

/// Test functions with their names.
pub(crate) type Tests = Vec<(&'static str, fn())>;

/// Lists test functions with their names.
macro_rules! tests {
    ($($test:ident)*) => {
        vec![$((stringify!($test), $test as _)),*]
    };
}
pub(crate) use tests;

/// Makes a trial for each test function of a module.
pub(crate) fn plain_trials(module: &str, tests: Tests) -> Vec<Trial> {
    tests.into_iter().map(|(name, test)| plain_trial(format!("{module}::{name}"), test)).collect()
}

fn plain_trial(name: String, test: impl FnOnce() + Send + 'static) -> Trial {
    Trial::test(name.clone(), move || {
        // A thread for each trial: the kernel interrupts the thread that owned a ring some time
        // after it is closed.
        let runner = std::thread::spawn(move || {
            CURRENT.set(name);
            test();
        });
        runner.join().map_err(|panic| {
            let owned = panic.downcast_ref::<String>().cloned();
            let borrowed = panic.downcast_ref::<&str>().map(ToString::to_string);
            Failed::from(owned.or(borrowed).unwrap_or_else(|| "the test panicked".to_owned()))
        })
    })
}

/// Name of the environment variable that is set in child processes.
const CHILD: &str = "HEARKEN_TEST_CHILD";

/// Runs `test` in a child process, since it changes the state of the process. The child is this
/// executable, and runs the current trial only.
pub(crate) fn in_child_process(test: impl FnOnce()) {
    if std::env::var_os(CHILD).is_some() {
        return test();
    }
    let name = current();
    let output = Command::new(std::env::current_exe().unwrap())
        .args([&name, "--exact", "--include-ignored", "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(
        output.status.success() && stdout.contains("1 passed"),
        "{name} failed in a child process:\n{stdout}\n{stderr}"
    );
}

/// Waits until no other test of this executable has thousands of open descriptors.
pub(crate) fn lock_many_descriptors() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the index of the value of a third factor, which has `count` values, for a pair of values
/// of two other factors.
///
/// The cases form a Latin square: every pair of values of any two of the three factors occurs in
/// some case, if the first two factors have at least `count` values each.
pub(crate) fn pairwise(first: usize, second: usize, count: usize) -> usize {
    (first + second) % count
}

/// Makes a trial of a cross product, which is ignored unless it is `selected` for the default set.
///
/// Returns `None` for unselected trials in a run without arguments, whose output would list
/// thousands.
pub(crate) fn product_trial(selected: bool, make: impl FnOnce() -> Trial) -> Option<Trial> {
    let arguments = &*ARGUMENTS;
    let lists_all = arguments.ignored || arguments.include_ignored || arguments.filter.is_some();
    (selected || lists_all).then(|| make().with_ignored_flag(!selected))
}

/// Returns the settings of a property test that runs `cases` cases, or the number in
/// `PROPTEST_CASES`.
pub(crate) fn property(cases: u32) -> Config {
    let cases = match std::env::var_os("PROPTEST_CASES") {
        Some(_) => Config::default().cases,
        None => cases,
    };
    Config { cases, failure_persistence: None, ..Config::default() }
}
