//! /dev/poll: the kernel keeps the set of descriptors and the results of the last poll, and looks
//! again only at what was ready and at what a driver hinted has changed (Solaris, poll(7D); on Linux:
//! Provos & Lever, "Scalable Network I/O in Linux", USENIX 2000).
//!
//! Linux has no such device. Here edge-triggered epoll(7) gives the hints, the results are cached in
//! this process, and one poll(2) looks at those that were ready. As a mechanism, that is
//! [`AsLevel`] over epoll; [`DevPoll`] has the original calls.
//!
//! Its traps, and what is done about each:
//!
//! a) Writing a descriptor that is there already adds to its events (they are OR'ed). To ask for less
//!    it is removed first; one write can hold both.
//! b) The device holds numbers, not open files. It does not hear that one was closed: one that was
//!    ready is answered with POLLNVAL until it is removed, one that was idle says nothing more. The
//!    number's next holder is the device's only when it is written again. Solaris leaves what happens
//!    open too, and asks to remove first.
//! c) A duplicate keeps a closed descriptor's file in epoll. Its hints carry the number's former
//!    generation and are dropped; they end no wait.
//! d) What epoll refuses (regular files, always ready) is looked at by poll(2) alone, for as long as it
//!    is ready.
//! e) POLLREMOVE is 0x0800 on Solaris, and 0x1000 in <poll.h> on Linux, where a program compiled here
//!    has it from. Either is taken, alone: among other events it is one that never happens.
//! f) Who closes a descriptor in one thread while another polls, has a race that no order here can
//!    mend; `&mut self` keeps threads apart within one object.

use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};
use std::{fmt, io};

use rustix::io::Errno;

use super::cache::{Cache, Hints};
use super::epoll::{Edge, Epoll};
use super::trigger::AsLevel;
use super::{Open, Options, Semantics, Trigger, Unavailable, timespec};
use crate::event::Token;

pub use super::cache::PollFd;

impl Open for AsLevel<Epoll<Edge>> {
    const NAME: &'static str = "dev-poll";
    const SUMMARY: &'static str = "/dev/poll: cached results, looked at again where epoll hints";
    const SEMANTICS: Semantics =
        Semantics { trigger: Trigger::Level, ..<Epoll<Edge> as Open>::SEMANTICS };

    fn open_with(_: &Options) -> Result<Self, Unavailable> {
        Ok(AsLevel::believing(Epoll::open()?))
    }
}

/// The `events` that remove a descriptor, by Solaris's number.
pub const POLLREMOVE: i16 = 0x0800;

/// The same by Linux's. (e)
const POLLREMOVE_HERE: i16 = 0x1000;

/// What epoll may be asked for: the events of poll(2), without those that only epoll has.
const ASKABLE: i16 = libc::POLLIN
    | libc::POLLPRI
    | libc::POLLOUT
    | libc::POLLRDNORM
    | libc::POLLRDBAND
    | libc::POLLWRNORM
    | libc::POLLWRBAND
    | libc::POLLRDHUP;

/// A set of descriptors and the cached results of polling them, with the calls of Solaris's /dev/poll.
pub struct DevPoll {
    hints: Epoll<Edge>,
    /// Slots are the descriptors' numbers.
    cache: Cache,
    /// How often a number was taken in, so that hints about former holders are told. (c)
    generation: u32,
    /// Room in the shared results.
    room: usize,
}

impl Hints for Epoll<Edge> {
    const BELIEVED: bool = true;

    fn wait(&mut self, max: usize, timeout: Option<Duration>) -> io::Result<usize> {
        Ok(self.collect(max, timeout)?)
    }

    fn hint(&self, index: usize) -> (Token, i16) {
        // The events of epoll(7) have the numbers of poll(2)'s.
        self.raw(index).map_or((Token::from_bits(u64::MAX), 0), |(who, found)| (who, found as i16))
    }
}

impl DevPoll {
    /// Opens the device: `open("/dev/poll")`.
    ///
    /// # Errors
    /// [`Unavailable`]: which call was refused, how, and what would allow it.
    pub fn open() -> Result<DevPoll, Unavailable> {
        Ok(DevPoll { hints: Epoll::open()?, cache: Cache::default(), generation: 0, room: 0 })
    }

    /// `write(2)`: adds descriptors, adds to the events of those that are there, and removes those
    /// whose events are [`POLLREMOVE`]. `revents` is not read. Negative numbers are passed over. Error
    /// and hang-up are told unasked.
    ///
    /// # Errors
    /// The kernel's: out of memory or watches. What stood before the refused entry is done.
    ///
    /// # Safety
    /// Each descriptor that is added is open, its owner lets it be polled, and it is removed before it
    /// is closed. If it is not, the object asks about whatever file has the number (it never
    /// reads, writes or closes it): what is promised here is who may be asked about, not memory.
    pub unsafe fn write(&mut self, changes: &[PollFd]) -> io::Result<()> {
        for &PollFd { fd, events, .. } in changes {
            if fd < 0 {
                continue;
            }
            let registered = self.cache.registered(fd as usize);
            match (events, registered) {
                (POLLREMOVE | POLLREMOVE_HERE, None) => {}
                (POLLREMOVE | POLLREMOVE_HERE, Some((token, _))) => {
                    self.cache.forget(token);
                    // Refused, it was closed, or epoll never had it.
                    let _ = self.control(libc::EPOLL_CTL_DEL, fd, 0, token);
                }
                (_, Some((token, before))) => self.add_events(fd, token, before | events)?, // (a)
                (_, None) => self.add(fd, events)?,
            }
        }
        Ok(())
    }

