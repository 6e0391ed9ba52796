//! Wakes a thread that waits, from another.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};

/// Ends another thread's wait early. Cheap to clone, and safe to use from any thread of
/// its [table of descriptors](crate::descriptors::Table).
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

/// What a thread that will wait is woken by, made before it is there.
///
/// Sockets, which every mechanism can watch, as an eventfd can not be (it raises no signal), and
/// which can be written to when the reader is gone, as a pipe can not be (SIGPIPE).
#[derive(Debug)]
pub struct Wakeups {
    waker: Waker,
    arrivals: OwnedFd,
}

impl Wakeups {
    /// Both ends.
    ///
    /// # Errors
    /// The kernel's: out of descriptors or memory.
    pub fn new() -> io::Result<Wakeups> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (read, write) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        Ok(Wakeups::of([read, write]))
    }

    /// Of the end on which wake-ups arrive, and that to which they are written.
    pub(crate) fn of([arrivals, write]: [OwnedFd; 2]) -> Wakeups {
        Wakeups { waker: Waker(Arc::new(write)), arrivals }
    }

    /// What wakes whoever waits for these.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// The waker, and the end on which wake-ups arrive.
    pub(crate) fn split(self) -> (Waker, OwnedFd) {
        (self.waker, self.arrivals)
    }

    /// The numbers of both ends, as [`of`](Wakeups::of) takes them.
    pub(crate) fn numbers(&self) -> [RawFd; 2] {
        [self.arrivals.as_raw_fd(), self.waker.0.as_raw_fd()]
    }

    /// Takes the wake-ups that are there, and tells whether there were any.
    pub(crate) fn drain(source: impl AsFd) -> bool {
        let mut bytes = [0; 64];
        let mut any = false;
        loop {
            match rustix::io::read(&source, &mut bytes) {
                Ok(64) => any = true,
                Err(Errno::INTR) => {}
                last => return any || last.is_ok_and(|count| count > 0),
            }
        }
    }
}
