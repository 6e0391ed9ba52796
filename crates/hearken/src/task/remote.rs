//! Wake-ups of tasks by other threads.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use crate::sync::{AtomicBool, Mutex, MutexGuard};

#[cfg(all(test, loom))]
mod models;

/// Items that other threads pass to the owner of the queue.
#[derive(Debug)]
pub(super) struct RemoteQueue<T> {
    /// `None` once the owner is gone.
    items: Mutex<Option<Vec<T>>>,
}

impl<T> RemoteQueue<T> {
    pub(super) fn new() -> RemoteQueue<T> {
        RemoteQueue { items: Mutex::new(Some(Vec::new())) }
    }

    /// Adds an item unless `pending` says that it is in the queue already. Returns whether the
    /// caller must notify the owner.
    pub(super) fn push(&self, pending: &AtomicBool, item: impl FnOnce() -> T) -> bool {
        // Acquires and releases: the owner's swap reads this one, or a later wake-up of the item.
        if pending.swap(true, Ordering::AcqRel) {
            return false;
        }
        let mut items = self.lock();
        let Some(items) = &mut *items else { return false };
        items.push(item());
        items.len() == 1
    }

    /// Removes and returns all items. The owner calls [`accept`] for each before it handles it.
    pub(super) fn take(&self) -> Vec<T> {
        self.lock().as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Removes and returns all items. Later ones are discarded.
    pub(super) fn close(&self) -> Vec<T> {
        self.lock().take().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<T>>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Allows the item to be queued again. What other threads did before they queued it happened before
/// this call.
pub(super) fn accept(pending: &AtomicBool) {
    pending.swap(false, Ordering::AcqRel);
}
