//! Hearken's mechanisms, used through each of its APIs.

// The mechanism trait takes measurement descriptors.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use hearken::mechanism::{Mechanism, Open, Registry, Trigger, Visitor};
use hearken::queue::Poller;
use hearken::{Event, EventQueue, Interest, Registration, Token};

use super::{Api, MAX_EVENTS};
use crate::measure::{Dispatcher, Task, measure};
use crate::pairs::{Writers, read_byte};

/// The mechanism itself, which is comparable to mio and polling: the caller maps tokens to sources and
/// detects stale events.
struct MechanismOnly<M: Mechanism, const REARMS: bool> {
    // Declared before the readers, so that it is dropped while they are open.
    mechanism: M,
    readers: Vec<OwnedFd>,
}

impl<M: Mechanism, const REARMS: bool> MechanismOnly<M, REARMS> {
    fn new(mechanism: M, readers: Vec<OwnedFd>) -> io::Result<Self> {
        let mut bare = MechanismOnly { mechanism, readers };
        for (reader, slot) in bare.readers.iter().zip(0..) {
            let token = Token::new(slot, 0);
            // SAFETY: the readers stay open while the mechanism exists.
            unsafe { bare.mechanism.declare(reader.as_raw_fd(), token, Interest::READ)? };
        }
        Ok(bare)
    }
}

impl<M: Mechanism, const REARMS: bool> Dispatcher for MechanismOnly<M, REARMS> {
    #[inline]
    fn dispatch(&mut self, round: &[u32]) -> io::Result<()> {
        let mut remaining = round.len();
        while remaining > 0 {
            for index in 0..self.mechanism.wait(MAX_EVENTS, None)? {
                let event = self.mechanism.event(index);
                if event.readiness.is_readable() {
                    let reader = &self.readers[event.token.slot() as usize];
                    remaining -= usize::from(read_byte(reader)?);
                    if REARMS {
                        let fd = reader.as_raw_fd();
                        // SAFETY: the descriptor is declared with this token and open.
                        unsafe { self.mechanism.change(fd, event.token, Interest::READ)? };
                    }
                }
            }
        }
        Ok(())
    }
}

/// A registry, which owns its sources.
struct WithRegistry<M: Mechanism, const REARMS: bool> {
    registry: Registry<M, OwnedFd>,
}

impl<M: Mechanism, const REARMS: bool> WithRegistry<M, REARMS> {
    fn new(mechanism: M, readers: Vec<OwnedFd>) -> io::Result<Self> {
        let mut registry = Registry::new(mechanism);
        for reader in readers {
            let token = registry.insert(reader);
            registry.declare(token, Interest::READ)?;
        }
        Ok(WithRegistry { registry })
    }
}

impl<M: Mechanism, const REARMS: bool> Dispatcher for WithRegistry<M, REARMS> {
    #[inline]
    fn dispatch(&mut self, round: &[u32]) -> io::Result<()> {
        let mut remaining = round.len();
        while remaining > 0 {
            for index in 0..self.registry.wait(MAX_EVENTS, None)? {
                let Some(event) = self.registry.event(index) else { continue };
                let Some(reader) = self.registry.get(event.token) else { continue };
                remaining -= usize::from(read_byte(reader)?);
                if REARMS {
                    self.registry.declare(event.token, Interest::READ)?;
                }
            }
        }
        Ok(())
    }
}

/// An event queue whose payload is the index of the registration.
struct WithQueue<M: Mechanism, const REARMS: bool> {
    queue: EventQueue<u32, M>,
    registrations: Vec<Registration<OwnedFd>>,
}

impl<M: Mechanism + 'static, const REARMS: bool> WithQueue<M, REARMS> {
    fn new(mechanism: M, readers: Vec<OwnedFd>) -> io::Result<Self> {
        let queue = EventQueue::with_mechanism(mechanism)?;
        let mut registrations = Vec::new();
        for (reader, index) in readers.into_iter().zip(0..) {
            registrations.push(queue.declare_interest(reader, Interest::READ, index)?.0);
        }
        Ok(WithQueue { queue, registrations })
    }
}

