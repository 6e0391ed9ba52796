//! The state that the tasks of an executor share: its `Io`, the sources of completions, and timers.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};

use super::join::JoinHandle;
use super::raw::{self, Scheduler, Task};
use super::source::Sources;
use super::time::Timers;
use crate::io::{Completion, Relay};

/// An executor's state. Streams and timers have it without the type of its `Io`.
pub(super) struct Core<I: ?Sized> {
    pub(super) scheduler: Arc<Scheduler>,
    /// All tasks that are not done.
    tasks: RefCell<Vec<Task>>,
    /// Borrowed only while no foreign code runs, except in
    /// [`IoHandle::with`](super::IoHandle::with).
    pub(super) state: RefCell<State<I>>,
}

/// A core below which the `Io` may be any.
pub(super) type SharedCore = Rc<Core<dyn Relay>>;

/// The part of the state that operations change.
pub(super) struct State<I: ?Sized> {
    pub(super) sources: Sources,
    pub(super) timers: Timers,
    /// Wakers that are not of a task of an executor. They are called when the state is not
    /// borrowed, since they may run any code.
    pub(super) foreign: Vec<Waker>,
    /// Whether the executor stops.
    pub(super) stopping: bool,
    /// The completion of this moment, if a task takes completions as they are.
    pub(super) current: Option<Completion>,
    /// Completions of tokens that belong to no stream, if a task takes them.
    pub(super) unclaimed: Option<Unclaimed>,
    // Last, so that its type can be erased.
    pub(super) io: I,
}

/// Completions of tokens that belong to no stream.
#[derive(Default)]
pub(super) struct Unclaimed {
    pub(super) completions: VecDeque<Completion>,
    pub(super) taker: Option<Waker>,
}

impl<I: Relay> Core<I> {
    pub(super) fn new(io: I) -> Core<I> {
        Core {
            scheduler: Arc::new(Scheduler::new(io.waker())),
            tasks: RefCell::default(),
            state: RefCell::new(State {
                sources: Sources::default(),
                timers: Timers::new(io.now()),
                foreign: Vec::new(),
                stopping: false,
                current: None,
                unclaimed: None,
                io,
            }),
        }
    }
}

impl<I: ?Sized> Core<I> {
    /// Starts a task.
    // A handle knows the type of its task's output.
    #[allow(unsafe_code)]
    pub(super) fn spawn<F: Future + 'static>(&self, future: F) -> JoinHandle<F::Output> {
        let index = self.tasks.borrow().len() as u32;
        let [owned, handle] = Task::new(&self.scheduler, index, future);
        self.tasks.borrow_mut().push(owned);
        // SAFETY: the task was created with a future of this output.
        unsafe { JoinHandle::new(handle) }
    }

    /// Returns the number of tasks.
    pub(super) fn task_count(&self) -> usize {
        self.tasks.borrow().len()
    }

    /// Removes a task that is done.
    pub(super) fn release(&self, index: u32) {
        let mut tasks = self.tasks.borrow_mut();
        let task = tasks.swap_remove(index as usize);
        if let Some(moved) = tasks.get(index as usize) {
            moved.set_index(index);
        }
        drop(tasks);
        drop(task);
    }

    /// Lets all tasks drop their futures when they run next.
    pub(super) fn cancel_all_later(&self) {
        self.tasks.borrow().iter().for_each(Task::cancel_later);
    }

    /// Drops the futures of all tasks, after the scheduler was closed.
    pub(super) fn cancel_all(&self) {
        loop {
            let Some(task) = self.tasks.borrow_mut().pop() else { return };
            task.cancel();
        }
    }

    /// Wakes the collected foreign wakers.
    #[inline]
    pub(super) fn wake_foreign(&self) {
        let has_foreign = !self.state.borrow().foreign.is_empty();
        if has_foreign {
            let wakers = std::mem::take(&mut self.state.borrow_mut().foreign);
            wakers.into_iter().for_each(Waker::wake);
        }
    }
}

impl<I: ?Sized> fmt::Debug for Core<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("tasks", &self.task_count()).finish_non_exhaustive()
    }
}

/// Wakes the task of `waker`, or collects a foreign waker.
#[inline]
pub(super) fn wake(waker: Option<&Waker>, foreign: &mut Vec<Waker>) {
    match waker {
        Some(waker) if raw::is_of_task(waker) => waker.wake_by_ref(),
        Some(waker) => foreign.push(waker.clone()),
        None => {}
    }
}

/// Registers the waker of `context`, without a count of references if it is registered already. A
/// waker that it replaces is woken, so two tasks that wait for the same take turns.
#[inline]
pub(super) fn register(place: &mut Option<Waker>, context: &Context<'_>, foreign: &mut Vec<Waker>) {
    match place {
        Some(waker) if waker.will_wake(context.waker()) => {}
        _ => foreign.extend(place.replace(context.waker().clone())),
    }
}

thread_local! {
    /// The executor whose tasks run.
    static CURRENT: RefCell<Option<SharedCore>> = const { RefCell::new(None) };
}

/// Restores the executor that was current before.
pub(super) struct Entered(Option<SharedCore>);

/// Makes an executor current until the result is dropped.
pub(super) fn enter(core: SharedCore) -> Entered {
    Entered(CURRENT.replace(Some(core)))
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

/// Returns the executor whose task calls.
///
/// # Panics
/// Panics outside of a task.
#[inline]
pub(super) fn current() -> SharedCore {
    let core = CURRENT.with_borrow(Clone::clone);
    core.expect("hearken::task functions are called from tasks of an executor")
}
