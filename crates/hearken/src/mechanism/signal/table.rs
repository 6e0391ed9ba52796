//! The descriptors watched by signals, and checks of those whose signals are not conclusive.
//!
//! A signal reports a past event. If it may be older than the known state, a check of the
//! descriptor is scheduled. One poll(2) checks all scheduled descriptors:
//!
//! a) Readiness before the descriptor was armed raised no signal, and a change of interest may
//!    match existing readiness. Both schedule a check.
//! b) A queued signal may belong to a former registration of its number, or to readiness that the
//!    last event has already reported. The number is suspect from then until the queue has been
//!    seen empty. It is stamped with the current epoch. Each sight of an empty queue begins a new
//!    epoch, which clears all stamps at once. A signal for a suspect number schedules a check.
//! c) A pipe reports buffer space after every read, even of one byte of a full page. Writability is
//!    always checked.
//! d) A Unix socket raises the signal for buffer space only if a write returned EAGAIN after it was
//!    armed. On TCP and UDP poll(2) compensates for that. A descriptor that is not an IP socket is
//!    checked in every wait, and waited for with poll(2), until it is writable.
//! e) The end of a stream raises the same signal as data, and a separate one: data and end are
//!    never merged into one signal. If a wait takes several signals of a descriptor, it is checked,
//!    and the result includes the end. If it takes one, the caller may stop at a short read,
//!    because the end is still to come. Hang-ups and errors are checked too.
//! f) Urgent data of TCP raises a signal before poll(2) reports it, and an ordinary one afterwards.
//!    With an interest in priority data, every signal schedules a check. The kernel also sends
//!    SIGURG, which is ignored unless the program handles it.
//! g) The writer of a pipe whose reader has left gets the signal of buffer space, and poll(2) reports an
//!    error. The signal schedules a check, whatever the interest is. Sockets raise it only after a write
//!    returned EAGAIN.
//! h) No descriptor is passed over: the schedule is first in, first out, and a ready descriptor
//!    beyond the caller's `max` goes to its end.

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;

use rustix::event::PollFd;
use rustix::io::Errno;

use super::SignalInfo;
use crate::event::{Event, Interest, Readiness, Token};
use crate::mechanism::poll::List;

mod check;

#[derive(Clone, Copy)]
struct Entry {
    token: Token,
    /// Empty if it is not registered.
    interest: Interest,
    flags: Flags,
    /// The epoch in which the descriptor became suspect.
    stamp: u32,
    /// The index of its event in the batch, if it has one.
    batch_index: u32,
}

const VACANT: Entry = Entry {
    token: Token::from_bits(u64::MAX),
    interest: Interest::empty(),
    flags: Flags::empty(),
    stamp: 0,
    batch_index: 0,
};

bitflags::bitflags! {
    #[derive(Clone, Copy, PartialEq, Eq)]
    struct Flags: u8 {
        const REGISTERED = 1;
        /// The descriptor is in `scheduled`.
        const SCHEDULED = 2;
        /// The descriptor waits for buffer space that raises no signal.
        const AWAITS_SPACE = 4;
        /// The descriptor is in `blocked_writers`, whether or not it still waits.
        const IN_BLOCKED_WRITERS = 8;
    }
}

/// The call that finds the ready descriptors after an overflow.
#[derive(Debug)]
pub(crate) enum Fallback {
    /// poll(2), with an array that is built from the table.
    Poll,
    /// select(2).
    Select,
    /// poll(2), with an array that every change of the table updates.
    Array(Box<List>),
}

/// The watched descriptors and the batch of events.
pub(crate) struct Table {
    reports: Readiness,
    /// The entries, indexed by descriptor number.
    entries: Vec<Entry>,
    /// The descriptors to check.
    scheduled: VecDeque<RawFd>,
    /// The descriptors to check for writability in every wait.
    blocked_writers: Vec<RawFd>,
    epoch: u32,
    pub(crate) batch: Vec<Event>,
    /// The argument of poll(2).
    list: Vec<PollFd<'static>>,
    checked: Vec<RawFd>,
    fallback: Fallback,
    pub(crate) calls: u64,
}

impl Table {
    /// Creates an empty table. Its events have no flags other than `reports`.
    pub(crate) fn new(reports: Readiness, fallback: Fallback) -> Table {
        Table {
            reports,
            entries: Vec::new(),
            scheduled: VecDeque::new(),
            blocked_writers: Vec::new(),
            epoch: 1,
            batch: Vec::new(),
            list: Vec::new(),
            checked: Vec::new(),
            fallback,
            calls: 0,
        }
    }

