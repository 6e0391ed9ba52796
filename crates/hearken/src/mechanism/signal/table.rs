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
use std::os::fd::RawFd;

use rustix::event::PollFd;
use rustix::io::Errno;

use super::Raised;
use crate::event::{Event, Interest, Readiness, Token};

mod ask;

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
}
