//! The multithreaded version of FDM: a helper thread polls the inactive descriptors, while the
//! waiting thread polls the active ones.
//!
//! The helper reports no events. A descriptor that it finds ready becomes active, and the waiting
//! thread polls it. So an event states what the waiting thread saw, and none is for a descriptor
//! that was closed or whose number was reused.
//!
//! Pitfalls, and how the code handles them:
//!
//! a) A poll in progress keeps its files open: a connection closed meanwhile would send no end of
//!    the stream. The waiting thread ends the poll before it returns from a revocation. The helper
//!    then waits until the next wait begins, so that further revocations cost little.
//! b) Descriptor numbers mean something only in the thread's descriptor table. The thread that
//!    opens the mechanism shares its table with the helper. A thread with another table does not
//!    have the mechanism's socket, which is checked before the helper polls.
//! c) A signal handled by the helper would not end the wait. The helper blocks all signals.
//! d) Under load, a poll for each descriptor that becomes inactive would keep a processor busy. The
//!    helper pauses after each poll, and finds those descriptors in the next one.
//! e) Waits that return immediately do not wait for the helper, which may not run at all in the
//!    meantime. Every few hundred waits request a complete poll, and later wait for its end.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use rustix::fs::fstat;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};

use super::exchange::{Exchange, Held};
use super::schedule::poll_interval;
use crate::event::Interest;
use crate::mechanism::poll::{Entry, List, Position};
use crate::mechanism::{NO_EVENT, Unavailable};
use crate::sys;

/// The number of waits after which a poll is requested, and after which it must have ended. A
/// descriptor becomes ready at worst just after the first, and is found by the second poll.
const REQUEST_AFTER: u32 = 320;
const AWAIT_AFTER: u32 = 640;
/// The maximum number of waits until the helper's result arrives.
pub(super) const MAX_WAITS: u32 = REQUEST_AFTER + AWAIT_AFTER + 1;
/// The pause after a poll that failed.
const ERROR_PAUSE: Duration = Duration::from_millis(10);

/// The waiting thread's side.
#[derive(Debug)]
pub(super) struct Helper {
    exchange: Arc<Exchange<List, Entry>>,
    thread: Option<JoinHandle<()>>,
    /// Wakes the helper, and is readable if the helper has found descriptors.
    socket: OwnedFd,
    /// The inode of the socket.
    inode: u64,
    /// The list, while the helper is held.
    list: Option<List>,
    /// Whether a descriptor is inactive, indexed by its number.
    is_inactive: Vec<bool>,
    inactive: usize,
    /// Descriptors that become inactive in this wait.
    demoted: Vec<Entry>,
    /// The number of waits since a requested poll has ended.
    waits: u32,
    /// The number of system calls of the waiting thread.
    calls: u64,
}

impl Helper {
    /// Starts the helper, which is held until the first wait. A poll of all inactive descriptors is
    /// at most `sleep` nanoseconds after the previous one.
    ///
    /// # Errors
    /// No descriptors or no thread are available.
    pub(super) fn start(sleep: u64) -> Result<Helper, Unavailable> {
        let unavailable = |call, error, remedy| Unavailable { call, error, remedy };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (socket, remote) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .map_err(|errno| {
                unavailable("socketpair", errno.into(), "raise the limit of open files")
            })?;
        let inode = fstat(&socket).map_err(|errno| {
            unavailable("fstat", errno.into(), "allow the call in the seccomp filter")
        })?;
        let exchange = Arc::new(Exchange::new());
        let poller = Poller { exchange: Arc::clone(&exchange), socket: remote, sleep };
        let thread = Builder::new().name("locality".to_owned()).spawn(move || poller.run());
        let thread = thread.map_err(|error| {
            unavailable("clone", error, "raise the limits of threads (ulimit -u, pids.max)")
        })?;
        let mut helper = Helper {
            exchange,
            thread: Some(thread),
            socket,
            inode: inode.st_ino,
            list: None,
            is_inactive: Vec::new(),
            inactive: 0,
            demoted: Vec::new(),
            waits: 0,
            calls: 0,
        };
        // Returns when the helper has blocked its signals.
        helper.hold();
        Ok(helper)
    }

