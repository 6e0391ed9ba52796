//! [`Poller`]: interest in descriptors that others own, which any thread may change.
//!
//! One thread at a time waits. It takes the mechanism out of the shared state for the duration of
//! its wait. Changes of other threads are then queued, and wake it to apply them.

// Descriptors are numbers here, and mechanisms move between threads. Each block states why it may.
#![allow(unsafe_code)]

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use rustix::io::Errno;

use crate::event::{Event, Interest, Readiness, Token};
use crate::mechanism::trigger::AsLevel;
use crate::mechanism::{AUTO, Counters, Mechanism, Registry, SelectError, Semantics, SignalMask};
use crate::mechanism::{Trigger, find, is_thread_bound};
use crate::timer::Time;
use crate::waker::{Waker, Wakeups};

/// A set of descriptors that others own, by number. It can be shared by threads.
///
/// Any thread may change the interest, also during the wait of another. One thread at a time waits.
/// With mechanisms that belong to a thread ([`is_bound`](Poller::is_bound)), it is the thread that
/// created the poller.
///
/// [`EventQueue`](crate::EventQueue) is the safe interface for one thread. This one is for other
/// languages and event libraries, which know descriptors as numbers only.
///
/// ```
/// use hearken::queue::Poller;
/// use hearken::Interest;
/// use std::io::Write;
/// use std::os::fd::AsRawFd;
/// use std::os::unix::net::UnixStream;
///
/// let poller = Poller::open("epoll-edge")?;
/// let (mut writer, reader) = UnixStream::pair()?;
/// // SAFETY: the stream is removed before it is closed.
/// unsafe { poller.set(reader.as_raw_fd(), Interest::READ, 7)? };
/// writer.write_all(b"x")?;
/// let mut events = Vec::new();
/// poller.wait(&mut events, 64, None, None)?;
/// assert_eq!(events[0].token, 7);
/// poller.remove(reader.as_raw_fd())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Poller {
    shared: Mutex<Shared>,
    semantics: &'static Semantics,
    descriptor: Option<RawFd>,
    /// The thread that must wait, if the mechanism belongs to one.
    thread: Option<ThreadId>,
    waker: Waker,
    woken: AtomicBool,
}

struct Shared {
    /// `None` during a wait. In a box, so that a wait moves a pointer.
    watched: Option<Box<Watched>>,
    /// The changes of other threads, which the waiting thread applies.
    changes: Vec<Change>,
    /// The counters at the end of the last wait.
    counters: Counters,
}

/// A change, and the thread that waits for its result.
struct Change {
    fd: RawFd,
    /// The interest and the data, or `None` to remove the descriptor.
    request: Option<(Interest, u64)>,
    reply: Option<Sender<io::Result<()>>>,
}

/// The mechanism and its registrations.
struct Watched {
    registry: Registry<Box<dyn Mechanism>, Descriptor>,
    /// The registrations, indexed by descriptor number.
    tokens: Vec<Option<Token>>,
    /// The caller's data, indexed by the slot of the token.
    data: Vec<u64>,
    wakeups: Token,
    /// The events of changes that failed after the call that requested them.
    failures: Vec<Event<u64>>,
}

// SAFETY: `Poller` uses and drops it in the thread that created it, unless the mechanism can move
// to other threads.
unsafe impl Send for Watched {}

/// A descriptor of the caller, or of the poller itself.
enum Descriptor {
    Borrowed(RawFd),
    Owned(OwnedFd),
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            // SAFETY: the caller of `Poller::set` keeps it open.
            Descriptor::Borrowed(fd) => unsafe { BorrowedFd::borrow_raw(*fd) },
            Descriptor::Owned(fd) => fd.as_fd(),
        }
    }
}

impl Poller {
    /// Creates a poller over the mechanism that `spec` names, such as `epoll-edge`,
    /// `rt-signal:dequeue=one` or `auto`, with the trigger of that mechanism.
    ///
    /// # Errors
    /// The mechanism or an option is unknown, or the kernel refuses it.
    pub fn open(spec: &str) -> Result<Poller, SelectError> {
        Poller::with(spec, false)
    }

