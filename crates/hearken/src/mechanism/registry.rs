//! The safe interface to a mechanism: a table that owns the sources it watches.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Duration;

use rustix::io::Errno;

use super::{Mechanism, Semantics, SignalMask};
use crate::event::{Event, Interest, Readiness, Token};

/// Counters of the calls of a mechanism and their results. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Waits.
    pub waits: u64,
    /// Waits without events: timeouts, signals and early returns.
    pub empty_waits: u64,
    /// Events returned.
    pub events: u64,
    /// Events dropped because their registration had ended or its interest did not include them.
    pub spurious: u64,
    /// Registrations, changes of interest and revocations.
    pub changes: u64,
    /// Queue overflows.
    pub overflows: u64,
    /// Signals taken from the kernel's queue.
    pub signals: u64,
    /// System calls: waits, registrations and auxiliary calls.
    pub calls: u64,
}

/// Something that a mechanism watches: a type with a descriptor.
///
/// Implemented for all types that implement [`AsFd`], and in this crate only.
pub trait Source: sealed::Sealed {
    /// Returns the number by which the mechanism knows the source: that of its descriptor. The
    /// number of a simulated socket means something to the simulated mechanism only.
    fn raw(&self) -> RawFd;
}

pub(crate) mod sealed {
    /// Prevents implementations in other crates, whose numbers might not be open descriptors.
    pub trait Sealed {}
}

impl<S: AsFd + ?Sized> sealed::Sealed for S {}

impl<S: AsFd + ?Sized> Source for S {
    #[inline]
    fn raw(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// A mechanism and the sources that it watches.
///
/// ```
/// use hearken::mechanism::{Registry, find};
/// use hearken::{Interest, Readiness};
/// use std::io::Write;
/// use std::os::unix::net::UnixStream;
/// use std::time::Duration;
///
/// let mut registry = Registry::new(find("epoll-level")?.open()?);
/// let (mut writer, reader) = UnixStream::pair()?;
/// let token = registry.insert(reader);
/// registry.declare(token, Interest::READ)?;
///
/// writer.write_all(b"x")?;
/// let count = registry.wait(64, Some(Duration::from_secs(1)))?;
/// let events: Vec<_> = (0..count).filter_map(|index| registry.event(index)).collect();
/// assert_eq!(events[0].token, token);
/// assert_eq!(events[0].readiness, Readiness::READABLE);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Soundness
/// A mechanism receives descriptor numbers. A number outlives its descriptor and may later refer to
/// an unrelated file. The registry therefore *owns* a source from [`insert`](Registry::insert)
/// until [`remove`](Registry::remove) or [`close`](Registry::close), which revoke the registration
/// first. It lends the source only as `&S`. [`AsFd`] ties the descriptor to that borrow, so safe
/// code cannot close or replace it in the meantime. `'static` excludes sources that borrow their
/// descriptor. Dropping the registry drops the mechanism before the sources.
#[derive(Debug)]
pub struct Registry<M: Mechanism, S: Source + 'static> {
    // Declared before the slots, so that it is dropped while they are open.
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
    /// Whether it was registered by `declare_exclusive`.
    exclusive: bool,
}

impl<M: Mechanism, S: Source + 'static> Registry<M, S> {
    /// Creates an empty registry over `mechanism`.
    pub fn new(mechanism: M) -> Registry<M, S> {
        Registry { mechanism, slots: Vec::new(), free: Vec::new(), counters: Counters::default() }
    }

    /// Reserves address space for `sources` more sources. Memory is committed only when used.
    pub fn reserve(&mut self, sources: usize) {
        self.slots.reserve_exact(sources);
    }

