//! Hearken's mechanisms, through each of the doors that a program may use.

use std::io;
use std::os::fd::OwnedFd;

use hearken::mechanism::{Mechanism, Open, Registry, Trigger, Visitor};
use hearken::{EventQueue, Interest, Registration};

use super::{Door, MAX};
use crate::measure::{Contender, Task, measure};
use crate::pairs::{Writers, take};

/// A registry, which owns its sources.
struct Watched<M: Mechanism> {
    registry: Registry<M, OwnedFd>,
    rearms: bool,
}

impl<M: Mechanism> Watched<M> {
    fn new(mechanism: M, readers: Vec<OwnedFd>) -> io::Result<Watched<M>> {
        let mut registry = Registry::new(mechanism);
        for reader in readers {
            let token = registry.insert(reader);
            registry.declare(token, Interest::READ)?;
        }
        let rearms = registry.semantics().trigger == Trigger::OneShot;
        Ok(Watched { registry, rearms })
    }
}

impl<M: Mechanism> Contender for Watched<M> {
    fn dispatch(&mut self, round: &[u32]) -> io::Result<()> {
        let mut left = round.len();
        while left > 0 {
            for index in 0..self.registry.wait(MAX, None)? {
                let Some(event) = self.registry.event(index) else { continue };
                let Some(reader) = self.registry.get(event.who) else { continue };
                left -= usize::from(take(reader)?);
                if self.rearms {
                    self.registry.declare(event.who, Interest::READ)?;
                }
            }
        }
        Ok(())
    }
}

/// A queue, whose events carry the place of the registration.
struct Queued<M: Mechanism> {
    queue: EventQueue<u32, M>,
    registrations: Vec<Registration<OwnedFd>>,
    rearms: bool,
}

impl<M: Mechanism + 'static> Queued<M> {
    fn new(mechanism: M, readers: Vec<OwnedFd>) -> io::Result<Queued<M>> {
        let queue = EventQueue::over(mechanism)?;
        let mut registrations = Vec::new();
        for (reader, index) in readers.into_iter().zip(0..) {
            registrations.push(queue.declare_interest(reader, Interest::READ, index)?.0);
        }
        let rearms = queue.semantics().trigger == Trigger::OneShot;
        Ok(Queued { queue, registrations, rearms })
    }
}

impl<M: Mechanism + 'static> Contender for Queued<M> {
    fn dispatch(&mut self, round: &[u32]) -> io::Result<()> {
        let mut left = round.len();
        while left > 0 {
            for event in self.queue.next_events(MAX, None)? {
                let registration = &self.registrations[event.who as usize];
                left -= usize::from(take(&**registration)?);
                if self.rearms {
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
        let Measure { version, door, readers, writers, task } = self;
        match door {
            Door::Queue => measure(version, &mut Queued::new(mechanism, readers)?, writers, task),
            Door::Registry | Door::Dyn => {
                measure(version, &mut Watched::new(mechanism, readers)?, writers, task)
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
