//! `Poller`: interest in descriptors by number, the base of the selectors and of `epoll`.

// Descriptors are numbers in Python.
#![allow(unsafe_code)]

use std::os::fd::RawFd;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hearken::mechanism::{TABLE, Trigger, Watches};
use hearken::queue;
use hearken::{Event, Interest, Readiness};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::convert::{os_error, select_error, spec, timeout};
use crate::owned::OfProcess;

/// `selectors.EVENT_READ`.
const EVENT_READ: u8 = 1;
/// `selectors.EVENT_WRITE`.
const EVENT_WRITE: u8 = 2;

/// The longest wait of a mechanism in which a writable descriptor ends every wait. Such waits do not
/// sleep, so that signals do not interrupt them.
const SLICE: Duration = Duration::from_millis(50);

/// A set of descriptors by number, over one mechanism.
#[pyclass(frozen, module = "hearken._hearken")]
pub(crate) struct Poller {
    poller: OfProcess<queue::Poller>,
    events: String,
    /// The events of a wait, whose memory the next wait uses again.
    batch: Mutex<Vec<Event<u64>>>,
}

#[pymethods]
impl Poller {
    /// Opens a mechanism: `events`, or what HEARKEN_EVENTS names, or "auto".
    #[new]
    #[pyo3(signature = (events = None, level = true))]
    fn new(py: Python<'_>, events: Option<String>, level: bool) -> PyResult<Poller> {
        let events = spec(events);
        let open = if level { queue::Poller::open_level } else { queue::Poller::open };
        let poller = py.detach(|| open(&events)).map_err(|error| select_error(&error))?;
        let poller = OfProcess::new(poller);
        Ok(Poller { poller, events, batch: Mutex::default() })
    }

    /// Returns the name that selected the mechanism.
    #[getter]
    fn events(&self) -> &str {
        &self.events
    }

    /// Returns whether the mechanism itself is edge-triggered and the poller exposes that.
    #[getter]
    fn is_edge(&self) -> bool {
        self.poller.semantics().trigger == Trigger::Edge
    }

    /// Returns whether the mechanism reports priority data.
    #[getter]
    fn reports_priority(&self) -> bool {
        self.poller.semantics().reports.contains(Readiness::PRIORITY)
    }

    /// Returns whether the mechanism watches all kinds of descriptors.
    #[getter]
    fn watches_all(&self) -> bool {
        self.poller.semantics().watches == Watches::Any
    }

    /// Returns whether only the thread that created the poller may wait.
    #[getter]
    fn is_bound(&self) -> bool {
        self.poller.is_bound()
    }

    /// Returns the descriptor by which another event loop can watch this poller, or None.
    #[getter]
    fn descriptor(&self) -> Option<RawFd> {
        self.poller.descriptor()
    }

    /// Declares or replaces the interest in `fd`.
    fn set(&self, py: Python<'_>, fd: RawFd, interest: u8) -> PyResult<()> {
        let interest = Interest::from_bits(interest)
            .ok_or_else(|| PyValueError::new_err("invalid interest"))?;
        let data = u64::try_from(fd).map_err(|_| PyValueError::new_err("invalid descriptor"))?;
        // SAFETY: Python programs own descriptors as numbers. The poller uses the number for calls
        // of the kernel only, which refuse numbers of closed descriptors.
        let set = py.detach(|| unsafe { self.poller.set(fd, interest, data) });
        set.map_err(|error| os_error(&error))
    }

    /// Removes `fd`.
    fn remove(&self, py: Python<'_>, fd: RawFd) -> PyResult<()> {
        py.detach(|| self.poller.remove(fd)).map_err(|error| os_error(&error))
    }

    /// Ends the current wait of another thread, or the next wait.
    fn wake(&self) {
        self.poller.wake();
    }

    /// Waits, and returns a list of descriptors with their readiness.
    fn wait<'py>(
        &self,
        py: Python<'py>,
        seconds: Option<f64>,
        max: usize,
    ) -> PyResult<Bound<'py, PyList>> {
        let batch = self.wait_for_events(py, timeout(seconds), max)?;
        let events =
            PyList::new(py, batch.iter().map(|event| (event.token, event.readiness.bits())));
        self.put_back(batch);
        events
    }

    /// Waits, and returns a list of keys with their events, as `BaseSelector.select` does. `keys`
    /// contains the keys by descriptor.
    fn select<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyDict>,
        seconds: Option<f64>,
    ) -> PyResult<Bound<'py, PyList>> {
        let batch = self.wait_for_events(py, timeout(seconds), keys.len() + 1)?;
        let ready = PyList::empty(py);
        for event in &batch {
            // Another thread may have removed it.
            let Some(key) = keys.get_item(event.token)? else { continue };
            let requested: u8 = key.cast::<PyTuple>()?.get_item(2)?.extract()?;
            let events = selector_events(event.readiness) & requested;
            if events != 0 {
                ready.append((key, events))?;
            }
        }
        self.put_back(batch);
        Ok(ready)
    }
}

impl Poller {
    /// Waits without the interpreter's lock. After a signal, runs Python's handlers and continues.
    fn wait_for_events(
        &self,
        py: Python<'_>,
        timeout: Option<Duration>,
        max: usize,
    ) -> PyResult<Vec<Event<u64>>> {
        let mut batch = std::mem::take(&mut *self.lock());
        let start = Instant::now();
        let mut remaining = timeout;
        let slice = self.poller.semantics().registers_both.then_some(SLICE);
        loop {
            let wait = remaining.into_iter().chain(slice).min();
            match py.detach(|| self.poller.wait(&mut batch, max, wait, None)) {
                Ok(()) if !batch.is_empty() || wait == remaining => return Ok(batch),
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(os_error(&error)),
            }
            py.check_signals()?;
            remaining = timeout.map(|timeout| timeout.saturating_sub(start.elapsed()));
        }
    }

    fn put_back(&self, batch: Vec<Event<u64>>) {
        *self.lock() = batch;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Event<u64>>> {
        self.batch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Translates a readiness to the flags of the module `selectors`.
pub(crate) fn selector_events(readiness: Readiness) -> u8 {
    let read = if readiness.is_readable() { EVENT_READ } else { 0 };
    let write = if readiness.is_writable() { EVENT_WRITE } else { 0 };
    read | write
}

/// Returns the mechanisms, each with the reason why this kernel refuses it, or None.
#[pyfunction]
pub(crate) fn mechanisms(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let found = PyDict::new(py);
    for entry in TABLE {
        let refused = py.detach(|| entry.spec().probe()).err().map(|error| error.to_string());
        found.set_item(entry.name, refused)?;
    }
    Ok(found)
}