    /// Reserves space for `fd`, or fails if it cannot be registered.
    pub(crate) fn reserve(&mut self, fd: RawFd) -> io::Result<()> {
        let number = usize::try_from(fd).map_err(|_| Errno::BADF)?;
        if number >= self.entries.len() {
            self.entries.resize(number + 1, VACANT);
        }
        match self.entries[number].flags.contains(Flags::REGISTERED) {
            true => Err(Errno::EXIST.into()),
            false => Ok(()),
        }
    }

    /// Registers `fd`, for which there is space.
    pub(crate) fn register(&mut self, fd: RawFd, token: Token, interest: Interest) {
        if let Fallback::Array(list) = &mut self.fallback {
            // SAFETY: registered descriptors are kept open. It fails only for those on the list.
            let _ = unsafe { list.declare(fd, token, interest) };
        }
        let entry = &mut self.entries[fd as usize];
        entry.flags.insert(Flags::REGISTERED);
        entry.token = token;
        entry.interest = interest;
        self.schedule_check(fd); // (a)
    }

    pub(crate) fn change(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        let entry = self.registered(fd)?;
        entry.token = token;
        entry.interest = interest;
        entry.flags.remove(Flags::AWAITS_SPACE);
        if let Fallback::Array(list) = &mut self.fallback {
            // SAFETY: registered descriptors are kept open. All of them are on the list.
            let _ = unsafe { list.change(fd, token, interest) };
        }
        self.schedule_check(fd); // (a)
        Ok(())
    }

    pub(crate) fn unregister(&mut self, fd: RawFd) -> io::Result<()> {
        let epoch = self.epoch;
        let entry = self.registered(fd)?;
        entry.flags.remove(Flags::REGISTERED | Flags::AWAITS_SPACE);
        entry.interest = Interest::empty();
        entry.token = VACANT.token;
        entry.stamp = epoch; // (b)
        if let Fallback::Array(list) = &mut self.fallback {
            let _ = list.revoke(fd); // It is on the list.
        }
        Ok(())
    }

    fn registered(&mut self, fd: RawFd) -> io::Result<&mut Entry> {
        usize::try_from(fd)
            .ok()
            .and_then(|fd| self.entries.get_mut(fd))
            .filter(|entry| entry.flags.contains(Flags::REGISTERED))
            .ok_or_else(|| Errno::NOENT.into())
    }

    /// Returns all registered descriptors.
    pub(crate) fn all(&self) -> impl Iterator<Item = RawFd> {
        let registered = |(_, entry): &(usize, &Entry)| entry.flags.contains(Flags::REGISTERED);
        self.entries.iter().enumerate().filter(registered).map(|(fd, _)| fd as RawFd)
    }

    /// Records that the queue is empty: later signals are newer than the known state.
    #[inline]
    pub(crate) fn on_queue_empty(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
    }

    /// Handles a signal: reports its readiness, or schedules a check of its descriptor.
    #[inline]
    pub(crate) fn on_signal(&mut self, signal: SignalInfo, max: usize) {
        // A negative number is outside the table.
        let Some(entry) = self.entries.get_mut(signal.fd as usize) else {
            return;
        };
        let readiness = signal.readiness.restrict_to(entry.interest);
        let has_priority = entry.interest.contains(Interest::PRIORITY); // (f)
        if readiness.is_empty() && !has_priority {
            if signal.readiness.is_writable() {
                self.schedule_check(signal.fd); // (g)
            }
            return;
        }
        let event = self.batch.get(entry.batch_index as usize);
        let reported = event.is_some_and(|event| event.token == entry.token);
        let suspect = entry.stamp == self.epoch; // (b)
        let inconclusive = has_priority || signal.merged || signal.readiness.is_writable(); // (c), (e)
        if reported || suspect || inconclusive || self.batch.len() >= max {
            self.schedule_check(signal.fd);
        } else {
            entry.stamp = self.epoch;
            entry.batch_index = self.batch.len() as u32;
            self.batch.push(Event { token: entry.token, readiness });
        }
    }

    /// Schedules a check of `fd`, which may have become ready.
    pub(crate) fn check_later(&mut self, fd: RawFd) {
        if usize::try_from(fd).is_ok_and(|fd| fd < self.entries.len()) {
            self.schedule_check(fd);
        }
    }

    /// Schedules a check of `fd` by the next [`check`](Table::check).
    fn schedule_check(&mut self, fd: RawFd) {
        let entry = &mut self.entries[fd as usize];
        if !entry.interest.is_empty() && !entry.flags.contains(Flags::SCHEDULED) {
            entry.flags.insert(Flags::SCHEDULED);
            self.scheduled.push_back(fd);
        }
    }
}
