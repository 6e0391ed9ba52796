//! mio's selector over `hearken::queue::Poller`. `scripts/replace-crates` puts it in place of mio's
//! `selector/epoll.rs`.
//!
//! mio promises edges. Level-triggered mechanisms would repeat an event until the program has read
//! or written, so that the directions of an event are disabled after it. Every operation on the
//! source enables them again. A `SourceFd` performs its operations unseen. Its events are repeated.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hearken::mechanism::Trigger;
use hearken::queue::Poller;
use hearken::{Interest as Directions, Readiness};

use crate::{Interest, Token};

/// The next id for use as `SelectorId`.
static NEXT_ID: AtomicUsize = AtomicUsize::new(1);

#[derive(Debug, Clone)]
pub struct Selector(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    id: usize,
    poller: Poller,
    is_edge: bool,
    /// The descriptor of a mechanism that has none. It is never ready.
    placeholder: Option<OwnedFd>,
    sources: Mutex<HashMap<RawFd, Source>>,
    /// The token of a waker that was used.
    woken: Mutex<Option<Token>>,
    /// The events of a wait, whose memory the next wait uses again.
    batch: Mutex<Vec<hearken::Event<u64>>>,
}

#[derive(Debug)]
struct Source {
    token: Token,
    interest: Directions,
    /// The directions that the mechanism watches now.
    enabled: Directions,
    /// Whether operations on the source enable its directions again.
    is_tracked: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens the mechanism that the environment selects.
fn open() -> io::Result<Poller> {
    let events = std::env::var("HEARKEN_EVENTS").unwrap_or_default();
    let poller = Poller::open(&events).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))?;
    if poller.is_bound() {
        let reason = format!("{events} belongs to one thread, and runtimes wait in several");
        return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
    }
    Ok(poller)
}

impl Selector {
    pub fn new() -> io::Result<Selector> {
        let poller = open()?;
        let placeholder = match poller.descriptor() {
            Some(_) => None,
            None => {
                let fd = syscall!(eventfd(0, libc::EFD_CLOEXEC))?;
                // SAFETY: the kernel has just created it.
                Some(unsafe { OwnedFd::from_raw_fd(fd) })
            }
        };
        Ok(Selector(Arc::new(Shared {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            is_edge: poller.semantics().trigger == Trigger::Edge,
            poller,
            placeholder,
            sources: Mutex::default(),
            woken: Mutex::default(),
            batch: Mutex::default(),
        })))
    }

    pub fn try_clone(&self) -> io::Result<Selector> {
        Ok(self.clone())
    }

    pub fn select(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        let shared = &*self.0;
        events.clear();
        let mut batch = std::mem::take(&mut *lock(&shared.batch));
        let waited = shared.poller.wait(&mut batch, events.capacity(), timeout, None);
        let mut sources = lock(&shared.sources);
        for event in &batch {
            let fd = event.token as RawFd;
            let Some(source) = sources.get_mut(&fd) else { continue };
            events.push(Event { token: source.token, readiness: event.readiness });
            if !shared.is_edge && source.is_tracked {
                let reported = Directions::from_bits_truncate(event.readiness.bits());
                let enabled = source.enabled.difference(reported);
                // SAFETY: sources are deregistered before they are closed.
                unsafe { shared.poller.set(fd, enabled, event.token)? };
                source.enabled = enabled;
            }
        }
        drop(sources);
        *lock(&shared.batch) = batch;
        if let Some(token) = lock(&shared.woken).take() {
            events.push(Event { token, readiness: Readiness::READABLE });
        }
        // A signal may end a wait during which a waker was used.
        if events.is_empty() { waited } else { Ok(()) }
    }

    pub fn register(&self, fd: RawFd, token: Token, interests: Interest) -> io::Result<()> {
        self.insert(fd, token, interests, false)
    }

    fn insert(&self, fd: RawFd, token: Token, interests: Interest, is_tracked: bool) -> io::Result<()> {
        let mut sources = lock(&self.0.sources);
        if sources.contains_key(&fd) {
            return Err(io::Error::from_raw_os_error(libc::EEXIST));
        }
        let interest = directions(interests);
        // SAFETY: as in `select`.
        unsafe { self.0.poller.set(fd, interest, fd as u64)? };
        sources.insert(fd, Source { token, interest, enabled: interest, is_tracked });
        Ok(())
    }

    pub fn reregister(&self, fd: RawFd, token: Token, interests: Interest) -> io::Result<()> {
        let mut sources = lock(&self.0.sources);
        let source = sources.get_mut(&fd).ok_or(io::ErrorKind::NotFound)?;
        let interest = directions(interests);
        // SAFETY: as in `select`.
        unsafe { self.0.poller.set(fd, interest, fd as u64)? };
        (source.token, source.interest, source.enabled) = (token, interest, interest);
        Ok(())
    }

    pub fn deregister(&self, fd: RawFd) -> io::Result<()> {
        let mut sources = lock(&self.0.sources);
        sources.remove(&fd).ok_or(io::ErrorKind::NotFound)?;
        self.0.poller.remove(fd)
    }

