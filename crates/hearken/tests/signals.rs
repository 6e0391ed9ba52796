//! What only mechanisms of signals have: a queue that overflows, and kinds of descriptors that raise
//! none.
//!
//! The limit of queued signals is the process's, and what is queued is counted for the user, so what
//! lowers it has a process of its own: this program again, with other arguments.

use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use hearken::mechanism::{Counters, Registry, Spec, Watches, find, signal};
use hearken::{Interest, Readiness, Token};
use libtest_mimic::{Failed, Trial};
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;
use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};

mod loss;
mod suite;

use loss::{Any, Load, STORMS, pair};
use suite::{is_default, open, trial};

/// Makes it the program that a test has started.
const ALONE: &str = "--alone";

/// Limits of queued signals; without one, there is room for all.
const LIMITS: [Option<u64>; 4] = [None, Some(8), Some(64), Some(1024)];

/// No test that passes waits so long.
const PATIENCE: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    if let [_, flag, spec, storm, limit] = &args[..]
        && flag == ALONE
    {
        return match rage(spec, storm, limit.parse().ok()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(reason) => {
                eprintln!("{reason}");
                ExitCode::FAILURE
            }
        };
    }
    suite::run(|spec| {
        if spec.entry.semantics.watches != Watches::Signalling {
            return Vec::new();
        }
        let mut trials = vec![
            trial(spec, "what_raises_no_signals_is_refused", what_raises_no_signals_is_refused),
            trial(spec, "a_thread_has_so_many", a_thread_has_so_many),
            trial(spec, "what_was_queued_for_one_is_not_for_the_next", one_after_the_other),
        ];
        let plenty = if is_default(spec) { 0 } else { 1 };
        for limit in LIMITS.iter().skip(plenty) {
            let storms = STORMS.iter().map(|(name, _)| *name).chain(["several_in_a_thread"]);
            for storm in storms {
                let limit = limit.map_or("none".to_owned(), |limit| limit.to_string());
                let name = format!("{spec}::{storm}_with_limit_{limit}");
                let args = [ALONE.to_owned(), spec.to_string(), storm.to_owned(), limit];
                trials.push(Trial::test(name, move || alone(&args)));
            }
        }
        trials
    })
}

/// Runs a storm in a process of its own.
fn alone(args: &[String]) -> Result<(), Failed> {
    let output = Command::new(std::env::current_exe()?).args(args).output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned().into()),
    }
}

/// What that process does.
fn rage(spec: &str, storm: &str, limit: Option<u64>) -> Result<(), String> {
    let spec = find(spec).map_err(|error| error.to_string())?;
    if let Some(limit) = limit {
        signal::limit_queue(limit).map_err(|error| format!("RLIMIT_SIGPENDING: {error}"))?;
    }
    let most = hearken::descriptors::raise_limit().unwrap_or(1 << 16) as usize;
    let descriptors = 2000.min(most.saturating_sub(100) / 2);
    let overflows = match STORMS.iter().find(|(name, _)| *name == storm) {
        None => several_in_a_thread(&spec, descriptors / 2)?,
        Some((_, make)) => {
            let mut overflows = 0;
            // Where the queue is never empty, and where it often is.
            for (descriptors, max) in [(descriptors, 64), (descriptors, 1), (100, 1024)] {
                let time = Duration::from_millis(60);
                let load = Load { descriptors, writers: 3, max, time, seed: max as u64 };
                overflows += make(open(&spec), &load)?.overflows;
            }
            overflows
        }
    };
    // What holds fewer than are written to before anybody listens has overflowed.
    let few = limit.is_some_and(|limit| (limit as usize) < descriptors / 2);
    let written_to = storm == "flood" || storm == "several_in_a_thread";
    if spec.entry.semantics.overflows && few && written_to && overflows == 0 {
        return Err(format!("no overflow with room for {limit:?} and {descriptors} ready"));
    }
    Ok(())
}

