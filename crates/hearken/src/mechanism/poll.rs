//! poll(2): the caller hands the kernel its whole list at every wait.
//!
//! Its traps, and what is done about each:
//!
//! a) POLLERR and POLLHUP cannot be masked. A descriptor with an empty interest is taken off the
//!    list, or a peer that is gone would wake every wait.
//! b) The kernel answers in the order of the list. A wait that returns fewer than are ready goes on
//!    from there next time, or the first would starve the last.
//! c) A descriptor that is closed while on the list is answered with POLLNVAL, for ever; the trait's
//!    caller promises that it does not happen.
//! d) Removal from the middle moves the last entry into its place, so that it costs O(1).
//! e) The list may be no longer than RLIMIT_NOFILE (EINVAL). It holds open descriptors only, so it is
//!    shorter, unless the limit was lowered below what is open; the wait then reports the error.
//! f) POLLRDHUP is asked for with every read interest, so that the end of the stream is told from
//!    data.

use std::os::fd::RawFd;
use std::time::Duration;
use std::{fmt, io};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use super::{Mechanism, Open, Options, Semantics, Unavailable};
use super::{WaitCost, borrow, timespec};
use crate::event::{Event, Interest, Readiness, Token};

/// poll(2).
#[derive(Debug, Default)]
pub struct Poll {
    list: List,
    /// Where the next scan of the answers begins.
    next: usize,
    batch: Vec<Event>,
    calls: u64,
}

/// What is handed to poll(2), and whose each entry is. [`locality`](super::locality) has it too.
#[derive(Default)]
pub(super) struct List {
    polled: Vec<PollFd<'static>>,
    /// For each entry of the list, the descriptor and its token.
    entries: Vec<(RawFd, Token)>,
    /// For each descriptor's number, where it is on the list.
    places: Vec<Place>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Place {
    #[default]
    Unregistered,
    /// Registered with an empty interest.
    Silent,
    Listed(u32),
}

impl fmt::Debug for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("List").field("listed", &self.polled.len()).finish_non_exhaustive()
    }
}

impl List {
    pub(super) fn len(&self) -> usize {
        self.polled.len()
    }

    pub(super) fn place(&self, fd: RawFd) -> Place {
        usize::try_from(fd).ok().and_then(|fd| self.places.get(fd)).copied().unwrap_or_default()
    }

    /// The descriptor and the token of an entry.
    pub(super) fn whose(&self, at: usize) -> (RawFd, Token) {
        self.entries[at]
    }

    /// Registers `fd`, with an empty interest.
    pub(super) fn register(&mut self, fd: RawFd) -> io::Result<()> {
        if self.place(fd) != Place::Unregistered {
            return Err(Errno::EXIST.into());
        }
        let number = usize::try_from(fd).map_err(|_| Errno::BADF)?;
        if number >= self.places.len() {
            self.places.resize(number + 1, Place::Unregistered);
        }
        self.places[number] = Place::Silent;
        Ok(())
    }

    /// Ends the registration of what is not on the list.
    pub(super) fn forget(&mut self, fd: RawFd) {
        self.places[fd as usize] = Place::Unregistered;
    }

    /// Puts what is registered at the end of the list.
    ///
    /// # Safety
    /// `fd` is open, and stays so while it is listed.
    pub(super) unsafe fn push(&mut self, fd: RawFd, token: Token, interest: Interest) {
        self.places[fd as usize] = Place::Listed(self.polled.len() as u32);
        // SAFETY: the caller's promise.
        self.polled.push(PollFd::from_borrowed_fd(unsafe { borrow(fd) }, flags(interest)));
        self.entries.push((fd, token));
    }

    /// Replaces the interest in an entry.
    ///
    /// # Safety
    /// The entry's descriptor is open, and stays so while it is listed.
    pub(super) unsafe fn set(&mut self, at: usize, interest: Interest) {
        // SAFETY: the caller's promise.
        let source = unsafe { borrow(self.entries[at].0) };
        self.polled[at] = PollFd::from_borrowed_fd(source, flags(interest));
    }

    pub(super) fn swap(&mut self, one: usize, other: usize) {
        self.polled.swap(one, other);
        self.entries.swap(one, other);
        for at in [one, other] {
            self.places[self.entries[at].0 as usize] = Place::Listed(at as u32);
        }
    }

