//! Wakes a thread that waits, from another.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

/// Ends another thread's wait early. Cheap to clone, and safe to use from any thread.
///
/// Several wake-ups before the waiting thread runs are one.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Wakes the thread that waits, or the next wait if none does.
    pub fn wake(&self) {
        // A full pipe holds a wake-up already, and a closed one has nobody to wake.
        let _ = rustix::io::write(&*self.0, &[1]);
    }
}

impl AsFd for Waker {
    /// The descriptor to which a byte is written to wake, as from a signal handler.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The end on which wake-ups arrive: a pipe, which every mechanism can watch, as an eventfd can
/// not be (it raises no signal).
#[derive(Debug)]
pub(crate) struct Wakeups(OwnedFd);

impl Wakeups {
    pub(crate) fn new() -> io::Result<(Waker, Wakeups)> {
        let (read, write) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC)?;
        Ok((Waker(Arc::new(write)), Wakeups(read)))
    }

    /// Takes the wake-ups that are there.
    pub(crate) fn drain(source: impl AsFd) {
        let mut bytes = [0; 64];
        while matches!(
            rustix::io::read(&source, &mut bytes),
            Ok(64) | Err(Errno::INTR)
        ) {}
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
