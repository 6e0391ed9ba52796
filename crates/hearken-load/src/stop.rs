//! Ending a load before its time, from any thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hearken::Waker;

/// Ends a load that is under way, with a complete report of what it came to. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    raised: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
}

impl Stop {
    /// One that is not raised.
    pub fn new() -> Stop {
        Stop::default()
    }

    /// Ends it, at once. Not to be called in the handler of a signal, but by a thread that waits for it.
    pub fn raise(&self) {
        self.0.raised.store(true, Ordering::Release);
        self.wake();
    }

    /// Whether it was raised.
    pub fn is_raised(&self) -> bool {
        self.0.raised.load(Ordering::Acquire)
    }

    /// Ends the waits of all threads, so that they look.
    pub(crate) fn wake(&self) {
        self.0.wakers.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(Waker::wake);
    }

    /// Wakes this one, too.
    pub(crate) fn add(&self, waker: Waker) {
        self.0.wakers.lock().unwrap_or_else(PoisonError::into_inner).push(waker);
    }

    /// There is nobody left to wake.
    pub(crate) fn clear(&self) {
        self.0.wakers.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
