//! What the kernel has and the system-call library does not: one block each, with its reason.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsFd;

use rustix::ioctl::{Getter, ioctl};

/// `SIOCOUTQ` (linux/sockios.h).
const SIOCOUTQ: u32 = 0x5411;

/// Bytes in a socket's send queue that the peer has not acknowledged: tcp(7), `SIOCOUTQ`.
pub(crate) fn unacknowledged(socket: impl AsFd) -> io::Result<u64> {
    // SAFETY: SIOCOUTQ writes one int.
    let unsent = unsafe { ioctl(socket, Getter::<SIOCOUTQ, i32>::new()) }?;
    Ok(u64::try_from(unsent).unwrap_or(0))
}