    /// Creates a poller like [`open`](Poller::open) that is level-triggered over any mechanism.
    ///
    /// # Errors
    /// The errors of [`open`](Poller::open).
    pub fn open_level(spec: &str) -> Result<Poller, SelectError> {
        Poller::with(spec, true)
    }

    fn with(name: &str, level: bool) -> Result<Poller, SelectError> {
        let spec = find(if name.is_empty() { AUTO } else { name })?;
        let unavailable = |reason| SelectError::Unavailable { name: spec.to_string(), reason };
        let mut mechanism = spec.open().map_err(unavailable)?;
        if level && mechanism.semantics().trigger != Trigger::Level {
            mechanism = Box::new(AsLevel::new(mechanism));
        }
        let semantics = mechanism.semantics();
        let descriptor = mechanism.descriptor().map(|fd| fd.as_raw_fd());
        let watched = Wakeups::new().and_then(|wakeups| {
            let (waker, wakeups) = wakeups.into_parts();
            let mut registry = Registry::new(mechanism);
            let wakeups = registry.insert(Descriptor::Owned(wakeups));
            registry.declare(wakeups, Interest::READ)?;
            registry.keep_active(wakeups);
            Ok((waker, Box::new(Watched::new(registry, wakeups))))
        });
        let (waker, watched) = watched.map_err(|error| {
            let remedy = "raise the limit of open files";
            unavailable(crate::mechanism::Unavailable { call: "socketpair", error, remedy })
        })?;
        let shared =
            Shared { watched: Some(watched), changes: Vec::new(), counters: Counters::default() };
        Ok(Poller {
            shared: Mutex::new(shared),
            semantics,
            descriptor,
            thread: is_thread_bound(&spec).then(|| thread::current().id()),
            waker,
            woken: AtomicBool::new(false),
        })
    }

