//! Wakes a thread that waits, from another.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};

/// Ends another thread's wait early. Cheap to clone, and safe to use from any thread.
///
/// Several wake-ups before the waiting thread runs are one.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Wakes the thread that waits, or the next wait if none does.
    pub fn wake(&self) {
        // A full socket holds a wake-up already, and a closed one has nobody to wake.
        let _ = send(&*self.0, &[1], SendFlags::NOSIGNAL);
    }
}

impl AsFd for Waker {
    /// The descriptor to which a byte is written to wake, as from a signal handler.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The end on which wake-ups arrive: a socket, which every mechanism can watch, as an eventfd can
/// not be (it raises no signal), and which can be written to when its reader is gone, as a pipe can
/// not be (SIGPIPE).
#[derive(Debug)]
pub(crate) struct Wakeups(OwnedFd);

impl Wakeups {
    pub(crate) fn new() -> io::Result<(Waker, Wakeups)> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (read, write) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        Ok((Waker(Arc::new(write)), Wakeups(read)))
    }

    /// Takes the wake-ups that are there.
    pub(crate) fn drain(source: impl AsFd) {
        let mut bytes = [0; 64];
        while matches!(rustix::io::read(&source, &mut bytes), Ok(64) | Err(Errno::INTR)) {}
    }
}

impl From<Wakeups> for OwnedFd {
    fn from(wakeups: Wakeups) -> OwnedFd {
        wakeups.0
    }
}

impl AsFd for Wakeups {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
