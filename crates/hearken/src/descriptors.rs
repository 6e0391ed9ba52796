//! How many descriptors this process may have open, and threads that have a table of their own.
//!
//! `RLIMIT_NOFILE` holds for each table of descriptors. The threads of a process share one, unless
//! they were started with one of their own: N such threads hold N times as many.
//!
//! A number means another file in another table. So:
//!
//! a) What such a thread works with is made there. Nothing of another table is used or dropped
//!    in it, and what it sends to others holds no descriptor. What it starts with is passed
//!    explicitly, to a function that captures nothing.
//! b) It must be woken from outside: its [`Wakeups`] are made before it starts, and both sides have
//!    them.
//! c) A copy of a listening socket would keep its port bound, and one of a connection would keep its
//!    end from being told, after the owner has closed it. The table is made without them.
//! d) A handler of signals that writes to a descriptor would write to another file: signals that are
//!    sent to the process are blocked there, and go to other threads.
//! e) Some things tell descriptors by their number for the whole process: the programs of
//!    [`bpf`](crate::mechanism::bpf), `/proc/self/fd`, and [interest of the
//!    process](crate::queue). They see the first thread's table.
//!
//! The standard three are there in every table.

use std::io;
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::mechanism::Unavailable;
use crate::sys;
use crate::waker::{Waker, Wakeups};

/// Raises the soft limit of open files to the hard one, and returns the limit that then holds for
/// each table; `None` if there is none. Processes that are started later inherit it.
pub fn raise_limit() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => maximum,
        Err(_) => current,
    }
}

/// Which table of descriptors a thread has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Table {
    /// That of the thread which starts it.
    Shared,
    /// One of its own, with the standard three in it; see the [module](self) for what this means.
    Own,
}

impl Table {
    /// Starts a thread with this table, which calls `body` with `start` and what it is woken by.
    ///
    /// With [`Table::Own`], neither `start` nor what `body` returns may hold a descriptor, nor may
    /// anything that the two sides share; see the [module](self).
    ///
    /// ```
    /// use hearken::descriptors::Table;
    ///
    /// let (thread, waker) = Table::Own.spawn(std::thread::Builder::new(), 20, |start, wakeups| {
    ///     let mechanism = hearken::mechanism::find("poll").unwrap().open().unwrap();
    ///     // A server goes on with ReadinessIo::with_wakeups(mechanism, policy, wakeups).
    ///     drop((mechanism, wakeups));
    ///     Ok(start + 1)
    /// })?;
    /// waker.wake();
    /// assert_eq!(thread.join().unwrap()?, 21);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// The kernel's: no thread, no descriptors, or no table to be had; [`Table::probe`] tells the last
    /// beforehand.
    pub fn spawn<S, T>(
        self,
        thread: Builder,
        start: S,
        body: fn(S, Wakeups) -> io::Result<T>,
    ) -> io::Result<(JoinHandle<io::Result<T>>, Waker)>
    where
        S: Send + 'static,
        T: Send + 'static,
    {
        let wakeups = Wakeups::new()?;
        let waker = wakeups.waker();
        if self == Table::Shared {
            return Ok((thread.spawn(move || body(start, wakeups))?, waker));
        }
        let kept = wakeups.numbers();
        let (made, is_made) = mpsc::sync_channel(1);
        let thread = thread.spawn(move || {
            #[allow(unsafe_code)]
            // SAFETY: this thread has no descriptor yet, and those kept stay open until it has said
            // that its table is made. What it is given from other threads holds none, by the
            // module's (a).
            let wakeups = Wakeups::of(unsafe { sys::own_table(kept) }?);
            let _ = made.send(());
            body(start, wakeups)
        })?;
        match is_made.recv() {
            Ok(()) => Ok((thread, waker)),
            Err(_) => {
                let ended = thread.join().ok().and_then(Result::err);
                Err(ended.unwrap_or_else(|| io::Error::other("the thread ended at once")))
            }
        }
    }

    /// Whether threads can have this table here, found out by starting one.
    ///
    /// # Errors
    /// [`Unavailable`]: what was refused, and what would allow it.
    pub fn probe(self) -> Result<(), Unavailable> {
        let ended = self.spawn(Builder::new(), (), |(), _| Ok(()));
        let ended = ended.and_then(|(thread, _)| {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))
        });
        ended.map_err(|error| Unavailable {
            call: "close_range(CLOSE_RANGE_UNSHARE)",
            error,
            remedy: "Linux 5.9, and a seccomp filter that lets it pass",
        })
    }
}
