//! Process-wide interest: several queues, usually in as many threads, watch the same open file.

use std::fmt;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::dispatcher::SharedSource;

/// The queues that receive an event of a [`Shared`] source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wake {
    /// At least one queue (`SO_WAKEUP_ONE` in the paper). A mechanism that cannot select one wakes
    /// several. A queue that then finds the event already handled does not report it.
    One,
    /// All queues.
    All,
}

/// A source in which several queues of a process declare interest, such as a listening socket from
/// which every thread accepts connections.
///
/// Cloning is cheap. Each queue receives a clone through
/// [`declare_processwide_interest`](super::EventQueue::declare_processwide_interest). Dropping the
/// last clone closes the source.
///
/// ```
/// use hearken::queue::{Shared, Wake};
/// use hearken::{EventQueue, Interest};
/// use std::net::{TcpListener, TcpStream};
/// use std::thread;
///
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// listener.set_nonblocking(true)?;
/// let address = listener.local_addr()?;
/// let listener = Shared::new(listener, Wake::One);
/// let accept = |listener: Shared<TcpListener>| {
///     let queue = EventQueue::<()>::new()?;
///     let (listener, _) = queue.declare_processwide_interest(listener, Interest::READ, ())?;
///     for _ in queue.next_events(8, None)? {
///         if let Ok((_connection, peer)) = listener.accept() {
///             return Ok::<_, std::io::Error>(Some(peer));
///         }
///     }
///     Ok(None)
/// };
/// let threads = [0, 1].map(|_| {
///     let listener = listener.clone();
///     thread::spawn(move || accept(listener))
/// });
/// let _connections = [TcpStream::connect(address)?, TcpStream::connect(address)?];
/// # for thread in threads { thread.join().unwrap()?; let _ = TcpStream::connect(address)?; }
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Shared<S>(Arc<Inner<S>>);

struct Inner<S> {
    source: Arc<S>,
    wake: Wake,
    /// The dispatcher's view of the source, for mechanisms that cannot share it.
    dispatched: Arc<SharedSource>,
}

impl<S: AsFd + Send + Sync + 'static> Shared<S> {
    /// Makes `source` shareable between queues.
    pub fn new(source: S, wake: Wake) -> Shared<S> {
        let source = Arc::new(source);
        let dispatched = Arc::new(SharedSource::new(source.clone(), wake));
        Shared(Arc::new(Inner { source, wake, dispatched }))
    }

    /// Returns which queues receive an event.
    pub fn wake(&self) -> Wake {
        self.0.wake
    }

    pub(super) fn dispatched(&self) -> &Arc<SharedSource> {
        &self.0.dispatched
    }
}

impl<S> Clone for Shared<S> {
    fn clone(&self) -> Shared<S> {
        Shared(self.0.clone())
    }
}

impl<S> Deref for Shared<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.0.source
    }
}

impl<S: AsFd> AsFd for Shared<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.source.as_fd()
    }
}

impl<S: fmt::Debug> fmt::Debug for Shared<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("source", &self.0.source)
            .field("wake", &self.0.wake)
            .finish_non_exhaustive()
    }
}
