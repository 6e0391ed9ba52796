//! A set of watched descriptors: what an epoll instance, or an open `/dev/poll`, contains.
//!
//! The program's number is that of a real epoll instance, which is empty. When the program watches
//! the number itself, the instance is filled and then changed with the set.
//!
//! A mechanism says which descriptors to check. poll(2) then checks them all in one call. So events
//! are complete and true, whatever the mechanism reports. With an edge-triggered mechanism, a
//! level-triggered entry that was ready is checked in each wait until it is not.
//!
//! The mechanism is opened with the set, or by the first wait if it belongs to a thread. It is opened
//! again in each child of a fork, and in another thread if it belongs to one.

use std::collections::HashMap;
use std::ffi::c_int;
use std::io;
use std::os::fd::RawFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hearken::mechanism::{SignalMask, Trigger};
use hearken::queue::Poller;
use hearken::{Event, Interest};

use crate::own_poller::OwnPoller;
use crate::{cannot_open, errno, files, last_errno, mechanism, poll, real, report};

/// The largest batch, and the smallest that a mechanism is asked for. Events that the program does
/// not take come first in the next wait.
const MAX_BATCH: usize = 1 << 16;
const MIN_BATCH: usize = 64;

/// The time between checks of all entries while the mechanism cannot be opened.
const INTERVAL: Duration = Duration::from_millis(10);

const EPOLLET: u32 = libc::EPOLLET as u32;
const EPOLLONESHOT: u32 = libc::EPOLLONESHOT as u32;
/// The events that poll(2) and epoll(7) share.
const EVENTS: u32 = 0x3fff;
/// The events that are reported without a request.
const ALWAYS: u32 = (libc::POLLERR | libc::POLLHUP) as u32;

/// A change, as in epoll_ctl(2).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Add,
    Modify,
    Delete,
}

/// A ready descriptor.
#[derive(Clone, Copy)]
pub(crate) struct Ready {
    pub(crate) fd: RawFd,
    pub(crate) data: u64,
    pub(crate) events: u32,
}

/// A watched descriptor.
struct Entry {
    events: u32,
    data: u64,
    /// The number of times that the descriptor number was closed before.
    generation: u32,
    /// The device and inode of the file.
    identity: (u64, u64),
    /// Identifies the entry in events of the mechanism.
    serial: u32,
    /// Whether it has not reported an event since it was set, if it is one-shot.
    armed: bool,
    /// The last check that contained it.
    check: u32,
}

impl Entry {
    /// Returns the events to check with poll(2).
    fn requested(&self) -> u32 {
        if self.armed { self.events & EVENTS } else { 0 }
    }
}

#[derive(Default)]
struct Inner {
    entries: HashMap<RawFd, Entry>,
    poller: Option<Arc<OwnPoller>>,
    /// Descriptors to check in the next wait. They may repeat, or have left the set.
    active: Vec<RawFd>,
    /// The number of checks.
    checks: u32,
    serial: u32,
    /// Whether the real epoll instance is filled.
    filled: bool,
}

/// A set of watched descriptors.
pub(crate) struct Set {
    /// Whether it is an open `/dev/poll`.
    pub(crate) is_device: bool,
    /// The forks before the process that opened it.
    pub(crate) forks: u32,
    inner: Mutex<Inner>,
    /// Whether a thread waits.
    waiting: Mutex<bool>,
    waited: Condvar,
}

