//! A signal that ends a load early, from any thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hearken::Waker;

/// A signal that ends a running load early. The load returns a report of what it has done. Clones
/// share the signal.
///
/// ```
/// use hearken_load::StopSignal;
///
/// let stop = StopSignal::new();
/// let clone = stop.clone();
/// clone.raise();
/// assert!(stop.is_raised());
/// ```
#[derive(Clone, Debug, Default)]
pub struct StopSignal(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    raised: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
}

impl StopSignal {
    /// Creates a signal that is not raised.
    pub fn new() -> StopSignal {
        StopSignal::default()
    }

    /// Ends the load immediately. Not async-signal-safe: call it from a thread that waits for
    /// signals.
    pub fn raise(&self) {
        self.0.raised.store(true, Ordering::Release);
        self.wake();
    }

    /// Returns whether the signal was raised.
    pub fn is_raised(&self) -> bool {
        self.0.raised.load(Ordering::Acquire)
    }

    /// Wakes all threads of the load.
    pub(crate) fn wake(&self) {
        self.0.wakers.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(Waker::wake);
    }

    /// Registers the waker of a thread.
    pub(crate) fn add(&self, waker: Waker) {
        self.0.wakers.lock().unwrap_or_else(PoisonError::into_inner).push(waker);
    }

    /// Removes all wakers.
    pub(crate) fn clear(&self) {
        self.0.wakers.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
