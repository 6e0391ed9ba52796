//! Level semantics over an edge-triggered or one-shot mechanism.
//!
//! Pitfalls, and how the code handles them:
//!
//! a) Events of a queue of signals or completions contain the readiness at the time they were
//!    queued, for the direction that changed. A level is the current readiness in all directions.
//!    Unless the mechanism checks it in the wait, as epoll(7) does, each event is checked before it
//!    is reported.
//! b) An empty interest produces no events, but poll(2) always reports hang-ups. Such a descriptor
//!    is not checked.
//! c) A one-shot mechanism produces no further hint, in either direction, until it is rearmed. It
//!    is rearmed when a check finds the descriptor not ready, and reports what happened since.
//! d) A caller that reports `would_block` saves the check. Over a one-shot mechanism it does not,
//!    because events of the other direction depend on the check.

use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;
use std::{fmt, io};

use rustix::event::PollFlags;

use super::super::cache::{Cache, Hints, Scan};
use super::super::{Mechanism, NO_EVENT, Semantics, SignalMask, Trigger, WaitCost, poll};
use super::intern;
use crate::event::{Event, Interest, Readiness, Token};

/// Level semantics over `M`: one poll(2) per wait checks ready descriptors until they are not
/// ready. The cost of a wait grows with the number of ready descriptors and the size of the
/// previous batch.
pub struct AsLevel<M: Mechanism> {
    inner: M,
    cache: Cache,
    semantics: &'static Semantics,
    source: Source,
    one_shot: bool,
}

/// The meaning of an event of the inner mechanism.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    /// The current readiness.
    State,
    /// A descriptor to check.
    Hints,
    /// A descriptor to check, unless a scan of the set replaces it.
    Scan(Scan),
}

impl<M: Mechanism> AsLevel<M> {
    /// Adapts any mechanism. Its events are checked before they are reported.
    pub fn new(inner: M) -> AsLevel<M> {
        // poll(2) reports them, whatever the mechanism supports. Priority data needs its hints.
        let mut reports = Readiness::all() - Readiness::IDLE;
        let semantics = *inner.semantics();
        reports.set(Readiness::PRIORITY, semantics.reports.has_priority());
        let semantics = Semantics { reports, ..semantics };
        AsLevel::with(inner, semantics, Source::Hints)
    }

    /// Adapts a mechanism whose events contain the complete readiness found by the wait, as with
    /// epoll(7).
    pub fn without_verification(inner: M) -> AsLevel<M> {
        let semantics = *inner.semantics();
        AsLevel::with(inner, semantics, Source::State)
    }

    /// Adapts an edge-triggered mechanism whose events are hints about a set that `scan` checks.
    pub(in crate::mechanism) fn scanning(inner: M, scan: Scan) -> AsLevel<M> {
        let mut semantics = *inner.semantics();
        match scan {
            Scan::WholeSet => semantics.wait = WaitCost::Registered,
            Scan::Limited(_) => semantics.overflows = true,
        }
        AsLevel::with(inner, semantics, Source::Scan(scan))
    }

    fn with(inner: M, semantics: Semantics, source: Source) -> AsLevel<M> {
        let one_shot = inner.semantics().trigger == Trigger::OneShot;
        let semantics = Semantics { trigger: Trigger::Level, ..semantics };
        let semantics = intern(semantics);
        AsLevel { inner, cache: Cache::default(), semantics, source, one_shot }
    }
}

/// The mechanism as a source of hints, and whether it is one-shot.
struct Inner<'a, M, const RELIABLE: bool>(&'a mut M, bool);

impl<M: Mechanism, const RELIABLE: bool> Hints for Inner<'_, M, RELIABLE> {
    const RELIABLE: bool = RELIABLE; // (a)

    fn wait(&mut self, max: usize, timeout: Option<Duration>) -> io::Result<usize> {
        self.0.wait(max, timeout)
    }

    #[inline]
    fn hint(&self, index: usize) -> (Token, i16) {
        let Event { token, readiness } = self.0.event(index);
        if !RELIABLE {
            return (token, 0);
        }
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, readiness.is_readable());
        flags.set(PollFlags::PRI, readiness.has_priority());
        flags.set(PollFlags::OUT, readiness.is_writable());
        flags.set(PollFlags::RDHUP, readiness.contains(Readiness::READ_CLOSED));
        flags.set(PollFlags::HUP, readiness.contains(Readiness::HANGUP));
        flags.set(PollFlags::ERR, readiness.contains(Readiness::ERROR));
        (token, flags.bits() as i16)
    }

    fn on_not_ready(&mut self, fd: RawFd, token: Token, events: i16) -> io::Result<()> {
        if !self.1 {
            return Ok(());
        }
        let entry = PollFlags::from_bits_retain(events as _);
        let mut interest = Interest::empty();
        interest.set(Interest::READ, entry.contains(PollFlags::IN));
        interest.set(Interest::PRIORITY, entry.contains(PollFlags::PRI));
        interest.set(Interest::WRITE, entry.contains(PollFlags::OUT));
        // SAFETY: it is registered under this token, so the caller keeps it open (c).
        unsafe { self.0.change(fd, token, interest) }
    }
}

