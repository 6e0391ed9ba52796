//! The signals that are blocked during a wait.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, RawFd};
use std::time::Duration;

use rustix::event::{FdSetElement, PollFd, PollFlags};

use super::timespec;

/// A set of signals to block for the duration of a wait, as in ppoll(2).
///
/// A program that blocks a signal, checks what its handler has set, and then waits with a mask that
/// does not contain it misses no signal.
///
/// ```
/// use hearken::mechanism::SignalMask;
///
/// let mut mask = SignalMask::current();
/// mask.unblock(libc::SIGTERM)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct SignalMask(libc::sigset_t);

impl SignalMask {
    /// Returns the signals that this thread blocks.
    pub fn current() -> SignalMask {
        let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: a null pointer changes nothing. The call writes the mask to `set`, for which all
        // zeros, the empty set, is valid.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), set.as_mut_ptr());
            SignalMask(set.assume_init())
        }
    }

    /// Adds a signal.
    ///
    /// # Errors
    /// `EINVAL` if there is no such signal.
    pub fn block(&mut self, signal: i32) -> io::Result<()> {
        // SAFETY: the set is initialised.
        check(unsafe { libc::sigaddset(&mut self.0, signal) }).map(drop)
    }

    /// Removes a signal.
    ///
    /// # Errors
    /// `EINVAL` if there is no such signal.
    pub fn unblock(&mut self, signal: i32) -> io::Result<()> {
        // SAFETY: the set is initialised.
        check(unsafe { libc::sigdelset(&mut self.0, signal) }).map(drop)
    }

    /// Returns the mask as the C library stores it. The kernel reads its first eight bytes.
    pub fn as_raw(&self) -> &libc::sigset_t {
        &self.0
    }

    /// Waits until `source` is readable.
    pub(super) fn poll(&self, source: impl AsFd, timeout: Option<Duration>) -> io::Result<usize> {
        self.ppoll(&mut [PollFd::new(&source, PollFlags::IN)], timeout)
    }

    /// Calls ppoll(2).
    pub(super) fn ppoll(
        &self,
        list: &mut [PollFd<'_>],
        timeout: Option<Duration>,
    ) -> io::Result<usize> {
        let timeout = timeout.map(timespec);
        let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let count = list.len() as libc::nfds_t;
        // SAFETY: a `PollFd` has the layout of `struct pollfd`. The kernel reads and writes `count`
        // of them, and reads the timeout and the mask, which outlive the call.
        let found =
            unsafe { libc::ppoll(list.as_mut_ptr().cast(), count, timeout.cast(), &self.0) };
        check(found)
    }

    /// Lets the handlers of pending signals run. Only a wait that sleeps does so by itself.
    ///
    /// # Errors
    /// `EINTR` after a signal handler.
    pub(crate) fn check_signals(&self) -> io::Result<()> {
        self.ppoll(&mut [], Some(Duration::ZERO)).map(drop)
    }

    /// Calls pselect(2). Sets that are empty are not passed.
    ///
    /// # Safety
    /// The descriptors in the sets are open, and `bound` is at most the number of their bits.
    pub(super) unsafe fn pselect(
        &self,
        bound: RawFd,
        sets: [&mut [FdSetElement]; 3],
        timeout: Option<Duration>,
    ) -> io::Result<usize> {
        let timeout = timeout.map(timespec);
        let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let [read, write, except] = sets.map(|set| match set {
            [] => std::ptr::null_mut(),
            set => set.as_mut_ptr().cast(),
        });
        // SAFETY: the kernel reads and writes `bound` bits of each set, and reads the timeout and
        // the mask, which outlive the call.
        let found = unsafe { libc::pselect(bound, read, write, except, timeout.cast(), &self.0) };
        check(found)
    }
}

impl From<libc::sigset_t> for SignalMask {
    fn from(set: libc::sigset_t) -> SignalMask {
        SignalMask(set)
    }
}

impl fmt::Debug for SignalMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: the set is initialised.
        let blocked = |signal: &i32| unsafe { libc::sigismember(&self.0, *signal) } == 1;
        f.debug_set().entries((1..=libc::SIGRTMAX()).filter(blocked)).finish()
    }
}

/// Returns the result of a call of the C library.
fn check(result: libc::c_int) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}