    /// Returns the properties of the mechanism.
    pub fn semantics(&self) -> &'static Semantics {
        self.semantics
    }

    /// Returns whether only the thread that created the poller may wait.
    pub fn is_bound(&self) -> bool {
        self.thread.is_some()
    }

    /// Returns the number of the descriptor by which another event loop can watch this poller, if
    /// the mechanism has one: see [`Mechanism::descriptor`]. The poller owns it.
    pub fn descriptor(&self) -> Option<RawFd> {
        self.descriptor
    }

    /// Returns the counters since the creation of the poller, during a wait those at its beginning.
    pub fn counters(&self) -> Counters {
        let shared = self.lock();
        shared.watched.as_ref().map_or(shared.counters, |watched| watched.registry.counters())
    }

    /// Declares or replaces the interest in `fd`, whose events carry `data`. Rearms it if the
    /// mechanism is one-shot. During the wait of another thread, it returns after that thread has
    /// made the change.
    ///
    /// If the mechanism belongs to another thread, which does not wait, that thread makes the change
    /// when it waits. If it fails, an event reports the descriptor as ready with an error.
    ///
    /// # Errors
    /// The errors of [`Registry::declare`].
    ///
    /// # Safety
    /// `fd` is open, its owner allows watching it, and it is passed to [`remove`](Poller::remove)
    /// before it is closed.
    pub unsafe fn set(&self, fd: RawFd, interest: Interest, data: u64) -> io::Result<()> {
        self.change(fd, Some((interest, data)))
    }

    /// Removes `fd`. No later wait reports it.
    ///
    /// # Errors
    /// `ENOENT` if it is not in the set.
    pub fn remove(&self, fd: RawFd) -> io::Result<()> {
        self.change(fd, None)
    }

    fn change(&self, fd: RawFd, request: Option<(Interest, u64)>) -> io::Result<()> {
        let mut shared = self.lock();
        if self.may_use_mechanism()
            && let Shared { watched: Some(watched), changes, .. } = &mut *shared
        {
            watched.apply_all(changes);
            return watched.apply(fd, request);
        }
        if shared.watched.is_some() {
            shared.changes.push(Change { fd, request, reply: None });
            return Ok(());
        }
        let (reply, result) = channel();
        shared.changes.push(Change { fd, request, reply: Some(reply) });
        drop(shared);
        self.waker.wake();
        // The waiting thread ended without an answer if its mechanism panicked.
        result.recv().unwrap_or_else(|_| Err(Errno::IO.into()))
    }

    /// Reports that an operation on `fd` in the directions of `interest` returned `EAGAIN`, which
    /// may save a check: see [`Mechanism::would_block`].
    pub fn would_block(&self, fd: RawFd, interest: Interest) {
        let mut shared = self.lock();
        if self.may_use_mechanism()
            && let Some(watched) = &mut shared.watched
            && let Some(token) = watched.token(fd)
        {
            watched.registry.would_block(token, interest);
        }
    }

    /// Ends the current wait, or the next one. A signal handler may call it.
    pub fn wake(&self) {
        self.woken.store(true, Ordering::SeqCst);
        self.waker.wake();
    }

    /// Waits for at most `max` events (0 counts as 1) and replaces the contents of `events` by them.
    /// There are none after the timeout or [`wake`](Poller::wake). With `mask`, it replaces the
    /// thread's signal mask during the wait.
    ///
    /// # Errors
    /// `EINTR` after a signal handler. `EBUSY` if another thread waits. `EPERM` if the mechanism
    /// belongs to another thread. Other errors of the mechanism.
    pub fn wait(
        &self,
        events: &mut Vec<Event<u64>>,
        max: usize,
        timeout: Option<Duration>,
        mask: Option<&SignalMask>,
    ) -> io::Result<()> {
        events.clear();
        self.wait_with(max, timeout, mask, |event| events.push(event)).map(drop)
    }

    /// Waits like [`wait`](Poller::wait), and passes each event to `receive`. Returns their number.
    ///
    /// # Errors
    /// The errors of [`wait`](Poller::wait), with which there are no events.
    pub fn wait_with(
        &self,
        max: usize,
        timeout: Option<Duration>,
        mask: Option<&SignalMask>,
        mut receive: impl FnMut(Event<u64>),
    ) -> io::Result<usize> {
        if !self.may_use_mechanism() {
            return Err(Errno::PERM.into());
        }
        let max = max.max(1);
        let mut shared = self.lock();
        let mut watched = shared.watched.take().ok_or(Errno::BUSY)?;
        let mut remaining = timeout;
        let mut end = None;
        let result = loop {
            watched.apply_all(&mut shared.changes);
            if !watched.failures.is_empty() {
                let count = watched.failures.len().min(max);
                watched.failures.drain(..count).for_each(&mut receive);
                break Ok(count);
            }
            shared.counters = watched.registry.counters();
            drop(shared);
            if let (Some(timeout), None) = (remaining, end) {
                end = (timeout > Duration::ZERO).then(|| Time::now() + timeout);
            }
            let waited = match mask {
                None => watched.registry.wait(max, remaining),
                Some(mask) => watched.registry.wait_with_mask(max, remaining, mask),
            };
            shared = self.lock();
            watched.apply_all(&mut shared.changes);
            let count = match waited {
                Ok(count) => count,
                Err(error) => break Err(error),
            };
            let received = watched.collect(count, &mut receive);
            if received > 0 || self.woken.swap(false, Ordering::SeqCst) {
                break Ok(received);
            }
            // Events without interest ended the wait before the kernel checked for signals.
            if let Some(mask) = mask
                && let Err(error) = mask.check_signals()
            {
                break Err(error);
            }
            remaining = end.map(|end: Time| end.duration_since(Time::now()));
            if timeout.is_some() && remaining.is_none_or(|remaining| remaining.is_zero()) {
                break Ok(0);
            }
        };
        shared.watched = Some(watched);
        result
    }

    #[inline]
    fn may_use_mechanism(&self) -> bool {
        self.thread.is_none_or(|thread| thread == thread::current().id())
    }

    #[inline]
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watched {
    fn new(registry: Registry<Box<dyn Mechanism>, Descriptor>, wakeups: Token) -> Watched {
        Watched { registry, tokens: Vec::new(), data: Vec::new(), wakeups, failures: Vec::new() }
    }

    fn token(&self, fd: RawFd) -> Option<Token> {
        usize::try_from(fd).ok().and_then(|fd| self.tokens.get(fd)).copied().flatten()
    }

    /// Applies the changes of other threads.
    #[inline]
    fn apply_all(&mut self, changes: &mut Vec<Change>) {
        if !changes.is_empty() {
            self.apply_each(changes);
        }
    }

    #[cold]
    fn apply_each(&mut self, changes: &mut Vec<Change>) {
        for Change { fd, request, reply } in changes.drain(..) {
            let result = self.apply(fd, request);
            match (reply, request, result) {
                // The other thread waits for it.
                (Some(reply), _, result) => drop(reply.send(result)),
                (None, Some((interest, data)), Err(_)) => {
                    let ready = Readiness::from_bits_truncate(interest.bits());
                    self.failures.push(Event { token: data, readiness: ready | Readiness::ERROR });
                }
                _ => {}
            }
        }
    }

    fn apply(&mut self, fd: RawFd, request: Option<(Interest, u64)>) -> io::Result<()> {
        let number = usize::try_from(fd).map_err(|_| Errno::BADF)?;
        let Some((interest, data)) = request else {
            let token = self.token(fd).ok_or(Errno::NOENT)?;
            self.tokens[number] = None;
            self.registry.remove(token);
            return Ok(());
        };
        if let Some(token) = self.token(fd) {
            match self.registry.declare(token, interest) {
                Ok(()) => {
                    self.data[token.slot() as usize] = data;
                    return Ok(());
                }
                // The number was closed and names another file now.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    self.tokens[number] = None;
                    self.registry.remove(token);
                }
                Err(error) => return Err(error),
            }
        }
        let token = self.registry.insert(Descriptor::Borrowed(fd));
        if let Err(error) = self.registry.declare(token, interest) {
            self.registry.remove(token);
            return Err(error);
        }
        let (slot, numbers) = (token.slot() as usize, self.tokens.len());
        self.tokens.resize(numbers.max(number + 1), None);
        self.tokens[number] = Some(token);
        self.data.resize(self.data.len().max(slot + 1), 0);
        self.data[slot] = data;
        Ok(())
    }

    /// Passes the events of a wait to `receive`, and returns their number.
    fn collect(&mut self, count: usize, receive: &mut impl FnMut(Event<u64>)) -> usize {
        let mut received = 0;
        for index in 0..count {
            let Some(Event { token, readiness }) = self.registry.event(index) else { continue };
            if token == self.wakeups {
                self.take_wakeups();
            } else {
                receive(Event { token: self.data[token.slot() as usize], readiness });
                received += 1;
            }
        }
        received
    }

    #[cold]
    fn take_wakeups(&mut self) {
        if let Some(source) = self.registry.get(self.wakeups) {
            Wakeups::drain(source);
        }
        self.registry.would_block(self.wakeups, Interest::READ);
        // Rearms a one-shot mechanism. It was armed before, so that it does not fail.
        let _ = self.registry.declare(self.wakeups, Interest::READ);
    }
}

impl Drop for Poller {
    /// Leaks a mechanism that belongs to another thread.
    fn drop(&mut self) {
        if !self.may_use_mechanism() {
            let watched = self.lock().watched.take();
            std::mem::forget(watched);
        }
    }
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller").field("bound", &self.is_bound()).finish_non_exhaustive()
    }
}