    fn add(&mut self, fd: RawFd, events: i16) -> io::Result<()> {
        self.generation = self.generation.wrapping_add(1);
        let token = Token::new(fd as u32, self.generation);
        let hinted = match self.control(libc::EPOLL_CTL_ADD, fd, events, token) {
            // It is there although it was removed: closed meanwhile, and opened again as it was.
            Err(Errno::EXIST) => self.control(libc::EPOLL_CTL_MOD, fd, events, token),
            added => added,
        };
        match hinted {
            Ok(()) | Err(Errno::PERM | Errno::BADF) => {}
            Err(errno) => return Err(errno.into()),
        }
        self.cache.register(fd, token, Some(events));
        if hinted.is_err() {
            self.cache.list(token, 0); // (d)
        }
        Ok(())
    }

    fn add_events(&mut self, fd: RawFd, token: Token, events: i16) -> io::Result<()> {
        match self.control(libc::EPOLL_CTL_MOD, fd, events, token) {
            Ok(()) => self.cache.set(token, Some(events)),
            // Refused when it was added, or the number has another holder. (b)
            Err(Errno::NOENT | Errno::BADF | Errno::PERM) => self.add(fd, events)?,
            Err(errno) => return Err(errno.into()),
        }
        Ok(())
    }

    /// Tells epoll(7) of a number. What is not open is refused with `EBADF`.
    fn control(
        &self,
        what: libc::c_int,
        fd: RawFd,
        events: i16,
        token: Token,
    ) -> Result<(), Errno> {
        let events = u32::from((events & ASKABLE) as u16) | libc::EPOLLET as u32;
        let mut event = libc::epoll_event { events, u64: token.to_bits() };
        // SAFETY: the kernel reads one event, and looks the number up.
        match unsafe { libc::epoll_ctl(self.hints.fd().as_raw_fd(), what, fd, &raw mut event) } {
            0 => Ok(()),
            _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL)),
        }
    }

    /// `ioctl(DP_POLL)` into the caller's array: waits until a descriptor is ready, for at most
    /// `timeout` (for ever if none, which the original writes as -1), and returns how many are, at
    /// most as many as fit. Those that did not fit come first the next time. Returns 0 only when
    /// the time has passed. `events` are those asked for, `revents` what was found. With no room, it
    /// sleeps.
    ///
    /// # Errors
    /// `EINTR` if a signal was handled; the kernel's.
    pub fn dp_poll(
        &mut self,
        results: &mut [PollFd],
        timeout: Option<Duration>,
    ) -> io::Result<usize> {
        if results.is_empty() {
            let timeout = timeout.map(timespec);
            rustix::event::poll(&mut [], timeout.as_ref())?;
            return Ok(0);
        }
        let found = self.wait(results.len(), timeout)?;
        results[..found].copy_from_slice(self.cache.results());
        Ok(found)
    }

    /// `ioctl(DP_ALLOC)`: has room for `most` results in the object's own array, which
    /// [`dp_poll_shared`](Self::dp_poll_shared) lends.
    pub fn dp_alloc(&mut self, most: usize) {
        self.room = most;
    }

    /// `ioctl(DP_POLL)` with no array: as [`dp_poll`](Self::dp_poll), with the results left where they
    /// were found (Provos & Lever's mapped array), to be read without a copy.
    ///
    /// # Errors
    /// `EINVAL` if no room was made by [`dp_alloc`](Self::dp_alloc); as [`dp_poll`](Self::dp_poll).
    pub fn dp_poll_shared(&mut self, timeout: Option<Duration>) -> io::Result<&[PollFd]> {
        if self.room == 0 {
            return Err(Errno::INVAL.into());
        }
        self.wait(self.room, timeout)?;
        Ok(self.cache.results())
    }

    /// `ioctl(DP_ISPOLLED)`: true if `asked.fd` is in the set. Then `events` becomes 0 and `revents`
    /// the events that are polled for; otherwise nothing is changed.
    pub fn is_polled(&self, asked: &mut PollFd) -> bool {
        let number = usize::try_from(asked.fd);
        let Some((_, events)) = number.ok().and_then(|fd| self.cache.registered(fd)) else {
            return false;
        };
        (asked.events, asked.revents) = (0, events);
        true
    }

    fn wait(&mut self, max: usize, timeout: Option<Duration>) -> io::Result<usize> {
        // What is beyond the clock is for ever.
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut left = timeout;
        loop {
            let found = self.cache.wait(&mut self.hints, max, left)?;
            left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if found > 0 || left == Some(Duration::ZERO) {
                return Ok(found);
            }
        }
    }
}

impl fmt::Debug for DevPoll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DevPoll").field("hints", &self.hints).finish_non_exhaustive()
    }
}
