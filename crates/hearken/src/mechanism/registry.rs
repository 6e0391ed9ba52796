//! The safe door to a mechanism: a table that owns what it watches.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Duration;

use rustix::io::Errno;

use super::{Mechanism, Semantics};
use crate::event::{Event, Interest, Token};

/// How much was asked of a mechanism, and what came of it. Each only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Waits made.
    pub waits: u64,
    /// Waits that brought no event: timeouts, signals, and waits in vain.
    pub empty_waits: u64,
    /// Events given out.
    pub events: u64,
    /// Events dropped because their registration was gone, or had not asked.
    pub spurious: u64,
    /// Registrations, changes of interest and revocations.
    pub changes: u64,
    /// Times a queue overflowed and was recovered.
    pub overflows: u64,
    /// System calls made: waits, registrations, and what came with them.
    pub calls: u64,
}

/// A mechanism with the sources that it watches.
///
/// # Soundness
/// A mechanism is told the numbers of descriptors, and a number outlives its descriptor: it would
/// come to mean a stranger's. So a source is *owned* here, from [`insert`](Registry::insert)
/// until [`remove`](Registry::remove) or [`close`](Registry::close) give it up, both of which revoke
/// the registration first; it is lent out as `&S` only, and [`AsFd`] binds the descriptor to that
/// borrow, so that nothing in safe code can close or replace it meanwhile. `'static` keeps out
/// sources that merely borrow. Dropping the registry drops the mechanism, and then the sources.
#[derive(Debug)]
pub struct Registry<M: Mechanism, S: AsFd + 'static> {
    // Before the slots, so that it is dropped while they are open.
    mechanism: M,
    slots: Vec<Slot<S>>,
    free: Vec<u32>,
    counters: Counters,
}

#[derive(Debug)]
struct Slot<S> {
    source: Option<S>,
    fd: RawFd,
    generation: u32,
    interest: Interest,
    declared: bool,
    /// Declared as one of several that watch it.
    exclusive: bool,
}

