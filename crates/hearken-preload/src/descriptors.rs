//! Calls that close or duplicate descriptors.

use std::ffi::{c_int, c_uint, c_void};

use crate::{Inside, emulate, files, provided, real, report};

/// Closes a descriptor: see close(2).
///
/// # Safety
/// The contract of close(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    files::on_close(fd);
    // SAFETY: the caller's contract.
    unsafe { real::close(fd) }
}

/// Closes a range of descriptors: see close_range(2).
///
/// # Safety
/// The contract of close_range(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if flags as c_uint & libc::CLOSE_RANGE_CLOEXEC == 0 {
        files::on_close_range(first, last);
    }
    // SAFETY: the caller's contract.
    unsafe { real::close_range(first, last, flags) }
}

/// Closes all descriptors from `first`.
///
/// # Safety
/// The contract of closefrom(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: c_int) {
    files::on_close_range(c_uint::try_from(first).unwrap_or(0), c_uint::MAX);
    // SAFETY: the caller's contract.
    unsafe { real::closefrom(first) };
}

/// Closes a stream: see fclose(3).
///
/// # Safety
/// The contract of fclose(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fclose(stream: *mut libc::FILE) -> c_int {
    if !stream.is_null() {
        // SAFETY: the caller's contract.
        files::on_close(unsafe { libc::fileno(stream) });
    }
    // SAFETY: the caller's contract.
    unsafe { real::fclose(stream) }
}

/// Closes a stream of a process: see pclose(3).
///
/// # Safety
/// The contract of pclose(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pclose(stream: *mut libc::FILE) -> c_int {
    if !stream.is_null() {
        // SAFETY: the caller's contract.
        files::on_close(unsafe { libc::fileno(stream) });
    }
    // SAFETY: the caller's contract.
    unsafe { real::pclose(stream) }
}

/// Duplicates a descriptor: see dup(2).
///
/// # Safety
/// The contract of dup(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup(fd: c_int) -> c_int {
    // SAFETY: the caller's contract.
    let result = unsafe { real::dup(fd) };
    files::on_duplicate(fd, result);
    result
}

/// Duplicates a descriptor to a number: see dup2(2).
///
/// # Safety
/// The contract of dup2(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(fd: c_int, number: c_int) -> c_int {
    if fd != number {
        files::on_close(number);
    }
    // SAFETY: the caller's contract.
    let result = unsafe { real::dup2(fd, number) };
    if fd != number {
        files::on_duplicate(fd, result);
    }
    result
}

/// Duplicates a descriptor to a number with flags: see dup3(2).
///
/// # Safety
/// The contract of dup3(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(fd: c_int, number: c_int, flags: c_int) -> c_int {
    if fd != number {
        files::on_close(number);
    }
    // SAFETY: the caller's contract.
    let result = unsafe { real::dup3(fd, number, flags) };
    files::on_duplicate(fd, result);
    result
}

/// Operates on a descriptor: see fcntl(2).
///
/// # Safety
/// The contract of fcntl(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: the caller's contract.
    let result = unsafe { real::fcntl64(fd, command, argument) };
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
        files::on_duplicate(fd, result);
    }
    result
}

/// Another name of [`fcntl`].
///
/// # Safety
/// The contract of fcntl(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { fcntl(fd, command, argument) }
}

/// Sends a message: see sendmsg(2). Refuses to send an emulated descriptor to another process,
/// which would find an empty set.
///
/// # Safety
/// The contract of sendmsg(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmsg(fd: c_int, message: *const libc::msghdr, flags: c_int) -> isize {
    let emulates = provided().epoll || provided().dev_poll;
    // SAFETY: the caller passes a message.
    if emulates && !Inside::is_current() && unsafe { sends_emulated(message) } {
        report(7, "sendmsg is refused: an emulated descriptor cannot be sent with SCM_RIGHTS");
        return emulate(|| Err(libc::EOPNOTSUPP)) as isize;
    }
    // SAFETY: the caller's contract.
    unsafe { real::sendmsg(fd, message, flags) }
}

/// Returns whether a message contains an emulated descriptor.
///
/// # Safety
/// `message` is null or valid.
unsafe fn sends_emulated(message: *const libc::msghdr) -> bool {
    // SAFETY: the caller's contract.
    if message.is_null() || unsafe { (*message).msg_control.is_null() } {
        return false;
    }
    // SAFETY: the macros of cmsg(3) stay within the control data of a valid message.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while let Some(control) = header.as_ref() {
            if (control.cmsg_level, control.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                #[allow(clippy::unnecessary_cast, reason = "musl has another type")]
                let length = (control.cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
                let numbers = libc::CMSG_DATA(header).cast::<c_int>();
                let mut numbers =
                    (0..length / size_of::<c_int>()).map(|n| numbers.add(n).read_unaligned());
                if numbers.any(files::is_emulated) {
                    return true;
                }
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    false
}
