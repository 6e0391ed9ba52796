//! Values that belong to one thread or process, in Python objects.

// Python objects move between threads. Each block states why that is sound.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ThreadId};

/// The number of forks between the first process and this one.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// Notes that this process is a fork. Its copies of rings and mechanisms belong to the parent.
pub(crate) fn note_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// A value that forks of its process leak. Dropping it would change files that they share.
#[derive(Debug)]
pub(crate) struct OfProcess<T> {
    value: ManuallyDrop<T>,
    forks: u64,
}

impl<T> OfProcess<T> {
    pub(crate) fn new(value: T) -> OfProcess<T> {
        OfProcess { value: ManuallyDrop::new(value), forks: FORKS.load(Ordering::Relaxed) }
    }

    fn is_mine(&self) -> bool {
        self.forks == FORKS.load(Ordering::Relaxed)
    }
}

impl<T> Deref for OfProcess<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Drop for OfProcess<T> {
    fn drop(&mut self) {
        if self.is_mine() {
            // SAFETY: it is dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}

/// A value that belongs to one thread. Others leak it.
#[derive(Debug)]
pub(crate) struct OfThread<T> {
    value: ManuallyDrop<OfProcess<T>>,
    thread: ThreadId,
}

impl<T> OfThread<T> {
    pub(crate) fn new(value: T) -> OfThread<T> {
        let value = ManuallyDrop::new(OfProcess::new(value));
        OfThread { value, thread: thread::current().id() }
    }

    /// Returns the value to its thread, and `None` to other threads and to forks.
    pub(crate) fn get(&mut self) -> Option<&mut T> {
        let is_mine = self.is_mine() && self.value.is_mine();
        is_mine.then_some(&mut *self.value.value)
    }

    fn is_mine(&self) -> bool {
        self.thread == thread::current().id()
    }
}

impl<T> Drop for OfThread<T> {
    fn drop(&mut self) {
        if self.is_mine() {
            // SAFETY: it is dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}

/// A cell of a Python object. The interpreter's lock guards it.
#[derive(Debug, Default)]
pub(crate) struct Guarded<T>(pub(crate) RefCell<T>);

// SAFETY: the methods of Python objects run with the interpreter's lock, which the module requires
// (`gil_used`). A method that releases the lock keeps its mutable borrow of the cell meanwhile, so
// that others find it in use.
unsafe impl<T> Sync for Guarded<T> {}
// SAFETY: as above. A value that must stay in its thread is an `OfThread`.
unsafe impl<T> Send for Guarded<T> {}

/// A reference that a method uses in its own thread while it has released the interpreter's lock.
pub(crate) struct Unlocked<'a, T: ?Sized>(&'a mut T);

// SAFETY: `Python::detach` calls its closure in the same thread.
unsafe impl<T: ?Sized> Send for Unlocked<'_, T> {}

impl<'a, T: ?Sized> Unlocked<'a, T> {
    pub(crate) fn new(value: &'a mut T) -> Self {
        Unlocked(value)
    }

    pub(crate) fn get(self) -> &'a mut T {
        self.0
    }
}
