//! Waiting for signals, shared by rt-signal and signal-per-fd.
//!
//! A wait takes queued signals, and then checks descriptors whose signals are not conclusive (see
//! [`table`](super::table)). If there are none, it sleeps until a signal arrives. Signals are taken
//! first, since a check covers every signal taken before it. If a full batch leaves no space for
//! checks, the next wait begins with them, so that neither is deferred indefinitely.
//!
//! After an overflow, the queue is emptied and all descriptors are checked:
//!
//! * `recover=once`: by one call. Signals that arrive afterwards are taken again.
//! * `recover=until-quiet`: by each wait, until one finds nothing. Signals stay in the queue until
//!   then, and usually overflow it again. This is the server of Chandra and Mosberger (Section 3.3,
//!   Table 1), which stays in select(2). A descriptor is reported while it is ready.
//! * `recover=none`: not at all. A descriptor whose signal was dropped stays silent (Section 3.3).

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use super::table::{Fallback, Table};
use super::{MAX_SIGNALS, SignalInfo, Signals};
use crate::event::{Event, Interest, Readiness, Token};
use crate::mechanism::{NO_EVENT, OptionSpec, Options, Semantics, Sharing, SignalMask, Trigger};
use crate::mechanism::{Unavailable, Values, Watches};

/// The option for how signals are taken.
pub(crate) const DEQUEUE: OptionSpec = OptionSpec {
    name: "dequeue",
    help: "signals per system call: many with signalfd(2), or one with sigtimedwait(2)",
    values: Values::OneOf(&["many", "one"]),
};

/// The option for how often events that an overflow has dropped are looked for.
pub(crate) const RECOVER: OptionSpec = OptionSpec {
    name: "recover",
    help: "after an overflow, check all descriptors once, in every wait until one finds nothing, or \
           never (Chandra and Mosberger 2001, 3.3)",
    values: Values::OneOf(&["once", "until-quiet", "none"]),
};

/// The option for the call that looks for them.
pub(crate) const FALLBACK: OptionSpec = OptionSpec {
    name: "fallback",
    help: "check all descriptors with poll(2), select(2), or poll(2) and an array that is kept up \
           to date (Liu and Chen 2004, 4)",
    values: Values::OneOf(&["poll", "select", "array"]),
};

/// The properties of both mechanisms.
pub(crate) const SEMANTICS: Semantics = Semantics {
    trigger: Trigger::Edge,
    close_revokes: true,
    overflows: true,
    watches: Watches::SignalDriven,
    sharing: Sharing::Owner,
    ..Semantics::COMMON
};

/// The recovery from an overflow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Recovery {
    Once,
    UntilQuiet,
    None,
}

/// The first step of a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum FirstStep {
    #[default]
    TakeSignals,
    /// The last wait had no space for checks.
    Check,
    /// The descriptors are not quiet since an overflow.
    CheckAll,
}

/// The maximum number of signals that one wait takes.
const MAX_BATCH: usize = 1 << 16;

/// A layer between the readiness of a descriptor and the signal queue.
pub(crate) trait SignalFilter {
    /// Handles a signal that was taken, before its descriptor is checked. Called for every signal,
    /// even for descriptors that are no longer registered. Returns the readiness to report.
    fn on_signal(&mut self, signal: SignalInfo) -> SignalInfo {
        signal
    }

    /// Handles an overflow: signals were dropped, the queue is empty, and all descriptors are
    /// checked next.
    fn on_overflow(&mut self) {}
}

/// No layer.
impl SignalFilter for () {}

/// A signal queue and the table of descriptors that use it.
pub(crate) struct SignalDispatcher {
    signals: Signals,
    table: Table,
    /// Whether a wait takes all queued signals, and not only as many as it may return.
    drains: bool,
    recovery: Recovery,
    first_step: FirstStep,
    overflows: u64,
}

impl SignalDispatcher {
    pub(crate) fn open(options: &Options, drains: bool) -> Result<SignalDispatcher, Unavailable> {
        let fallback = match options.get(FALLBACK.name) {
            "select" => Fallback::Select,
            "array" => Fallback::Array(Box::default()),
            _ => Fallback::Poll,
        };
        let recovery = match options.get(RECOVER.name) {
            "until-quiet" => Recovery::UntilQuiet,
            "none" => Recovery::None,
            _ => Recovery::Once,
        };
        Ok(SignalDispatcher {
            signals: Signals::open(options.get(DEQUEUE.name) == "one")?,
            table: Table::new(Readiness::all(), fallback),
            drains,
            recovery,
            first_step: FirstStep::default(),
            overflows: 0,
        })
    }

    /// Returns whether it finds the events that an overflow dropped.
    pub(crate) fn recovers(&self) -> bool {
        self.recovery != Recovery::None
    }

    /// Returns the signal queue.
    pub(crate) fn signals(&self) -> &Signals {
        &self.signals
    }

    /// Checks whether `fd` can be declared, and reserves space for it.
    pub(crate) fn reserve(&mut self, fd: RawFd) -> io::Result<()> {
        self.table.reserve(fd)
    }

