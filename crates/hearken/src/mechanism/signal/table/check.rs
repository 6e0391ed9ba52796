//! Checks of the descriptors scheduled in the [`Table`], which explains the letters.

use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use rustix::event::{FdSetElement, FdSetIter, PollFd, PollFlags};
use rustix::event::{fd_set_insert, fd_set_num_elements, poll, select};
use rustix::io::Errno;
use rustix::net::{AddressFamily, sockopt};

use super::{Fallback, Flags, Table};
use crate::event::{Event, Interest, Readiness};
use crate::mechanism::{SignalMask, borrow, poll as poll_mechanism, timespec};

/// The minimum and maximum number of descriptors checked in one system call.
const CHUNK: RangeInclusive<usize> = 64..=1024;

impl Table {
    /// Returns whether there are descriptors to check.
    pub(crate) fn has_scheduled(&self) -> bool {
        !self.scheduled.is_empty() || !self.blocked_writers.is_empty()
    }

    /// Checks scheduled descriptors until the batch is full. `queue_empty` is true if the
    /// queue was just seen empty.
    pub(crate) fn check(&mut self, max: usize, queue_empty: bool) -> io::Result<()> {
        while !self.scheduled.is_empty() && self.batch.len() < max {
            let space = max - self.batch.len();
            let chunk = space.saturating_mul(4).clamp(*CHUNK.start(), *CHUNK.end());
            self.list.clear();
            self.checked.clear();
            for _ in 0..chunk {
                let Some(fd) = self.scheduled.pop_front() else { break };
                let entry = &mut self.entries[fd as usize];
                entry.flags.remove(Flags::SCHEDULED);
                if !entry.interest.is_empty() {
                    // SAFETY: only registered descriptors have an interest, and they are kept open.
                    let source = unsafe { borrow(fd) };
                    let flags = poll_mechanism::flags(entry.interest);
                    self.list.push(PollFd::from_borrowed_fd(source, flags));
                    self.checked.push(fd);
                }
            }
            self.calls += 1;
            while let Err(errno) = poll(&mut self.list, Some(&timespec(Duration::ZERO))) {
                if errno != Errno::INTR {
                    return Err(errno.into());
                }
            }
            for index in 0..self.checked.len() {
                let fd = self.checked[index];
                let readiness = poll_mechanism::readiness(self.list[index].revents());
                let entry = &mut self.entries[fd as usize];
                if !queue_empty {
                    entry.stamp = self.epoch; // (b)
                }
                if entry.interest.contains(Interest::WRITE) && !readiness.is_writable() {
                    self.await_writability(fd);
                }
                self.add_event(fd, readiness, max);
            }
        }
        if !self.blocked_writers.is_empty() && self.batch.len() < max {
            self.check_writability(None, Some(Duration::ZERO), max, None)?;
        }
        Ok(())
    }

    /// Adds the readiness of a descriptor to the batch, if the interest includes it.
    fn add_event(&mut self, fd: RawFd, readiness: Readiness, max: usize) {
        let entry = &mut self.entries[fd as usize];
        let readiness = (readiness & self.reports).restrict_to(entry.interest);
        if readiness.is_empty() {
            return;
        }
        let event = self.batch.get_mut(entry.batch_index as usize);
        if let Some(event) = event.filter(|event| event.token == entry.token) {
            event.readiness |= readiness;
        } else if self.batch.len() < max {
            entry.batch_index = self.batch.len() as u32;
            self.batch.push(Event { token: entry.token, readiness });
        } else {
            return self.schedule_check(fd); // (h)
        }
        entry.stamp = self.epoch; // (b)
    }

    /// Schedules checks for writability if no signal will report it.
    fn await_writability(&mut self, fd: RawFd) {
        self.calls += 1;
        // SAFETY: a descriptor that was just checked is registered, and kept open.
        let domain = sockopt::socket_domain(unsafe { borrow(fd) });
        if matches!(domain, Ok(AddressFamily::INET | AddressFamily::INET6)) {
            return;
        }
        let entry = &mut self.entries[fd as usize];
        entry.flags.insert(Flags::AWAITS_SPACE); // (d)
        if !entry.flags.contains(Flags::IN_BLOCKED_WRITERS) {
            entry.flags.insert(Flags::IN_BLOCKED_WRITERS);
            self.blocked_writers.push(fd);
        }
    }

    /// Returns whether a descriptor waits for buffer space that raises no signal.
    pub(crate) fn has_blocked_writers(&self) -> bool {
        !self.blocked_writers.is_empty()
    }