    /// Returns the properties of the mechanism.
    pub fn semantics(&self) -> &'static Semantics {
        self.mechanism.semantics()
    }

    /// Returns the mechanism.
    pub fn mechanism(&self) -> &M {
        &self.mechanism
    }

    /// Returns the counters since the creation of the registry.
    pub fn counters(&self) -> Counters {
        Counters {
            overflows: self.mechanism.overflows(),
            signals: self.mechanism.signals(),
            calls: self.mechanism.calls(),
            ..self.counters
        }
    }

    /// Returns the number of sources.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns whether there are no sources.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a source without registering it with the mechanism. Amortised O(1).
    pub fn insert(&mut self, source: S) -> Token {
        let fd = source.raw();
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
            // A descriptor is an i32, so the number of slots fits in a u32.
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

    /// Returns the token of the source in `slot`, if there is one.
    #[inline]
    pub fn token_at(&self, slot: u32) -> Option<Token> {
        let entry = self.slots.get(slot as usize)?;
        entry.source.is_some().then_some(Token::new(slot, entry.generation))
    }

    /// Returns the source of `token`, unless it was removed.
    #[inline]
    pub fn get(&self, token: Token) -> Option<&S> {
        self.slot(token)?.source.as_ref()
    }

    /// Returns the declared interest, or an empty interest if there is none.
    #[inline]
    pub fn interest(&self, token: Token) -> Interest {
        self.slot(token).map_or(Interest::empty(), |slot| slot.interest)
    }

    /// Declares or replaces the interest in a source. The next wait reports conditions that already
    /// hold. If the interest is unchanged, the call only rearms the source of a one-shot mechanism.
    ///
    /// # Errors
    /// `ENOENT` if the source of the token was removed. `EPERM` for a kind of file that cannot be
    /// watched. `EEXIST` if another source has the same descriptor. `EOPNOTSUPP` for priority data
    /// that the mechanism does not [report](Semantics::reports). Other errors of the mechanism.
    pub fn declare(&mut self, token: Token, interest: Interest) -> io::Result<()> {
        let semantics = self.mechanism.semantics();
        if interest.contains(Interest::PRIORITY) && !semantics.reports.has_priority() {
            return Err(Errno::OPNOTSUPP.into());
        }
        let rearms = semantics.trigger == super::Trigger::OneShot;
        let Registry { mechanism, slots, counters, .. } = self;
        let slot = slots
            .get_mut(token.slot() as usize)
            .filter(|slot| slot.generation == token.generation())
            .ok_or(Errno::NOENT)?;
        if !slot.declared {
            // SAFETY: the slot owns the source of this descriptor until `revoke`.
            unsafe { mechanism.declare(slot.fd, token, interest)? };
            slot.declared = true;
        } else if slot.exclusive && slot.interest != interest {
            // SAFETY: it was declared under this token, and the slot still owns it.
            unsafe {
                mechanism.revoke(slot.fd, token)?;
                slot.declared = false;
                mechanism.declare_exclusive(slot.fd, token, interest)?;
            }
            slot.declared = true;
        } else if slot.interest != interest || rearms {
            // SAFETY: it was declared under this token, and the slot still owns it.
            unsafe { mechanism.change(slot.fd, token, interest)? };
        } else {
            return Ok(());
        }
        slot.interest = interest;
        counters.changes += 1;
        Ok(())
    }

    /// Declares interest in an open file that other instances watch too: see
    /// [`Mechanism::declare_exclusive`]. Changes the interest if it was declared like this before.
    ///
    /// # Errors
    /// The errors of [`declare`](Registry::declare). `EEXIST` if interest was declared by
    /// [`declare`](Registry::declare). `EINVAL` for priority data, as in epoll(7).
    pub fn declare_exclusive(&mut self, token: Token, interest: Interest) -> io::Result<()> {
        if interest.contains(Interest::PRIORITY) {
            return Err(Errno::INVAL.into());
        }
        let slot = self.slots.get_mut(token.slot() as usize);
        let slot = slot
            .filter(|slot| slot.generation == token.generation() && slot.source.is_some())
            .ok_or(Errno::NOENT)?;
        if slot.declared && slot.exclusive {
            return self.declare(token, interest);
        }
        if slot.declared {
            return Err(Errno::EXIST.into());
        }
        // SAFETY: the slot owns the source of this descriptor until `revoke`.
        unsafe { self.mechanism.declare_exclusive(slot.fd, token, interest)? };
        (slot.declared, slot.exclusive, slot.interest) = (true, true, interest);
        self.counters.changes += 1;
        Ok(())
    }

    /// Reports that an operation on the source returned `EAGAIN` in the directions of `interest`:
    /// see [`Mechanism::would_block`].
    #[inline]
    pub fn would_block(&mut self, token: Token, interest: Interest) {
        if let Some(slot) = self.slots.get(token.slot() as usize)
            && slot.generation == token.generation()
            && slot.declared
        {
            self.mechanism.would_block(slot.fd, token, interest);
        }
    }

    /// Makes the mechanism check a declared source in every wait: see [`Mechanism::keep_active`].
    pub fn keep_active(&mut self, token: Token) {
        if let Some(fd) = self.slot(token).filter(|slot| slot.declared).map(|slot| slot.fd) {
            self.mechanism.keep_active(fd, token);
        }
    }

    /// Revokes the registration of a source, which stays in the registry without interest.
    ///
    /// # Errors
    /// `ENOENT` if no interest is declared. Other errors of the mechanism.
    pub fn revoke(&mut self, token: Token) -> io::Result<()> {
        let Registry { mechanism, slots, counters, .. } = self;
        let slot = slots
            .get_mut(token.slot() as usize)
            .filter(|slot| slot.generation == token.generation() && slot.declared)
            .ok_or(Errno::NOENT)?;
        (slot.declared, slot.exclusive, slot.interest) = (false, false, Interest::empty());
        counters.changes += 1;
        // SAFETY: the slot declared it under this token, and still owns it.
        unsafe { mechanism.revoke(slot.fd, token) }
    }

    /// Revokes the registration and returns the source.
    pub fn remove(&mut self, token: Token) -> Option<S> {
        self.release(token, |mechanism, fd| {
            // SAFETY: the slot declared it under this token and still owns it. An error would mean
            // that the kernel does not know the descriptor, which is the desired state.
            let _ = unsafe { mechanism.revoke(fd, token) };
        })
    }

    /// Closes the source and returns whether it existed. The caller ensures that its open file has
    /// no duplicate, so that the mechanism can leave the revocation to the kernel.
    ///
    /// If there is a duplicate, its events are dropped as spurious, with a level-triggered
    /// mechanism in every wait. Declaring it under the same number fails with `EEXIST`.
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

    /// Waits as [`Mechanism::wait`] does and returns the number of events in the batch.
    ///
    /// # Errors
    /// The errors of [`Mechanism::wait`], among them `EINTR` after a signal handler.
    #[inline]
    pub fn wait(&mut self, max: usize, timeout: Option<Duration>) -> io::Result<usize> {
        self.counters.waits += 1;
        let waited = self.mechanism.wait(max, timeout);
        self.counters.empty_waits += u64::from(!matches!(waited, Ok(1..)));
        waited
    }

    /// Waits like [`wait`](Registry::wait), with `mask` in place of the thread's signal mask: see
    /// [`Mechanism::wait_with_mask`].
    ///
    /// # Errors
    /// The errors of [`Mechanism::wait_with_mask`].
    pub fn wait_with_mask(
        &mut self,
        max: usize,
        timeout: Option<Duration>,
        mask: &SignalMask,
    ) -> io::Result<usize> {
        self.counters.waits += 1;
        let waited = self.mechanism.wait_with_mask(max, timeout, mask);
        self.counters.empty_waits += u64::from(!matches!(waited, Ok(1..)));
        waited
    }

    /// Returns the event at `index` of the last batch. `None` if its registration has ended or its
    /// interest does not include the event.
    #[inline]
    pub fn event(&mut self, index: usize) -> Option<Event> {
        let Event { token, readiness } = self.mechanism.event(index);
        if let Some(slot) = self.slots.get(token.slot() as usize)
            && slot.generation == token.generation()
        {
            let requested = readiness.requested_by(slot.interest);
            if !requested.is_empty() {
                self.counters.events += 1;
                return Some(Event { token, readiness: requested });
            }
            let readiness = readiness.endings_for(slot.interest);
            return self.unrequested(Event { token, readiness });
        }
        self.unrequested(Event { token, readiness: Readiness::empty() })
    }

    /// Returns an event with an error or a hang-up for an interest in priority data, and counts another
    /// one as spurious.
    #[cold]
    fn unrequested(&mut self, event: Event) -> Option<Event> {
        if event.readiness.is_empty() {
            self.counters.spurious += 1;
            return None;
        }
        self.counters.events += 1;
        Some(event)
    }
}

#[cfg(test)]
mod memory_tests;