impl Set {
    pub(crate) fn new(is_device: bool) -> Set {
        Set {
            is_device,
            forks: files::forks(),
            inner: Mutex::default(),
            waiting: Mutex::new(false),
            waited: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.poller.as_ref().is_some_and(|poller| poller.is_inherited()) {
            inner.poller = None;
        }
        inner
    }

    /// Opens the mechanism, unless it belongs to the thread that waits.
    pub(crate) fn open(&self, number: RawFd) -> Result<(), c_int> {
        if mechanism().is_bound { Ok(()) } else { self.lock().open(number).map(drop) }
    }

    /// Changes the set. `number` is the number of the set's real epoll instance.
    pub(crate) fn change(
        &self,
        number: RawFd,
        change: Change,
        fd: RawFd,
        events: u32,
        data: u64,
    ) -> Result<(), c_int> {
        let mut inner = self.lock();
        if events & EPOLLET != 0 && mechanism().semantics.trigger != Trigger::Edge {
            let mechanism = &mechanism().spec;
            report(2, &format!("EPOLLET is refused: {mechanism} is not edge-triggered"));
            return Err(libc::EINVAL);
        }
        let identity = identity(fd);
        let stale = |entry: &Entry| {
            entry.generation != files::generation(fd)
                || identity.is_some_and(|identity| identity != entry.identity)
        };
        if inner.entries.get(&fd).is_some_and(stale) {
            inner.forget(number, fd);
        }
        let identity = identity.ok_or(libc::EBADF)?;
        match (change, inner.entries.contains_key(&fd)) {
            (Change::Add, true) => Err(libc::EEXIST),
            (Change::Modify | Change::Delete, false) => Err(libc::ENOENT),
            (Change::Delete, true) => {
                inner.forget(number, fd);
                Ok(())
            }
            (Change::Add, false) => inner.add(number, fd, events, data, identity),
            (Change::Modify, true) => inner.modify(number, fd, events, data),
        }
    }

    /// Returns the events of a descriptor in the set.
    pub(crate) fn events(&self, fd: RawFd) -> Option<u32> {
        let inner = self.lock();
        let entry = inner.entries.get(&fd)?;
        (entry.generation == files::generation(fd)).then_some(entry.events)
    }

    /// Removes a descriptor that is about to be closed.
    pub(crate) fn forget(&self, fd: RawFd) {
        // The kernel removes it from the real instance.
        self.lock().forget(-1, fd);
    }

    /// Fills the real epoll instance, so that other sets can watch it.
    pub(crate) fn fill(&self, number: RawFd) {
        let mut inner = self.lock();
        if !std::mem::replace(&mut inner.filled, true) {
            for (fd, entry) in &inner.entries {
                // It fails if the descriptor was closed.
                let _ = mirror(number, libc::EPOLL_CTL_ADD, *fd, entry.events);
            }
        }
    }

    /// Waits for at most `max` events.
    pub(crate) fn wait(
        &self,
        number: RawFd,
        max: usize,
        timeout: Option<Duration>,
        mask: Option<&SignalMask>,
        ready: &mut Vec<Ready>,
    ) -> Result<(), c_int> {
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        if !self.begin_wait(end) {
            return Ok(());
        }
        let result = self.wait_alone(number, max.min(MAX_BATCH), end, mask, ready);
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.waited.notify_one();
        result
    }

    /// Waits until no other thread waits. Returns whether that happened before the timeout.
    fn begin_wait(&self, end: Option<Instant>) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        while *waiting {
            waiting = match end {
                None => self.waited.wait(waiting).unwrap_or_else(PoisonError::into_inner),
                Some(end) => {
                    let remaining = end.saturating_duration_since(Instant::now());
                    if remaining.is_zero() {
                        return false;
                    }
                    let result = self.waited.wait_timeout(waiting, remaining);
                    result.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        *waiting = true;
        true
    }

    fn wait_alone(
        &self,
        number: RawFd,
        max: usize,
        end: Option<Instant>,
        mask: Option<&SignalMask>,
        ready: &mut Vec<Ready>,
    ) -> Result<(), c_int> {
        let mut events: Vec<Event<u64>> = Vec::new();
        let mut is_first = true;
        loop {
            let (opened, has_active) = {
                let mut inner = self.lock();
                let opened = inner.open(number);
                if opened.is_err() {
                    inner.active = inner.entries.keys().copied().collect();
                }
                (opened, !inner.active.is_empty())
            };
            let remaining = end.map(|end| end.saturating_duration_since(Instant::now()));
            match opened {
                Ok(poller) => {
                    let timeout = if has_active { Some(Duration::ZERO) } else { remaining };
                    match poller.wait(&mut events, max.max(MIN_BATCH), timeout, mask) {
                        Ok(()) => {}
                        Err(error) if errno(&error) == libc::EPERM && poller.is_bound() => {
                            // It belongs to the thread that opened it.
                            self.lock().poller = None;
                            continue;
                        }
                        Err(error) => return Err(errno(&error)),
                    }
                }
                Err(libc::EMFILE | libc::ENFILE | libc::ENOMEM) => {
                    // poll(2) checks all entries until there are resources for the mechanism.
                    let interval = if is_first { Duration::ZERO } else { INTERVAL };
                    let interval = remaining.map_or(interval, |remaining| remaining.min(interval));
                    poll::check(&mut [], Some(interval), mask.map(SignalMask::as_raw))?;
                }
                Err(errno) => return Err(errno),
            }
            is_first = false;
            let mut inner = self.lock();
            inner.check(number, self.is_device, &events, max, ready)?;
            if inner.filled {
                drain(number);
            }
            let is_over = || end.is_some_and(|end| Instant::now() >= end);
            if !ready.is_empty() || is_over() {
                return Ok(());
            }
        }
    }
}

impl Inner {
    /// Returns the poller. Opens it if necessary.
    fn open(&mut self, number: RawFd) -> Result<Arc<OwnPoller>, c_int> {
        if let Some(poller) = &self.poller {
            return Ok(poller.clone());
        }
        let spec = &mechanism().spec;
        let open = match mechanism().semantics.trigger {
            Trigger::OneShot => Poller::open_level,
            Trigger::Level | Trigger::Edge => Poller::open,
        };
        let poller = open(spec).map_err(|error| cannot_open(&error))?;
        let poller = Arc::new(OwnPoller::new(poller));
        self.poller = Some(poller.clone());
        let stale = |(fd, entry): (&RawFd, &Entry)| {
            (entry.generation != files::generation(*fd)).then_some(*fd)
        };
        let stale: Vec<RawFd> = self.entries.iter().filter_map(stale).collect();
        stale.iter().for_each(|fd| self.forget(number, *fd));
        for (fd, entry) in &self.entries {
            if let Err(error) = set(&poller, *fd, entry) {
                refuse(*fd, &error);
            }
        }
        // They may have become ready before.
        self.active = self.entries.keys().copied().collect();
        Ok(poller)
    }

    fn add(
        &mut self,
        number: RawFd,
        fd: RawFd,
        events: u32,
        data: u64,
        identity: (u64, u64),
    ) -> Result<(), c_int> {
        if !files::is_in_range(fd) {
            report(3, "descriptors from 1048576 are refused");
            return Err(libc::ENOSPC);
        }
        // The kernel finds files that cannot be watched, and loops of epoll instances.
        mirror(number, libc::EPOLL_CTL_ADD, fd, events)?;
        if !self.filled {
            let _ = mirror(number, libc::EPOLL_CTL_DEL, fd, 0);
        }
        self.serial = self.serial.wrapping_add(1);
        let generation = files::generation(fd);
        let serial = self.serial;
        let entry =
            Entry { events, data, generation, identity, serial, armed: true, check: self.checks };
        if let Some(poller) = &self.poller
            && let Err(error) = set(poller, fd, &entry)
        {
            if self.filled {
                let _ = mirror(number, libc::EPOLL_CTL_DEL, fd, 0);
            }
            return Err(refuse(fd, &error));
        }
        self.entries.insert(fd, entry);
        files::add_watch(fd);
        Ok(())
    }

    fn modify(&mut self, number: RawFd, fd: RawFd, events: u32, data: u64) -> Result<(), c_int> {
        let Some(entry) = self.entries.get_mut(&fd) else { return Err(libc::ENOENT) };
        let before = (entry.events, entry.data, entry.armed);
        (entry.events, entry.data, entry.armed) = (events, data, true);
        if let Some(poller) = &self.poller
            && let Err(error) = set(poller, fd, entry)
        {
            (entry.events, entry.data, entry.armed) = before;
            return Err(refuse(fd, &error));
        }
        if self.filled {
            let _ = mirror(number, libc::EPOLL_CTL_MOD, fd, events);
        }
        // An edge that was reported for other events is not repeated.
        if mechanism().semantics.trigger == Trigger::Edge {
            self.active.push(fd);
        }
        Ok(())
    }

    fn forget(&mut self, number: RawFd, fd: RawFd) {
        if self.entries.remove(&fd).is_none() {
            return;
        }
        files::remove_watch(fd);
        if let Some(poller) = &self.poller {
            let _ = poller.remove(fd);
        }
        if self.filled && number >= 0 {
            let _ = mirror(number, libc::EPOLL_CTL_DEL, fd, 0);
        }
    }

    /// Checks the descriptors of events, and the active ones, with poll(2).
    fn check(
        &mut self,
        number: RawFd,
        is_device: bool,
        events: &[Event<u64>],
        max: usize,
        ready: &mut Vec<Ready>,
    ) -> Result<(), c_int> {
        let active = std::mem::take(&mut self.active);
        let entries = &self.entries;
        let reported = events.iter().filter_map(|event| {
            let (fd, serial) = (event.token as u32 as RawFd, (event.token >> 32) as u32);
            entries.get(&fd).is_some_and(|entry| entry.serial == serial).then_some(fd)
        });
        let candidates: Vec<RawFd> = active.into_iter().chain(reported).collect();
        self.checks = self.checks.wrapping_add(1);
        let mut list = Vec::with_capacity(candidates.len());
        for fd in &candidates {
            if let Some(entry) = self.entries.get_mut(fd)
                && std::mem::replace(&mut entry.check, self.checks) != self.checks
            {
                let events = entry.requested() as i16;
                list.push(libc::pollfd { fd: *fd, events, revents: 0 });
            }
        }
        if list.is_empty() {
            return Ok(());
        }
        // SAFETY: the list has this many entries.
        if unsafe { real::poll(list.as_mut_ptr(), list.len() as libc::nfds_t, 0) } < 0 {
            self.active = candidates;
            return Err(last_errno());
        }
        let is_edge = mechanism().semantics.trigger == Trigger::Edge;
        let mut behind = Vec::new();
        for libc::pollfd { fd, revents, .. } in list {
            let revents = u32::from(revents as u16);
            let Some(entry) = self.entries.get_mut(&fd) else { continue };
            let is_stale = entry.generation != files::generation(fd)
                || (!mechanism().semantics.close_revokes
                    && identity(fd).is_some_and(|identity| identity != entry.identity));
            let invalid = revents & libc::POLLNVAL as u32 != 0;
            if is_stale || (invalid && !is_device) {
                self.forget(number, fd);
                continue;
            }
            let found = revents & (entry.requested() | ALWAYS | libc::POLLNVAL as u32);
            if found == 0 || !entry.armed {
                continue;
            }
            if ready.len() == max {
                self.active.push(fd);
                continue;
            }
            ready.push(Ready { fd, data: entry.data, events: found });
            if entry.events & EPOLLONESHOT != 0 {
                entry.armed = false;
                if let Some(poller) = &self.poller {
                    let _ = set(poller, fd, entry);
                }
            } else if is_edge && entry.events & EPOLLET == 0 {
                behind.push(fd);
            }
        }
        // Those that did not fit come first in the next wait.
        self.active.extend(behind);
        Ok(())
    }
}

/// Returns the device and inode of an open file.
fn identity(fd: RawFd) -> Option<(u64, u64)> {
    let mut status = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the kernel fills the structure if it returns 0.
    let found = unsafe { libc::fstat(fd, status.as_mut_ptr()) } == 0;
    // SAFETY: as above.
    found.then(|| unsafe { status.assume_init() }).map(|status| (status.st_dev, status.st_ino))
}

/// Declares the interest of an entry.
fn set(poller: &Poller, fd: RawFd, entry: &Entry) -> io::Result<()> {
    let events = entry.requested() as i16;
    let mut interest = Interest::empty();
    let read = libc::POLLIN | libc::POLLRDNORM | libc::POLLRDBAND | libc::POLLRDHUP;
    interest.set(Interest::READ, events & read != 0);
    interest.set(Interest::PRIORITY, events & libc::POLLPRI != 0);
    interest.set(Interest::WRITE, events & (libc::POLLOUT | libc::POLLWRNORM) != 0);
    let data = u64::from(fd as u32) | u64::from(entry.serial) << 32;
    // SAFETY: the program owns the descriptor. The number is removed when the program closes it.
    unsafe { poller.set(fd, interest, data) }
}

/// Reports that the mechanism cannot watch a descriptor.
fn refuse(fd: RawFd, error: &io::Error) -> c_int {
    let mechanism = &mechanism().spec;
    report(4, &format!("{mechanism} cannot watch descriptor {fd}: {error}"));
    errno(error)
}

/// Changes the real epoll instance of a set.
fn mirror(number: RawFd, op: c_int, fd: RawFd, events: u32) -> Result<(), c_int> {
    let mut event = libc::epoll_event { events, u64: 0 };
    // SAFETY: the kernel reads one event.
    let result = unsafe { real::epoll_ctl(number, op, fd, &raw mut event) };
    if result < 0 { Err(last_errno()) } else { Ok(()) }
}

/// Takes the edges of a filled instance, which its watchers would see again.
fn drain(number: RawFd) {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
    // SAFETY: there is space for the events.
    unsafe { real::epoll_wait(number, events.as_mut_ptr(), events.len() as c_int, 0) };
}
