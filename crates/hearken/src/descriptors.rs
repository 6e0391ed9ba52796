//! The limit of open descriptors, and threads with their own file descriptor table.
//!
//! `RLIMIT_NOFILE` applies to each file descriptor table. The threads of a process share one table
//! unless they were started with their own. N such threads can open N times as many descriptors.
//!
//! The same number means a different file in a different table. Consequences:
//!
//! a) A thread with its own table opens its descriptors itself. It does not use or drop descriptors
//!    of another table, and the values it sends to other threads contain none. Its start value is
//!    passed explicitly, to a function that captures nothing.
//! b) Other threads must be able to wake it. Its [`Wakeups`] are created before it starts, and both
//!    sides own them.
//! c) A copy of a listening socket would keep its port bound after the owner closed it. A copy of a
//!    connection would keep its peer from being notified. The new table contains neither.
//! d) A signal handler that writes to a descriptor would write to a different file. Signals sent to
//!    the process are blocked in the thread and go to other threads.
//! e) Some interfaces identify descriptors by number for the whole process: the programs of
//!    [`bpf`](crate::mechanism::bpf), `/proc/self/fd`, and [process-wide
//!    interest](crate::EventQueue::declare_processwide_interest). They see the first thread's
//!    table.
//!
//! The three standard descriptors exist in every table.

use std::io;
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::mechanism::Unavailable;
use crate::sys;
use crate::waker::{Waker, Wakeups};

/// Raises the soft limit of open files to the hard limit. Returns the resulting limit for each
/// table, or `None` if it is unlimited. Processes started later inherit it.
pub fn raise_limit() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => maximum,
        Err(_) => current,
    }
}

/// The file descriptor table of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Table {
    /// The table of the thread that starts it.
    Shared,
    /// Its own table, which contains the three standard descriptors. See the [module](self).
    Own,
}

impl Table {
    /// Starts a thread with this table. The thread calls `body` with `start` and its wake-up
    /// channel.
    ///
    /// With [`Table::Own`], neither `start` nor the result of `body` may contain a descriptor, and
    /// the two threads must not share one. See the [module](self).
    ///
    /// ```
    /// use hearken::descriptors::Table;
    ///
    /// let (thread, waker) = Table::Own.spawn(std::thread::Builder::new(), 20, |start, wakeups| {
    ///     let mechanism = hearken::mechanism::find("poll").unwrap().open().unwrap();
    ///     // A server continues with ReadinessIo::with_wakeups(mechanism, policy, wakeups).
    ///     drop((mechanism, wakeups));
    ///     Ok(start + 1)
    /// })?;
    /// waker.wake();
    /// assert_eq!(thread.join().unwrap()?, 21);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// No thread, descriptor or table is available. [`Table::probe`] reports the last case in
    /// advance.
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
        let kept_fds = wakeups.raw_fds();
        let (ready_sender, ready) = mpsc::sync_channel(1);
        let thread = thread.spawn(move || {
            #[allow(unsafe_code)]
            // SAFETY: this thread owns no descriptor yet. The kept ones stay open until it reports
            // that its table exists. Its start value contains none, by (a) of the module.
            let wakeups = Wakeups::from_fds(unsafe { sys::unshare_fd_table(kept_fds) }?);
            let _ = ready_sender.send(());
            body(start, wakeups)
        })?;
        match ready.recv() {
            Ok(()) => Ok((thread, waker)),
            Err(_) => {
                let error = thread.join().ok().and_then(Result::err);
                Err(error.unwrap_or_else(|| io::Error::other("the thread ended before it started")))
            }
        }
    }

    /// Checks whether threads can have this table by starting one.
    ///
    /// # Errors
    /// [`Unavailable`] names the refused system call and how to allow it.
    pub fn probe(self) -> Result<(), Unavailable> {
        let result = self.spawn(Builder::new(), (), |(), _| Ok(()));
        let result = result.and_then(|(thread, _)| {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))
        });
        result.map_err(|error| Unavailable {
            call: "close_range(CLOSE_RANGE_UNSHARE)",
            error,
            remedy: "it needs Linux 5.9 and a seccomp filter that allows the call",
        })
    }
}
