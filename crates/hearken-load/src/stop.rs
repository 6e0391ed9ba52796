//! A signal that ends a load early, from any thread.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use hearken::Waker;

use crate::sync::{AtomicBool, Mutex};

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
        let mut wakers = self.0.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        // The thread may have checked the signal before it was raised, and sleep.
        if self.is_raised() {
            waker.wake();
        }
        wakers.push(waker);
    }

    /// Removes all wakers.
    pub(crate) fn clear(&self) {
        self.0.wakers.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

#[cfg(all(test, loom))]
mod models {
    //! Models of the signal, checked by loom: `scripts/loom`.

    use std::time::Duration;

    use hearken::EventQueue;
    use loom::thread;

    use super::StopSignal;

    // A thread of the load may check the signal and sleep before its waker is added.
    #[test]
    fn a_signal_wakes_a_thread_that_is_being_started() {
        loom::model(|| {
            let queue = EventQueue::<()>::new().unwrap();
            let waker = queue.waker();
            let stop = StopSignal::new();
            let raised = stop.clone();
            let raise = thread::spawn(move || raised.raise());
            let started = stop.clone();
            let worker = thread::spawn(move || started.is_raised());
            stop.add(waker);
            raise.join().unwrap();
            let saw_signal = worker.join().unwrap();
            let woken = queue.next_events(1, Some(Duration::ZERO)).unwrap().woken();
            assert!(saw_signal || woken);
            assert!(stop.is_raised());
        });
    }
}
