//! Background threads that wait in an event queue.

use std::io;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use hearken::mechanism::{self, Mechanism};
use hearken::{EventQueue, Waker};

/// An event queue over epoll, or over poll(2) if epoll is unavailable.
pub(crate) type Queue<P> = EventQueue<P, Box<dyn Mechanism>>;

/// A thread that waits in an event queue. Dropping it wakes the queue and joins the thread.
#[derive(Debug)]
pub(crate) struct QueueThread {
    thread: Option<JoinHandle<()>>,
    waker: Waker,
}

impl QueueThread {
    /// Starts a thread that calls `prepare` and then the function that `prepare` returns. This
    /// function must return after the queue is woken. The `QueueThread` must be dropped in the
    /// descriptor table in which it was created.
    ///
    /// # Errors
    /// The thread or the queue cannot be created, or `prepare` failed.
    pub(crate) fn start<P: Copy + 'static, R: FnOnce()>(
        name: &str,
        prepare: impl FnOnce(Queue<P>) -> io::Result<R> + Send + 'static,
    ) -> io::Result<QueueThread> {
        let (ready, started) = mpsc::sync_channel(1);
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            let prepared = open().and_then(|queue| {
                let waker = queue.waker();
                Ok((waker, prepare(queue)?))
            });
            match prepared {
                Ok((waker, run)) => {
                    drop(ready.send(Ok(waker)));
                    run();
                }
                Err(error) => drop(ready.send(Err(error))),
            }
        })?;
        let waker = started.recv().map_err(io::Error::other)??;
        Ok(QueueThread { thread: Some(thread), waker })
    }
}

impl Drop for QueueThread {
    fn drop(&mut self) {
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            // The thread itself has reported a panic.
            let _ = thread.join();
        }
    }
}

fn open<P: Copy + 'static>() -> io::Result<Queue<P>> {
    let open = |name| {
        let spec = mechanism::find(name).map_err(io::Error::other)?;
        EventQueue::with_mechanism(spec.open().map_err(io::Error::other)?)
    };
    open("epoll-level").or_else(|_| open("poll"))
}