impl<M: Mechanism + 'static, const REARMS: bool> Dispatcher for WithQueue<M, REARMS> {
    #[inline]
    fn dispatch(&mut self, round: &[u32]) -> io::Result<()> {
        let mut remaining = round.len();
        while remaining > 0 {
            for event in self.queue.next_events(MAX_EVENTS, None)? {
                let registration = &self.registrations[event.token as usize];
                remaining -= usize::from(read_byte(&**registration)?);
                if REARMS {
                    registration.change_interest(Interest::READ)?;
                }
            }
        }
        Ok(())
    }
}

/// A poller, whose payload is the index of the reader.
struct WithPoller {
    // Declared before the readers, so that it is dropped while they are open.
    poller: Poller,
    readers: Vec<OwnedFd>,
    rearms: bool,
    events: Vec<Event<u64>>,
}

impl WithPoller {
    fn set(&self, index: u64) -> io::Result<()> {
        let fd = self.readers[index as usize].as_raw_fd();
        // SAFETY: the readers stay open while the poller exists.
        unsafe { self.poller.set(fd, Interest::READ, index) }
    }
}

impl Dispatcher for WithPoller {
    #[inline]
    fn dispatch(&mut self, round: &[u32]) -> io::Result<()> {
        let mut remaining = round.len();
        while remaining > 0 {
            self.poller.wait(&mut self.events, MAX_EVENTS, None, None)?;
            for event in &self.events {
                remaining -= usize::from(read_byte(&self.readers[event.token as usize])?);
                if self.rearms {
                    self.set(event.token)?;
                }
            }
        }
        Ok(())
    }
}

/// A visitor that measures the mechanism it receives.
pub(super) struct Measure<'a> {
    pub(super) version: &'a str,
    pub(super) api: Api,
    pub(super) readers: Vec<OwnedFd>,
    pub(super) writers: &'a mut Writers,
    pub(super) task: &'a Task,
}

impl Measure<'_> {
    /// Measures a poller over the mechanism with this name.
    pub(super) fn run_poller(self, spec: &str) -> io::Result<()> {
        let Measure { version, readers, writers, task, .. } = self;
        let poller = Poller::open(spec).map_err(io::Error::other)?;
        let rearms = poller.semantics().trigger == Trigger::OneShot;
        let mut contender = WithPoller { poller, readers, rearms, events: Vec::new() };
        for index in 0..contender.readers.len() as u64 {
            contender.set(index)?;
        }
        measure(version, &mut contender, writers, task)
    }

    pub(super) fn run<M: Mechanism + 'static>(self, mechanism: M) -> io::Result<()> {
        match mechanism.semantics().trigger {
            Trigger::OneShot => self.run_with::<M, true>(mechanism),
            Trigger::Level | Trigger::Edge => self.run_with::<M, false>(mechanism),
        }
    }

    /// Measures with `REARMS` as a constant, so that other triggers do not pay for the check.
    fn run_with<M: Mechanism + 'static, const REARMS: bool>(self, mechanism: M) -> io::Result<()> {
        let Measure { version, api, readers, writers, task } = self;
        match api {
            Api::Bare => {
                let mut bare = MechanismOnly::<M, REARMS>::new(mechanism, readers)?;
                measure(version, &mut bare, writers, task)
            }
            Api::Registry | Api::Dyn => {
                let mut contender = WithRegistry::<M, REARMS>::new(mechanism, readers)?;
                measure(version, &mut contender, writers, task)
            }
            Api::Queue | Api::Poller => {
                let mut contender = WithQueue::<M, REARMS>::new(mechanism, readers)?;
                measure(version, &mut contender, writers, task)
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
