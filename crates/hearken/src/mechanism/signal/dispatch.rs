//! Waiting for signals: what rt-signal and signal-per-fd do alike.
//!
//! A wait takes what is queued, then asks those whom it must not believe (see [`table`](super::table)),
//! and only where there is nothing sleeps until a signal comes. Taking comes first, since a look covers
//! every signal taken before it. Where a full batch leaves no room for asking, the next wait begins
//! with that, so that neither is put off for ever.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use super::table::Table;
use super::{MOST, Raised, Signals};
use crate::event::{Event, Interest, Readiness, Token};
use crate::mechanism::{Choice, NO_EVENT, Options, Semantics, Sharing, Trigger};
use crate::mechanism::{Unavailable, Values, Watches};

/// How signals are taken.
pub(crate) const DEQUEUE: Choice = Choice {
    name: "dequeue",
    help: "signals taken in a system call: many by signalfd(2), or one by sigtimedwait(2)",
    values: Values::OneOf(&["many", "one"]),
};

/// How events are found that an overflow has dropped.
pub(crate) const RECOVER: Choice = Choice {
    name: "recover",
    help: "the call that asks every descriptor after the queue has overflowed",
    values: Values::OneOf(&["poll", "select"]),
};

/// What holds for both.
pub(crate) const SEMANTICS: Semantics = Semantics {
    trigger: Trigger::Edge,
    close_revokes: true,
    overflows: true,
    watches: Watches::Signalling,
    sharing: Sharing::Owner,
    ..Semantics::COMMON
};

/// The most signals that one wait takes, whatever is asked for.
const BOUND: usize = 1 << 16;

/// What stands between a descriptor's readiness and the queue, where something does.
pub(crate) trait Pending {
    /// A signal was taken, and its descriptor has not been looked at since. Called for every signal,
    /// also for a number that nobody watches any more. Answers what is to be believed.
    fn taken(&mut self, raised: Raised) -> Raised {
        raised
    }

    /// Signals were dropped, what was queued has been taken, and everybody is asked next.
    fn overflowed(&mut self) {}
}

/// Nothing does.
impl Pending for () {}

/// Signals, and the table of those who raise them.
pub(crate) struct Dispatch {
    signals: Signals,
    table: Table,
    /// A wait takes all that is queued, not only as much as it may give.
    drains: bool,
    by_select: bool,
    /// The last wait had no room to ask.
    ask_first: bool,
    overflows: u64,
}

impl Dispatch {
    pub(crate) fn open(options: &Options, drains: bool) -> Result<Dispatch, Unavailable> {
        Ok(Dispatch {
            signals: Signals::open(options.get(DEQUEUE.name) == "one")?,
            table: Table::new(Readiness::all()),
            drains,
            by_select: options.get(RECOVER.name) == "select",
            ask_first: false,
            overflows: 0,
        })
    }

    /// The queue, for those who tell the kernel of it by other means.
    pub(crate) fn signals(&self) -> &Signals {
        &self.signals
    }

    /// Says whether `fd` can be declared, as far as that does not depend on what it is.
    pub(crate) fn reserve(&mut self, fd: RawFd) -> io::Result<()> {
        self.table.reserve(fd)
    }

    /// # Safety
    /// As for [`Mechanism::declare`](crate::Mechanism::declare).
    pub(crate) unsafe fn declare(
        &mut self,
        fd: RawFd,
        token: Token,
        interest: Interest,
    ) -> io::Result<()> {
        self.table.reserve(fd)?;
        // SAFETY: the caller keeps fd open.
        unsafe { self.signals.arm(fd)? };
        self.table.register(fd, token, interest);
        Ok(())
    }

    pub(crate) fn change(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        self.table.change(fd, token, interest)
    }

    /// # Safety
    /// As for [`Mechanism::revoke`](crate::Mechanism::revoke).
    pub(crate) unsafe fn revoke(&mut self, fd: RawFd) -> io::Result<()> {
        self.table.forget(fd)?;
        // SAFETY: it was registered, and the caller keeps it open.
        unsafe { self.signals.disarm(fd) }
    }

    /// Closing disarms.
    pub(crate) fn closing(&mut self, fd: RawFd) {
        // Refused, it is not registered, which is what was asked for.
        let _ = self.table.forget(fd);
    }

    pub(crate) fn wait(
        &mut self,
        max: usize,
        timeout: Option<Duration>,
        pending: &mut impl Pending,
    ) -> io::Result<usize> {
        let max = max.clamp(1, BOUND);
        self.table.batch.clear();
        if self.signals.overflowed() {
            self.recover(pending)?; // Another queue of this thread was told.
        }
        if std::mem::take(&mut self.ask_first) {
            self.table.ask(max, false)?;
            if !self.table.batch.is_empty() {
                return Ok(self.table.batch.len());
            }
        }
        self.take(max, pending)?;
        if self.table.batch.is_empty() && timeout != Some(Duration::ZERO) {
            if self.table.awaits_room() {
                self.table.ask_rooms(Some(self.signals.queue()), timeout, max)?;
                self.take(max, pending)?;
            } else if self.signals.wait(timeout)? {
                let raised = pending.taken(self.signals.raised(0));
                self.table.hear(raised, max);
                if self.signals.overflowed() {
                    self.recover(pending)?;
                }
                self.table.ask(max, false)?;
            }
        }
        self.ask_first = self.table.batch.len() >= max && self.table.has_listed();
        Ok(self.table.batch.len())
    }

    /// Takes what is queued, and asks whom it must.
    fn take(&mut self, max: usize, pending: &mut impl Pending) -> io::Result<()> {
        let mut left = if self.drains { BOUND } else { max };
        let mut emptied = false;
        while left > 0 && !emptied {
            let took = self.signals.take(left.min(MOST))?;
            left -= took.count;
            emptied = took.emptied;
            for index in 0..took.count {
                let raised = pending.taken(self.signals.raised(index));
                self.table.hear(raised, max);
            }
            if self.signals.overflowed() {
                self.recover(pending)?;
                break;
            }
        }
        if emptied {
            self.table.emptied();
        }
        self.table.ask(max, emptied)
    }

    /// Events were dropped: takes what is left of them, and has everybody asked.
    fn recover(&mut self, pending: &mut impl Pending) -> io::Result<()> {
        self.overflows += 1;
        self.signals.discard(|raised| {
            pending.taken(raised);
        });
        pending.overflowed();
        self.table.ask_all(self.by_select)
    }

    #[inline]
    pub(crate) fn event(&self, index: usize) -> Event {
        self.table.batch.get(index).copied().unwrap_or(NO_EVENT)
    }

    pub(crate) fn overflows(&self) -> u64 {
        self.overflows
    }

    pub(crate) fn calls(&self) -> u64 {
        self.signals.calls + self.table.calls
    }

    pub(crate) fn registered(&self) -> usize {
        self.table.all().count()
    }
}

impl Drop for Dispatch {
    /// What is registered is open still, and would go on raising a signal that another queue may have
    /// by then.
    fn drop(&mut self) {
        for fd in self.table.all() {
            // SAFETY: it is registered, so its owner keeps it open. Refused, there is nothing to do.
            let _ = unsafe { self.signals.disarm(fd) };
        }
    }
}
