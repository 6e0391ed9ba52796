//! Signal handlers: a wait reports that one has interrupted it, and a mask selects those that may.

// Handlers and signals for one thread need system calls that the system-call crate lacks.
#![allow(unsafe_code)]

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Once};
use std::thread;
use std::time::{Duration, Instant};

use hearken::mechanism::SignalMask;
use hearken::{Readiness, Token};

use super::support::*;

const SIGNAL: i32 = libc::SIGUSR1;

thread_local! {
    /// The number of times the handler has run in this thread.
    static HANDLED: AtomicU32 = const { AtomicU32::new(0) };
}

extern "C" fn handle(_: libc::c_int) {
    HANDLED.with(|handled| handled.fetch_add(1, Ordering::SeqCst));
}

/// Installs a handler for the process.
fn install_handler() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // SAFETY: the handler only changes an atomic of its thread, which needs no initialisation.
        let former = unsafe { libc::signal(SIGNAL, handle as *const () as libc::sighandler_t) };
        assert_ne!(former, libc::SIG_ERR);
    });
}

fn handled() -> u32 {
    HANDLED.with(|handled| handled.load(Ordering::SeqCst))
}

/// Sends the signal to a thread of this process.
fn raise(thread: libc::pid_t) {
    // SAFETY: the call takes numbers only.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, SIGNAL) };
    assert!(sent == 0 || io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH));
}

fn this_thread() -> libc::pid_t {
    // SAFETY: the call takes nothing.
    unsafe { libc::gettid() }
}

/// Blocks the signal in this thread, which runs one test.
fn block_signal() {
    // SAFETY: the set is initialised by the first call.
    let blocked = unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, SIGNAL);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut())
    };
    assert_eq!(blocked, 0);
}

/// Runs `wait` while another thread raises the signal in this one again and again.
fn while_interrupting<T>(wait: impl FnOnce() -> T) -> T {
    install_handler();
    let (target, done) = (this_thread(), Arc::new(AtomicBool::new(false)));
    let stop = done.clone();
    let raiser = thread::spawn(move || {
        while !stop.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(2));
            raise(target);
        }
    });
    let result = wait();
    done.store(true, Ordering::SeqCst);
    raiser.join().expect("raised");
    result
}

/// Waits without a timeout until a handler interrupts a wait.
fn until_interrupted(watch: &mut Watch) -> io::Error {
    while_interrupting(|| {
        loop {
            match watch.0.wait(8, None) {
                Ok(count) => assert_eq!(count, 0),
                Err(error) => break error,
            }
        }
    })
}

pub(crate) fn a_handler_interrupts_a_wait(mut watch: Watch) {
    let (source, _peer) = pipe();
    watch.add(source, READ);
    let before = handled();
    let error = until_interrupted(&mut watch);
    assert_eq!(error.kind(), io::ErrorKind::Interrupted, "{error}");
    assert!(handled() > before);
    let counters = watch.0.counters();
    assert_eq!(counters.empty_waits, counters.waits);
}

pub(crate) fn events_follow_an_interrupted_wait(mut watch: Watch) {
    // A full stream makes mechanisms of signals wait by another call.
    for full in [false, true] {
        let (source, peer) = if full { unix() } else { pipe() };
        let token = watch.add(source, if full { BOTH } else { READ });
        if full {
            fill(watch.fd(token));
            while watch.wait(8, Duration::from_millis(1)).iter().any(|event| event.token == token) {
                watch.0.would_block(token, BOTH);
                watch.arm(token);
            }
        }
        let error = until_interrupted(&mut watch);
        assert_eq!(error.kind(), io::ErrorKind::Interrupted, "{error}");
        write(&peer, b"x");
        assert_eq!(wait_out(&mut watch, token), Readiness::READABLE);
        watch.0.remove(token);
    }
}

/// Waits for an event of `token`. A signal that was raised last may interrupt one more wait.
fn wait_out(watch: &mut Watch, token: Token) -> Readiness {
    loop {
        match watch.0.wait(8, None) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            waited => {
                let found = (0..waited.expect("wait")).find_map(|index| watch.0.event(index));
                if let Some(event) = found {
                    assert_eq!(event.token, token);
                    return event.readiness;
                }
            }
        }
    }
}

/// Returns the mask of this thread without the signal, which is blocked from now on.
fn mask_without_signal() -> SignalMask {
    install_handler();
    block_signal();
    let mut mask = SignalMask::current();
    mask.unblock(SIGNAL).expect("a valid signal");
    mask
}

pub(crate) fn a_pending_signal_interrupts_a_wait_whose_mask_allows_it(mut watch: Watch) {
    let (source, _peer) = pipe();
    watch.add(source, READ);
    let mask = mask_without_signal();
    for timeout in [None, Some(Duration::from_secs(60)), Some(Duration::MAX)] {
        let before = handled();
        raise(this_thread());
        assert_eq!(watch.wait(8, Duration::from_millis(1)).len(), 0);
        assert_eq!(handled(), before, "the signal is blocked");
        let waited = watch.0.wait_with_mask(8, timeout, &mask);
        assert_eq!(waited.map_err(|error| error.kind()), Err(io::ErrorKind::Interrupted));
        assert_eq!(handled(), before + 1);
    }
}

pub(crate) fn a_blocked_signal_does_not_interrupt_a_wait(mut watch: Watch) {
    let (source, _peer) = pipe();
    watch.add(source, READ);
    install_handler();
    let mut mask = SignalMask::current();
    mask.block(SIGNAL).expect("a valid signal");
    let target = this_thread();
    let before = thread::scope(|scope| {
        block_signal();
        scope.spawn(|| raise(target)).join().expect("raised");
        handled()
    });
    let waited = watch.0.wait_with_mask(8, Some(Duration::from_millis(5)), &mask);
    assert_eq!(waited.expect("not interrupted"), 0);
    assert_eq!(handled(), before);
}

pub(crate) fn a_wait_with_a_mask_reports_events(mut watch: Watch) {
    let mask = mask_without_signal();
    let (source, peer) = pipe();
    let token = watch.add(source, READ);
    // The event arrives before the wait, or during it.
    for delay in [Duration::ZERO, Duration::from_millis(10)] {
        let peer = peer.try_clone().expect("dup");
        let writer = thread::spawn(move || {
            thread::sleep(delay);
            write(&peer, b"x");
        });
        let event = loop {
            let count = watch.0.wait_with_mask(8, None, &mask).expect("wait");
            if let Some(event) = (0..count).find_map(|index| watch.0.event(index)) {
                break event;
            }
        };
        assert_eq!((event.token, event.readiness), (token, Readiness::READABLE));
        writer.join().expect("written");
        drain(watch.fd(token));
        watch.0.would_block(token, READ);
        watch.arm(token);
    }
}

pub(crate) fn a_wait_with_a_mask_ends_with_its_timeout(mut watch: Watch) {
    let mask = mask_without_signal();
    let (source, _peer) = pipe();
    watch.add(source, READ);
    for timeout in [Duration::ZERO, Duration::from_micros(1), Duration::from_micros(1500)] {
        let start = Instant::now();
        assert_eq!(watch.0.wait_with_mask(8, Some(timeout), &mask).expect("wait"), 0);
        assert!(start.elapsed() >= timeout, "{timeout:?} ended early");
    }
}
