//! Asking those whom the [`Table`] has listed; the letters are its.

use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use rustix::event::{FdSetElement, FdSetIter, PollFd, PollFlags};
use rustix::event::{fd_set_insert, fd_set_num_elements, poll, select};
use rustix::io::Errno;
use rustix::net::{AddressFamily, sockopt};

use super::{Flags, Table};
use crate::event::{Event, Interest, Readiness};
use crate::mechanism::{borrow, poll as answers, timespec};

/// How many are asked in one system call, at least and at most, where so many are listed.
const CHUNK: RangeInclusive<usize> = 64..=1024;

impl Table {
    /// True if somebody must be asked.
    pub(crate) fn has_listed(&self) -> bool {
        !self.listed.is_empty() || !self.rooms.is_empty()
    }

    /// Asks those listed until the batch is full; `emptied` if the queue was just seen to be empty.
    pub(crate) fn ask(&mut self, max: usize, emptied: bool) -> io::Result<()> {
        while !self.listed.is_empty() && self.batch.len() < max {
            let room = max - self.batch.len();
            let chunk = room.saturating_mul(4).clamp(*CHUNK.start(), *CHUNK.end());
            self.list.clear();
            self.asked.clear();
            for _ in 0..chunk {
                let Some(fd) = self.listed.pop_front() else { break };
                let entry = &mut self.entries[fd as usize];
                entry.flags.remove(Flags::LISTED);
                if !entry.interest.is_empty() {
                    // SAFETY: an interest is a registration's, and those are kept open.
                    let source = unsafe { borrow(fd) };
                    let flags = answers::flags(entry.interest);
                    self.list.push(PollFd::from_borrowed_fd(source, flags));
                    self.asked.push(fd);
                }
            }
            self.calls += 1;
            while let Err(errno) = poll(&mut self.list, Some(&timespec(Duration::ZERO))) {
                if errno != Errno::INTR {
                    return Err(errno.into());
                }
            }
            for at in 0..self.asked.len() {
                let fd = self.asked[at];
                let readiness = answers::readiness(self.list[at].revents());
                let entry = &mut self.entries[fd as usize];
                if !emptied {
                    entry.stamp = self.epoch; // (b)
                }
                if entry.interest.contains(Interest::WRITE) && !readiness.is_writable() {
                    self.await_room(fd);
                }
                self.give(fd, readiness, max);
            }
        }
        if !self.rooms.is_empty() && self.batch.len() < max {
            self.ask_rooms(None, Some(Duration::ZERO), max)?;
        }
        Ok(())
    }

    /// Adds to the batch what a descriptor was found ready for, if it was asked for.
    fn give(&mut self, fd: RawFd, readiness: Readiness, max: usize) {
        let entry = &mut self.entries[fd as usize];
        let readiness = (readiness & self.tells).answering(entry.interest);
        if readiness.is_empty() {
            return;
        }
        let event = self.batch.get_mut(entry.place as usize);
        if let Some(event) = event.filter(|event| event.who == entry.token) {
            event.readiness |= readiness;
        } else if self.batch.len() < max {
            entry.place = self.batch.len() as u32;
            self.batch.push(Event { who: entry.token, readiness });
        } else {
            return self.ask_later(fd); // (f)
        }
        entry.stamp = self.epoch; // (b)
    }

    /// Remembers to ask for room where no signal will tell of it.
    fn await_room(&mut self, fd: RawFd) {
        self.calls += 1;
        // SAFETY: it was just asked, so it is registered, and kept open.
        let domain = sockopt::socket_domain(unsafe { borrow(fd) });
        if matches!(domain, Ok(AddressFamily::INET | AddressFamily::INET6)) {
            return;
        }
        let entry = &mut self.entries[fd as usize];
        entry.flags.insert(Flags::ROOM); // (d)
        if !entry.flags.contains(Flags::IN_ROOMS) {
            entry.flags.insert(Flags::IN_ROOMS);
            self.rooms.push(fd);
        }
    }

    /// True if somebody waits for room that raises no signal.
    pub(crate) fn awaits_room(&self) -> bool {
        !self.rooms.is_empty()
    }

    /// Asks those who wait for room; with `queue`, waits until one has some, or that is readable.
    pub(crate) fn ask_rooms(
        &mut self,
        queue: Option<BorrowedFd<'_>>,
        timeout: Option<Duration>,
        max: usize,
    ) -> io::Result<()> {
        self.list.clear();
        let Table { entries, rooms, list, .. } = self;
        rooms.retain(|&fd| {
            let flags = &mut entries[fd as usize].flags;
            let waits = flags.contains(Flags::ROOM);
            flags.set(Flags::IN_ROOMS, waits);
            if waits {
                // SAFETY: who waits for room is registered, and kept open.
                list.push(PollFd::from_borrowed_fd(unsafe { borrow(fd) }, PollFlags::OUT));
            }
            waits
        });
        if let Some(queue) = queue {
            // SAFETY: it outlives this call, and the list is made anew by the next.
            let queue = unsafe { borrow(queue.as_raw_fd()) };
            list.push(PollFd::from_borrowed_fd(queue, PollFlags::IN));
        }
        self.calls += 1;
        match poll(&mut self.list, timeout.map(timespec).as_ref()) {
            Err(Errno::INTR) => return Ok(()), // They are asked again.
            answered => answered?,
        };
        for at in 0..self.rooms.len() {
            let fd = self.rooms[at];
            if !self.list[at].revents().is_empty() {
                self.entries[fd as usize].flags.remove(Flags::ROOM);
                self.give(fd, Readiness::WRITABLE, max);
            }
        }
        Ok(())
    }

    /// Events were lost: lists everybody, or those whom select(2) finds ready.
    pub(crate) fn ask_all(&mut self, by_select: bool) -> io::Result<()> {
        if !by_select {
            for fd in 0..self.entries.len() {
                self.ask_later(fd as RawFd);
            }
            return Ok(());
        }
        let bound = self.entries.len();
        let elements = fd_set_num_elements(bound, bound as RawFd);
        let mut read = vec![FdSetElement::default(); elements];
        let mut write = read.clone();
        for (fd, entry) in self.entries.iter().enumerate() {
            if !entry.interest.is_empty() {
                // A hang-up is told of in this set only.
                fd_set_insert(&mut read, fd as RawFd);
            }
            if entry.interest.contains(Interest::WRITE) {
                fd_set_insert(&mut write, fd as RawFd);
            }
        }
        self.calls += 1;
        let (now, bound) = (timespec(Duration::ZERO), bound as RawFd);
        // SAFETY: what is in the bitmaps is registered, and kept open.
        match unsafe { select(bound, Some(&mut read), Some(&mut write), None, Some(&now)) } {
            Err(Errno::INTR) => return self.ask_all(false),
            answered => answered?,
        };
        for fd in FdSetIter::new(&read).chain(FdSetIter::new(&write)) {
            self.ask_later(fd);
        }
        Ok(())
    }
}
