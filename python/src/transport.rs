//! `Transport`: the part of a socket transport that handles every message.

use std::collections::VecDeque;
use std::io;

use hearken::Token;
use hearken::io::Buffer;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyException, PyRuntimeError, PyTypeError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::convert::os_error;
use crate::driver::Driver;
use crate::owned::Guarded;

/// A completion for a transport.
pub(crate) enum Event {
    Received(Buffer),
    Sent(io::Result<()>),
    End,
    Failed(io::Error),
}

/// A connection of a driver: sending, flow control, and delivery of received bytes.
///
/// `owner` is the transport that the protocol knows. It has the methods that are called for rare
/// events: `_on_end()`, `_on_failure(error)`, `_on_callback_error(error)`, `_on_held(data)`,
/// `_on_full()`, `_on_drained()` and `_on_all_sent()`.
#[pyclass(frozen, module = "hearken._hearken")]
pub(crate) struct Transport {
    driver: Py<Driver>,
    state: Guarded<State>,
}

#[derive(Default)]
struct State {
    token: Option<Token>,
    owner: Option<Py<PyAny>>,
    /// `Context.run` of the context in which the protocol is called.
    run: Option<Py<PyAny>>,
    receiver: Option<Py<PyAny>>,
    /// The lengths of the sends that have not completed.
    pending: VecDeque<usize>,
    buffered: usize,
    high: usize,
    low: usize,
    is_full: bool,
    is_paused: bool,
    /// Whether the sending side ends after the pending sends, or has ended.
    ends: bool,
    /// Whether the transport discards further writes.
    discards: bool,
}

#[pymethods]
impl Transport {
    #[new]
    fn new(driver: Py<Driver>, owner: Py<PyAny>, run: Py<PyAny>) -> Transport {
        let state = State {
            owner: Some(owner),
            run: Some(run),
            high: 64 * 1024,
            low: 16 * 1024,
            ..State::default()
        };
        Transport { driver, state: Guarded(state.into()) }
    }

    /// Sets the function that is called with received bytes.
    fn set_receiver(&self, receiver: Py<PyAny>) -> PyResult<()> {
        let previous = self.state_mut()?.receiver.replace(receiver);
        drop(previous);
        Ok(())
    }

    /// Writes bytes. They are sent at once as far as the socket takes them.
    fn write(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<()> {
        if let Ok(bytes) = data.cast::<PyBytes>() {
            return self.write_bytes(py, bytes.as_bytes());
        }
        let Ok(buffer) = PyBuffer::<u8>::get(data) else {
            let kind = data.get_type();
            let message = format!("data argument must be a bytes-like object, not {kind}");
            return Err(PyTypeError::new_err(message));
        };
        self.write_bytes(py, &buffer.to_vec(py)?)
    }

    /// Requests bytes of the peer, or stops that.
    fn set_reading(&self, on: bool) -> PyResult<()> {
        let token = {
            let mut state = self.state_mut()?;
            state.is_paused = !on;
            state.token
        };
        let Some(token) = token else { return Ok(()) };
        self.driver.get().with_io(|io| if on { io.start(token) } else { io.stop(token) })?;
        Ok(())
    }

    /// Ends the sending side after the pending sends.
    fn end(&self) -> PyResult<()> {
        let (token, is_idle) = {
            let mut state = self.state_mut()?;
            state.ends = true;
            (state.token, state.pending.is_empty())
        };
        if let (Some(token), true) = (token, is_idle) {
            self.driver.get().with_io(|io| io.shutdown(token))?;
        }
        Ok(())
    }

    /// Makes further writes have no effect, unless sends are pending. Returns whether it did.
    fn discard_writes(&self) -> PyResult<bool> {
        let mut state = self.state_mut()?;
        state.discards |= state.pending.is_empty();
        Ok(state.discards)
    }

    /// Makes further writes have no effect, and forgets pending sends.
    fn forget_sends(&self) -> PyResult<()> {
        let mut state = self.state_mut()?;
        state.discards = true;
        state.pending.clear();
        state.buffered = 0;
        Ok(())
    }

    /// Closes the connection at once, and forgets the protocol.
    fn release(&self) -> PyResult<()> {
        let (token, forgotten) = {
            let mut state = self.state_mut()?;
            state.pending.clear();
            state.buffered = 0;
            state.discards = true;
            (state.token.take(), (state.owner.take(), state.receiver.take(), state.run.take()))
        };
        if let Some(token) = token {
            self.driver.get().release(token)?;
        }
        drop(forgotten);
        Ok(())
    }

    /// Returns the number of bytes of the sends that have not completed.
    #[getter]
    fn buffered(&self) -> PyResult<usize> {
        Ok(self.state_mut()?.buffered)
    }

    /// Returns the limits of flow control: low and high.
    #[getter]
    fn limits(&self) -> PyResult<(usize, usize)> {
        let state = self.state_mut()?;
        Ok((state.low, state.high))
    }

    /// Sets the limits of flow control.
    fn set_limits(&self, py: Python<'_>, low: usize, high: usize) -> PyResult<()> {
        let full = {
            let mut state = self.state_mut()?;
            (state.low, state.high) = (low, high);
            state.become_full(py)
        };
        full.map_or(Ok(()), |owner| call(py, &owner, "_on_full"))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Ok(state) = self.state.0.try_borrow() {
            for object in [&state.owner, &state.receiver, &state.run].into_iter().flatten() {
                visit.call(object)?;
            }
        }
        visit.call(&self.driver)
    }

    fn __clear__(&self) {
        if let Ok(mut state) = self.state.0.try_borrow_mut() {
            let forgotten = (state.owner.take(), state.receiver.take(), state.run.take());
            drop(state);
            drop(forgotten);
        }
    }
}

impl State {
    /// Returns the owner if the buffered bytes exceed the limit for the first time.
    fn become_full(&mut self, py: Python<'_>) -> Option<Py<PyAny>> {
        if self.is_full || self.buffered <= self.high {
            return None;
        }
        self.is_full = true;
        self.owner.as_ref().map(|owner| owner.clone_ref(py))
    }
}

impl Transport {
    fn state_mut(&self) -> PyResult<std::cell::RefMut<'_, State>> {
        let in_use = "the transport is in use by another thread";
        self.state.0.try_borrow_mut().map_err(|_| PyRuntimeError::new_err(in_use))
    }

