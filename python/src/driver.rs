//! `Driver`: the operations of an event loop and their completions.

use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hearken::io::readiness::Policy;
use hearken::io::{Completion, CompletionKind, Io, Relay, Spec, StreamSocket, Visitor, visit};
use hearken::mechanism::{AUTO, SelectError, Watches};
use hearken::{Token, Waker, Wakeups};
use pyo3::exceptions::{PyNotImplementedError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::convert::{os_error, select_error, spec, timeout};
use crate::owned::{Guarded, OfThread, Unlocked, note_fork};
use crate::transport::{Event, Transport};

/// The operations of one event loop. They belong to the thread that runs it.
#[pyclass(frozen, module = "hearken._hearken")]
pub(crate) struct Driver {
    events: String,
    waker: Waker,
    /// Whether the current turn ends after this completion.
    leaves: AtomicBool,
    state: Guarded<State>,
}

#[derive(Default)]
struct State {
    /// `None` before the first use, and after the loop was closed.
    io: Option<OfThread<Operations>>,
    /// The receiving end of the waker, until it is moved to `io`.
    wakeups: Option<Wakeups>,
    /// The descriptor to watch next to the connections.
    watched_fd: Option<OwnedFd>,
    closed: bool,
}

struct Operations {
    io: Box<dyn Io>,
    /// The transports, by the slots of their tokens.
    transports: Vec<Option<Entry>>,
    /// The number of the current turn.
    turn: u64,
    /// A completion that waits for the callbacks of an earlier one.
    deferred: Option<Completion>,
    watched: Option<Token>,
    /// Whether the watched descriptor must be started before the next wait.
    restarts: bool,
}

struct Entry {
    token: Token,
    transport: Py<Transport>,
    /// The turn of the last completion.
    turn: u64,
}

impl Operations {
    fn entry(&mut self, token: Token) -> Option<&mut Entry> {
        let entry = self.transports.get_mut(token.slot() as usize)?.as_mut();
        entry.filter(|entry| entry.token == token)
    }

    /// Returns the next completion, and whether it is the first of its transport in this turn.
    fn next(&mut self) -> Option<(Completion, bool)> {
        let completion = self.deferred.take().or_else(|| self.io.next())?;
        let turn = self.turn;
        let is_first = match self.entry(completion.token) {
            Some(entry) => std::mem::replace(&mut entry.turn, turn) != turn,
            None => true,
        };
        Some((completion, is_first))
    }
}

/// Puts an implementation of any type into a box.
struct Boxed;

impl Visitor for Boxed {
    type Output = Box<dyn Io>;

    fn visit<I: Relay + 'static>(self, _: &'static str, io: I) -> Box<dyn Io> {
        Box::new(io)
    }
}

#[pymethods]
impl Driver {
    /// Prepares the operations over `events`: a mechanism, or "uring". `watched` is a descriptor
    /// whose readability ends a turn; a duplicate of it is used.
    #[new]
    fn new(py: Python<'_>, events: Option<String>, watched: RawFd) -> PyResult<Driver> {
        let events = spec(events);
        let found = hearken::io::find(&events).map_err(|error| select_error(&error))?;
        if let Spec::Readiness(spec) = &found
            && spec.entry.semantics.watches != Watches::Any
        {
            let reason = format!("{events} cannot watch all descriptors; use completions=False");
            return Err(PyNotImplementedError::new_err(reason));
        }
        if events != AUTO {
            py.detach(|| found.probe()).map_err(|reason| {
                select_error(&SelectError::Unavailable { name: events.clone(), reason })
            })?;
        }
        let wakeups = Wakeups::new().map_err(|error| os_error(&error))?;
        let waker = wakeups.waker();
        let state = State {
            wakeups: Some(wakeups),
            watched_fd: Some(duplicate(watched)?),
            ..State::default()
        };
        let leaves = AtomicBool::new(false);
        Ok(Driver { events, waker, leaves, state: Guarded(state.into()) })
    }

    /// Returns the name that selected the implementation.
    #[getter]
    fn events(&self) -> &str {
        &self.events
    }

