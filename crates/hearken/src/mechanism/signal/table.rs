//! Who is watched by signals, and who must be asked instead of believed.
//!
//! A signal is a memory of something that happened. Where it may be older than what is known, the
//! descriptor is put on a list, and all that are on it are asked by one poll(2):
//!
//! a) What was ready before it was armed raised nothing, and what changed its interest may be ready
//!    for it: both are listed.
//! b) A queued signal may be for an earlier holder of its number, or for what the last event told of
//!    already. Such a number is suspect from then until the queue has been seen to be empty: it has
//!    the present epoch's stamp, and each sight of an empty queue begins a new epoch, which clears
//!    all at once. A signal for a suspect has it listed.
//! c) A pipe says that there is room whenever something was read, be it a byte of a full page. Room
//!    is always asked for.
//! d) A Unix socket raises the signal for room only if a write met EAGAIN when it was armed already,
//!    and poll(2) does not make up for it as it does on TCP and UDP. What is found without room and
//!    is no IP socket is asked at every wait, and waited for by poll(2), until it has some.
//! e) The end of a stream raises what data does, and a signal of its own: data and end are never one
//!    signal. So a descriptor of which a wait takes several is asked, and the answer tells the end; one
//!    of which it takes one may be read until a short read, for the end is yet to come. Hang-ups and
//!    errors are asked for what they are.
//! f) Nobody is passed over: the list is first in, first out, and what is ready beyond the caller's
//!    `max` goes to its end.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use rustix::event::{FdSetElement, FdSetIter, PollFd, PollFlags};
use rustix::event::{fd_set_insert, fd_set_num_elements, poll, select};
use rustix::io::Errno;
use rustix::net::{AddressFamily, sockopt};

use super::Raised;
use crate::event::{Event, Interest, Readiness, Token};
use crate::mechanism::{borrow, poll as answers, timespec};

/// How many are asked in one system call, at least and at most, where so many are listed.
const CHUNK: std::ops::RangeInclusive<usize> = 64..=1024;

#[derive(Clone, Copy)]
struct Entry {
    token: Token,
    /// Empty where it is not registered.
    interest: Interest,
    flags: Flags,
    /// The epoch in which it became suspect.
    stamp: u32,
    /// Where it is in the batch, if it is there.
    place: u32,
}

const NOBODY: Entry = Entry {
    token: Token::from_bits(u64::MAX),
    interest: Interest::empty(),
    flags: Flags::empty(),
    stamp: 0,
    place: 0,
};

bitflags::bitflags! {
    #[derive(Clone, Copy, PartialEq, Eq)]
    struct Flags: u8 {
        const REGISTERED = 1;
        /// In `listed`.
        const LISTED = 2;
        /// Waits for room that raises no signal.
        const ROOM = 4;
        /// In `rooms`, be it that it waits no longer.
        const IN_ROOMS = 8;
    }
}

/// The descriptors watched, and the batch of events.
pub(crate) struct Table {
    tells: Readiness,
    /// By descriptor.
    entries: Vec<Entry>,
    /// To be asked.
    listed: VecDeque<RawFd>,
    /// To be asked for room at every wait.
    rooms: Vec<RawFd>,
    epoch: u32,
    pub(crate) batch: Vec<Event>,
    /// What poll(2) is given.
    list: Vec<PollFd<'static>>,
    asked: Vec<RawFd>,
    pub(crate) calls: u64,
}

impl Table {
    /// Of which no more is told than `tells`.
    pub(crate) fn new(tells: Readiness) -> Table {
        Table {
            tells,
            entries: Vec::new(),
            listed: VecDeque::new(),
            rooms: Vec::new(),
            epoch: 1,
            batch: Vec::new(),
            list: Vec::new(),
            asked: Vec::new(),
            calls: 0,
        }
    }

    /// Makes room for `fd`, or says why it cannot be registered.
    pub(crate) fn reserve(&mut self, fd: RawFd) -> io::Result<()> {
        let number = usize::try_from(fd).map_err(|_| Errno::BADF)?;
        if number >= self.entries.len() {
            self.entries.resize(number + 1, NOBODY);
        }
        match self.entries[number].flags.contains(Flags::REGISTERED) {
            true => Err(Errno::EXIST.into()),
            false => Ok(()),
        }
    }

    /// Registers `fd`, for which there is room.
    pub(crate) fn register(&mut self, fd: RawFd, token: Token, interest: Interest) {
        let entry = &mut self.entries[fd as usize];
        entry.flags.insert(Flags::REGISTERED);
        entry.token = token;
        entry.interest = interest;
        self.ask_later(fd); // (a)
    }

    pub(crate) fn change(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        let entry = self.registered(fd)?;
        entry.token = token;
        entry.interest = interest;
        entry.flags.remove(Flags::ROOM);
        self.ask_later(fd); // (a)
        Ok(())
    }

    pub(crate) fn forget(&mut self, fd: RawFd) -> io::Result<()> {
        let epoch = self.epoch;
        let entry = self.registered(fd)?;
        entry.flags.remove(Flags::REGISTERED | Flags::ROOM);
        entry.interest = Interest::empty();
        entry.token = NOBODY.token;
        entry.stamp = epoch; // (b)
        Ok(())
    }

    fn registered(&mut self, fd: RawFd) -> io::Result<&mut Entry> {
        usize::try_from(fd)
            .ok()
            .and_then(|fd| self.entries.get_mut(fd))
            .filter(|entry| entry.flags.contains(Flags::REGISTERED))
            .ok_or_else(|| Errno::NOENT.into())
    }

    /// Every descriptor that is registered.
    pub(crate) fn all(&self) -> impl Iterator<Item = RawFd> {
        let registered = |(_, entry): &(usize, &Entry)| entry.flags.contains(Flags::REGISTERED);
        self.entries.iter().enumerate().filter(registered).map(|(fd, _)| fd as RawFd)
    }

    /// The queue was seen to be empty: every signal to come is newer than what is known.
    #[inline]
    pub(crate) fn emptied(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
    }

    /// Takes in what a signal says: believes it, or has the descriptor asked.
    #[inline]
    pub(crate) fn hear(&mut self, raised: Raised, max: usize) {
        // A negative number is beyond the table.
        let Some(entry) = self.entries.get_mut(raised.fd as usize) else {
            return;
        };
        let readiness = raised.readiness.answering(entry.interest);
        if readiness.is_empty() {
            return;
        }
        let event = self.batch.get(entry.place as usize);
        let given = event.is_some_and(|event| event.who == entry.token);
        let suspect = entry.stamp == self.epoch; // (b)
        let unclear = raised.merged || raised.readiness.is_writable(); // (c), (e)
        if given || suspect || unclear || self.batch.len() >= max {
            self.ask_later(raised.fd);
        } else {
            entry.stamp = self.epoch;
            entry.place = self.batch.len() as u32;
            self.batch.push(Event { who: entry.token, readiness });
        }
    }

    /// Something may be so of `fd`: it is asked by the next [`ask`](Table::ask).
    pub(crate) fn doubt(&mut self, fd: RawFd) {
        if usize::try_from(fd).is_ok_and(|fd| fd < self.entries.len()) {
            self.ask_later(fd);
        }
    }

    /// Has `fd` asked by the next [`ask`](Table::ask).
    fn ask_later(&mut self, fd: RawFd) {
        let entry = &mut self.entries[fd as usize];
        if !entry.interest.is_empty() && !entry.flags.contains(Flags::LISTED) {
            entry.flags.insert(Flags::LISTED);
            self.listed.push_back(fd);
        }
    }

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
