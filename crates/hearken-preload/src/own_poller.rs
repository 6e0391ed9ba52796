//! [`OwnPoller`]: a poller of one process.

use std::mem::ManuallyDrop;
use std::ops::Deref;

use hearken::queue::Poller;

use crate::files;

/// A poller of the process that opened it. A child of a fork leaks its copy: dropping it would revoke
/// its parent's registrations, and the memory of rings is not copied.
pub(crate) struct OwnPoller {
    poller: ManuallyDrop<Poller>,
    /// The forks before the process that opened it.
    forks: u32,
}

impl OwnPoller {
    pub(crate) fn new(poller: Poller) -> OwnPoller {
        OwnPoller { poller: ManuallyDrop::new(poller), forks: files::forks() }
    }

    /// Returns whether it belongs to a parent of this process.
    pub(crate) fn is_inherited(&self) -> bool {
        self.forks != files::forks()
    }
}

impl Deref for OwnPoller {
    type Target = Poller;

    fn deref(&self) -> &Poller {
        &self.poller
    }
}

impl Drop for OwnPoller {
    fn drop(&mut self) {
        if !self.is_inherited() {
            // SAFETY: it is dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.poller) };
        }
    }
}
