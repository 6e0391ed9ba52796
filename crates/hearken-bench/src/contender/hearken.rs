//! Hearken's mechanisms, through each of the doors that a program may use.

// The bare mechanism is told numbers of descriptors.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use hearken::mechanism::{Mechanism, Open, Registry, Trigger, Visitor};
use hearken::{EventQueue, Interest, Registration, Token};

use super::{Door, MAX};
use crate::measure::{Contender, Task, measure};
use crate::pairs::{Writers, take};

/// The mechanism alone, which is all that mio and polling are: whose a token is, and whether it is
/// stale, is the caller's to know.
struct Bare<M: Mechanism, const REARMS: bool> {
    // Before the readers, so that it is dropped while they are open.
    mechanism: M,
    readers: Vec<OwnedFd>,
}

impl<M: Mechanism, const REARMS: bool> Bare<M, REARMS> {
    fn new(mechanism: M, readers: Vec<OwnedFd>) -> io::Result<Self> {
        let mut bare = Bare { mechanism, readers };
        for (reader, slot) in bare.readers.iter().zip(0..) {
            let token = Token::new(slot, 0);
            // SAFETY: the readers stay open for as long as the mechanism is there.
            unsafe { bare.mechanism.declare(reader.as_raw_fd(), token, Interest::READ)? };
        }
        Ok(bare)
    }
}

impl<M: Mechanism, const REARMS: bool> Contender for Bare<M, REARMS> {
    #[inline]
    fn dispatch(&mut self, round: &[u32]) -> io::Result<()> {
        let mut left = round.len();
        while left > 0 {
            for index in 0..self.mechanism.wait(MAX, None)? {
                let event = self.mechanism.event(index);
                if event.readiness.is_readable() {
                    let reader = &self.readers[event.who.slot() as usize];
                    left -= usize::from(take(reader)?);
                    if REARMS {
                        let fd = reader.as_raw_fd();
                        // SAFETY: declared under this token, and open.
                        unsafe { self.mechanism.change(fd, event.who, Interest::READ)? };
                    }
                }
            }
        }
        Ok(())
    }
}

/// A registry, which owns its sources.
struct Watched<M: Mechanism, const REARMS: bool> {
    registry: Registry<M, OwnedFd>,
}

impl<M: Mechanism, const REARMS: bool> Watched<M, REARMS> {
    fn new(mechanism: M, readers: Vec<OwnedFd>) -> io::Result<Self> {
        let mut registry = Registry::new(mechanism);
        for reader in readers {
            let token = registry.insert(reader);
            registry.declare(token, Interest::READ)?;
        }
        Ok(Watched { registry })
    }
}

impl<M: Mechanism, const REARMS: bool> Contender for Watched<M, REARMS> {
    #[inline]
    fn dispatch(&mut self, round: &[u32]) -> io::Result<()> {
        let mut left = round.len();
        while left > 0 {
            for index in 0..self.registry.wait(MAX, None)? {
                let Some(event) = self.registry.event(index) else { continue };
                let Some(reader) = self.registry.get(event.who) else { continue };
                left -= usize::from(take(reader)?);
                if REARMS {
                    self.registry.declare(event.who, Interest::READ)?;
                }
            }
        }
        Ok(())
    }
}

/// A queue, whose events carry the place of the registration.
struct Queued<M: Mechanism, const REARMS: bool> {
    queue: EventQueue<u32, M>,
    registrations: Vec<Registration<OwnedFd>>,
}

impl<M: Mechanism + 'static, const REARMS: bool> Queued<M, REARMS> {
    fn new(mechanism: M, readers: Vec<OwnedFd>) -> io::Result<Self> {
        let queue = EventQueue::over(mechanism)?;
        let mut registrations = Vec::new();
        for (reader, index) in readers.into_iter().zip(0..) {
            registrations.push(queue.declare_interest(reader, Interest::READ, index)?.0);
        }
        Ok(Queued { queue, registrations })
    }
}

impl<M: Mechanism + 'static, const REARMS: bool> Contender for Queued<M, REARMS> {
    #[inline]
    fn dispatch(&mut self, round: &[u32]) -> io::Result<()> {
        let mut left = round.len();
        while left > 0 {
            for event in self.queue.next_events(MAX, None)? {
                let registration = &self.registrations[event.who as usize];
                left -= usize::from(take(&**registration)?);
                if REARMS {
                    registration.change_interest(Interest::READ)?;
                }
            }
        }
        Ok(())
    }
}

/// Measures whichever mechanism it is given.
pub(super) struct Measure<'a> {
    pub(super) version: &'a str,
    pub(super) door: Door,
    pub(super) readers: Vec<OwnedFd>,
    pub(super) writers: &'a mut Writers,
    pub(super) task: &'a Task,
}

impl Measure<'_> {
    pub(super) fn run<M: Mechanism + 'static>(self, mechanism: M) -> io::Result<()> {
        match mechanism.semantics().trigger {
            Trigger::OneShot => self.through::<M, true>(mechanism),
            Trigger::Level | Trigger::Edge => self.through::<M, false>(mechanism),
        }
    }

    /// Compiled with or without arming again, so that those who need not do not ask.
    fn through<M: Mechanism + 'static, const REARMS: bool>(self, mechanism: M) -> io::Result<()> {
        let Measure { version, door, readers, writers, task } = self;
        match door {
            Door::Bare => {
                let mut bare = Bare::<M, REARMS>::new(mechanism, readers)?;
                measure(version, &mut bare, writers, task)
            }
            Door::Registry | Door::Dyn => {
                let mut watched = Watched::<M, REARMS>::new(mechanism, readers)?;
                measure(version, &mut watched, writers, task)
            }
            Door::Queue => {
                let mut queued = Queued::<M, REARMS>::new(mechanism, readers)?;
                measure(version, &mut queued, writers, task)
            }
        }
    }
}

impl Visitor for Measure<'_> {
    type Output = io::Result<()>;

    fn visit<M: Open>(self, mechanism: M) -> io::Result<()> {
        self.run(mechanism)
    }
}
