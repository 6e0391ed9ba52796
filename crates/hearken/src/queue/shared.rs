//! Interest of the whole process in one descriptor: several queues, as a rule in as many threads.

use std::fmt;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::herald::Post;

/// Whom an event of a [`Shared`] source is given to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wake {
    /// One of the queues, and at least one (the papers' `SO_WAKEUP_ONE`): more only where the
    /// mechanism cannot choose, and then not to one that finds nothing left.
    One,
    /// Each of them.
    All,
}

/// A source in which several queues of a process declare interest, such as a listening socket that
/// every thread accepts from.
///
/// Cheap to clone; each queue is given a clone, by
/// [`declare_processwide_interest`](super::EventQueue::declare_processwide_interest). The source is
/// closed with the last.
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
    /// Where mechanisms cannot share it, who watches it for them.
    post: Arc<Post>,
}

impl<S: AsFd + Send + Sync + 'static> Shared<S> {
    /// A source to be shared.
    pub fn new(source: S, wake: Wake) -> Shared<S> {
        let source = Arc::new(source);
        let post = Arc::new(Post::new(source.clone(), wake));
        Shared(Arc::new(Inner { source, wake, post }))
    }

    /// Whom its events are given to.
    pub fn wake(&self) -> Wake {
        self.0.wake
    }

    pub(super) fn post(&self) -> &Arc<Post> {
        &self.0.post
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