    /// Checks the descriptors that wait for buffer space. With `queue`, waits until one of them is
    /// writable or `queue` is readable, with `mask` as the signal mask. It fails with `EINTR` after
    /// a signal handler.
    pub(crate) fn check_writability(
        &mut self,
        queue: Option<BorrowedFd<'_>>,
        timeout: Option<Duration>,
        max: usize,
        mask: Option<&SignalMask>,
    ) -> io::Result<()> {
        self.list.clear();
        let Table { entries, blocked_writers, list, .. } = self;
        blocked_writers.retain(|&fd| {
            let flags = &mut entries[fd as usize].flags;
            let still_waits = flags.contains(Flags::AWAITS_SPACE);
            flags.set(Flags::IN_BLOCKED_WRITERS, still_waits);
            if still_waits {
                // SAFETY: a descriptor that waits for space is registered, and kept open.
                list.push(PollFd::from_borrowed_fd(unsafe { borrow(fd) }, PollFlags::OUT));
            }
            still_waits
        });
        if let Some(queue) = queue {
            // SAFETY: it outlives this call, and the next call rebuilds the list.
            let queue = unsafe { borrow(queue.as_raw_fd()) };
            list.push(PollFd::from_borrowed_fd(queue, PollFlags::IN));
        }
        self.calls += 1;
        let polled = match mask {
            None => poll(&mut self.list, timeout.map(timespec).as_ref()).map_err(Into::into),
            Some(mask) => mask.ppoll(&mut self.list, timeout),
        };
        match polled {
            // They are checked again.
            Err(error) if queue.is_none() && error.kind() == io::ErrorKind::Interrupted => {
                return Ok(());
            }
            polled => polled?,
        };
        for index in 0..self.blocked_writers.len() {
            let fd = self.blocked_writers[index];
            if !self.list[index].revents().is_empty() {
                self.entries[fd as usize].flags.remove(Flags::AWAITS_SPACE);
                self.add_event(fd, Readiness::WRITABLE, max);
            }
        }
        Ok(())
    }

    /// Schedules checks after an overflow: of all descriptors, or of those that the call of the
    /// [`Fallback`] finds ready.
    pub(crate) fn check_all(&mut self) -> io::Result<()> {
        match self.fallback {
            Fallback::Poll => self.schedule_all(),
            Fallback::Select => return self.select_all(),
            Fallback::Array(_) => return self.poll_array(),
        }
        Ok(())
    }

    fn schedule_all(&mut self) {
        for fd in 0..self.entries.len() {
            self.schedule_check(fd as RawFd);
        }
    }

    fn poll_array(&mut self) -> io::Result<()> {
        let Fallback::Array(list) = &mut self.fallback else { return Ok(()) };
        self.calls += 1;
        let len = list.len();
        let ready = match list.poll(len, Some(Duration::ZERO)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                self.schedule_all();
                return Ok(());
            }
            ready => ready?,
        };
        let is_ready = |index: &usize| list.is_ready(*index);
        let found: Vec<_> =
            (0..len).filter(is_ready).take(ready).map(|index| list.entry(index).0).collect();
        for fd in found {
            self.schedule_check(fd);
        }
        Ok(())
    }

    fn select_all(&mut self) -> io::Result<()> {
        let bound = self.entries.len();
        let elements = fd_set_num_elements(bound, bound as RawFd);
        let mut read = vec![FdSetElement::default(); elements];
        let (mut write, mut except) = (read.clone(), read.clone());
        for (fd, entry) in self.entries.iter().enumerate() {
            if !entry.interest.is_empty() {
                // The kernel reports a hang-up in this set only.
                fd_set_insert(&mut read, fd as RawFd);
            }
            if entry.interest.contains(Interest::WRITE) {
                fd_set_insert(&mut write, fd as RawFd);
            }
            if entry.interest.contains(Interest::PRIORITY) {
                fd_set_insert(&mut except, fd as RawFd);
            }
        }
        self.calls += 1;
        let (now, bound) = (timespec(Duration::ZERO), bound as RawFd);
        // SAFETY: the bitmaps contain registered descriptors, which are kept open.
        let selected = unsafe {
            select(bound, Some(&mut read), Some(&mut write), Some(&mut except), Some(&now))
        };
        match selected {
            Err(Errno::INTR) => {
                self.schedule_all();
                return Ok(());
            }
            result => result?,
        };
        for set in [&read, &write, &except] {
            FdSetIter::new(set).for_each(|fd| self.schedule_check(fd));
        }
        Ok(())
    }
}