    /// Registers a descriptor.
    ///
    /// # Safety
    /// The requirements of [`Mechanism::declare`](crate::Mechanism::declare).
    pub(crate) unsafe fn declare(
        &mut self,
        fd: RawFd,
        token: Token,
        interest: Interest,
    ) -> io::Result<()> {
        self.table.reserve(fd)?;
        // SAFETY: the caller keeps `fd` open.
        unsafe { self.signals.arm(fd)? };
        self.table.register(fd, token, interest);
        Ok(())
    }

    pub(crate) fn change(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        self.table.change(fd, token, interest)
    }

    /// Removes a descriptor.
    ///
    /// # Safety
    /// The requirements of [`Mechanism::revoke`](crate::Mechanism::revoke).
    pub(crate) unsafe fn revoke(&mut self, fd: RawFd) -> io::Result<()> {
        self.table.unregister(fd)?;
        // SAFETY: the descriptor was registered, and the caller keeps it open.
        unsafe { self.signals.disarm(fd) }
    }

    /// Ends a registration without a system call: closing the descriptor disarms it.
    pub(crate) fn closing(&mut self, fd: RawFd) {
        // An error means that it is not registered, which is the desired state.
        let _ = self.table.unregister(fd);
    }

    pub(crate) fn wait(
        &mut self,
        max: usize,
        timeout: Option<Duration>,
        filter: &mut impl SignalFilter,
    ) -> io::Result<usize> {
        let max = max.clamp(1, MAX_BATCH);
        self.table.batch.clear();
        if self.signals.overflowed() {
            self.recover(filter)?; // Another queue of this thread took SIGIO.
        }
        let first_step = std::mem::take(&mut self.first_step);
        if first_step != FirstStep::TakeSignals {
            if first_step == FirstStep::CheckAll {
                self.table.check_all()?;
            }
            self.table.check(max, false)?;
            if !self.table.batch.is_empty() {
                if first_step == FirstStep::CheckAll {
                    self.first_step = first_step;
                }
                return Ok(self.table.batch.len());
            }
        }
        self.take(max, filter)?;
        if self.table.batch.is_empty() && timeout != Some(Duration::ZERO) {
            if self.table.has_blocked_writers() {
                self.table.check_writability(Some(self.signals.queue()), timeout, max, None)?;
                self.take(max, filter)?;
            } else if self.signals.wait(timeout)? {
                let signal = filter.on_signal(self.signals.info(0));
                self.table.on_signal(signal, max);
                if self.signals.overflowed() {
                    self.recover(filter)?;
                }
                self.table.check(max, false)?;
            }
        }
        Ok(self.finish_batch(max))
    }

    /// Waits with a signal mask, in which the signals of the queue stay blocked.
    pub(crate) fn wait_with_mask(
        &mut self,
        max: usize,
        timeout: Option<Duration>,
        mask: &SignalMask,
        filter: &mut impl SignalFilter,
    ) -> io::Result<usize> {
        let count = self.wait(max, Some(Duration::ZERO), filter)?;
        if count > 0 {
            return Ok(count);
        }
        let max = max.clamp(1, MAX_BATCH);
        let mask = self.signals.extend_mask(mask)?;
        self.table.check_writability(Some(self.signals.queue()), timeout, max, Some(&mask))?;
        self.take(max, filter)?;
        Ok(self.finish_batch(max))
    }

    /// Selects the first step of the next wait. Returns the size of the batch.
    fn finish_batch(&mut self, max: usize) -> usize {
        if self.table.batch.len() >= max
            && self.table.has_scheduled()
            && self.first_step != FirstStep::CheckAll
        {
            self.first_step = FirstStep::Check;
        }
        self.table.batch.len()
    }

    /// Takes queued signals and checks the scheduled descriptors.
    fn take(&mut self, max: usize, filter: &mut impl SignalFilter) -> io::Result<()> {
        let mut remaining = if self.drains { MAX_BATCH } else { max };
        let mut queue_empty = false;
        while remaining > 0 && !queue_empty {
            let taken = self.signals.take(remaining.min(MAX_SIGNALS))?;
            remaining -= taken.count;
            queue_empty = taken.queue_empty;
            for index in 0..taken.count {
                let signal = filter.on_signal(self.signals.info(index));
                self.table.on_signal(signal, max);
            }
            if self.signals.overflowed() {
                self.recover(filter)?;
                break;
            }
        }
        if queue_empty {
            self.table.on_queue_empty();
        }
        self.table.check(max, queue_empty)
    }

    /// Handles an overflow: takes the remaining signals and schedules checks of all descriptors.
    fn recover(&mut self, filter: &mut impl SignalFilter) -> io::Result<()> {
        self.overflows += 1;
        match self.recovery {
            Recovery::Once => {}
            Recovery::UntilQuiet => self.first_step = FirstStep::CheckAll,
            Recovery::None => return Ok(()),
        }
        self.signals.discard(|signal| {
            filter.on_signal(signal);
        });
        filter.on_overflow();
        self.table.check_all()
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

impl Drop for SignalDispatcher {
    /// Disarms the registered descriptors, which are still open. They would otherwise continue to
    /// raise a signal that another queue may use by then.
    fn drop(&mut self) {
        for fd in self.table.all() {
            // SAFETY: a registered descriptor is kept open. Errors need no handling.
            let _ = unsafe { self.signals.disarm(fd) };
        }
    }
}
