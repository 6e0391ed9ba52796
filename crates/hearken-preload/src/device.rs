//! `/dev/poll` of Solaris: poll(7D).

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::slice;

use crate::epoll::{create, milliseconds};
use crate::set::{Change, Ready, Set};
use crate::{Inside, emulate, files, last_errno, provided, real};

/// Requests of ioctl(2).
const DP_POLL: libc::c_ulong = 0xD001;
const DP_ISPOLLED: libc::c_ulong = 0xD002;

/// The events that remove a descriptor: the values of Solaris and of `<poll.h>` on Linux.
const REMOVE: [i16; 2] = [0x0800, 0x1000];

/// `struct dvpoll`.
#[repr(C)]
struct DvPoll {
    list: *mut libc::pollfd,
    count: c_int,
    timeout: c_int,
}

/// Returns whether a path names the device.
///
/// # Safety
/// `path` is null or a string.
unsafe fn is_device(path: *const c_char) -> bool {
    // SAFETY: the caller's contract.
    !path.is_null() && unsafe { CStr::from_ptr(path) } == c"/dev/poll"
}

/// Opens a file, or the device.
///
/// # Safety
/// `path` is null or a string.
unsafe fn open_or(path: *const c_char, flags: c_int, real: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the caller's contract.
    if Inside::is_current() || !provided().dev_poll || !unsafe { is_device(path) } {
        return real();
    }
    let close_on_exec = flags & libc::O_CLOEXEC != 0;
    emulate(|| create(if close_on_exec { libc::EPOLL_CLOEXEC } else { 0 }, true))
}

macro_rules! open {
    ($($name:ident($($directory:ident)?; $($mode:ident)?) via $real:ident;)*) => { $(
        /// Opens a file: see open(2).
        ///
        /// # Safety
        /// The contract of open(2).
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $($directory: c_int,)?
            path: *const c_char,
            flags: c_int,
            $($mode: c_uint,)?
        ) -> c_int {
            #[allow(unused_variables, reason = "the forms without a mode")]
            let mode: c_uint = 0;
            $(let mode = $mode;)?
            // SAFETY: the caller's contract.
            unsafe { open_or(path, flags, || real::$real($($directory,)? path, flags, mode)) }
        }
    )* };
}

open! {
    open(; mode) via open;
    open64(; mode) via open;
    openat(directory; mode) via openat;
    openat64(directory; mode) via openat;
    __open_2(;) via open;
    __open64_2(;) via open;
    __openat_2(directory;) via openat;
    __openat64_2(directory;) via openat;
}

/// Returns the set of a device that this process opened.
fn device(fd: c_int) -> Option<Result<std::sync::Arc<Set>, c_int>> {
    let set = files::set(fd).filter(|set| set.is_device)?;
    // A child does not inherit the set.
    Some(if set.forks == files::forks() { Ok(set) } else { Err(libc::EACCES) })
}

/// Changes a device's set.
fn change(number: c_int, set: &Set, changes: &[libc::pollfd]) -> Result<(), c_int> {
    for &libc::pollfd { fd, events, .. } in changes.iter().filter(|change| change.fd >= 0) {
        if REMOVE.contains(&events) {
            // It need not be in the set, and it may be closed.
            let _ = set.change(number, Change::Delete, fd, 0, 0);
            continue;
        }
        let events = u32::from(events as u16);
        match set.events(fd) {
            // The events are OR'ed.
            Some(before) => set.change(number, Change::Modify, fd, before | events, fd as u64)?,
            None => set.change(number, Change::Add, fd, events, fd as u64)?,
        }
    }
    Ok(())
}

/// Writes to a device. Returns nothing if it is none.
///
/// # Safety
/// `bytes` has `count` bytes.
unsafe fn write_to(fd: c_int, bytes: *const c_void, count: usize) -> Option<isize> {
    if Inside::is_current() || !files::is_emulated(fd) {
        return None;
    }
    let set = device(fd)?;
    let size = size_of::<libc::pollfd>();
    let result = emulate(|| {
        let set = set?;
        if !count.is_multiple_of(size) {
            return Err(libc::EINVAL);
        }
        if bytes.is_null() && count > 0 {
            return Err(libc::EFAULT);
        }
        let changes: Vec<libc::pollfd> = (0..count / size)
            // SAFETY: the caller's contract.
            .map(|index| unsafe { bytes.cast::<libc::pollfd>().add(index).read_unaligned() })
            .collect();
        change(fd, &set, &changes).map(|()| 0)
    });
    Some(if result < 0 { -1 } else { count as isize })
}

