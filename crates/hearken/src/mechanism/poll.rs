//! poll(2): the caller passes its entire list to the kernel in every wait.
//!
//! Pitfalls, and how the code handles them:
//!
//! a) POLLERR and POLLHUP cannot be masked. A descriptor with an empty interest is removed from the
//!    list, because a disconnected peer would end every wait.
//! b) Results are in the order of the list. A wait that returns fewer than are ready continues from
//!    there in the next wait, or the first entries would starve the last.
//! c) A closed descriptor on the list is always reported, with POLLNVAL. The contract of the trait
//!    prevents that.
//! d) Removal from the middle moves the last entry into the gap, so that it costs O(1).
//! e) The list must not be longer than RLIMIT_NOFILE (EINVAL). It contains open descriptors only,
//!    so it is shorter unless the limit was lowered below their number. The wait then returns the
//!    error.
//! f) POLLRDHUP is requested with every read interest, to distinguish the end of the stream from
//!    data.

use std::os::fd::RawFd;
use std::time::Duration;
use std::{fmt, io};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use super::{Mechanism, Open, Options, Semantics, SignalMask, Unavailable};
use super::{WaitCost, borrow, timespec};
use crate::event::{Event, Interest, Readiness, Token};
use crate::sys::poll_events;

/// poll(2).
#[derive(Debug, Default)]
pub struct Poll {
    list: List,
    /// The index at which the next scan of the results begins.
    next: usize,
    batch: Vec<Event>,
    calls: u64,
}

/// The argument of poll(2) with the owner of each entry. [`locality`](super::locality) and the
/// fallback of signals use it too.
#[derive(Default)]
pub(crate) struct List {
    polled: Vec<PollFd<'static>>,
    /// The descriptor and token of each entry.
    entries: Vec<(RawFd, Token)>,
    /// The positions of descriptors on the list, indexed by number.
    positions: Vec<Position>,
    /// The signal mask of the current wait, if it has one.
    mask: Option<Box<SignalMask>>,
}

/// An entry between two lists.
#[derive(Debug)]
pub(super) struct Entry {
    polled: PollFd<'static>,
    fd: RawFd,
    token: Token,
}