    pub(crate) fn set_token(&self, token: Token) -> PyResult<()> {
        self.state_mut()?.token = Some(token);
        Ok(())
    }

    fn write_bytes(&self, py: Python<'_>, bytes: &[u8]) -> PyResult<()> {
        let (token, discards) = {
            let state = self.state_mut()?;
            if state.ends {
                return Err(PyRuntimeError::new_err("Cannot call write() after write_eof()"));
            }
            (state.token, state.discards)
        };
        if bytes.is_empty() {
            return Ok(());
        }
        let Some(token) = token.filter(|_| !discards) else {
            let owner = self.state_mut()?.owner.as_ref().map(|owner| owner.clone_ref(py));
            return owner.map_or(Ok(()), |owner| call(py, &owner, "_on_discarded"));
        };
        if self.driver.get().with_io(|io| io.send_now(token, bytes))? {
            return Ok(());
        }
        let full = {
            let mut state = self.state_mut()?;
            state.pending.push_back(bytes.len());
            state.buffered += bytes.len();
            state.become_full(py)
        };
        full.map_or(Ok(()), |owner| call(py, &owner, "_on_full"))
    }

    /// Handles a completion.
    pub(crate) fn on_event(&self, py: Python<'_>, event: Event) -> PyResult<()> {
        match event {
            Event::Received(buffer) => self.on_received(py, &buffer),
            Event::Sent(Ok(())) => self.on_sent(py),
            Event::End => self.call_owner(py, "_on_end"),
            Event::Sent(Err(error)) | Event::Failed(error) => {
                let owner = self.state_mut()?.owner.as_ref().map(|owner| owner.clone_ref(py));
                let Some(owner) = owner else { return Ok(()) };
                owner.call_method1(py, "_on_failure", (os_error(&error),)).map(drop)
            }
        }
    }

    fn on_received(&self, py: Python<'_>, bytes: &[u8]) -> PyResult<()> {
        let data = PyBytes::new(py, bytes);
        let state = self.state_mut()?;
        let (Some(owner), Some(run), Some(receiver)) = (&state.owner, &state.run, &state.receiver)
        else {
            return Ok(());
        };
        if state.is_paused {
            let owner = owner.clone_ref(py);
            drop(state);
            return owner.call_method1(py, "_on_held", (data,)).map(drop);
        }
        let (run, receiver) = (run.clone_ref(py), receiver.clone_ref(py));
        drop(state);
        let Err(error) = run.call1(py, (receiver, data)) else { return Ok(()) };
        if !error.is_instance_of::<PyException>(py) {
            return Err(error);
        }
        let owner = self.state_mut()?.owner.as_ref().map(|owner| owner.clone_ref(py));
        let Some(owner) = owner else { return Err(error) };
        owner.call_method1(py, "_on_callback_error", (error,)).map(drop)
    }

    fn on_sent(&self, py: Python<'_>) -> PyResult<()> {
        let drained = {
            let mut state = self.state_mut()?;
            let Some(length) = state.pending.pop_front() else { return Ok(()) };
            state.buffered = state.buffered.saturating_sub(length);
            let drained = state.is_full && state.buffered <= state.low;
            state.is_full &= !drained;
            drained
        };
        if drained {
            // The protocol may write more.
            self.call_owner(py, "_on_drained")?;
        }
        let (token, all_sent, ends) = {
            let state = self.state_mut()?;
            (state.token, state.pending.is_empty(), state.ends)
        };
        if !all_sent {
            return Ok(());
        }
        if let (true, Some(token)) = (ends, token) {
            self.driver.get().with_io(|io| io.shutdown(token))?;
        }
        self.call_owner(py, "_on_all_sent")
    }

    fn call_owner(&self, py: Python<'_>, method: &str) -> PyResult<()> {
        let owner = self.state_mut()?.owner.as_ref().map(|owner| owner.clone_ref(py));
        owner.map_or(Ok(()), |owner| call(py, &owner, method))
    }
}

fn call(py: Python<'_>, owner: &Py<PyAny>, method: &str) -> PyResult<()> {
    owner.call_method0(py, method).map(drop)
}
