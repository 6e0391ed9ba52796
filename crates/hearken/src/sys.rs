//! System calls that the system-call crate lacks: one `unsafe` block each, with its reason.

#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::ioctl::{Getter, Opcode, ioctl};

/// `SIOCOUTQ` (linux/sockios.h).
const SIOCOUTQ: Opcode = 0x5411;

/// Returns the number of bytes in a socket's send queue that the peer has not acknowledged: tcp(7),
/// `SIOCOUTQ`.
pub(crate) fn unacknowledged_bytes(socket: impl AsFd) -> io::Result<u64> {
    // SAFETY: SIOCOUTQ writes one int.
    let bytes = unsafe { ioctl(socket, Getter::<SIOCOUTQ, i32>::new()) }?;
    Ok(u64::try_from(bytes).unwrap_or(0))
}

/// Returns events of poll(2) as a submission of io_uring contains them.
#[inline]
pub(crate) fn poll_events(events: PollFlags) -> u32 {
    #[allow(clippy::unnecessary_cast, reason = "with its libc backend, rustix has a signed type")]
    u32::from(events.bits() as u16)
}

/// `IP_BIND_ADDRESS_NO_PORT` (linux/in.h).
const IP_BIND_ADDRESS_NO_PORT: libc::c_int = 24;

/// Lets bind(2) to port 0 leave the choice of the port to connect(2), which knows the peer: ip(7).
pub(crate) fn bind_without_port(socket: impl AsFd) -> io::Result<()> {
    set(socket, libc::IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
}

/// Delays accepting a connection until its first bytes arrive or `timeout` passes: tcp(7),
/// `TCP_DEFER_ACCEPT`. The timeout is rounded up to whole seconds.
pub(crate) fn defer_accept(socket: impl AsFd, timeout: Duration) -> io::Result<()> {
    let seconds = timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0);
    let seconds = i32::try_from(seconds).unwrap_or(i32::MAX);
    set(socket, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, seconds)
}

/// Sets a socket option of type int.
fn set(socket: impl AsFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel reads one int, which lives until it returns.
    let result = unsafe {
        let length = size_of_val(&value) as libc::socklen_t;
        libc::setsockopt(fd, level, name, (&raw const value).cast(), length)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the kernel's state of its real-time clock without changing it: adjtimex(2). The first
/// value is the result of the call (`TIME_OK` and so on).
pub(crate) fn adjtimex() -> io::Result<(i32, libc::timex)> {
    let mut state = MaybeUninit::<libc::timex>::zeroed();
    // SAFETY: all zeros is a valid timex whose `modes` of 0 changes nothing. The kernel writes to
    // it, and it lives until the call returns.
    let (result, state) = unsafe { (libc::adjtimex(state.as_mut_ptr()), state.assume_init()) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok((result, state)) }
}

/// Gives this thread its own file descriptor table. The table contains only the three standard
/// descriptors and copies of `kept`. Also blocks the signals whose handlers may use a descriptor.
///
/// # Safety
/// This thread must not use or drop a descriptor that was opened before. No other thread may use or
/// drop a descriptor that this thread opens from now on. `kept` are open, and stay open until this
/// returns.
pub(crate) unsafe fn unshare_fd_table(kept: [RawFd; 2]) -> io::Result<[OwnedFd; 2]> {
    const STANDARD: RawFd = 2;
    let close_range = |first: RawFd, last: RawFd, flags: libc::c_uint| {
        // SAFETY: the call takes no pointers. The caller ensures that no code uses the descriptors.
        match unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    block_signals()?;
    let mut sorted = kept;
    sorted.sort_unstable();
    // Descriptors closed by the call that creates the new table are never copied into it.
    close_range(sorted[1] + 1, RawFd::MAX, libc::CLOSE_RANGE_UNSHARE)?;
    for (below, above) in [(STANDARD, sorted[0]), (sorted[0].max(STANDARD), sorted[1])] {
        if below + 1 < above {
            close_range(below + 1, above - 1, 0)?;
        }
    }
    // SAFETY: they are open, and nothing else in this table owns them.
    Ok(kept.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Blocks all signals of this thread except those that its own execution raises.
pub(crate) fn block_signals() -> io::Result<()> {
    use libc::{SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP};
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigfillset(3) initialises the set. The other calls read or change it.
    let errno = unsafe {
        libc::sigfillset(set.as_mut_ptr());
        for signal in [SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP] {
            libc::sigdelset(set.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut())
    };
    if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) }
}
