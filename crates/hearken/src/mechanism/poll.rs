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

use super::{ChangeCost, Mechanism, Open, Options, Semantics, Sharing, Trigger, Unavailable};
use super::{WaitCost, Watches, borrow, timespec};
use crate::event::{Event, Interest, Readiness, Token};

/// poll(2).
#[derive(Default)]
pub struct Poll {
    list: Vec<PollFd<'static>>,
    /// For each entry of the list, the descriptor and its token.
    entries: Vec<(RawFd, Token)>,
    /// For each descriptor's number, where it is on the list.
    places: Vec<Place>,
    /// Where the next scan of the answers begins.
    next: usize,
    batch: Vec<Event>,
    calls: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Place {
    #[default]
    Unregistered,
    /// Registered with an empty interest.
    Silent,
    Listed(u32),
}

impl fmt::Debug for Poll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("poll").field("listed", &self.list.len()).finish_non_exhaustive()
    }
}

impl Poll {
    fn place(&self, fd: RawFd) -> Place {
        usize::try_from(fd).ok().and_then(|fd| self.places.get(fd)).copied().unwrap_or_default()
    }

    /// Lists `fd` as its interest asks.
    ///
    /// # Safety
    /// `fd` is open, and stays so while it is listed.
    unsafe fn list(&mut self, fd: RawFd, token: Token, interest: Interest) {
        self.places[fd as usize] = if interest.is_empty() {
            Place::Silent // (a)
        } else {
            // SAFETY: the caller's promise.
            let entry = PollFd::from_borrowed_fd(unsafe { borrow(fd) }, flags(interest));
            self.list.push(entry);
            self.entries.push((fd, token));
            Place::Listed(self.list.len() as u32 - 1)
        };
    }

    fn unlist(&mut self, fd: RawFd) {
        if let Place::Listed(at) = self.place(fd) {
            let at = at as usize;
            self.list.swap_remove(at);
            self.entries.swap_remove(at);
            if let Some(&(moved, _)) = self.entries.get(at) {
                self.places[moved as usize] = Place::Listed(at as u32); // (d)
            }
        }
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
pub(crate) fn readiness(flags: PollFlags) -> Readiness {
    let ended = flags.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL);
    let mut readiness = Readiness::empty();
    let readable = ended || flags.intersects(PollFlags::IN | PollFlags::RDHUP);
    readiness.set(Readiness::READABLE, readable);
    readiness.set(Readiness::WRITABLE, ended || flags.contains(PollFlags::OUT));
    let read_closed = flags.intersects(PollFlags::RDHUP | PollFlags::HUP);
    readiness.set(Readiness::READ_CLOSED, read_closed);
    readiness.set(Readiness::HANGUP, flags.contains(PollFlags::HUP));
    readiness.set(Readiness::ERROR, flags.intersects(PollFlags::ERR | PollFlags::NVAL));
    readiness
}

impl Open for Poll {
    const NAME: &'static str = "poll";
    const SUMMARY: &'static str = "poll(2)";
    const SEMANTICS: Semantics = Semantics {
        trigger: Trigger::Level,
        change: ChangeCost::Memory,
        wait: WaitCost::Registered,
        reports: Readiness::READABLE
            .union(Readiness::WRITABLE)
            .union(Readiness::READ_CLOSED)
            .union(Readiness::HANGUP)
            .union(Readiness::ERROR),
        close_revokes: false,
        registers_both: false,
        overflows: false,
        watches: Watches::Any,
        sharing: Sharing::Each,
        privileged: false,
    };

    fn open_with(_: &Options) -> Result<Poll, Unavailable> {
        Ok(Poll::default())
    }
}

impl Mechanism for Poll {
    fn semantics(&self) -> &'static Semantics {
        &Self::SEMANTICS
    }

    unsafe fn declare(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        if self.place(fd) != Place::Unregistered {
            return Err(Errno::EXIST.into());
        }
        let number = usize::try_from(fd).map_err(|_| Errno::BADF)?;
        if number >= self.places.len() {
            self.places.resize(number + 1, Place::Unregistered);
        }
        // SAFETY: the caller keeps fd open until revoke.
        unsafe { self.list(fd, token, interest) };
        Ok(())
    }

    unsafe fn change(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        match self.place(fd) {
            Place::Unregistered => return Err(Errno::NOENT.into()),
            Place::Listed(at) if !interest.is_empty() => {
                // SAFETY: the caller keeps fd open until revoke.
                let source = unsafe { borrow(fd) };
                self.list[at as usize] = PollFd::from_borrowed_fd(source, flags(interest));
            }
            Place::Listed(_) | Place::Silent => {
                self.unlist(fd);
                // SAFETY: the caller keeps fd open until revoke.
                unsafe { self.list(fd, token, interest) };
            }
        }
        Ok(())
    }

    unsafe fn revoke(&mut self, fd: RawFd, _token: Token) -> io::Result<()> {
        if self.place(fd) == Place::Unregistered {
            return Err(Errno::NOENT.into());
        }
        self.unlist(fd);
        self.places[fd as usize] = Place::Unregistered;
        Ok(())
    }

    fn wait(&mut self, max: usize, timeout: Option<Duration>) -> io::Result<usize> {
        self.batch.clear();
        self.calls += 1;
        let timeout = timeout.map(timespec);
        let mut ready = match rustix::event::poll(&mut self.list, timeout.as_ref()) {
            Ok(ready) => ready.min(max.max(1)),
            Err(Errno::INTR) => 0,
            Err(errno) => return Err(errno.into()),
        };
        let mut at = self.next; // (b)
        while ready > 0 {
            if at >= self.list.len() {
                at = 0;
            }
            let answer = self.list[at].revents();
            if !answer.is_empty() {
                self.batch.push(Event { who: self.entries[at].1, readiness: readiness(answer) });
                ready -= 1;
            }
            at += 1;
        }
        self.next = at;
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
