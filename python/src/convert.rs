//! Conversion of errors, timeouts and names between Rust and Python.

use std::io;
use std::time::Duration;

use hearken::mechanism::{AUTO, SelectError};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

/// The environment variable that selects the mechanism if the caller does not.
const VARIABLE: &str = "HEARKEN_EVENTS";

/// Converts an error to the subclass of `OSError` for its number.
pub(crate) fn os_error(error: &io::Error) -> PyErr {
    match error.raw_os_error() {
        Some(number) => {
            let text = error.to_string();
            // Python appends the number itself.
            let text = text.split(" (os error").next().unwrap_or_default().to_owned();
            PyOSError::new_err((number, text))
        }
        None => PyOSError::new_err(error.to_string()),
    }
}

/// Converts an error of the selection of a mechanism.
pub(crate) fn select_error(error: &SelectError) -> PyErr {
    match error {
        SelectError::Unavailable { reason, .. } => match reason.error.raw_os_error() {
            Some(number) => PyOSError::new_err((number, error.to_string())),
            None => PyOSError::new_err(error.to_string()),
        },
        _ => PyValueError::new_err(error.to_string()),
    }
}

/// Returns the name of the mechanism to open: `events`, or that of the environment.
pub(crate) fn spec(events: Option<String>) -> String {
    events
        .or_else(|| std::env::var(VARIABLE).ok())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| AUTO.to_owned())
}

/// Converts a timeout in seconds. A negative one counts as zero, one beyond all clocks as none.
pub(crate) fn timeout(seconds: Option<f64>) -> Option<Duration> {
    seconds.and_then(|seconds| {
        let seconds = seconds.max(0.0);
        Duration::try_from_secs_f64(seconds).ok()
    })
}
