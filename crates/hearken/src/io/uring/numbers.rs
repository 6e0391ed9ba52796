//! Sockets as the numbers that submissions and completions contain.

use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};

use crate::io::kernel::{Kernel, Linux};

/// A kernel whose sockets can be named by their numbers.
///
/// Implemented in this crate only.
pub trait RingKernel: Kernel {
    /// Returns the socket that a number names.
    ///
    /// # Safety
    /// The number is that of an open socket that nothing else owns.
    unsafe fn adopt(&self, number: RawFd) -> Self::Socket;

    /// Returns the number of a socket, which a submission closes or has closed.
    fn release(&self, socket: Self::Socket) -> RawFd;
}

impl RingKernel for Linux {
    #[inline]
    unsafe fn adopt(&self, number: RawFd) -> OwnedFd {
        // SAFETY: the caller's promise.
        unsafe { OwnedFd::from_raw_fd(number) }
    }

    #[inline]
    fn release(&self, socket: OwnedFd) -> RawFd {
        socket.into_raw_fd()
    }
}