    /// Returns the descriptor that is readable if the helper has found descriptors.
    pub(super) fn notifier(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Returns the number of inactive descriptors.
    pub(super) fn inactive(&self) -> usize {
        self.inactive
    }

    /// Returns whether `fd` is inactive.
    pub(super) fn is_inactive(&self, fd: RawFd) -> bool {
        usize::try_from(fd).ok().and_then(|fd| self.is_inactive.get(fd)).copied().unwrap_or(false)
    }

    /// Returns the number of system calls of both threads, except the waiting thread's polls.
    pub(super) fn calls(&self) -> u64 {
        self.exchange.calls() + self.calls
    }

    /// Begins a wait. Returns descriptors that must be polled.
    ///
    /// # Errors
    /// This thread has another descriptor table than the helper, or the helper's poll failed.
    pub(super) fn begin_wait(&mut self) -> io::Result<Vec<Entry>> {
        if self.inactive == 0 {
            return Ok(Vec::new());
        }
        self.release()?;
        self.waits += 1;
        if self.waits == REQUEST_AFTER {
            self.exchange.request_poll();
            self.wake();
        } else if self.waits >= AWAIT_AFTER {
            self.waits = 0;
            self.exchange.await_poll(); // (e)
            return self.exchange.take_found().map(|found| self.mark_active(found));
        }
        Ok(Vec::new())
    }

    /// Returns the descriptors of a notification.
    ///
    /// # Errors
    /// This thread has another descriptor table than the helper, or the helper's poll failed.
    pub(super) fn on_notified(&mut self) -> io::Result<Vec<Entry>> {
        // Before the descriptors are taken, so that no later notification is lost.
        self.calls += 1;
        if !drain(&self.socket) {
            self.check_table()?; // (b)
        }
        self.exchange.take_found().map(|found| self.mark_active(found))
    }

    fn mark_active(&mut self, found: Vec<Entry>) -> Vec<Entry> {
        found.iter().for_each(|entry| self.mark(entry.fd(), false));
        found
    }

    /// Returns the buffer for descriptors that become inactive.
    pub(super) fn demoted(&mut self) -> &mut Vec<Entry> {
        &mut self.demoted
    }

    /// Passes the descriptors of the buffer to the helper.
    ///
    /// # Errors
    /// This thread has another descriptor table than the helper.
    pub(super) fn demote(&mut self) -> io::Result<()> {
        if self.demoted.is_empty() {
            return Ok(());
        }
        for index in 0..self.demoted.len() {
            self.mark(self.demoted[index].fd(), true);
        }
        let Some(list) = &mut self.list else {
            if self.exchange.demote(&mut self.demoted) {
                self.wake();
            }
            return Ok(());
        };
        self.demoted.drain(..).for_each(|entry| list.add(entry));
        self.release()
    }

    /// Takes an inactive descriptor from the helper, which does not use it when this returns.
    /// Returns it with others that are active again.
    pub(super) fn recall(&mut self, fd: RawFd) -> Vec<Entry> {
        let mut recalled = self.hold(); // (a)
        if self.is_inactive(fd)
            && let Some(list) = &mut self.list
            && let Position::Listed(index) = list.position(fd)
        {
            recalled.push(list.take(index as usize));
            self.mark(fd, false);
        }
        recalled
    }

    /// Ends the helper's poll and takes its list. Returns the descriptors that it has found.
    fn hold(&mut self) -> Vec<Entry> {
        if self.list.is_some() {
            return Vec::new();
        }
        self.calls += 1;
        let Held { mut list, demoted, found } = self.exchange.hold(|| self.wake_helper());
        demoted.into_iter().for_each(|entry| list.add(entry));
        self.list = Some(list);
        self.mark_active(found)
    }

    /// Lets the helper poll again.
    fn release(&mut self) -> io::Result<()> {
        if self.list.is_some() {
            self.check_table()?;
        }
        if let Some(list) = self.list.take() {
            self.exchange.release(list);
        }
        Ok(())
    }

    fn wake(&mut self) {
        self.calls += 1;
        self.wake_helper();
    }

    fn wake_helper(&self) {
        // A full socket already contains a wake-up.
        let _ = send(&self.socket, &[1], SendFlags::NOSIGNAL);
    }

    fn mark(&mut self, fd: RawFd, is_inactive: bool) {
        let number = fd as usize;
        if number >= self.is_inactive.len() {
            self.is_inactive.resize(number + 1, false);
        }
        if self.is_inactive[number] != is_inactive {
            self.is_inactive[number] = is_inactive;
            match is_inactive {
                true => self.inactive += 1,
                false => self.inactive -= 1,
            }
        }
    }

    /// Checks that this thread has the descriptor table of the helper.
    fn check_table(&mut self) -> io::Result<()> {
        self.calls += 1;
        match fstat(&self.socket) {
            Ok(stat) if stat.st_ino == self.inode => Ok(()),
            _ => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "mechanism locality:threads=2 was opened by a thread with another descriptor \
                 table; open it in the thread that waits",
            )),
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.exchange.stop();
        self.wake_helper();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Reads notifications and returns whether there were any. More than 64 remain for the next read.
fn drain(socket: &OwnedFd) -> bool {
    rustix::io::read(socket, &mut [0; 64]).is_ok_and(|count| count > 0)
}

/// The helper thread.
struct Poller {
    exchange: Arc<Exchange<List, Entry>>,
    /// Readable if the helper must return from its poll.
    socket: OwnedFd,
    sleep: u64,
}

impl Poller {
    fn run(self) {
        let _ = sys::block_signals(); // (c)
        let mut list = List::default();
        // SAFETY: the socket is open while this thread runs.
        let _ = unsafe { list.declare(self.socket.as_raw_fd(), NO_EVENT.token, Interest::READ) };
        let mut next = Some(list);
        let (mut demoted, mut found, mut calls) = (Vec::new(), Vec::new(), 0);
        while let Some(list) = next.take() {
            let Some((mut list, turn)) = self.exchange.begin(list, &mut demoted) else { return };
            demoted.drain(..).for_each(|entry| list.add(entry));
            let timeout = if turn.sleeps { None } else { Some(Duration::ZERO) };
            calls += 1;
            let result = match list.poll(list.len(), timeout) {
                Ok(_) => {
                    self.take_ready(&mut list, &mut found);
                    Ok(&mut found)
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(&mut found),
                Err(error) => Err(error),
            };
            let pause = match &result {
                Ok(_) => Duration::from_nanos(poll_interval(self.sleep, list.len())),
                Err(_) => ERROR_PAUSE,
            };
            let after = self.exchange.end(&turn, result, calls);
            if after.notifies {
                calls += 1;
                let _ = send(&self.socket, &[1], SendFlags::NOSIGNAL);
            }
            if after.pauses {
                // Only the socket ends the pause. (d)
                calls += 1;
                let _ = list.poll(1, Some(pause));
            }
            next = Some(list);
        }
    }

    /// Moves the ready descriptors from the list to `found`. The socket stays the first entry.
    fn take_ready(&self, list: &mut List, found: &mut Vec<Entry>) {
        if list.is_ready(0) {
            drain(&self.socket);
        }
        for index in (1..list.len()).rev() {
            if list.is_ready(index) {
                found.push(list.take(index));
            }
        }
    }
}
