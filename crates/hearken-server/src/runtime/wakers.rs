//! The wakers of the threads of a server.

use std::sync::{Arc, PoisonError};

use hearken::Waker;

use crate::sync::{Mutex, MutexGuard};

/// The wakers of the threads of a server, by index. Threads may start and end at any time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wakers(Arc<Mutex<Vec<Option<Waker>>>>);

impl Wakers {
    /// Sets the waker of a thread. Runs `before` while no other thread uses the wakers.
    pub(crate) fn set(&self, index: usize, waker: Waker, before: impl FnOnce(&Waker)) {
        let mut wakers = self.lock();
        if wakers.len() <= index {
            wakers.resize(index + 1, None);
        }
        before(&waker);
        wakers[index] = Some(waker);
    }

    /// Removes the waker of a thread that has ended.
    pub(crate) fn remove(&self, index: usize) {
        if let Some(waker) = self.lock().get_mut(index) {
            *waker = None;
        }
    }

    /// Wakes a thread. Does nothing if it has no waker.
    pub(crate) fn wake(&self, index: usize) {
        if let Some(Some(waker)) = self.lock().get(index) {
            waker.wake();
        }
    }

    /// Wakes all threads.
    pub(crate) fn wake_all(&self) {
        self.lock().iter().flatten().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Option<Waker>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
