//! The atomics and locks of state that threads share. `scripts/loom` replaces them by those of a model checker,
//! which runs the models in unit tests in all interleavings.

#[cfg(all(test, loom))]
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard, atomic::AtomicBool};
#[cfg(not(all(test, loom)))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, atomic::AtomicBool};
