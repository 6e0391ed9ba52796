//! Level semantics over an edge-triggered or one-shot mechanism.
//!
//! Its traps, and what is done about each:
//!
//! a) Events of a queue of signals or completions are what was so when they were queued, for the
//!    direction that changed. A level is what is so now, in all directions: unless the mechanism
//!    looks when it is asked, as epoll(7) does, each event is looked at before it is reported.
//! b) An empty interest is silence, but poll(2) tells hang-ups without being asked: it is not
//!    looked at.
//! c) A one-shot mechanism gives no further hint, in either direction, until it is armed again. That
//!    is done where a look finds the descriptor not ready, and it answers for what came since.
//! d) A caller who says that an operation would block saves the look. Over a one-shot mechanism it
//!    does not, for the other direction hangs on the look.

use std::os::fd::RawFd;
use std::time::Duration;
use std::{fmt, io};

use rustix::event::PollFlags;

use super::super::cache::{Cache, Hints};
use super::super::{Mechanism, NO_EVENT, Semantics, Trigger, poll};
use super::lasting;
use crate::event::{Event, Interest, Readiness, Token};

/// Level semantics over `M`: what was ready is looked at again, by one poll(2) a wait, until it is
/// not. A wait costs by what is ready, and by what was in the batch before.
pub struct AsLevel<M: Mechanism> {
    inner: M,
    cache: Cache,
    semantics: &'static Semantics,
    believes: bool,
    one_shot: bool,
}

impl<M: Mechanism> AsLevel<M> {
    /// Over any mechanism: what it reports is looked at before it is passed on.
    pub fn new(inner: M) -> AsLevel<M> {
        // Told by poll(2), whatever the mechanism can tell.
        let reports = Readiness::all() - Readiness::IDLE;
        let semantics = Semantics { reports, ..*inner.semantics() };
        AsLevel::with(inner, semantics, false)
    }

    /// Over one whose events say all that is so, as the wait that gives them found it (epoll(7)).
    pub fn believing(inner: M) -> AsLevel<M> {
        let semantics = *inner.semantics();
        AsLevel::with(inner, semantics, true)
    }

    fn with(inner: M, semantics: Semantics, believes: bool) -> AsLevel<M> {
        let one_shot = inner.semantics().trigger == Trigger::OneShot;
        let semantics = Semantics { trigger: Trigger::Level, ..semantics };
        let semantics = lasting(semantics);
        AsLevel { inner, cache: Cache::default(), semantics, believes, one_shot }
    }

    fn collect(&mut self, max: usize, timeout: Option<Duration>) -> io::Result<usize> {
        let AsLevel { inner, cache, one_shot, .. } = self;
        if self.believes {
            cache.wait(&mut Inner::<M, true>(inner, *one_shot), max, timeout)
        } else {
            cache.wait(&mut Inner::<M, false>(inner, *one_shot), max, timeout)
        }
    }
}

/// The mechanism as a source of hints, and whether it is one-shot.
struct Inner<'a, M, const BELIEVED: bool>(&'a mut M, bool);

impl<M: Mechanism, const BELIEVED: bool> Hints for Inner<'_, M, BELIEVED> {
    const BELIEVED: bool = BELIEVED; // (a)

    fn wait(&mut self, max: usize, timeout: Option<Duration>) -> io::Result<usize> {
        self.0.wait(max, timeout)
    }

    #[inline]
    fn hint(&self, index: usize) -> (Token, i16) {
        let Event { who, readiness } = self.0.event(index);
        if !BELIEVED {
            return (who, 0);
        }
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, readiness.is_readable());
        flags.set(PollFlags::OUT, readiness.is_writable());
        flags.set(PollFlags::RDHUP, readiness.contains(Readiness::READ_CLOSED));
        flags.set(PollFlags::HUP, readiness.contains(Readiness::HANGUP));
        flags.set(PollFlags::ERR, readiness.contains(Readiness::ERROR));
        (who, flags.bits() as i16)
    }

    fn cooled(&mut self, fd: RawFd, who: Token, events: i16) -> io::Result<()> {
        if !self.1 {
            return Ok(());
        }
        let asked = PollFlags::from_bits_retain(events as u16);
        let mut interest = Interest::empty();
        interest.set(Interest::READ, asked.contains(PollFlags::IN));
        interest.set(Interest::WRITE, asked.contains(PollFlags::OUT));
        // SAFETY: it is registered under this token, so the caller keeps it open. (c)
        unsafe { self.0.change(fd, who, interest) }
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
        // SAFETY: the caller's promise is passed on.
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
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.declare_exclusive(fd, token, interest)? };
        self.cache.register(fd, token, events(interest));
        Ok(())
    }

    unsafe fn change(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.change(fd, token, interest)? };
        self.cache.set(token, events(interest));
        Ok(())
    }

    unsafe fn revoke(&mut self, fd: RawFd, token: Token) -> io::Result<()> {
        self.cache.forget(token);
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.revoke(fd, token) }
    }

    unsafe fn closing(&mut self, fd: RawFd, token: Token) {
        self.cache.forget(token);
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.closing(fd, token) };
    }

    fn would_block(&mut self, fd: RawFd, token: Token, interest: Interest) {
        if !self.one_shot {
            self.cache.cool(token, poll::flags(interest).bits() as i16); // (d)
        }
        self.inner.would_block(fd, token, interest);
    }

    fn wait(&mut self, max: usize, timeout: Option<Duration>) -> io::Result<usize> {
        match self.collect(max, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            waited => waited,
        }
    }

    #[inline]
    fn event(&self, index: usize) -> Event {
        let Some((who, found)) = self.cache.result(index) else {
            return NO_EVENT;
        };
        let found = poll::readiness(PollFlags::from_bits_retain(found as u16));
        Event { who, readiness: found & self.semantics.reports }
    }

    fn overflows(&self) -> u64 {
        self.inner.overflows()
    }

    fn calls(&self) -> u64 {
        self.inner.calls() + self.cache.calls()
    }
}
