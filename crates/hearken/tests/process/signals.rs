//! Behaviour specific to mechanisms of signals: a queue that overflows, and kinds of descriptors
//! that raise no signal.
//!
//! The limit of queued signals belongs to the process, and the kernel counts queued signals per
//! user. A test that lowers the limit therefore restarts this executable with other arguments.

use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use hearken::mechanism::{Counters, Registry, Spec, Watches, find, signal};
use hearken::{Interest, Readiness, Token};
use libtest_mimic::{Failed, Trial};
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;
use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};

use crate::loss::{Load, STORMS, pair};
use crate::suite::{self, AnyMechanism, open};

/// First argument of a child process.
const CHILD: &str = "--signals-child";

/// Limits of queued signals. `None` leaves the limit as it is, which is sufficient for every storm.
const LIMITS: [Option<u64>; 4] = [None, Some(8), Some(64), Some(1024)];

/// Name of the storm over several instances in one thread.
const SEVERAL_INSTANCES: &str = "several_in_a_thread";

/// Name of the storm whose overflow is not recovered from.
const WITHOUT_RECOVERY: &str = "loses_events_without_recovery";

/// Name of the storm after which waits check all descriptors until they are quiet.
const UNTIL_QUIET: &str = "checks_all_until_quiet";

/// Maximum time to wait for an event, which no successful test reaches.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Returns the trials of this module.
pub(crate) fn trials() -> Vec<Trial> {
    let is_signal_mechanism = |spec: &Spec| spec.entry.semantics.watches == Watches::SignalDriven;
    let specs: Vec<Spec> = suite::variants().filter(is_signal_mechanism).collect();
    let index_of = |spec: &Spec| {
        let name = spec.to_string();
        specs.iter().position(|other| other.to_string() == name).unwrap_or(0)
    };
    suite::trials_over("signals", specs.iter().cloned(), |spec| {
        let trial = |name: &str, test: fn(&Spec)| suite::trial("signals", spec, name, test);
        let mut trials = vec![
            trial("refuses_what_raises_no_signals", refuses_what_raises_no_signals),
            trial(
                "a_thread_has_a_limited_number_of_signals",
                a_thread_has_a_limited_number_of_signals,
            ),
            trial(
                "queued_signals_do_not_reach_the_next_instance",
                queued_signals_do_not_reach_the_next_instance,
            ),
        ];
        let single = |name: &str, limit: u64| {
            let args = [CHILD.to_owned(), spec.to_string(), name.to_owned(), limit.to_string()];
            Trial::test(format!("signals::{spec}::{name}"), move || start_child(&args))
        };
        if !open(spec).semantics().recovers {
            trials.push(single(WITHOUT_RECOVERY, 8));
            return trials;
        }
        if spec.options.get("recover") == "until-quiet" {
            trials.push(single(UNTIL_QUIET, 8));
        }
        let storms = STORMS.iter().map(|(name, _)| *name).chain([SEVERAL_INSTANCES]);
        for (storm_index, storm) in storms.enumerate() {
            for (limit_index, limit) in LIMITS.iter().enumerate() {
                let selected =
                    suite::pairwise(index_of(spec), storm_index, LIMITS.len()) == limit_index;
                trials.extend(suite::product_trial(selected, || {
                    let limit = limit.map_or("none".to_owned(), |limit| limit.to_string());
                    let name = format!("signals::{spec}::{storm}_with_limit_{limit}");
                    let args = [CHILD.to_owned(), spec.to_string(), storm.to_owned(), limit];
                    Trial::test(name, move || start_child(&args))
                }));
            }
        }
        trials
    })
}

/// Runs a storm in a child process.
fn start_child(args: &[String]) -> Result<(), Failed> {
    let output = Command::new(std::env::current_exe()?).args(args).output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned().into()),
    }
}

/// Runs the storm that the arguments name, if this process is a child.
pub(crate) fn run_child() -> Option<ExitCode> {
    let args: Vec<String> = std::env::args().collect();
    let [_, flag, spec, storm, limit] = &args[..] else { return None };
    if flag != CHILD {
        return None;
    }
    Some(match run_storm(spec, storm, limit.parse().ok()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    })
}

