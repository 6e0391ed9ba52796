//! Stops of the server while requests arrive.

use std::cell::Cell;
use std::time::Duration;

use hearken::Waker;
use hearken::timer::Time;

use crate::scheduler::Program;

/// A stop at the time at which a request arrives.
#[derive(Debug)]
pub(super) struct StopOnRequest {
    /// Number of requests until the stop.
    remaining: Cell<u32>,
    /// Maximum time until a request that was sent has arrived.
    delay: Duration,
    waker: Waker,
    at: Cell<Option<Time>>,
    is_cancelled: Cell<bool>,
}

impl StopOnRequest {
    /// Creates a stop on a request: 1 stands for the first one, and 0 for no stop.
    pub(super) fn new(number: u32, delay: Duration, waker: Waker) -> StopOnRequest {
        let (at, is_cancelled) = (Cell::new(None), Cell::new(false));
        StopOnRequest { remaining: Cell::new(number), delay, waker, at, is_cancelled }
    }

    /// Counts a request that was sent.
    pub(super) fn on_taken(&self, now: Time) {
        self.remaining.set(self.remaining.get().saturating_sub(1));
        if self.remaining.get() == 0 && self.at.get().is_none() {
            self.at.set(Some(now + self.delay));
            self.waker.wake();
        }
    }

    /// Ends [`wait`](StopOnRequest::wait) without a stop.
    pub(super) fn cancel(&self) {
        self.is_cancelled.set(true);
        self.waker.wake();
    }

    /// Waits for the stop. Returns false if there is none.
    pub(super) fn wait(&self, program: Program<'_>) -> bool {
        if self.remaining.get() == 0 {
            return false;
        }
        loop {
            program.host().take_wake_up();
            match self.at.get() {
                _ if self.is_cancelled.get() => return false,
                Some(at) if program.host().world().now() >= at => return true,
                until => program.suspend(until),
            }
        }
    }
}
