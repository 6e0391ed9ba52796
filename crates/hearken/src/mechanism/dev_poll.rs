//! /dev/poll: the kernel keeps the set of descriptors and the results of the last poll. It checks
//! only those that were ready and those that a driver hinted have changed (Solaris, poll(7D); on
//! Linux: Provos & Lever, "Scalable Network I/O in Linux", USENIX 2000).
//!
//! Linux has no such device. Here edge-triggered epoll(7) provides the hints, this process caches
//! the results, and one poll(2) checks those that were ready. As a mechanism, this is [`AsLevel`]
//! over epoll. [`DevPoll`] has the original calls.
//!
//! The mechanism has two more variants:
//!
//! * `scan=set`: each wait checks the whole set, as the implementation without hints that Chandra
//!   and Mosberger measure (USENIX 2001, Section 3.2).
//! * `hints=N`: the queue of hints has space for N. If there are more, the wait checks the whole set
//!   (Banga, Mogul and Druschel, USENIX 1999, Section 6).
//!
//! Pitfalls, and how the code handles them:
//!
//! a) Writing a descriptor that is in the set adds to its events (they are OR'ed). To reduce them,
//!    remove it first. One write can contain both.
//! b) The device stores numbers, not open files, and is not notified when one is closed. If it was
//!    ready, it is reported with POLLNVAL until it is removed. If it was idle, it is silent. A
//!    reused number is watched only when it is written again. Solaris leaves the behaviour
//!    undefined too, and asks to remove first.
//! c) A duplicate keeps a closed descriptor's file in epoll. Its hints carry the former generation
//!    of the number. They are dropped and end no wait.
//! d) Files that epoll rejects (regular files, always ready) are checked by poll(2) alone while
//!    they are ready.
//! e) POLLREMOVE is 0x0800 on Solaris and 0x1000 in <poll.h> on Linux, which programs compiled here
//!    use. Either is accepted if alone. Among other events it is an event that never occurs.
//! f) Closing a descriptor in one thread while another polls it is a race that the object cannot
//!    resolve. `&mut self` excludes concurrent calls of one object.

use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};
use std::{fmt, io};

use rustix::io::Errno;

use super::cache::{Cache, Hints, Scan};
use super::epoll::{Edge, Epoll};
use super::trigger::AsLevel;
use super::{Open, OptionSpec, Options, Semantics, Trigger, Unavailable, Values, timespec};
use crate::event::Token;

pub use super::cache::PollFd;

impl Open for AsLevel<Epoll<Edge>> {
    const NAME: &'static str = "dev-poll";
    const SUMMARY: &'static str = "/dev/poll: cached results, checked again after hints from epoll";
    const SOURCE: Option<&'static str> = Some("Provos and Lever 2000");
    const SEMANTICS: Semantics =
        Semantics { trigger: Trigger::Level, ..<Epoll<Edge> as Open>::SEMANTICS };
    const AUTO: bool = true;

    const OPTIONS: &'static [OptionSpec] = &[
        OptionSpec {
            name: "scan",
            help: "check hinted descriptors, or the whole set in every wait (Chandra and Mosberger \
                   2001, 3.2)",
            values: Values::OneOf(&["hints", "set"]),
        },
        OptionSpec {
            name: "hints",
            help: "number of hints that the queue has space for; 0 is unlimited (Banga, Mogul and \
                   Druschel 1999, 6)",
            values: Values::Number { default: 0, min: 0, max: 1 << 20 },
        },
    ];

    fn open_with(options: &Options) -> Result<Self, Unavailable> {
        let epoll = Epoll::open()?;
        Ok(match (options.get("scan"), options.number("hints") as usize) {
            ("set", _) => AsLevel::scanning(epoll, Scan::WholeSet),
            (_, 0) => AsLevel::without_verification(epoll),
            (_, limit) => AsLevel::scanning(epoll, Scan::Limited(limit)),
        })
    }
}

/// The `events` that remove a descriptor: the value on Solaris.
pub const POLLREMOVE: i16 = 0x0800;

/// The value on Linux (e).
const POLLREMOVE_LINUX: i16 = 0x1000;

/// The events that can be passed to epoll: those of poll(2), without flags specific to epoll.
const EPOLL_EVENTS: i16 = libc::POLLIN
    | libc::POLLPRI
    | libc::POLLOUT
    | libc::POLLRDNORM
    | libc::POLLRDBAND
    | libc::POLLWRNORM
    | libc::POLLWRBAND
    | libc::POLLRDHUP;

/// A set of descriptors and the cached results of polling them, with the calls of /dev/poll on
/// Solaris.
pub struct DevPoll {
    hints: Epoll<Edge>,
    /// The cache. Its slots are the descriptor numbers.
    cache: Cache,
    /// The number of descriptors added, which identifies hints of former registrations (c).
    generation: u32,
    /// The capacity of the shared results.
    capacity: usize,
}

impl Hints for Epoll<Edge> {
    const RELIABLE: bool = true;

    fn wait(&mut self, max: usize, timeout: Option<Duration>) -> io::Result<usize> {
        Ok(self.collect(max, timeout)?)
    }

    fn hint(&self, index: usize) -> (Token, i16) {
        // epoll(7) and poll(2) use the same values.
        self.raw(index)
            .map_or((Token::from_bits(u64::MAX), 0), |(token, found)| (token, found as i16))
    }
}

impl DevPoll {
    /// Opens the device: `open("/dev/poll")`.
    ///
    /// # Errors
    /// [`Unavailable`] names the refused call, its error, and how to make it available.
    pub fn open() -> Result<DevPoll, Unavailable> {
        Ok(DevPoll { hints: Epoll::open()?, cache: Cache::default(), generation: 0, capacity: 0 })
    }