    /// Ends the current wait, or the next one. Any thread may call it.
    fn wake(&self) {
        self.waker.wake();
    }

    /// Makes the current call of `turn` return after its completions.
    fn leave(&self) {
        self.leaves.store(true, Ordering::Relaxed);
    }

    /// Waits for completions for at most `seconds`, and delivers them to their transports. Repeats
    /// that until the time has passed, or `ready` is not empty, or the length of `scheduled`
    /// changes. Returns whether the watched descriptor is readable.
    fn turn(
        &self,
        py: Python<'_>,
        seconds: Option<f64>,
        ready: &Bound<'_, PyAny>,
        scheduled: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let limit = timeout(seconds);
        let timers = scheduled.len()?;
        let mut readable = false;
        self.leaves.store(false, Ordering::Relaxed);
        let mut until = None;
        loop {
            let is_first = until.is_none();
            self.with(|operations| {
                let io = &mut operations.io;
                let start =
                    if is_first && limit != Some(Duration::ZERO) { io.clock() } else { io.now() };
                if is_first {
                    until = Some(limit.map(|limit| start + limit));
                }
                if operations.restarts
                    && let Some(watched) = operations.watched
                {
                    operations.restarts = false;
                    io.start(watched);
                }
                operations.turn += 1;
                let io = Unlocked::new(&mut **io);
                let until = until.flatten();
                py.detach(|| io.get().wait(until)).map_err(|error| os_error(&error))
            })?;
            while let Some((completion, is_first)) =
                self.with(|operations| Ok(operations.next()))?
            {
                // As with readiness, callbacks run between two events of a connection.
                if !is_first && !ready.is_empty()? {
                    self.with(|operations| {
                        operations.deferred = Some(completion);
                        Ok(())
                    })?;
                    break;
                }
                readable |= self.complete(py, completion)?;
            }
            py.check_signals()?;
            let has_expired = match until.flatten() {
                Some(until) => self.with(|operations| Ok(operations.io.now() >= until))?,
                None => false,
            };
            let leaves = self.leaves.load(Ordering::Relaxed);
            if readable || has_expired || leaves || !ready.is_empty()? || scheduled.len()? != timers
            {
                return Ok(readable);
            }
        }
    }

    /// Adds a connected stream socket for a transport. Owns the descriptor from now on.
    fn adopt(&self, fd: RawFd, transport: &Bound<'_, Transport>) -> PyResult<()> {
        require_stream_socket(fd)?;
        // SAFETY: the caller passes the descriptor of a socket that it does not close itself.
        #[allow(unsafe_code)]
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let token = self.with(|operations| {
            let token = StreamSocket::new(fd).and_then(|socket| operations.io.adopt(socket));
            let token = token.map_err(|error| os_error(&error))?;
            let slot = token.slot() as usize;
            if slot >= operations.transports.len() {
                operations.transports.resize_with(slot + 1, || None);
            }
            let transport = transport.clone().unbind();
            operations.transports[slot] = Some(Entry { token, transport, turn: 0 });
            Ok(token)
        })?;
        transport.get().set_token(token)
    }

    /// Closes all connections. The driver cannot be used any more.
    fn close(&self) -> PyResult<()> {
        let mut state = self.state_mut()?;
        state.closed = true;
        let io = state.io.take();
        state.watched_fd = None;
        drop(state);
        drop(io);
        Ok(())
    }
}