    /// Takes an entry off; the last takes its place. Its descriptor stays registered.
    pub(super) fn swap_remove(&mut self, at: usize) {
        self.swap(at, self.polled.len() - 1); // (d)
        self.polled.pop();
        if let Some((fd, _)) = self.entries.pop() {
            self.places[fd as usize] = Place::Silent;
        }
    }

    /// Asks the kernel about the first `len` entries: how many of them have an answer.
    pub(super) fn ask(&mut self, len: usize, timeout: Option<Duration>) -> io::Result<usize> {
        let timeout = timeout.map(timespec);
        Ok(rustix::event::poll(&mut self.polled[..len], timeout.as_ref())?)
    }

    #[inline]
    pub(super) fn is_ready(&self, at: usize) -> bool {
        !self.polled[at].revents().is_empty()
    }

    /// Adds `count` events to the batch, of at least as many that the first `len` entries have,
    /// beginning with the entry at `from`. Answers where it ended.
    pub(super) fn collect(
        &self,
        len: usize,
        from: usize,
        count: usize,
        batch: &mut Vec<Event>,
    ) -> usize {
        let mut at = from;
        let mut left = count;
        while left > 0 {
            if at >= len {
                at = 0;
            }
            let answer = self.polled[at].revents();
            if !answer.is_empty() {
                batch.push(Event { who: self.entries[at].1, readiness: readiness(answer) });
                left -= 1;
            }
            at += 1;
        }
        at
    }
}

/// What asks poll(2) for `interest`.
pub(crate) fn flags(interest: Interest) -> PollFlags {
    let mut flags = PollFlags::empty();
    flags.set(PollFlags::IN | PollFlags::RDHUP, interest.contains(Interest::READ)); // (f)
    flags.set(PollFlags::OUT, interest.contains(Interest::WRITE));
    flags
}

/// What poll(2)'s answer means.
#[inline]
pub(crate) fn readiness(flags: PollFlags) -> Readiness {
    if flags.contains(PollFlags::NVAL) {
        return Readiness::READABLE | Readiness::WRITABLE | Readiness::ERROR;
    }
    Readiness::from_poll(flags.bits().into())
}

impl Open for Poll {
    const NAME: &'static str = "poll";
    const SUMMARY: &'static str = "poll(2)";
    const SEMANTICS: Semantics = Semantics { wait: WaitCost::Registered, ..Semantics::COMMON };

    fn open_with(_: &Options) -> Result<Poll, Unavailable> {
        Ok(Poll::default())
    }
}

impl Mechanism for Poll {
    fn semantics(&self) -> &'static Semantics {
        &Self::SEMANTICS
    }

    unsafe fn declare(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        self.list.register(fd)?;
        if !interest.is_empty() {
            // SAFETY: the caller keeps fd open until revoke.
            unsafe { self.list.push(fd, token, interest) };
        }
        Ok(())
    }

    unsafe fn change(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        match self.list.place(fd) {
            Place::Unregistered => return Err(Errno::NOENT.into()),
            Place::Listed(at) if interest.is_empty() => self.list.swap_remove(at as usize), // (a)
            // SAFETY: the caller keeps fd open until revoke.
            Place::Listed(at) => unsafe { self.list.set(at as usize, interest) },
            Place::Silent if interest.is_empty() => {}
            // SAFETY: as above.
            Place::Silent => unsafe { self.list.push(fd, token, interest) },
        }
        Ok(())
    }

    unsafe fn revoke(&mut self, fd: RawFd, _token: Token) -> io::Result<()> {
        match self.list.place(fd) {
            Place::Unregistered => return Err(Errno::NOENT.into()),
            Place::Silent => {}
            Place::Listed(at) => self.list.swap_remove(at as usize),
        }
        self.list.forget(fd);
        Ok(())
    }

    fn wait(&mut self, max: usize, timeout: Option<Duration>) -> io::Result<usize> {
        self.batch.clear();
        self.calls += 1;
        let len = self.list.len();
        let ready = match self.list.ask(len, timeout) {
            Ok(ready) => ready.min(max.max(1)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(error),
        };
        self.next = self.list.collect(len, self.next, ready, &mut self.batch); // (b)
        Ok(self.batch.len())
    }

    #[inline]
    fn event(&self, index: usize) -> Event {
        self.batch.get(index).copied().unwrap_or(super::NO_EVENT)
    }

    fn calls(&self) -> u64 {
        self.calls
    }
}
