//! Edge semantics over a level-triggered or one-shot mechanism.
//!
//! Its traps, and what is done about each:
//!
//! a) The level does not show that more has arrived on top of what is there. A direction that was
//!    reported is silent until the caller says that it is used up, or changes the interest;
//!    what is so then is reported, which is all that has come since.
//! b) A direction that was reported and is still so would wake every wait. Interest in it is taken
//!    back, but only at the next wait: a caller who has said by then that it is used up, as a rule
//!    all, pays for no change.
//! c) `would_block` makes no system call: what is to be armed again is, at the next wait, and
//!    answers for what is ready.
//! d) A hang-up is reported for both directions though one was asked for; both are then silent.
//! e) One-shot mechanisms disarm both directions with any event; what was not reported is armed again
//!    at the next wait.
//! f) A change may be refused in the middle of a wait. What was not done is kept, and done by
//!    the next.

use std::os::fd::RawFd;
use std::time::Duration;
use std::{fmt, io};

use rustix::io::Errno;

use super::super::{Mechanism, NO_EVENT, Semantics, Trigger};
use super::lasting;
use crate::event::{Event, Interest, Token};

/// Edge semantics over `M`, for a caller who tells it by
/// [`would_block`](Mechanism::would_block) what is used up.
///
/// A direction is reported once; then it is silent until the caller has told that an operation in it
/// would block, or has changed the interest, and reported again if it is ready then. A caller who
/// stops at a short read, as the trait allows, tells that too: it would block, had it been
/// tried. One who never tells hears of each direction once.
pub struct AsEdge<M: Mechanism> {
    inner: M,
    semantics: &'static Semantics,
    one_shot: bool,
    /// By the slot of the token.
    slots: Vec<Slot>,
    /// Slots whose interest may have to be changed before the next wait.
    due: Vec<u32>,
    batch: Vec<Event>,
}

#[derive(Clone, Copy)]
struct Slot {
    token: Token,
    /// Negative where nothing is registered.
    fd: RawFd,
    asked: Interest,
    /// What the mechanism was told.
    armed: Interest,
    /// What was reported and not used up.
    said: Interest,
    /// In `due`.
    is_due: bool,
}

const VACANT: Slot = Slot {
    token: Token::from_bits(u64::MAX),
    fd: -1,
    asked: Interest::empty(),
    armed: Interest::empty(),
    said: Interest::empty(),
    is_due: false,
};

impl<M: Mechanism> AsEdge<M> {
    /// Over any mechanism that is level-triggered or one-shot.
    pub fn new(inner: M) -> AsEdge<M> {
        let trigger = inner.semantics().trigger;
        let semantics =
            Semantics { trigger: Trigger::Edge, needs_told: true, ..*inner.semantics() };
        AsEdge {
            inner,
            semantics: lasting(semantics),
            one_shot: trigger == Trigger::OneShot,
            slots: Vec::new(),
            due: Vec::new(),
            batch: Vec::new(),
        }
    }

    fn slot(&mut self, token: Token) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(token.slot() as usize)?;
        (slot.token == token && slot.fd >= 0).then_some(slot)
    }

    fn register(&mut self, fd: RawFd, token: Token, interest: Interest) {
        let index = token.slot() as usize;
        if index >= self.slots.len() {
            self.slots.resize(index + 1, VACANT);
        }
        let is_due = self.slots[index].is_due;
        self.slots[index] =
            Slot { token, fd, asked: interest, armed: interest, said: Interest::empty(), is_due };
    }

    fn forget(&mut self, token: Token) {
        if let Some(slot) = self.slot(token) {
            *slot = Slot { is_due: slot.is_due, ..VACANT };
        }
    }

    /// Has the mechanism asked for what was not reported yet, or was used up since.
    fn settle(&mut self) -> io::Result<()> {
        while let Some(&index) = self.due.last() {
            let slot = &mut self.slots[index as usize];
            let wanted = slot.asked - slot.said;
            if slot.fd >= 0 && wanted != slot.armed {
                // SAFETY: it is registered under this token, so the caller keeps it open.
                unsafe { self.inner.change(slot.fd, slot.token, wanted)? }; // (f)
                slot.armed = wanted;
            }
            slot.is_due = false;
            self.due.pop();
        }
        Ok(())
    }
}

impl<M: Mechanism> fmt::Debug for AsEdge<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AsEdge").field(&self.inner).finish()
    }
}

impl<M: Mechanism> Mechanism for AsEdge<M> {
    fn semantics(&self) -> &'static Semantics {
        self.semantics
    }

    unsafe fn declare(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.declare(fd, token, interest)? };
        self.register(fd, token, interest);
        Ok(())
    }

    unsafe fn declare_exclusive(
        &mut self,
        fd: RawFd,
        token: Token,
        interest: Interest,
    ) -> io::Result<()> {
        // What is silenced and armed again has to be changed, and what is exclusive cannot be.
        // SAFETY: the caller's promise is passed on.
        unsafe { self.declare(fd, token, interest) }
    }

    unsafe fn change(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        let one_shot = self.one_shot;
        let armed = self.slot(token).ok_or(Errno::NOENT)?.armed;
        if armed != interest || one_shot {
            // SAFETY: the caller's promise is passed on.
            unsafe { self.inner.change(fd, token, interest)? };
        }
        if let Some(slot) = self.slot(token) {
            (slot.asked, slot.armed, slot.said) = (interest, interest, Interest::empty());
        }
        Ok(())
    }

    unsafe fn revoke(&mut self, fd: RawFd, token: Token) -> io::Result<()> {
        self.forget(token);
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.revoke(fd, token) }
    }

    unsafe fn closing(&mut self, fd: RawFd, token: Token) {
        self.forget(token);
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.closing(fd, token) };
    }

    fn would_block(&mut self, _fd: RawFd, token: Token, interest: Interest) {
        let Some(slot) = self.slot(token) else { return };
        if !slot.said.intersects(interest) {
            return;
        }
        slot.said -= interest;
        if !std::mem::replace(&mut slot.is_due, true) {
            self.due.push(token.slot()); // (c)
        }
    }

    fn wait(&mut self, max: usize, timeout: Option<Duration>) -> io::Result<usize> {
        self.batch.clear();
        self.settle()?; // (b)
        for index in 0..self.inner.wait(max, timeout)? {
            let Event { who, readiness } = self.inner.event(index);
            let one_shot = self.one_shot;
            let Some(slot) = self.slot(who) else { continue };
            if one_shot {
                slot.armed = Interest::empty(); // (e)
            }
            let readiness = readiness.answering(slot.asked);
            let found = Interest::from_bits_truncate(readiness.bits());
            let is_new = !slot.said.contains(found);
            slot.said |= found; // (d)
            if !std::mem::replace(&mut slot.is_due, true) {
                self.due.push(who.slot());
            }
            if is_new {
                self.batch.push(Event { who, readiness });
            }
        }
        Ok(self.batch.len())
    }

    #[inline]
    fn event(&self, index: usize) -> Event {
        self.batch.get(index).copied().unwrap_or(NO_EVENT)
    }

    fn overflows(&self) -> u64 {
        self.inner.overflows()
    }

    fn calls(&self) -> u64 {
        self.inner.calls()
    }
}
