//! Results of tasks.

// A handle knows the type of its task's output.
#![allow(unsafe_code)]

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use super::raw::Task;

/// A handle of a task, which yields the task's output. Dropping the handle does not end the task.
pub struct JoinHandle<T> {
    task: Task,
    // The output stays on the thread of the executor.
    output: PhantomData<(T, Rc<()>)>,
}

impl<T> JoinHandle<T> {
    /// Creates the handle of `task`.
    ///
    /// # Safety
    /// `T` is the type of the task's output.
    pub(super) unsafe fn new(task: Task) -> JoinHandle<T> {
        JoinHandle { task, output: PhantomData }
    }

    /// Ends the task: its future is dropped in the next turn at the latest. Does nothing to a task
    /// that is done.
    pub fn abort(&self) {
        self.task.cancel_later();
    }

    /// Returns whether the task is done.
    pub fn is_finished(&self) -> bool {
        self.task.is_done()
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    /// Yields the output once. Later it fails as if the task had been aborted.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: `new` requires the type.
        unsafe { self.task.poll_output(context) }
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        // SAFETY: `new` requires the type.
        unsafe { self.task.detach::<T>() };
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("JoinHandle").field(&self.task).finish()
    }
}

/// The reason why a task has no output.
pub struct JoinError(Option<Box<dyn Any + Send>>);

impl JoinError {
    pub(super) fn cancelled() -> JoinError {
        JoinError(None)
    }

    pub(super) fn panicked(panic: Box<dyn Any + Send>) -> JoinError {
        JoinError(Some(panic))
    }

    /// Returns whether the task was aborted, or its executor dropped.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the payload of the panic that ended the task.
    pub fn into_panic(self) -> Option<Box<dyn Any + Send>> {
        self.0
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(panic) = &self.0 else { return f.write_str("the task was aborted") };
        let owned = panic.downcast_ref::<String>().map(String::as_str);
        match owned.or_else(|| panic.downcast_ref::<&str>().copied()) {
            Some(message) => write!(f, "the task panicked: {message}"),
            None => f.write_str("the task panicked"),
        }
    }
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinError({self})")
    }
}

impl std::error::Error for JoinError {}