impl<M: Mechanism, S: AsFd + 'static> Registry<M, S> {
    /// An empty registry over `mechanism`.
    pub fn new(mechanism: M) -> Registry<M, S> {
        Registry { mechanism, slots: Vec::new(), free: Vec::new(), counters: Counters::default() }
    }

    /// Makes room for so many more sources: memory that is taken only as it is used.
    pub fn reserve(&mut self, sources: usize) {
        self.slots.reserve_exact(sources);
    }

    /// What holds for the mechanism.
    pub fn semantics(&self) -> &'static Semantics {
        self.mechanism.semantics()
    }

    /// The mechanism, to be asked what only it knows.
    pub fn mechanism(&self) -> &M {
        &self.mechanism
    }

    /// What was counted since it was made.
    pub fn counters(&self) -> Counters {
        let (overflows, calls) = (self.mechanism.overflows(), self.mechanism.calls());
        Counters { overflows, calls, ..self.counters }
    }

    /// How many sources it owns.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// True if it owns none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes a source in, without telling the mechanism yet. Amortised O(1).
    pub fn insert(&mut self, source: S) -> Token {
        let fd = source.as_fd().as_raw_fd();
        let index = self.free.pop().unwrap_or_else(|| {
            let slot = Slot {
                source: None,
                fd: -1,
                generation: 0,
                interest: Interest::empty(),
                declared: false,
                exclusive: false,
            };
            self.slots.push(slot);
            // A descriptor is an i32, so there are never more slots than a u32 counts.
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.source = Some(source);
        slot.fd = fd;
        slot.interest = Interest::empty();
        Token::new(index, slot.generation)
    }

    fn slot(&self, token: Token) -> Option<&Slot<S>> {
        let slot = self.slots.get(token.slot() as usize)?;
        (slot.generation == token.generation()).then_some(slot)
    }

    fn slot_mut(&mut self, token: Token) -> Option<&mut Slot<S>> {
        let slot = self.slots.get_mut(token.slot() as usize)?;
        (slot.generation == token.generation()).then_some(slot)
    }

    /// The token of the source that is in `slot`, if there is one.
    #[inline]
    pub fn token_at(&self, slot: u32) -> Option<Token> {
        let holder = self.slots.get(slot as usize)?;
        holder.source.is_some().then_some(Token::new(slot, holder.generation))
    }

    /// The source called `token`, if it is still here.
    #[inline]
    pub fn get(&self, token: Token) -> Option<&S> {
        self.slot(token)?.source.as_ref()
    }

    /// The interest last declared; empty before that.
    #[inline]
    pub fn interest(&self, token: Token) -> Interest {
        self.slot(token).map_or(Interest::empty(), |slot| slot.interest)
    }

    /// Declares `interest` in a source, or replaces the interest in it. What is ready already is
    /// reported by the next wait. Does nothing where the interest stays what it was, but for
    /// one-shot mechanisms, which it arms again.
    ///
    /// # Errors
    /// `ENOENT` if the token's source is gone; the mechanism's: `EPERM` for a kind of file that
    /// cannot be waited for, `EEXIST` if another source has the same descriptor.
    pub fn declare(&mut self, token: Token, interest: Interest) -> io::Result<()> {
        let rearms = self.mechanism.semantics().trigger == super::Trigger::OneShot;
        let Registry { mechanism, slots, counters, .. } = self;
        let slot = slots
            .get_mut(token.slot() as usize)
            .filter(|slot| slot.generation == token.generation())
            .ok_or(Errno::NOENT)?;
        if !slot.declared {
            // SAFETY: the slot owns the source, whose descriptor this is, until `revoke`.
            unsafe { mechanism.declare(slot.fd, token, interest)? };
            slot.declared = true;
        } else if slot.exclusive && slot.interest != interest {
            // SAFETY: declared under the same token, and owned since.
            unsafe {
                mechanism.revoke(slot.fd, token)?;
                slot.declared = false;
                mechanism.declare_exclusive(slot.fd, token, interest)?;
            }
            slot.declared = true;
        } else if slot.interest != interest || rearms {
            // SAFETY: declared above under the same token, and owned since.
            unsafe { mechanism.change(slot.fd, token, interest)? };
        } else {
            return Ok(());
        }
        slot.interest = interest;
        counters.changes += 1;
        Ok(())
    }

    /// As [`declare`](Registry::declare), for an open file that other instances watch too: see
    /// [`Mechanism::declare_exclusive`].
    ///
    /// # Errors
    /// As [`declare`](Registry::declare); `EEXIST` if it is declared already.
    pub fn declare_exclusive(&mut self, token: Token, interest: Interest) -> io::Result<()> {
        let slot = self.slots.get_mut(token.slot() as usize);
        let slot = slot
            .filter(|slot| slot.generation == token.generation() && slot.source.is_some())
            .ok_or(Errno::NOENT)?;
        if slot.declared {
            return Err(Errno::EXIST.into());
        }
        // SAFETY: the slot owns the source, whose descriptor this is, until `revoke`.
        unsafe { self.mechanism.declare_exclusive(slot.fd, token, interest)? };
        (slot.declared, slot.exclusive, slot.interest) = (true, true, interest);
        self.counters.changes += 1;
        Ok(())
    }

    /// Tells that an operation on the source met `EAGAIN` in the directions of `interest`: see
    /// [`Mechanism::would_block`].
    #[inline]
    pub fn would_block(&mut self, token: Token, interest: Interest) {
        if let Some(slot) = self.slots.get(token.slot() as usize)
            && slot.generation == token.generation()
            && slot.declared
        {
            self.mechanism.would_block(slot.fd, token, interest);
        }
    }

    /// Has the mechanism look at a declared source in every wait, however quiet it is, if it would
    /// not: [`Mechanism::keep_active`].
    pub fn keep_active(&mut self, token: Token) {
        if let Some(fd) = self.slot(token).filter(|slot| slot.declared).map(|slot| slot.fd) {
            self.mechanism.keep_active(fd, token);
        }
    }

    /// Gives the source back, its registration revoked.
    pub fn remove(&mut self, token: Token) -> Option<S> {
        self.release(token, |mechanism, fd| {
            // SAFETY: the slot declared it under this token and still owns it. A refusal
            // would mean that the kernel does not know it, which is what is wanted.
            let _ = unsafe { mechanism.revoke(fd, token) };
        })
    }

    /// Closes the source: the caller promises that there is no duplicate of its open file, so that
    /// the kernel need not be asked to revoke what closing revokes. A promise that is broken makes
    /// for events that are dropped as spurious, with a level-triggered mechanism in every wait, and
    /// for `EEXIST` if the duplicate is declared under the same number.
    pub fn close(&mut self, token: Token) -> bool {
        self.release(token, |mechanism, fd| {
            // SAFETY: the slot declared it under this token, and drops it on return.
            unsafe { mechanism.closing(fd, token) };
        })
        .is_some()
    }

    fn release(&mut self, token: Token, revoke: impl FnOnce(&mut M, RawFd)) -> Option<S> {
        let slot = self.slot_mut(token)?;
        let source = slot.source.take()?;
        let (fd, declared) = (slot.fd, std::mem::take(&mut slot.declared));
        slot.interest = Interest::empty();
        slot.exclusive = false;
        slot.generation = slot.generation.wrapping_add(1);
        if declared {
            revoke(&mut self.mechanism, fd);
            self.counters.changes += 1;
        }
        self.free.push(token.slot());
        Some(source)
    }

    /// Waits as [`Mechanism::wait`] does, and returns how many events the batch may hold.
    ///
    /// # Errors
    /// As [`Mechanism::wait`].
    #[inline]
    pub fn wait(&mut self, max: usize, timeout: Option<Duration>) -> io::Result<usize> {
        self.counters.waits += 1;
        let got = self.mechanism.wait(max, timeout)?;
        self.counters.empty_waits += u64::from(got == 0);
        Ok(got)
    }

    /// The event at `index` of the last batch, unless its registration has gone since, or did not
    /// ask for it.
    #[inline]
    pub fn event(&mut self, index: usize) -> Option<Event> {
        let Event { who, readiness } = self.mechanism.event(index);
        if let Some(slot) = self.slots.get(who.slot() as usize)
            && slot.generation == who.generation()
        {
            let readiness = readiness.answering(slot.interest);
            if !readiness.is_empty() {
                self.counters.events += 1;
                return Some(Event { who, readiness });
            }
        }
        self.count_spurious();
        None
    }

    #[cold]
    fn count_spurious(&mut self) {
        self.counters.spurious += 1;
    }
}
