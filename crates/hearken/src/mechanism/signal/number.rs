//! Which signal a queue has: one that is free in its thread.

use std::cell::Cell;
use std::mem::MaybeUninit;

thread_local! {
    /// Signals that a queue of this thread has, by their bits.
    static TAKEN: Cell<u64> = const { Cell::new(0) };
}

/// A signal that no queue of this thread has, and no handler of this process waits for.
pub(super) fn reserve() -> Option<libc::c_int> {
    // From the top: programs that use some themselves count from the bottom.
    let free = |&signal: &libc::c_int| TAKEN.get() & bit(signal) == 0 && is_default(signal);
    let signal = (libc::SIGRTMIN()..=libc::SIGRTMAX()).rev().find(free)?;
    TAKEN.set(TAKEN.get() | bit(signal));
    Some(signal)
}

/// Gives it back.
pub(super) fn release(signal: libc::c_int) {
    TAKEN.set(TAKEN.get() & !bit(signal));
}

/// Signals are numbered from 1 to 64.
fn bit(signal: libc::c_int) -> u64 {
    1 << ((signal - 1) & 63)
}

fn is_default(signal: libc::c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: no action is set; `action` has room for the present one, and zeroes are a value of it.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_DFL
    }
}

/// These signals.
pub(super) fn set_of(signals: &[libc::c_int]) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set, and the signals exist.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for &signal in signals {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}
