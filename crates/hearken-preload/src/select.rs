//! select(2): converted to poll(2).

use std::ffi::c_int;
use std::ptr;
use std::time::{Duration, Instant};

use crate::poll::{duration, is_provided, wait};
use crate::{emulate, real};

/// The events of poll(2) that each set requests, and those that make a descriptor ready in it.
const SETS: [(i16, i16); 3] = [
    (
        libc::POLLIN | libc::POLLRDNORM | libc::POLLRDBAND,
        libc::POLLIN | libc::POLLRDNORM | libc::POLLRDBAND | libc::POLLHUP | libc::POLLERR,
    ),
    (libc::POLLOUT | libc::POLLWRNORM, libc::POLLOUT | libc::POLLWRNORM | libc::POLLERR),
    (libc::POLLPRI, libc::POLLPRI),
];

/// The bits of a set, which may have more than `FD_SETSIZE`.
struct Bits(*mut libc::fd_set);

impl Bits {
    /// Returns the word of a descriptor and its bit. glibc's words are longs.
    fn word(&self, fd: usize) -> (*mut libc::c_ulong, libc::c_ulong) {
        let bits = libc::c_ulong::BITS as usize;
        // The caller's set has a bit for each descriptor below its bound.
        (self.0.cast::<libc::c_ulong>().wrapping_add(fd / bits), 1 << (fd % bits))
    }

    /// Returns whether a descriptor is in the set.
    ///
    /// # Safety
    /// The set is null or has a bit for `fd`.
    unsafe fn contains(&self, fd: usize) -> bool {
        let (word, bit) = self.word(fd);
        // SAFETY: the caller's contract.
        !self.0.is_null() && unsafe { *word } & bit != 0
    }

    /// Adds or removes a descriptor.
    ///
    /// # Safety
    /// The set is null or has a bit for `fd`.
    unsafe fn assign(&self, fd: usize, value: bool) {
        if self.0.is_null() {
            return;
        }
        let (word, bit) = self.word(fd);
        // SAFETY: the caller's contract.
        unsafe { *word = if value { *word | bit } else { *word & !bit } };
    }
}

/// Waits with the sets of select(2).
///
/// # Safety
/// Each set is null or has `bound` bits.
unsafe fn select_over(
    bound: c_int,
    sets: [*mut libc::fd_set; 3],
    timeout: Option<Duration>,
    mask: Option<&libc::sigset_t>,
) -> Result<c_int, c_int> {
    let bound = usize::try_from(bound).map_err(|_| libc::EINVAL)?;
    let sets = sets.map(Bits);
    let mut list = Vec::new();
    for fd in 0..bound {
        let mut events = 0;
        for (set, (requested, _)) in sets.iter().zip(SETS) {
            // SAFETY: the caller's contract.
            events |= if unsafe { set.contains(fd) } { requested } else { 0 };
        }
        if events != 0 {
            list.push(libc::pollfd { fd: fd as c_int, events, revents: 0 });
        }
    }
    wait(&mut list, timeout, mask)?;
    if list.iter().any(|entry| entry.revents & libc::POLLNVAL != 0) {
        return Err(libc::EBADF);
    }
    let mut count = 0;
    for libc::pollfd { fd, events, revents } in list {
        for (set, (requested, ready)) in sets.iter().zip(SETS) {
            if events & requested != 0 {
                let is_ready = revents & ready != 0;
                // SAFETY: the caller's contract.
                unsafe {
                    if set.contains(fd as usize) {
                        set.assign(fd as usize, is_ready);
                        count += c_int::from(is_ready);
                    }
                }
            }
        }
    }
    Ok(count)
}

/// Waits: see select(2).
///
/// # Safety
/// The contract of select(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn select(
    bound: c_int,
    read: *mut libc::fd_set,
    write: *mut libc::fd_set,
    except: *mut libc::fd_set,
    timeout: *mut libc::timeval,
) -> c_int {
    if !is_provided() {
        // SAFETY: the caller's contract.
        return unsafe { real::select(bound, read, write, except, timeout) };
    }
    let begin = Instant::now();
    emulate(|| {
        // SAFETY: the caller passes null or a timeout.
        let requested = unsafe { timeout.as_ref() }.map(|time| libc::timespec {
            tv_sec: time.tv_sec + time.tv_usec / 1_000_000,
            tv_nsec: time.tv_usec % 1_000_000 * 1000,
        });
        let requested = duration(requested.as_ref())?;
        // SAFETY: the caller's contract.
        let result = unsafe { select_over(bound, [read, write, except], requested, None) };
        if let Some(requested) = requested {
            // Linux stores the remaining time.
            let remaining = requested.saturating_sub(begin.elapsed());
            let tv_sec = libc::time_t::try_from(remaining.as_secs()).unwrap_or(libc::time_t::MAX);
            let remaining = libc::timeval { tv_sec, tv_usec: remaining.subsec_micros().into() };
            // SAFETY: the caller passed a timeout.
            unsafe { ptr::write(timeout, remaining) };
        }
        result
    })
}

/// Waits with a signal mask: see pselect(2).
///
/// # Safety
/// The contract of pselect(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pselect(
    bound: c_int,
    read: *mut libc::fd_set,
    write: *mut libc::fd_set,
    except: *mut libc::fd_set,
    timeout: *const libc::timespec,
    mask: *const libc::sigset_t,
) -> c_int {
    if !is_provided() {
        // SAFETY: the caller's contract.
        return unsafe { real::pselect(bound, read, write, except, timeout, mask) };
    }
    emulate(|| {
        // SAFETY: the caller passes null or a timeout, null or a mask, and sets with `bound` bits.
        unsafe {
            let timeout = duration(timeout.as_ref())?;
            select_over(bound, [read, write, except], timeout, mask.as_ref())
        }
    })
}