/// Writes: see write(2).
///
/// # Safety
/// The contract of write(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: c_int, bytes: *const c_void, count: usize) -> isize {
    // SAFETY: the caller's contract.
    unsafe { write_to(fd, bytes, count).unwrap_or_else(|| real::write(fd, bytes, count)) }
}

/// Writes several buffers: see writev(2).
///
/// # Safety
/// The contract of writev(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn writev(fd: c_int, vector: *const libc::iovec, count: c_int) -> isize {
    if Inside::is_current() || !files::is_emulated(fd) || device(fd).is_none() || count < 0 {
        // SAFETY: the caller's contract.
        return unsafe { real::writev(fd, vector, count) };
    }
    let mut total = 0;
    // SAFETY: the caller passes `count` buffers.
    for buffer in unsafe { slice::from_raw_parts(vector, count as usize) } {
        // SAFETY: the caller's contract.
        match unsafe { write_to(fd, buffer.iov_base, buffer.iov_len) } {
            Some(written) if written >= 0 => total += written,
            _ => return -1,
        }
    }
    total
}

/// Writes at an offset, which the device ignores: see pwrite(2).
///
/// # Safety
/// The contract of pwrite(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite64(
    fd: c_int,
    bytes: *const c_void,
    count: usize,
    offset: i64,
) -> isize {
    // SAFETY: the caller's contract.
    unsafe {
        write_to(fd, bytes, count).unwrap_or_else(|| real::pwrite64(fd, bytes, count, offset))
    }
}

/// Another name of [`pwrite64`].
///
/// # Safety
/// The contract of pwrite(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite(
    fd: c_int,
    bytes: *const c_void,
    count: usize,
    offset: i64,
) -> isize {
    // SAFETY: the caller's contract.
    unsafe { pwrite64(fd, bytes, count, offset) }
}

/// Waits with the device.
///
/// # Safety
/// `argument` is null or a `struct dvpoll`, whose list has space for its results.
unsafe fn dp_poll(fd: c_int, set: &Set, argument: *mut c_void) -> Result<c_int, c_int> {
    // SAFETY: the caller's contract.
    let request = unsafe { argument.cast::<DvPoll>().as_ref() }.ok_or(libc::EFAULT)?;
    let timeout = milliseconds(request.timeout);
    let max = usize::try_from(request.count).map_err(|_| libc::EINVAL)?;
    if max == 0 || request.list.is_null() {
        // SAFETY: the list is empty.
        let result = unsafe { real::poll(std::ptr::null_mut(), 0, request.timeout) };
        return if result < 0 { Err(last_errno()) } else { Ok(0) };
    }
    let mut ready = Vec::new();
    set.wait(fd, max, timeout, None, &mut ready)?;
    for (index, Ready { fd, events: found, .. }) in ready.iter().enumerate() {
        let events = set.events(*fd).unwrap_or(0) as i16;
        let entry = libc::pollfd { fd: *fd, events, revents: *found as i16 };
        // SAFETY: the list has space for `max` results.
        unsafe { request.list.add(index).write(entry) };
    }
    Ok(ready.len() as c_int)
}

/// Controls a file: see ioctl(2).
///
/// # Safety
/// The contract of ioctl(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: libc::c_ulong, argument: *mut c_void) -> c_int {
    let device = match Inside::is_current() || !files::is_emulated(fd) {
        true => None,
        false => device(fd),
    };
    let Some(set) = device.filter(|_| matches!(request, DP_POLL | DP_ISPOLLED)) else {
        // SAFETY: the caller's contract.
        return unsafe { real::ioctl(fd, request, argument) };
    };
    emulate(|| {
        let set = set?;
        if request == DP_POLL {
            // SAFETY: the caller's contract.
            return unsafe { dp_poll(fd, &set, argument) };
        }
        // SAFETY: the caller passes null or an entry.
        let entry = unsafe { argument.cast::<libc::pollfd>().as_mut() }.ok_or(libc::EFAULT)?;
        let Some(events) = set.events(entry.fd) else { return Ok(0) };
        (entry.events, entry.revents) = (0, events as i16);
        Ok(1)
    })
}
