//! Waits of a simulated host that suspend its program.

// The host keeps its function longer than the program, whose yielder is borrowed.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ptr::NonNull;
use std::rc::Rc;

use hearken::io::sim::Host;

use crate::scheduler::WaitYielder;

/// Makes waits of `host` suspend the program that owns `yielder`.
///
/// `is_running` must be set while the program's coroutine runs, and only then. Waits at other times,
/// as of values that are dropped at the end, return at once.
pub(crate) fn set(host: &Host, yielder: &WaitYielder, is_running: Rc<Cell<bool>>) {
    let yielder = NonNull::from(yielder);
    host.set_waiter(move |until| {
        if is_running.get() {
            // SAFETY: the yielder exists as long as its coroutine runs.
            unsafe { yielder.as_ref() }.suspend(until);
        }
    });
}