impl Driver {
    fn state_mut(&self) -> PyResult<std::cell::RefMut<'_, State>> {
        let in_use = "the event loop waits in another thread; use call_soon_threadsafe()";
        self.state.0.try_borrow_mut().map_err(|_| PyRuntimeError::new_err(in_use))
    }

    /// Calls `function` with the operations, which it opens before the first use.
    fn with<T>(&self, function: impl FnOnce(&mut Operations) -> PyResult<T>) -> PyResult<T> {
        let mut state = self.state_mut()?;
        if state.io.is_none() {
            let operations = self.open(&mut state)?;
            state.io = Some(OfThread::new(operations));
        }
        let other = "the event loop belongs to the thread that used it first, and not to forks";
        let operations = state.io.as_mut().and_then(OfThread::get);
        function(operations.ok_or_else(|| PyRuntimeError::new_err(other))?)
    }

    fn open(&self, state: &mut State) -> PyResult<Operations> {
        let closed = || PyRuntimeError::new_err("Event loop is closed");
        if state.closed {
            return Err(closed());
        }
        let wakeups = state.wakeups.take().ok_or_else(closed)?;
        let io = visit(&self.events, &Policy::default(), wakeups, Boxed);
        let mut io = io.map_err(|error| select_error(&error))?;
        let watched = state.watched_fd.take().map(|fd| io.watch(fd)).transpose();
        let watched = watched.map_err(|error| os_error(&error))?;
        let transports = Vec::new();
        Ok(Operations { io, transports, turn: 0, deferred: None, watched, restarts: true })
    }

    /// Handles a completion. Returns whether the watched descriptor is readable.
    fn complete(&self, py: Python<'_>, completion: Completion) -> PyResult<bool> {
        let Completion { token, kind } = completion;
        let event = match kind {
            CompletionKind::Received(buffer) => Event::Received(buffer),
            CompletionKind::Sent(result) => Event::Sent(result),
            CompletionKind::End => Event::End,
            CompletionKind::ReceiveFailed(error) => Event::Failed(error),
            CompletionKind::Readable => {
                self.with(|operations| {
                    operations.restarts = true;
                    Ok(())
                })?;
                return Ok(true);
            }
            _ => return Ok(false),
        };
        let transport = self.with(|operations| {
            let transport = operations.entry(token).map(|entry| entry.transport.clone_ref(py));
            let is_watched = operations.watched == Some(token);
            Ok((transport, is_watched))
        })?;
        match (transport, event) {
            ((Some(transport), _), event) => transport.bind(py).get().on_event(py, event)?,
            ((None, true), Event::Failed(error)) => return Err(os_error(&error)),
            _ => {}
        }
        Ok(false)
    }

    /// Calls `function` with the operations for a transport.
    pub(crate) fn with_io<T>(&self, function: impl FnOnce(&mut dyn Io) -> T) -> PyResult<T> {
        self.with(|operations| Ok(function(&mut *operations.io)))
    }

    /// Closes a connection and forgets its transport.
    pub(crate) fn release(&self, token: Token) -> PyResult<()> {
        let removed = self.with(|operations| {
            operations.io.close(token);
            let is_open = operations.entry(token).is_some();
            let slot = operations.transports.get_mut(token.slot() as usize).filter(|_| is_open);
            Ok(slot.and_then(Option::take))
        })?;
        // Its destructor may run Python code.
        drop(removed);
        Ok(())
    }
}

/// Fails unless `fd` is the number of a stream socket.
fn require_stream_socket(fd: RawFd) -> PyResult<()> {
    let mut kind: libc::c_int = 0;
    let mut length = size_of_val(&kind) as libc::socklen_t;
    let value = (&raw mut kind).cast();
    // SAFETY: getsockopt(2) refuses other numbers, and writes an integer.
    #[allow(unsafe_code)]
    if unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_TYPE, value, &raw mut length) } < 0
    {
        return Err(os_error(&std::io::Error::last_os_error()));
    }
    if kind != libc::SOCK_STREAM {
        return Err(PyValueError::new_err("not a stream socket"));
    }
    Ok(())
}

fn duplicate(fd: RawFd) -> PyResult<OwnedFd> {
    // SAFETY: fcntl(2) refuses numbers that are not open, and creates the descriptor it returns.
    #[allow(unsafe_code)]
    let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) };
    if copy < 0 {
        return Err(os_error(&std::io::Error::last_os_error()));
    }
    // SAFETY: as above.
    #[allow(unsafe_code)]
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Notes in a child that it was forked. The child calls it first.
#[pyfunction]
pub(crate) fn after_fork() {
    note_fork();
}