fn run_storm(spec: &str, storm: &str, limit: Option<u64>) -> Result<(), String> {
    let spec = find(spec).map_err(|error| error.to_string())?;
    if let Some(limit) = limit {
        signal::set_queue_limit(limit)
            .map_err(|error| format!("cannot set RLIMIT_SIGPENDING: {error}"))?;
    }
    let max_descriptors = hearken::descriptors::raise_limit().unwrap_or(1 << 16) as usize;
    let descriptors = 2000.min(max_descriptors.saturating_sub(100) / 2);
    match storm {
        WITHOUT_RECOVERY => return loses_events_without_recovery(&spec),
        UNTIL_QUIET => return checks_all_until_quiet(&spec),
        _ => {}
    }
    let overflows = match STORMS.iter().find(|(name, _)| *name == storm) {
        None => several_in_a_thread(&spec, descriptors / 2)?,
        Some((_, run)) => {
            let mut overflows = 0;
            // The first two loads never empty the queue; the last one often does.
            for (descriptors, max) in [(descriptors, 64), (descriptors, 1), (100, 1024)] {
                let time = Duration::from_millis(60);
                let load = Load { descriptors, writers: 3, max, time, seed: max as u64 };
                overflows += run(open(&spec), &load)?.overflows;
            }
            overflows
        }
    };
    // These storms write to more descriptors than the queue has space for before the first wait.
    let is_small = limit.is_some_and(|limit| (limit as usize) < descriptors / 2);
    let writes_before_waiting = storm == "flood" || storm == SEVERAL_INSTANCES;
    if spec.entry.semantics.overflows && is_small && writes_before_waiting && overflows == 0 {
        return Err(format!(
            "no overflow was counted with a limit of {limit:?} and {descriptors} ready descriptors"
        ));
    }
    Ok(())
}

/// A registry with its sources, and their peers.
type Sockets = (Registry<AnyMechanism, OwnedFd>, Vec<Token>, Vec<OwnedFd>);

/// Returns a registry with sockets that have no signals queued, and their peers.
fn sockets(spec: &Spec, count: usize) -> Result<Sockets, String> {
    let mut registry = Registry::new(open(spec));
    let (mut tokens, mut peers) = (Vec::new(), Vec::new());
    for index in 0..count {
        let (source, peer) =
            pair(index).map_err(|error| format!("cannot create a pair: {error}"))?;
        tokens.push(add(&mut registry, source));
        peers.push(peer);
    }
    assert!(batch(&mut registry, count, Duration::ZERO).is_empty());
    Ok((registry, tokens, peers))
}

fn write_to_all(peers: &[OwnedFd]) -> Result<(), String> {
    for peer in peers {
        rustix::io::write(peer, b"x").map_err(|errno| format!("cannot write: {errno}"))?;
    }
    Ok(())
}

/// Checks that descriptors stay silent after an overflow (Chandra and Mosberger 2001, 3.3).
fn loses_events_without_recovery(spec: &Spec) -> Result<(), String> {
    let (mut registry, _, peers) = sockets(spec, 64)?;
    write_to_all(&peers)?;
    let mut found = 0;
    loop {
        let events = batch(&mut registry, 64, Duration::from_millis(100));
        if events.is_empty() {
            break;
        }
        found += events.len();
    }
    let overflows = registry.counters().overflows;
    match (found, overflows) {
        (0..64, 1..) => Ok(()),
        _ => Err(format!("{found} of 64 events and {overflows} overflows")),
    }
}

/// Checks that waits after an overflow take no signals until no descriptor is ready (Chandra and
/// Mosberger 2001, Table 1).
fn checks_all_until_quiet(spec: &Spec) -> Result<(), String> {
    let (mut registry, tokens, peers) = sockets(spec, 64)?;
    write_to_all(&peers)?;
    let found = batch(&mut registry, 64, TIMEOUT);
    let signals = registry.counters().signals;
    for _ in 0..3 {
        write_to_all(&peers)?;
        // The descriptors are still ready.
        let again = batch(&mut registry, 64, TIMEOUT).len();
        if (found.len(), again) != (64, 64) || registry.counters().signals != signals {
            return Err(format!("{found:?}, then {again} of 64 events"));
        }
    }
    let calls = registry.counters();
    for token in tokens {
        let source = registry.get(token).ok_or("a source was removed")?;
        while rustix::io::read(source, &mut [0; 64]).is_ok() {}
    }
    // It takes the signals of the meantime, which report another overflow.
    while !batch(&mut registry, 64, Duration::ZERO).is_empty() {}
    let after = registry.counters();
    let grew = after.signals > calls.signals && after.overflows > calls.overflows;
    grew.then_some(()).ok_or_else(|| format!("before: {calls:?}, after: {after:?}"))
}

