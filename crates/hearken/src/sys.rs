//! What the kernel has and the system-call library does not: one block each, with its reason.

#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::ioctl::{Getter, ioctl};

/// `SIOCOUTQ` (linux/sockios.h).
const SIOCOUTQ: u32 = 0x5411;

/// Bytes in a socket's send queue that the peer has not acknowledged: tcp(7), `SIOCOUTQ`.
pub(crate) fn unacknowledged(socket: impl AsFd) -> io::Result<u64> {
    // SAFETY: SIOCOUTQ writes one int.
    let unsent = unsafe { ioctl(socket, Getter::<SIOCOUTQ, i32>::new()) }?;
    Ok(u64::try_from(unsent).unwrap_or(0))
}

/// `IP_BIND_ADDRESS_NO_PORT` (linux/in.h).
const IP_BIND_ADDRESS_NO_PORT: libc::c_int = 24;

/// Has bind(2) to port 0 leave the choice to connect(2), which knows the other side: ip(7).
pub(crate) fn choose_port_at_connect(socket: impl AsFd) -> io::Result<()> {
    set(socket, libc::IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
}

/// Has a connection be accepted when its first bytes have come, or after so long: tcp(7),
/// `TCP_DEFER_ACCEPT`. In whole seconds, rounded up.
pub(crate) fn defer_accept(socket: impl AsFd, most: Duration) -> io::Result<()> {
    let seconds = most.as_secs() + u64::from(most.subsec_nanos() > 0);
    let seconds = i32::try_from(seconds).unwrap_or(i32::MAX);
    set(socket, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, seconds)
}

/// Sets an option of a socket that is an int.
fn set(socket: impl AsFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel reads one int, which lives until it returns.
    let result = unsafe {
        let (at, length) = ((&raw const value).cast(), size_of_val(&value) as libc::socklen_t);
        libc::setsockopt(fd, level, name, at, length)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// What the kernel knows of its real-time clock, changing nothing: adjtimex(2). Its answer (`TIME_OK`
/// and so on) comes with it.
pub(crate) fn clock_discipline() -> io::Result<(i32, libc::timex)> {
    let mut state = MaybeUninit::<libc::timex>::zeroed();
    // SAFETY: all zeros is a timex, whose `modes` of 0 asks for nothing to be set; the kernel writes
    // it, and it lives until that returns.
    let (answer, state) = unsafe { (libc::adjtimex(state.as_mut_ptr()), state.assume_init()) };
    if answer == -1 { Err(io::Error::last_os_error()) } else { Ok((answer, state)) }
}

/// Gives this thread a table of descriptors of its own, in which there is nothing but the three
/// standard ones and its own copies of `kept`; and keeps signals from it whose handlers might use a
/// descriptor.
///
/// # Safety
/// This thread must use no other descriptor from before, nor drop its owner, and no other thread may
/// use or drop one that this thread makes from now on. `kept` are open, and stay so until this
/// returns.
pub(crate) unsafe fn own_table(kept: [RawFd; 2]) -> io::Result<[OwnedFd; 2]> {
    const STANDARD: RawFd = 2;
    let close_range = |first: RawFd, last: RawFd, flags: libc::c_uint| {
        // SAFETY: a system call without pointers; whose descriptors these are is the caller's promise.
        match unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    block_signals()?;
    let mut sorted = kept;
    sorted.sort_unstable();
    // What is closed in the call that makes the new table is not in it for a moment.
    close_range(sorted[1] + 1, RawFd::MAX, libc::CLOSE_RANGE_UNSHARE)?;
    for (below, above) in [(STANDARD, sorted[0]), (sorted[0].max(STANDARD), sorted[1])] {
        if below + 1 < above {
            close_range(below + 1, above - 1, 0)?;
        }
    }
    // SAFETY: they are open, and in this table nobody else's.
    Ok(kept.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Blocks all signals of this thread but those that tell of what it does itself.
fn block_signals() -> io::Result<()> {
    use libc::{SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP};
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigfillset(3) writes the whole set, and the others read it or change it.
    let errno = unsafe {
        libc::sigfillset(set.as_mut_ptr());
        for own in [SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP] {
            libc::sigdelset(set.as_mut_ptr(), own);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut())
    };
    if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) }
}