fn events(interest: Interest) -> Option<i16> {
    // (b)
    (!interest.is_empty()).then(|| poll::flags(interest).bits() as i16)
}

impl<M: Mechanism> fmt::Debug for AsLevel<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AsLevel").field(&self.inner).finish()
    }
}

impl<M: Mechanism> Mechanism for AsLevel<M> {
    fn semantics(&self) -> &'static Semantics {
        self.semantics
    }

    unsafe fn declare(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        // SAFETY: the caller fulfils the same requirements.
        unsafe { self.inner.declare(fd, token, interest)? };
        self.cache.register(fd, token, events(interest));
        Ok(())
    }

    unsafe fn declare_exclusive(
        &mut self,
        fd: RawFd,
        token: Token,
        interest: Interest,
    ) -> io::Result<()> {
        // SAFETY: the caller fulfils the same requirements.
        unsafe { self.inner.declare_exclusive(fd, token, interest)? };
        self.cache.register(fd, token, events(interest));
        Ok(())
    }

    unsafe fn change(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        // SAFETY: the caller fulfils the same requirements.
        unsafe { self.inner.change(fd, token, interest)? };
        self.cache.set(token, events(interest));
        Ok(())
    }

    unsafe fn revoke(&mut self, fd: RawFd, token: Token) -> io::Result<()> {
        self.cache.unregister(token);
        // SAFETY: the caller fulfils the same requirements.
        unsafe { self.inner.revoke(fd, token) }
    }

    unsafe fn closing(&mut self, fd: RawFd, token: Token) {
        self.cache.unregister(token);
        // SAFETY: the caller fulfils the same requirements.
        unsafe { self.inner.closing(fd, token) };
    }

    fn would_block(&mut self, fd: RawFd, token: Token, interest: Interest) {
        if !self.one_shot {
            self.cache.would_block(token, poll::flags(interest).bits() as i16); // (d)
        }
        self.inner.would_block(fd, token, interest);
    }

    fn wait(&mut self, max: usize, timeout: Option<Duration>) -> io::Result<usize> {
        let AsLevel { inner, cache, one_shot, .. } = self;
        match self.source {
            Source::State => cache.wait(&mut Inner::<M, true>(inner, *one_shot), max, timeout),
            Source::Hints => cache.wait(&mut Inner::<M, false>(inner, *one_shot), max, timeout),
            Source::Scan(scan) => {
                let hints = &mut Inner::<M, false>(inner, *one_shot);
                cache.wait_scanning(hints, scan, max, timeout)
            }
        }
    }

    fn wait_with_mask(
        &mut self,
        max: usize,
        timeout: Option<Duration>,
        mask: &SignalMask,
    ) -> io::Result<usize> {
        let count = self.wait(max, Some(Duration::ZERO))?;
        if count > 0 {
            return Ok(count);
        }
        // No descriptor was ready, so that only the mechanism can have events.
        for index in 0..self.inner.wait_with_mask(max, timeout, mask)? {
            self.cache.schedule(self.inner.event(index).token, 0);
        }
        self.wait(max, Some(Duration::ZERO))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }

    #[inline]
    fn event(&self, index: usize) -> Event {
        let Some((token, found)) = self.cache.result(index) else {
            return NO_EVENT;
        };
        let found = poll::readiness(PollFlags::from_bits_retain(found as _));
        Event { token, readiness: found & self.semantics.reports }
    }

    fn overflows(&self) -> u64 {
        self.inner.overflows() + self.cache.overflows()
    }

    fn signals(&self) -> u64 {
        self.inner.signals()
    }

    fn calls(&self) -> u64 {
        self.inner.calls() + self.cache.calls()
    }
}
