//! Waiting for a time, and for the next turn.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::core::{self, SharedCore, State};
use crate::timer::{Time, Wheel};

/// The sleeps of an executor.
#[derive(Debug)]
pub(super) struct Timers {
    wheel: Wheel,
    entries: Vec<Entry>,
    /// Keys of vacant entries.
    vacant: Vec<u32>,
}

#[derive(Debug, Default)]
struct Entry {
    waker: Option<Waker>,
    expired: bool,
    /// Whether it waits until the executor stops instead of for a time.
    until_stop: bool,
}

impl Timers {
    pub(super) fn new(now: Time) -> Timers {
        Timers { wheel: Wheel::new(now), entries: Vec::new(), vacant: Vec::new() }
    }

    /// Returns the time at which a sleep may end. It may be too early.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.wheel.next_deadline()
    }

    /// Wakes the tasks whose sleep ends.
    pub(super) fn expire(&mut self, now: Time, foreign: &mut Vec<Waker>) {
        if self.wheel.armed() == 0 {
            return;
        }
        while let Some(key) = self.wheel.pop_expired(now) {
            if let Some(entry) = self.entries.get_mut(key as usize) {
                entry.expired = true;
                core::wake(entry.waker.as_ref(), foreign);
            }
        }
    }

    /// Wakes the tasks that wait until the executor stops.
    pub(super) fn stop(&mut self, foreign: &mut Vec<Waker>) {
        for entry in self.entries.iter_mut().filter(|entry| entry.until_stop) {
            entry.expired = true;
            core::wake(entry.waker.as_ref(), foreign);
        }
    }

    fn add(&mut self, deadline: Option<Time>) -> u32 {
        let key = self.vacant.pop().unwrap_or(self.entries.len() as u32);
        if key as usize == self.entries.len() {
            self.entries.push(Entry::default());
        }
        self.entries[key as usize].until_stop = deadline.is_none();
        self.wheel.set(key, deadline);
        key
    }

    fn remove(&mut self, key: u32) -> Option<Waker> {
        self.wheel.cancel(key);
        self.vacant.push(key);
        std::mem::take(&mut self.entries[key as usize]).waker
    }
}

/// Waits for a duration from the start of this turn. See [`Sleep`].
///
/// # Panics
/// Panics outside of a task.
pub fn sleep(duration: Duration) -> Sleep {
    sleep_until(now() + duration)
}

/// Waits until a time. See [`Sleep`].
///
/// # Panics
/// Panics outside of a task.
pub fn sleep_until(deadline: Time) -> Sleep {
    let core = core::current();
    let key = core.state.borrow_mut().timers.add(Some(deadline));
    Sleep { core, key, deadline }
}

/// Waits until the executor [stops](super::Stopper).
///
/// # Panics
/// Panics outside of a task.
pub async fn stopped() {
    let core = core::current();
    if core.state.borrow().stopping {
        return;
    }
    let key = core.state.borrow_mut().timers.add(None);
    Sleep { core, key, deadline: Time::from_nanos(u64::MAX) }.await;
}

/// Returns the time at which this turn of the executor started. It does not read the clock.
///
/// # Panics
/// Panics outside of a task.
pub fn now() -> Time {
    core::current().state.borrow().io.now()
}

/// A wait for a time. It is ready at most about a millisecond late, plus the delay of the turn, and
/// never early. Creating, moving and dropping it cost O(1).
pub struct Sleep {
    core: SharedCore,
    key: u32,
    deadline: Time,
}

impl Sleep {
    /// Returns the end of the wait.
    pub fn deadline(&self) -> Time {
        self.deadline
    }

    /// Moves the end of the wait.
    pub fn reset(&mut self, deadline: Time) {
        self.deadline = deadline;
        let timers = &mut self.core.state.borrow_mut().timers;
        timers.entries[self.key as usize].expired = false;
        timers.wheel.arm(self.key, deadline);
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let State { timers, foreign, .. } = &mut *self.core.state.borrow_mut();
        let entry = &mut timers.entries[self.key as usize];
        if entry.expired {
            return Poll::Ready(());
        }
        core::register(&mut entry.waker, context, foreign);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let waker = self.core.state.borrow_mut().timers.remove(self.key);
        drop(waker);
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sleep(until {:?})", self.deadline)
    }
}

/// The error of [`timeout`]: the time is up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("timed out")]
pub struct Elapsed;

impl From<Elapsed> for std::io::Error {
    fn from(_: Elapsed) -> std::io::Error {
        std::io::ErrorKind::TimedOut.into()
    }
}

/// Waits for a future for at most a duration, from the start of this turn. Then the future is
/// dropped.
///
/// # Errors
/// [`Elapsed`] if the future was not ready in time.
///
/// # Panics
/// Panics outside of a task.
pub async fn timeout<F: Future>(duration: Duration, future: F) -> Result<F::Output, Elapsed> {
    let mut sleep = sleep(duration);
    let mut future = pin!(future);
    poll_fn(|context| {
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Ok(output));
        }
        Pin::new(&mut sleep).poll(context).map(|()| Err(Elapsed))
    })
    .await
}

/// Lets other tasks run, and continues in the next turn.
pub async fn yield_now() {
    let mut yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
