//! epoll(7).

use std::ffi::c_int;
use std::sync::Arc;
use std::time::Duration;

use hearken::mechanism::SignalMask;

use crate::set::{Change, Ready, Set};
use crate::{Inside, emulate, files, last_errno, provided, real, report};

/// Creates an instance: a real one, and its set.
pub(crate) fn create(flags: c_int, is_device: bool) -> Result<c_int, c_int> {
    crate::mechanism();
    // SAFETY: the call has no pointers.
    let number = unsafe { real::epoll_create1(flags) };
    if number < 0 {
        return Err(last_errno());
    }
    if !files::is_in_range(number) {
        report(3, "descriptors from 1048576 are refused");
        // SAFETY: nothing uses the number yet.
        unsafe { real::close(number) };
        return Err(libc::EMFILE);
    }
    let set = Set::new(is_device);
    if let Err(errno) = set.open(number) {
        // SAFETY: nothing uses the number yet.
        unsafe { real::close(number) };
        return Err(errno);
    }
    files::insert(number, Arc::new(set));
    Ok(number)
}

/// Creates an instance: see epoll_create(2).
#[unsafe(no_mangle)]
pub extern "C" fn epoll_create(size: c_int) -> c_int {
    if size < 1 {
        return emulate(|| Err(libc::EINVAL));
    }
    epoll_create1(0)
}

/// Creates an instance: see epoll_create1(2).
#[unsafe(no_mangle)]
pub extern "C" fn epoll_create1(flags: c_int) -> c_int {
    if Inside::is_current() || !provided().epoll {
        // SAFETY: the call has no pointers.
        return unsafe { real::epoll_create1(flags) };
    }
    emulate(|| create(flags, false))
}

/// Changes the interest: see epoll_ctl(2).
///
/// # Safety
/// The contract of epoll_ctl(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_ctl(
    number: c_int,
    op: c_int,
    fd: c_int,
    event: *mut libc::epoll_event,
) -> c_int {
    if Inside::is_current() || !(files::is_emulated(number) || files::is_emulated(fd)) {
        // SAFETY: the caller's contract.
        return unsafe { real::epoll_ctl(number, op, fd, event) };
    }
    emulate(|| {
        if let Some(nested) = files::set(fd) {
            nested.fill(fd);
        }
        let Some(set) = files::set(number).filter(|set| !set.is_device) else {
            // SAFETY: the caller's contract.
            let result = unsafe { real::epoll_ctl(number, op, fd, event) };
            return if result < 0 { Err(last_errno()) } else { Ok(result) };
        };
        let change = match op {
            libc::EPOLL_CTL_ADD => Change::Add,
            libc::EPOLL_CTL_MOD => Change::Modify,
            libc::EPOLL_CTL_DEL => Change::Delete,
            _ => return Err(libc::EINVAL),
        };
        if number == fd {
            return Err(libc::EINVAL);
        }
        let (events, data) = match (change, event.is_null()) {
            (Change::Delete, _) => (0, 0),
            (_, true) => return Err(libc::EFAULT),
            // SAFETY: the caller passes an event.
            (_, false) => unsafe { ((*event).events, (*event).u64) },
        };
        set.change(number, change, fd, events, data).map(|()| 0)
    })
}

/// Waits with an emulated instance.
///
/// # Safety
/// The contract of epoll_pwait2(2), except that the set exists.
unsafe fn wait(
    number: c_int,
    events: *mut libc::epoll_event,
    max: c_int,
    timeout: Option<Duration>,
    mask: *const libc::sigset_t,
) -> c_int {
    emulate(|| {
        let set = files::set(number).filter(|set| !set.is_device).ok_or(libc::EINVAL)?;
        let max = usize::try_from(max).ok().filter(|max| *max > 0).ok_or(libc::EINVAL)?;
        if events.is_null() {
            return Err(libc::EFAULT);
        }
        // SAFETY: the caller passes null or a mask.
        let mask = unsafe { mask.as_ref() }.map(|mask| SignalMask::from(*mask));
        let mut ready = Vec::new();
        set.wait(number, max, timeout, mask.as_ref(), &mut ready)?;
        for (index, Ready { data, events: found, .. }) in ready.iter().enumerate() {
            let event = libc::epoll_event { events: *found, u64: *data };
            // SAFETY: there is space for `max` events.
            unsafe { events.add(index).write(event) };
        }
        Ok(ready.len() as c_int)
    })
}

/// Converts a timeout in milliseconds. A negative one is infinite.
pub(crate) fn milliseconds(timeout: c_int) -> Option<Duration> {
    u64::try_from(timeout).ok().map(Duration::from_millis)
}

/// Waits: see epoll_wait(2).
///
/// # Safety
/// The contract of epoll_wait(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_wait(
    number: c_int,
    events: *mut libc::epoll_event,
    max: c_int,
    timeout: c_int,
) -> c_int {
    if Inside::is_current() || !files::is_emulated(number) {
        // SAFETY: the caller's contract.
        return unsafe { real::epoll_wait(number, events, max, timeout) };
    }
    // SAFETY: the caller's contract.
    unsafe { wait(number, events, max, milliseconds(timeout), std::ptr::null()) }
}

/// Waits with a signal mask: see epoll_pwait(2).
///
/// # Safety
/// The contract of epoll_pwait(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_pwait(
    number: c_int,
    events: *mut libc::epoll_event,
    max: c_int,
    timeout: c_int,
    mask: *const libc::sigset_t,
) -> c_int {
    if Inside::is_current() || !files::is_emulated(number) {
        // SAFETY: the caller's contract.
        return unsafe { real::epoll_pwait(number, events, max, timeout, mask) };
    }
    // SAFETY: the caller's contract.
    unsafe { wait(number, events, max, milliseconds(timeout), mask) }
}

/// Waits with a precise timeout: see epoll_pwait2(2).
///
/// # Safety
/// The contract of epoll_pwait2(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_pwait2(
    number: c_int,
    events: *mut libc::epoll_event,
    max: c_int,
    timeout: *const libc::timespec,
    mask: *const libc::sigset_t,
) -> c_int {
    if Inside::is_current() || !files::is_emulated(number) {
        // SAFETY: the caller's contract.
        return unsafe { real::epoll_pwait2(number, events, max, timeout, mask) };
    }
    // SAFETY: the caller passes null or a timeout.
    match crate::poll::duration(unsafe { timeout.as_ref() }) {
        // SAFETY: the caller's contract.
        Ok(timeout) => unsafe { wait(number, events, max, timeout, mask) },
        Err(errno) => emulate(|| Err(errno)),
    }
}