    /// Changes the set, as `write(2)` does. Adds descriptors, adds to the events of existing ones,
    /// and removes those whose events are [`POLLREMOVE`]. Ignores `revents` and negative numbers.
    /// Errors and hang-ups are always reported.
    ///
    /// # Errors
    /// The kernel is out of memory or watches. Entries before the failing one have been processed.
    ///
    /// # Safety
    /// Each added descriptor is open, its owner allows polling it, and it is removed before it is
    /// closed. Otherwise the object polls an unrelated file with the same number. It never reads,
    /// writes or closes it: the requirement concerns access to the file, not memory.
    pub unsafe fn write(&mut self, changes: &[PollFd]) -> io::Result<()> {
        for &PollFd { fd, events, .. } in changes {
            if fd < 0 {
                continue;
            }
            let registered = self.cache.registered(fd as usize);
            match (events, registered) {
                (POLLREMOVE | POLLREMOVE_LINUX, None) => {}
                (POLLREMOVE | POLLREMOVE_LINUX, Some((token, _))) => {
                    self.cache.unregister(token);
                    // It was closed, or epoll never had it.
                    let _ = self.epoll_ctl(libc::EPOLL_CTL_DEL, fd, 0, token);
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
        let hinted = match self.epoll_ctl(libc::EPOLL_CTL_ADD, fd, events, token) {
            // It was removed, then closed and reopened as a duplicate of the same file.
            Err(Errno::EXIST) => self.epoll_ctl(libc::EPOLL_CTL_MOD, fd, events, token),
            added => added,
        };
        match hinted {
            Ok(()) | Err(Errno::PERM | Errno::BADF) => {}
            Err(errno) => return Err(errno.into()),
        }
        self.cache.register(fd, token, Some(events));
        if hinted.is_err() {
            self.cache.schedule(token, 0); // (d)
        }
        Ok(())
    }

    fn add_events(&mut self, fd: RawFd, token: Token, events: i16) -> io::Result<()> {
        match self.epoll_ctl(libc::EPOLL_CTL_MOD, fd, events, token) {
            Ok(()) => self.cache.set(token, Some(events)),
            // epoll rejected it when it was added, or the number was reused (b).
            Err(Errno::NOENT | Errno::BADF | Errno::PERM) => self.add(fd, events)?,
            Err(errno) => return Err(errno.into()),
        }
        Ok(())
    }

    /// Calls epoll_ctl(2) for a descriptor number. A closed descriptor fails with `EBADF`.
    fn epoll_ctl(
        &self,
        op: libc::c_int,
        fd: RawFd,
        events: i16,
        token: Token,
    ) -> Result<(), Errno> {
        let events = u32::from((events & EPOLL_EVENTS) as u16) | libc::EPOLLET as u32;
        let mut event = libc::epoll_event { events, u64: token.to_bits() };
        // SAFETY: the kernel reads one event, and looks up the number.
        match unsafe { libc::epoll_ctl(self.hints.fd().as_raw_fd(), op, fd, &raw mut event) } {
            0 => Ok(()),
            _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL)),
        }
    }

    /// Waits until a descriptor is ready, as `ioctl(DP_POLL)` does, for at most `timeout`, or
    /// indefinitely without one (-1 in the original). Stores the ready descriptors in `results` and
    /// returns their number. Those that do not fit come first in the next call. Returns 0 only
    /// after the timeout. `events` are the requested events, `revents` the reported ones. If
    /// `results` is empty, it sleeps.
    ///
    /// # Errors
    /// `EINTR` after a signal handler, or another error of the kernel.
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

    /// Sets the capacity of the object's own array of results, as `ioctl(DP_ALLOC)` does.
    /// [`dp_poll_shared`](Self::dp_poll_shared) returns the array.
    pub fn dp_alloc(&mut self, capacity: usize) {
        self.capacity = capacity;
    }

    /// Waits like [`dp_poll`](Self::dp_poll) and returns the results in the object's own array
    /// without copying them. `ioctl(DP_POLL)` without an array does the same (the mapped array of
    /// Provos & Lever).
    ///
    /// # Errors
    /// `EINVAL` if [`dp_alloc`](Self::dp_alloc) was not called, or the errors of
    /// [`dp_poll`](Self::dp_poll).
    pub fn dp_poll_shared(&mut self, timeout: Option<Duration>) -> io::Result<&[PollFd]> {
        if self.capacity == 0 {
            return Err(Errno::INVAL.into());
        }
        self.wait(self.capacity, timeout)?;
        Ok(self.cache.results())
    }

    /// Returns whether `entry.fd` is in the set, as `ioctl(DP_ISPOLLED)` does. If so, sets `events`
    /// to 0 and `revents` to the requested events.
    pub fn is_polled(&self, entry: &mut PollFd) -> bool {
        let number = usize::try_from(entry.fd);
        let Some((_, events)) = number.ok().and_then(|fd| self.cache.registered(fd)) else {
            return false;
        };
        (entry.events, entry.revents) = (0, events);
        true
    }

    fn wait(&mut self, max: usize, timeout: Option<Duration>) -> io::Result<usize> {
        // A timeout beyond the range of the clock is infinite.
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut remaining = timeout;
        loop {
            let found = self.cache.wait(&mut self.hints, max, remaining)?;
            remaining = end.map(|end| end.saturating_duration_since(Instant::now()));
            if found > 0 || remaining == Some(Duration::ZERO) {
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
