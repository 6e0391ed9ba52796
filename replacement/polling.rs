//! The back end of the crate polling over `hearken::queue::Poller`. `scripts/replace-crates` puts it in
//! place of polling's `epoll.rs`.
//!
//! The poller is level-triggered over any mechanism. A one-shot registration is disabled after its event.

use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use hearken::queue;
use hearken::{Interest, Readiness};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use crate::{Event, PollMode};

/// The set of descriptors, and the mechanism that the environment selects.
#[derive(Debug)]
pub struct Poller {
    poller: queue::Poller,
    /// The descriptor of a mechanism that has none. It is never ready.
    placeholder: Option<OwnedFd>,
    sources: Mutex<HashMap<RawFd, Source>>,
}

#[derive(Debug)]
struct Source {
    key: usize,
    mode: PollMode,
}

impl Poller {
    /// Creates a poller.
    pub fn new() -> io::Result<Poller> {
        let events = std::env::var("HEARKEN_EVENTS").unwrap_or_default();
        let poller = queue::Poller::open_level(&events)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))?;
        if poller.is_bound() {
            let reason = format!("{events} belongs to one thread, and runtimes wait in several");
            return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
        }
        let placeholder = match poller.descriptor() {
            Some(_) => None,
            None => Some(eventfd(0, EventfdFlags::CLOEXEC)?),
        };
        Ok(Poller { poller, placeholder, sources: Mutex::default() })
    }

    /// Returns whether level-triggered events are supported.
    pub fn supports_level(&self) -> bool {
        true
    }

    /// Returns whether edge-triggered events are supported.
    pub fn supports_edge(&self) -> bool {
        false
    }

    /// Adds a descriptor.
    ///
    /// # Safety
    /// The descriptor is deleted before it is closed.
    pub unsafe fn add(&self, fd: RawFd, event: Event, mode: PollMode) -> io::Result<()> {
        let mut sources = self.sources();
        if sources.contains_key(&fd) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.set(&mut sources, fd, event, mode)
    }

    /// Replaces the interest in a descriptor.
    pub fn modify(&self, fd: BorrowedFd<'_>, event: Event, mode: PollMode) -> io::Result<()> {
        let mut sources = self.sources();
        if !sources.contains_key(&fd.as_raw_fd()) {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.set(&mut sources, fd.as_raw_fd(), event, mode)
    }

    /// Removes a descriptor.
    pub fn delete(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.sources().remove(&fd.as_raw_fd()).ok_or(io::ErrorKind::NotFound)?;
        self.poller.remove(fd.as_raw_fd())
    }

    /// Waits for events until the deadline.
    pub fn wait_deadline(&self, events: &mut Events, deadline: Option<Instant>) -> io::Result<()> {
        let timeout = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        // Events are added to those that the list contains.
        let space = events.capacity.saturating_sub(events.list.len());
        self.poller.wait(&mut events.batch, space, timeout, None)?;
        let mut sources = self.sources();
        for event in &events.batch {
            let fd = event.token as RawFd;
            let Some(source) = sources.get_mut(&fd) else { continue };
            let readiness = event.readiness;
            events.list.push(Event {
                key: source.key,
                readable: readiness.is_readable() || readiness.has_priority(),
                writable: readiness.is_writable(),
                extra: EventExtra { readiness },
            });
            if source.mode == PollMode::Oneshot {
                // SAFETY: as in `add`.
                unsafe { self.poller.set(fd, Interest::empty(), event.token)? };
            }
        }
        Ok(())
    }

    /// Ends the current wait, or the next one.
    pub fn notify(&self) -> io::Result<()> {
        self.poller.wake();
        Ok(())
    }

    fn set(
        &self,
        sources: &mut HashMap<RawFd, Source>,
        fd: RawFd,
        event: Event,
        mode: PollMode,
    ) -> io::Result<()> {
        if matches!(mode, PollMode::Edge | PollMode::EdgeOneshot) {
            let reason = "edge-triggered events are not supported over Hearken";
            return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
        }
        let mut interest = Interest::empty();
        interest.set(Interest::READ, event.readable);
        interest.set(Interest::WRITE, event.writable);
        interest.set(Interest::PRIORITY, event.extra.is_pri());
        // SAFETY: as in `add`.
        unsafe { self.poller.set(fd, interest, fd as u64)? };
        sources.insert(fd, Source { key: event.key, mode });
        Ok(())
    }

    fn sources(&self) -> MutexGuard<'_, HashMap<RawFd, Source>> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsRawFd for Poller {
    fn as_raw_fd(&self) -> RawFd {
        let placeholder = self.placeholder.as_ref().map_or(0, AsRawFd::as_raw_fd);
        self.poller.descriptor().unwrap_or(placeholder)
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the poller, or the placeholder, owns it.
        unsafe { BorrowedFd::borrow_raw(self.as_raw_fd()) }
    }
}

/// The events of a wait.
pub struct Events {
    capacity: usize,
    batch: Vec<hearken::Event<u64>>,
    list: Vec<Event>,
}

impl Events {
    /// Creates an empty list.
    pub fn with_capacity(capacity: usize) -> Events {
        Events { capacity, batch: Vec::new(), list: Vec::new() }
    }

    /// Returns an iterator over the events.
    pub fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        self.list.iter().copied()
    }

    /// Clears the list.
    pub fn clear(&mut self) {
        self.list.clear();
    }

    /// Returns the maximum number of events of a wait.
    pub fn capacity(&self) -> usize {
        self.capacity
    }
}

/// The reasons of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventExtra {
    readiness: Readiness,
}

impl EventExtra {
    /// Creates one without reasons.
    pub const fn empty() -> EventExtra {
        EventExtra { readiness: Readiness::empty() }
    }

    /// Sets or clears the hang-up.
    pub fn set_hup(&mut self, active: bool) {
        self.readiness.set(Readiness::HANGUP, active);
    }

    /// Sets or clears priority data.
    pub fn set_pri(&mut self, active: bool) {
        self.readiness.set(Readiness::PRIORITY, active);
    }

    /// Returns whether the connection has ended.
    pub fn is_hup(&self) -> bool {
        self.readiness.contains(Readiness::HANGUP)
    }

    /// Returns whether priority data is available.
    pub fn is_pri(&self) -> bool {
        self.readiness.has_priority()
    }

    /// Returns whether a connect failed.
    pub fn is_connect_failed(&self) -> Option<bool> {
        Some(self.readiness.contains(Readiness::ERROR | Readiness::HANGUP))
    }

    /// Returns whether an error is pending.
    pub fn is_err(&self) -> Option<bool> {
        Some(self.readiness.contains(Readiness::ERROR))
    }
}