/// All are told of an overflow that one has met.
fn several_in_a_thread(spec: &Spec, descriptors: usize) -> Result<u64, String> {
    let mut all: Vec<_> = (0..3).map(|_| Registry::<Any, OwnedFd>::new(open(spec))).collect();
    let mut peers = Vec::new();
    for registry in &mut all {
        for at in 0..descriptors / 3 {
            let (source, peer) = pair(at).map_err(|error| format!("pair: {error}"))?;
            add(registry, source);
            peers.push(peer);
        }
        // What is ready now is told by the first look, and what comes later by signals.
        assert!(batch(registry, 64, Duration::ZERO).is_empty());
    }
    for peer in &peers {
        rustix::io::write(peer, b"x").map_err(|errno| format!("write: {errno}"))?;
    }
    for registry in &mut all {
        let mut deaf = vec![true; descriptors / 3];
        let start = Instant::now();
        while deaf.contains(&true) {
            for (who, _) in batch(registry, 64, Duration::from_millis(20)) {
                deaf[who.slot() as usize] = false;
            }
            if start.elapsed() > PATIENCE {
                return Err("an overflow that another had met was not told".to_owned());
            }
        }
    }
    Ok(all.iter().map(|registry| registry.counters().overflows).min().unwrap_or(0))
}

fn add(registry: &mut Registry<Any, OwnedFd>, source: OwnedFd) -> Token {
    let token = registry.insert(source);
    registry.declare(token, Interest::READ).expect("declare");
    token
}

fn batch(
    registry: &mut Registry<Any, OwnedFd>,
    max: usize,
    timeout: Duration,
) -> Vec<(Token, Readiness)> {
    let got = registry.wait(max, Some(timeout)).expect("wait");
    let events = (0..got).filter_map(|index| registry.event(index));
    events.map(|event| (event.who, event.readiness)).collect()
}

/// It would be silent for ever.
fn what_raises_no_signals_is_refused(spec: &Spec) {
    let mut registry = Registry::<Any, OwnedFd>::new(open(spec));
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
    let events = batch(&mut registry, 8, PATIENCE);
    assert_eq!(events, [(token, Readiness::READABLE)]);
}

/// Each has a signal of its own, and gives it back.
fn a_thread_has_so_many(spec: &Spec) {
    let mut all = Vec::new();
    let refused = loop {
        match spec.open() {
            Ok(one) => all.push(one),
            Err(reason) => break reason,
        }
        assert!(all.len() <= 64, "more than there are signals");
    };
    assert!(all.len() > 8, "only {}: {refused}", all.len());
    assert_eq!(Errno::from_io_error(&refused.error), Some(Errno::AGAIN));
    all.pop();
    assert!(spec.open().is_ok());
    // Another thread has its own.
    let spec = spec.clone();
    std::thread::spawn(move || assert!(spec.open().is_ok())).join().unwrap();
}

/// Neither what was queued when one was closed, nor what its descriptors do later.
fn one_after_the_other(spec: &Spec) {
    for _ in 0..4 {
        let (source, peer) = pair(0).unwrap();
        let duplicate = source.try_clone().unwrap();
        let number = source.as_raw_fd();
        let mut registry = Registry::<Any, OwnedFd>::new(open(spec));
        add(&mut registry, source);
        rustix::io::write(&peer, b"x").unwrap();
        drop(registry);

        let mut registry = Registry::<Any, OwnedFd>::new(open(spec));
        let (source, next_peer) = pair(0).unwrap();
        let returned = source.as_raw_fd() == number;
        let token = add(&mut registry, source);
        rustix::io::write(&peer, b"x").unwrap();
        for _ in 0..3 {
            let events = batch(&mut registry, 8, Duration::from_millis(2));
            assert!(events.is_empty(), "{events:?}, {number} has returned: {returned}");
        }
        rustix::io::write(&next_peer, b"x").unwrap();
        assert_eq!(batch(&mut registry, 8, PATIENCE), [(token, Readiness::READABLE)]);
        drop(duplicate);
    }
}