    /// Enables the directions of a source after an operation on it.
    fn enable(&self, fd: RawFd) {
        if self.0.is_edge {
            return;
        }
        let mut sources = lock(&self.0.sources);
        let Some(source) = sources.get_mut(&fd) else { return };
        if source.enabled == source.interest {
            return;
        }
        // SAFETY: as in `select`.
        if unsafe { self.0.poller.set(fd, source.interest, fd as u64) }.is_ok() {
            source.enabled = source.interest;
        }
    }
}

cfg_io_source! {
    impl Selector {
        #[cfg(debug_assertions)]
        pub fn id(&self) -> usize {
            self.0.id
        }
    }
}

impl AsFd for Selector {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the poller, or the placeholder, owns it.
        unsafe { BorrowedFd::borrow_raw(self.as_raw_fd()) }
    }
}

impl AsRawFd for Selector {
    fn as_raw_fd(&self) -> RawFd {
        let placeholder = self.0.placeholder.as_ref().map_or(0, AsRawFd::as_raw_fd);
        self.0.poller.descriptor().unwrap_or(placeholder)
    }
}

fn directions(interests: Interest) -> Directions {
    let mut directions = Directions::empty();
    directions.set(Directions::READ, interests.is_readable());
    directions.set(Directions::WRITE, interests.is_writable());
    directions.set(Directions::PRIORITY, interests.is_priority());
    directions
}

#[derive(Debug, Clone)]
pub struct Event {
    token: Token,
    readiness: Readiness,
}

pub type Events = Vec<Event>;

pub mod event {
    use std::fmt;

    use hearken::Readiness;

    use crate::Token;
    use crate::sys::Event;

    pub fn token(event: &Event) -> Token {
        event.token
    }

    pub fn is_readable(event: &Event) -> bool {
        event.readiness.intersects(Readiness::READABLE.union(Readiness::PRIORITY))
    }

    pub fn is_writable(event: &Event) -> bool {
        event.readiness.is_writable()
    }

    pub fn is_error(event: &Event) -> bool {
        event.readiness.contains(Readiness::ERROR)
    }

    pub fn is_read_closed(event: &Event) -> bool {
        event.readiness.intersects(Readiness::HANGUP.union(Readiness::READ_CLOSED))
    }

    pub fn is_write_closed(event: &Event) -> bool {
        event.readiness.intersects(Readiness::HANGUP.union(Readiness::ERROR))
    }

    pub fn is_priority(event: &Event) -> bool {
        event.readiness.has_priority()
    }

    pub fn is_aio(_: &Event) -> bool {
        false
    }

    pub fn is_lio(_: &Event) -> bool {
        false
    }

    pub fn debug_details(f: &mut fmt::Formatter<'_>, event: &Event) -> fmt::Result {
        fmt::Debug::fmt(event, f)
    }
}

#[derive(Debug)]
pub(crate) struct Waker {
    selector: Selector,
    token: Token,
}

impl Waker {
    pub(crate) fn new(selector: &Selector, token: Token) -> io::Result<Waker> {
        Ok(Waker { selector: selector.clone(), token })
    }

    pub(crate) fn wake(&self) -> io::Result<()> {
        *lock(&self.selector.0.woken) = Some(self.token);
        self.selector.0.poller.wake();
        Ok(())
    }
}

cfg_io_source! {
    use crate::Registry;

    /// The registration of a source. Ends when it is dropped.
    pub(crate) struct IoSourceState(Option<(Selector, RawFd)>);

    impl IoSourceState {
        pub(crate) fn new() -> IoSourceState {
            IoSourceState(None)
        }

        pub(crate) fn do_io<T, F, R>(&self, f: F, io: &T) -> io::Result<R>
        where
            F: FnOnce(&T) -> io::Result<R>,
        {
            let result = f(io);
            if let Some((selector, fd)) = &self.0 {
                selector.enable(*fd);
            }
            result
        }

        pub(crate) fn register(
            &mut self,
            registry: &Registry,
            token: Token,
            interests: Interest,
            fd: RawFd,
        ) -> io::Result<()> {
            let selector = registry.selector();
            selector.insert(fd, token, interests, true)?;
            self.0 = Some((selector.clone(), fd));
            Ok(())
        }

        pub(crate) fn reregister(
            &mut self,
            registry: &Registry,
            token: Token,
            interests: Interest,
            fd: RawFd,
        ) -> io::Result<()> {
            registry.selector().reregister(fd, token, interests)
        }

        pub(crate) fn deregister(&mut self, registry: &Registry, fd: RawFd) -> io::Result<()> {
            self.0 = None;
            registry.selector().deregister(fd)
        }
    }

    impl Drop for IoSourceState {
        fn drop(&mut self) {
            if let Some((selector, fd)) = self.0.take() {
                let _ = selector.deregister(fd);
            }
        }
    }
}
