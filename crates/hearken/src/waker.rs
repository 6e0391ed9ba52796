//! Wakes a thread that waits for events from another thread.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
#[cfg(feature = "simulation")]
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};

/// A handle that ends another thread's wait early. It is cheap to clone. All threads that share the
/// [descriptor table](crate::descriptors::Table) of the waiting thread may use it.
///
/// Several wake-ups before the waiting thread runs count as one.
///
/// ```
/// use hearken::{EventQueue, Interest};
///
/// let queue = EventQueue::<u64>::new()?;
/// let waker = queue.waker();
/// let thread = std::thread::spawn(move || waker.wake());
/// // Without a timeout, only the waker can end this wait.
/// let events = queue.next_events(64, None)?;
/// assert!(events.woken());
/// thread.join().unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Waker(Channel);

/// The means by which a waker reaches its thread.
#[derive(Clone, Debug)]
enum Channel {
    /// The sending end of a socket pair.
    Socket(Arc<OwnedFd>),
    #[cfg(feature = "simulation")]
    Flag(Arc<WakeFlag>),
}

impl Waker {
    /// Wakes the waiting thread. If no thread waits, the next wait returns immediately.
    pub fn wake(&self) {
        match &self.0 {
            Channel::Socket(socket) => {
                // A full socket already contains a wake-up, and a closed one has no waiting thread.
                let _ = send(socket, &[1], SendFlags::NOSIGNAL);
            }
            #[cfg(feature = "simulation")]
            Channel::Flag(flag) => flag.raise(),
        }
    }

    /// Returns the descriptor that wakes the thread when a byte is written to it, as a signal
    /// handler may do. `None` for the waker of a simulation.
    pub fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.0 {
            Channel::Socket(socket) => Some(socket.as_fd()),
            #[cfg(feature = "simulation")]
            Channel::Flag(_) => None,
        }
    }

    /// Returns a waker that raises `flag`.
    #[cfg(feature = "simulation")]
    pub(crate) fn from_flag(flag: Arc<WakeFlag>) -> Waker {
        Waker(Channel::Flag(flag))
    }
}

/// A wake-up that a simulated wait checks.
#[cfg(feature = "simulation")]
#[derive(Debug, Default)]
pub(crate) struct WakeFlag {
    is_raised: Mutex<bool>,
    raised: Condvar,
}

#[cfg(feature = "simulation")]
impl WakeFlag {
    fn raise(&self) {
        *self.lock() = true;
        self.raised.notify_one();
    }

    /// Returns whether the flag is raised.
    pub(crate) fn is_raised(&self) -> bool {
        *self.lock()
    }

    /// Lowers the flag and returns whether it was raised.
    pub(crate) fn take(&self) -> bool {
        std::mem::take(&mut *self.lock())
    }

    /// Blocks until the flag is raised.
    pub(crate) fn wait(&self) {
        let lowered = |raised: &mut bool| !*raised;
        drop(self.raised.wait_while(self.lock(), lowered));
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_raised.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The two ends of a wake-up channel, created before the thread that waits on it.
///
/// The channel is a socket pair. Every mechanism can watch a socket, while an eventfd raises no
/// signals. Writing to a socket whose reader is closed is safe, while a pipe would raise SIGPIPE.
#[derive(Debug)]
pub struct Wakeups {
    waker: Waker,
    receiver: OwnedFd,
}

impl Wakeups {
    /// Creates the channel.
    ///
    /// # Errors
    /// The process is out of descriptors or memory.
    pub fn new() -> io::Result<Wakeups> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (read, write) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        Ok(Wakeups::from_fds([read, write]))
    }

    /// Creates the channel from its receiving and its sending end.
    pub(crate) fn from_fds([receiver, sender]: [OwnedFd; 2]) -> Wakeups {
        Wakeups { waker: Waker(Channel::Socket(Arc::new(sender))), receiver }
    }

    /// Returns a handle to the sending end.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Returns the waker and the receiving end.
    pub(crate) fn into_parts(self) -> (Waker, OwnedFd) {
        (self.waker, self.receiver)
    }

    /// Returns the descriptor numbers of both ends, in the order of [`of`](Wakeups::from_fds).
    pub(crate) fn raw_fds(&self) -> [RawFd; 2] {
        let sender = self.waker.as_fd().map_or(-1, |sender| sender.as_raw_fd());
        [self.receiver.as_raw_fd(), sender]
    }

    /// Reads all pending wake-ups from `source` and returns whether there were any.
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