/// Checks that every instance of a thread recovers from an overflow of the queue that they share.
fn several_in_a_thread(spec: &Spec, descriptors: usize) -> Result<u64, String> {
    let mut registries: Vec<_> =
        (0..3).map(|_| Registry::<AnyMechanism, OwnedFd>::new(open(spec))).collect();
    let mut peers = Vec::new();
    for registry in &mut registries {
        for index in 0..descriptors / 3 {
            let (source, peer) =
                pair(index).map_err(|error| format!("cannot create a pair: {error}"))?;
            add(registry, source);
            peers.push(peer);
        }
        // The first wait polls for what is ready now. Signals report what arrives later.
        assert!(batch(registry, 64, Duration::ZERO).is_empty());
    }
    for peer in &peers {
        rustix::io::write(peer, b"x").map_err(|errno| format!("cannot write: {errno}"))?;
    }
    for registry in &mut registries {
        let mut is_missing = vec![true; descriptors / 3];
        let start = Instant::now();
        while is_missing.contains(&true) {
            for (token, _) in batch(registry, 64, Duration::from_millis(20)) {
                is_missing[token.slot() as usize] = false;
            }
            if start.elapsed() > TIMEOUT {
                return Err(
                    "an instance did not recover from an overflow that another one detected"
                        .to_owned(),
                );
            }
        }
    }
    Ok(registries.iter().map(|registry| registry.counters().overflows).min().unwrap_or(0))
}

fn add(registry: &mut Registry<AnyMechanism, OwnedFd>, source: OwnedFd) -> Token {
    let token = registry.insert(source);
    registry.declare(token, Interest::READ).expect("declare");
    token
}

fn batch(
    registry: &mut Registry<AnyMechanism, OwnedFd>,
    max: usize,
    timeout: Duration,
) -> Vec<(Token, Readiness)> {
    let count = registry.wait(max, Some(timeout)).expect("wait");
    let events = (0..count).filter_map(|index| registry.event(index));
    events.map(|event| (event.token, event.readiness)).collect()
}

/// Checks that descriptors which would stay silent indefinitely are refused.
fn refuses_what_raises_no_signals(spec: &Spec) {
    let mut registry = Registry::<AnyMechanism, OwnedFd>::new(open(spec));
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::empty());
    let refused = [
        eventfd(1, EventfdFlags::NONBLOCK).unwrap(),
        timer.unwrap(),
        epoll::create(epoll::CreateFlags::CLOEXEC).unwrap(),
        tempfile::tempfile().unwrap().into(),
    ];
    for source in refused {
        let token = registry.insert(source);
        let declared = registry.declare(token, Interest::READ);
        let errno = declared.err().and_then(|error| Errno::from_io_error(&error));
        assert_eq!(errno, Some(Errno::PERM));
        assert!(registry.remove(token).is_some());
    }
    assert_eq!(
        registry.counters(),
        Counters { calls: registry.counters().calls, ..Counters::default() }
    );
    let (source, peer) = pair(0).unwrap();
    let token = add(&mut registry, source);
    rustix::io::write(&peer, b"x").unwrap();
    let events = batch(&mut registry, 8, TIMEOUT);
    assert_eq!(events, [(token, Readiness::READABLE)]);
}

/// Checks that each instance of a thread uses a signal number of its own, and releases it when it
/// is dropped.
fn a_thread_has_a_limited_number_of_signals(spec: &Spec) {
    let mut instances = Vec::new();
    let refused = loop {
        match spec.open() {
            Ok(instance) => instances.push(instance),
            Err(reason) => break reason,
        }
        assert!(instances.len() <= 64, "more instances than signal numbers");
    };
    assert!(instances.len() > 8, "only {}: {refused}", instances.len());
    assert_eq!(Errno::from_io_error(&refused.error), Some(Errno::AGAIN));
    instances.pop();
    assert!(spec.open().is_ok());
    // Another thread has signal numbers of its own.
    let spec = spec.clone();
    std::thread::spawn(move || assert!(spec.open().is_ok())).join().unwrap();
}

/// Checks that an instance receives neither signals that were queued when its predecessor was
/// dropped, nor signals that the predecessor's descriptors raise later.
fn queued_signals_do_not_reach_the_next_instance(spec: &Spec) {
    for _ in 0..4 {
        let (source, peer) = pair(0).unwrap();
        let duplicate = source.try_clone().unwrap();
        let number = source.as_raw_fd();
        let mut registry = Registry::<AnyMechanism, OwnedFd>::new(open(spec));
        add(&mut registry, source);
        rustix::io::write(&peer, b"x").unwrap();
        drop(registry);

        let mut registry = Registry::<AnyMechanism, OwnedFd>::new(open(spec));
        let (source, next_peer) = pair(0).unwrap();
        let is_reused = source.as_raw_fd() == number;
        let token = add(&mut registry, source);
        rustix::io::write(&peer, b"x").unwrap();
        for _ in 0..3 {
            let events = batch(&mut registry, 8, Duration::from_millis(2));
            assert!(events.is_empty(), "{events:?}; descriptor {number} is reused: {is_reused}");
        }
        rustix::io::write(&next_peer, b"x").unwrap();
        assert_eq!(batch(&mut registry, 8, TIMEOUT), [(token, Readiness::READABLE)]);
        drop(duplicate);
    }
}