impl Entry {
    pub(super) fn fd(&self) -> RawFd {
        self.fd
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Position {
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

    pub(super) fn position(&self, fd: RawFd) -> Position {
        usize::try_from(fd).ok().and_then(|fd| self.positions.get(fd)).copied().unwrap_or_default()
    }

    /// Returns the descriptor and the token of an entry.
    pub(super) fn entry(&self, index: usize) -> (RawFd, Token) {
        self.entries[index]
    }

    /// Registers `fd` with an empty interest.
    pub(super) fn register(&mut self, fd: RawFd) -> io::Result<()> {
        if self.position(fd) != Position::Unregistered {
            return Err(Errno::EXIST.into());
        }
        let number = usize::try_from(fd).map_err(|_| Errno::BADF)?;
        if number >= self.positions.len() {
            self.positions.resize(number + 1, Position::Unregistered);
        }
        self.positions[number] = Position::Silent;
        Ok(())
    }

    /// Ends the registration of a descriptor that is not on the list.
    pub(super) fn unregister(&mut self, fd: RawFd) {
        self.positions[fd as usize] = Position::Unregistered;
    }

    /// Appends a registered descriptor to the list.
    ///
    /// # Safety
    /// `fd` is open, and stays open while it is listed.
    pub(super) unsafe fn push(&mut self, fd: RawFd, token: Token, interest: Interest) {
        self.positions[fd as usize] = Position::Listed(self.polled.len() as u32);
        // SAFETY: the caller keeps `fd` open.
        self.polled.push(PollFd::from_borrowed_fd(unsafe { borrow(fd) }, flags(interest)));
        self.entries.push((fd, token));
    }

    /// Replaces the interest in an entry.
    ///
    /// # Safety
    /// The descriptor of the entry is open, and stays open while it is listed.
    pub(super) unsafe fn set(&mut self, index: usize, interest: Interest) {
        // SAFETY: the caller keeps the descriptor open.
        let source = unsafe { borrow(self.entries[index].0) };
        self.polled[index] = PollFd::from_borrowed_fd(source, flags(interest));
    }

    pub(super) fn swap(&mut self, one: usize, other: usize) {
        self.polled.swap(one, other);
        self.entries.swap(one, other);
        for index in [one, other] {
            self.positions[self.entries[index].0 as usize] = Position::Listed(index as u32);
        }
    }

    /// Removes an entry. The last entry moves into its place. The descriptor stays registered.
    pub(super) fn swap_remove(&mut self, index: usize) {
        self.swap(index, self.polled.len() - 1); // (d)
        self.polled.pop();
        if let Some((fd, _)) = self.entries.pop() {
            self.positions[fd as usize] = Position::Silent;
        }
    }

    /// Removes an entry, to be added to another list. The last entry moves into its place.
    pub(super) fn take(&mut self, index: usize) -> Entry {
        let (polled, (fd, token)) = (self.polled[index].clone(), self.entries[index]);
        self.swap_remove(index);
        Entry { polled, fd, token }
    }

    /// Appends an entry of another list, and registers its descriptor. It is not ready until the
    /// next poll.
    pub(super) fn add(&mut self, entry: Entry) {
        let Entry { mut polled, fd, token } = entry;
        let number = fd as usize;
        if number >= self.positions.len() {
            self.positions.resize(number + 1, Position::Unregistered);
        }
        self.positions[number] = Position::Listed(self.polled.len() as u32);
        polled.clear_revents();
        self.polled.push(polled);
        self.entries.push((fd, token));
    }

    /// Registers `fd`, and appends it to the list if it has an interest.
    ///
    /// # Safety
    /// The requirements of [`Mechanism::declare`].
    pub(super) unsafe fn declare(
        &mut self,
        fd: RawFd,
        token: Token,
        interest: Interest,
    ) -> io::Result<()> {
        self.register(fd)?;
        if !interest.is_empty() {
            // SAFETY: the caller keeps `fd` open until `revoke`.
            unsafe { self.push(fd, token, interest) };
        }
        Ok(())
    }

    /// Replaces the interest in a registered descriptor.
    ///
    /// # Safety
    /// The requirements of [`Mechanism::change`].
    pub(super) unsafe fn change(
        &mut self,
        fd: RawFd,
        token: Token,
        interest: Interest,
    ) -> io::Result<()> {
        match self.position(fd) {
            Position::Unregistered => return Err(Errno::NOENT.into()),
            Position::Listed(index) if interest.is_empty() => self.swap_remove(index as usize), // (a)
            // SAFETY: the caller keeps `fd` open until `revoke`.
            Position::Listed(index) => unsafe { self.set(index as usize, interest) },
            Position::Silent if interest.is_empty() => {}
            // SAFETY: as above.
            Position::Silent => unsafe { self.push(fd, token, interest) },
        }
        Ok(())
    }

    /// Ends the registration of `fd`.
    pub(super) fn revoke(&mut self, fd: RawFd) -> io::Result<()> {
        match self.position(fd) {
            Position::Unregistered => return Err(Errno::NOENT.into()),
            Position::Silent => {}
            Position::Listed(index) => self.swap_remove(index as usize),
        }
        self.unregister(fd);
        Ok(())
    }

    /// Polls the first `len` entries and returns the number of ready ones.
    pub(super) fn poll(&mut self, len: usize, timeout: Option<Duration>) -> io::Result<usize> {
        let polled = &mut self.polled[..len];
        if let Some(mask) = &self.mask {
            return mask.ppoll(polled, timeout);
        }
        let timeout = timeout.map(timespec);
        Ok(rustix::event::poll(polled, timeout.as_ref())?)
    }

    /// Sets the signal mask of the next polls.
    pub(super) fn set_mask(&mut self, mask: Option<&SignalMask>) {
        self.mask = mask.map(|mask| Box::new(*mask));
    }

    #[inline]
    pub(super) fn is_ready(&self, index: usize) -> bool {
        !self.polled[index].revents().is_empty()
    }

    /// Appends `count` events of the first `len` entries to the batch, beginning with the entry at
    /// `start`. At least `count` entries are ready. Returns the index after the last one.
    pub(super) fn collect(
        &self,
        len: usize,
        start: usize,
        count: usize,
        batch: &mut Vec<Event>,
    ) -> usize {
        let mut index = start;
        let mut remaining = count;
        while remaining > 0 {
            if index >= len {
                index = 0;
            }
            let flags = self.polled[index].revents();
            if !flags.is_empty() {
                batch.push(Event { token: self.entries[index].1, readiness: readiness(flags) });
                remaining -= 1;
            }
            index += 1;
        }
        index
    }
}

/// Returns the flags of poll(2) for `interest`.
pub(crate) fn flags(interest: Interest) -> PollFlags {
    let mut flags = PollFlags::empty();
    flags.set(PollFlags::IN | PollFlags::RDHUP, interest.contains(Interest::READ)); // (f)
    flags.set(PollFlags::PRI, interest.contains(Interest::PRIORITY));
    flags.set(PollFlags::OUT, interest.contains(Interest::WRITE));
    flags
}

/// Translates the flags that poll(2) returned.
#[inline]
pub(crate) fn readiness(flags: PollFlags) -> Readiness {
    if flags.contains(PollFlags::NVAL) {
        return Readiness::READABLE | Readiness::WRITABLE | Readiness::ERROR;
    }
    Readiness::from_poll(poll_events(flags))
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
        // SAFETY: the caller fulfils the same requirements.
        unsafe { self.list.declare(fd, token, interest) }
    }

    unsafe fn change(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        // SAFETY: the caller fulfils the same requirements.
        unsafe { self.list.change(fd, token, interest) }
    }

    unsafe fn revoke(&mut self, fd: RawFd, _token: Token) -> io::Result<()> {
        self.list.revoke(fd)
    }

    fn wait(&mut self, max: usize, timeout: Option<Duration>) -> io::Result<usize> {
        self.batch.clear();
        self.calls += 1;
        let len = self.list.len();
        let ready = self.list.poll(len, timeout)?.min(max.max(1));
        self.next = self.list.collect(len, self.next, ready, &mut self.batch); // (b)
        Ok(self.batch.len())
    }

    fn wait_with_mask(
        &mut self,
        max: usize,
        timeout: Option<Duration>,
        mask: &SignalMask,
    ) -> io::Result<usize> {
        self.list.set_mask(Some(mask));
        let waited = self.wait(max, timeout);
        self.list.set_mask(None);
        waited
    }

    #[inline]
    fn event(&self, index: usize) -> Event {
        self.batch.get(index).copied().unwrap_or(super::NO_EVENT)
    }

    fn calls(&self) -> u64 {
        self.calls
    }
}
