//! The state that the waiting thread and the helper thread share. Descriptors pass through it in both
//! directions.
//!
//! The list of the helper belongs to one thread at a time. The helper has it while it polls. The
//! waiting thread holds the helper to remove a descriptor, and then has the list.

use std::io;
use std::sync::PoisonError;

use crate::sync::{Condvar, Mutex, MutexGuard};

#[cfg(all(test, loom))]
mod models;

/// The exchange. `L` is the helper's list and `E` a descriptor.
#[derive(Debug)]
pub(super) struct Exchange<L, E> {
    state: Mutex<State<L, E>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<L, E> {
    /// The list, while neither thread has it.
    list: Option<L>,
    /// Whether the helper may not take the list.
    held: bool,
    stopped: bool,
    /// Whether the helper polls until it is woken.
    asleep: bool,
    /// Descriptors on their way to the helper.
    demoted: Vec<E>,
    /// Descriptors on their way to the waiting thread.
    found: Vec<E>,
    /// The number of complete polls that the waiting thread has requested.
    requested: u32,
    /// The value of `requested` before the last poll.
    completed: u32,
    /// The number of system calls of the helper.
    calls: u64,
    error: Option<io::Error>,
}

/// The descriptors that the waiting thread takes when it holds the helper.
#[derive(Debug)]
pub(super) struct Held<L, E> {
    pub(super) list: L,
    /// The descriptors on their way to the helper.
    pub(super) demoted: Vec<E>,
    /// The descriptors on their way to the waiting thread.
    pub(super) found: Vec<E>,
}

/// The poll that the helper makes next.
#[derive(Debug)]
pub(super) struct Turn {
    requested: u32,
    /// Whether it polls until it is woken. Otherwise it does not sleep.
    pub(super) sleeps: bool,
}

/// The helper's next actions after a poll.
#[derive(Debug)]
pub(super) struct Next {
    /// Whether it notifies the waiting thread.
    pub(super) notifies: bool,
    /// Whether it may pause: the waiting thread wakes it if it must continue.
    pub(super) pauses: bool,
}

impl<L, E> Exchange<L, E> {
    /// Creates an exchange whose helper is held.
    pub(super) fn new() -> Exchange<L, E> {
        Exchange {
            state: Mutex::new(State {
                list: None,
                held: true,
                stopped: false,
                asleep: false,
                demoted: Vec::new(),
                found: Vec::new(),
                requested: 0,
                completed: 0,
                calls: 0,
                error: None,
            }),
            changed: Condvar::new(),
        }
    }

    /// Passes descriptors to the helper. Returns whether the caller must wake it.
    pub(super) fn demote(&self, descriptors: &mut Vec<E>) -> bool {
        let mut state = self.lock();
        state.demoted.append(descriptors);
        std::mem::take(&mut state.asleep)
    }

    /// Takes all descriptors that the waiting thread does not have. Calls `wake` to end the
    /// helper's poll. The helper does not poll until [`release`](Exchange::release).
    pub(super) fn hold(&self, wake: impl FnOnce()) -> Held<L, E> {
        let mut state = self.lock();
        state.held = true;
        if state.list.is_none() {
            wake();
        }
        loop {
            if let Some(list) = state.list.take() {
                let demoted = std::mem::take(&mut state.demoted);
                return Held { list, demoted, found: std::mem::take(&mut state.found) };
            }
            state = self.wait(state);
        }
    }

    /// Returns the list to the helper.
    pub(super) fn release(&self, list: L) {
        let mut state = self.lock();
        state.list = Some(list);
        state.held = false;
        self.changed.notify_all();
    }

    /// Takes the descriptors that the helper has found ready.
    ///
    /// # Errors
    /// The error of the helper's last poll.
    pub(super) fn take_found(&self) -> io::Result<Vec<E>> {
        let mut state = self.lock();
        match state.error.take() {
            Some(error) => Err(error),
            None => Ok(std::mem::take(&mut state.found)),
        }
    }

    /// Requests a poll that begins after this call. The caller wakes the helper.
    pub(super) fn request_poll(&self) {
        let mut state = self.lock();
        state.requested = state.requested.wrapping_add(1);
    }

    /// Waits until the requested poll has ended.
    pub(super) fn await_poll(&self) {
        let mut state = self.lock();
        while state.completed != state.requested {
            state = self.wait(state);
        }
    }

    /// Ends the helper. The caller wakes it.
    pub(super) fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }

    /// Returns the number of system calls of the helper.
    pub(super) fn calls(&self) -> u64 {
        self.lock().calls
    }

    /// Begins a turn of the helper: waits while it is held, and adds descriptors to `demoted`.
    /// Returns the list, or `None` to end the thread.
    pub(super) fn begin(&self, list: L, demoted: &mut Vec<E>) -> Option<(L, Turn)> {
        let mut state = self.lock();
        state.list = Some(list);
        self.changed.notify_all();
        while state.held && !state.stopped {
            state = self.wait(state);
        }
        if state.stopped {
            return None;
        }
        let list = state.list.take()?;
        demoted.append(&mut state.demoted);
        state.asleep = state.completed == state.requested;
        Some((list, Turn { requested: state.requested, sleeps: state.asleep }))
    }

    /// Ends a turn of the helper: passes on what it has found.
    pub(super) fn end(&self, turn: &Turn, result: io::Result<&mut Vec<E>>, calls: u64) -> Next {
        let mut state = self.lock();
        state.asleep = false;
        state.calls = calls;
        let notifies = match result {
            Ok(found) => {
                let notifies = state.found.is_empty() && !found.is_empty();
                state.found.append(found);
                notifies
            }
            Err(error) => state.error.replace(error).is_none(),
        };
        if state.completed != turn.requested {
            state.completed = turn.requested;
            self.changed.notify_all();
        }
        let is_expected = state.held || state.stopped || state.completed != state.requested;
        Next { notifies, pauses: !is_expected }
    }

    fn lock(&self) -> MutexGuard<'_, State<L, E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State<L, E>>) -> MutexGuard<'a, State<L, E>> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }
}
