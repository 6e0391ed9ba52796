//! Allocation of the real-time signals of a thread to its queues.

use std::cell::Cell;
use std::mem::MaybeUninit;

thread_local! {
    /// The signals used by queues of this thread, one bit each.
    static TAKEN: Cell<u64> = const { Cell::new(0) };
}

/// Allocates a signal that no queue of this thread uses and for which the process has no handler.
pub(super) fn reserve() -> Option<libc::c_int> {
    // From the top: programs that use real-time signals usually count from the bottom.
    let free = |&signal: &libc::c_int| TAKEN.get() & bit(signal) == 0 && is_default(signal);
    let signal = (libc::SIGRTMIN()..=libc::SIGRTMAX()).rev().find(free)?;
    TAKEN.set(TAKEN.get() | bit(signal));
    Some(signal)
}

/// Releases a signal.
pub(super) fn release(signal: libc::c_int) {
    TAKEN.set(TAKEN.get() & !bit(signal));
}

/// Returns the bit of a signal. Signals are numbered from 1 to 64.
fn bit(signal: libc::c_int) -> u64 {
    1 << ((signal - 1) & 63)
}

fn is_default(signal: libc::c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: no action is set. `action` has space for the current one, and zeros are a valid
    // value.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_DFL
    }
}

/// Returns the set of the given signals.
pub(super) fn signal_set(signals: &[libc::c_int]) -> libc::sigset_t {
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
