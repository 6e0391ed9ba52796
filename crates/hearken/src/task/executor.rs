//! The executor: runs tasks and turns of an `Io`.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::core::{self, Core, Entered, State};
use super::driver::IoHandle;
use super::join::JoinHandle;
use super::raw::{Local, Runnable, Scheduler};
use crate::io::readiness::Policy;
use crate::io::{CompletionKind, Relay, Visitor, visit};
use crate::timer::Time;
use crate::waker::Wakeups;

/// Maximum number of tasks that run between two completions.
const POLLS_PER_COMPLETION: usize = 16;
/// Maximum number of tasks that run at the end of a turn, after one run of each ready task.
const POLLS_PER_TURN: usize = 128;

/// An executor of tasks over an `Io`. It belongs to its thread, as its tasks do. See the
/// [module](super).
///
/// Dropping the executor drops all tasks.
#[derive(Debug)]
pub struct Executor<I: Relay + 'static> {
    core: Rc<Core<I>>,
}

impl<I: Relay + 'static> Executor<I> {
    /// Creates an executor over `io`, without tasks.
    pub fn new(io: I) -> Executor<I> {
        Executor { core: Rc::new(Core::new(io)) }
    }

    /// Reserves table space for a number of connections, as [`Io::reserve`](crate::io::Io::reserve)
    /// does.
    pub fn reserve(&mut self, connections: usize) {
        let mut state = self.core.state.borrow_mut();
        state.io.reserve(connections);
        state.sources.reserve(connections);
    }

    /// Starts a task, which runs in the next turn.
    pub fn spawn<F: Future + 'static>(&self, future: F) -> JoinHandle<F::Output> {
        self.core.spawn(future)
    }

    /// Runs turns until a task with `future` is done, and returns its output. A panic of the task
    /// is resumed. Other tasks stop with the turn.
    ///
    /// # Errors
    /// Errors of [`Io::wait`](crate::io::Io::wait), after which the executor is unusable.
    pub fn block_on<F: Future + 'static>(&mut self, future: F) -> io::Result<F::Output> {
        let mut handle = pin!(self.spawn(future));
        while !handle.is_finished() {
            self.turn(None)?;
        }
        match handle.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(output)) => Ok(output),
            Poll::Ready(Err(error)) => match error.into_panic() {
                Some(panic) => std::panic::resume_unwind(panic),
                None => Err(io::ErrorKind::Interrupted.into()),
            },
            Poll::Pending => Err(io::ErrorKind::Interrupted.into()),
        }
    }

    /// Runs turns until all tasks are done.
    ///
    /// # Errors
    /// As [`block_on`](Executor::block_on).
    pub fn run(&mut self) -> io::Result<()> {
        while self.task_count() > 0 {
            self.turn(None)?;
        }
        Ok(())
    }

    /// Stops accepting, and runs turns until all tasks are done or `grace` is over. Then drops the
    /// remaining tasks, and returns their number.
    ///
    /// # Errors
    /// As [`block_on`](Executor::block_on).
    pub fn shut_down(&mut self, grace: Duration) -> io::Result<usize> {
        self.begin_stop();
        let end = self.core.state.borrow().io.clock() + grace;
        while self.task_count() > 0 && self.core.state.borrow().io.now() < end {
            self.turn(Some(end))?;
        }
        let remaining = self.task_count();
        self.core.cancel_all_later();
        if let Some(local) = self.core.scheduler.local() {
            let _entered = core::enter(self.core.clone());
            local.start_turn();
            let cancelled = local.take();
            while let Some(task) = cancelled.pop() {
                self.run_task(task);
            }
        }
        Ok(remaining)
    }

    /// Returns the number of tasks that are not done.
    pub fn task_count(&self) -> usize {
        self.core.task_count()
    }

    /// Returns a handle that stops the executor from any thread.
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.core.scheduler))
    }

    /// Returns a handle by which tasks use the `Io` itself.
    pub fn io(&self) -> IoHandle<I> {
        IoHandle::new(Rc::clone(&self.core))
    }

    /// Runs one turn: waits until `until` for something to do, and runs the tasks that have
    /// something to do. Each runs a limited number of times, so a turn always ends.
    ///
    /// # Errors
    /// As [`block_on`](Executor::block_on).
    pub fn turn(&mut self, until: Option<Time>) -> io::Result<()> {
        let mut turn = self.begin_turn(until, I::wait)?;
        while turn.run_next() {}
        turn.finish();
        Ok(())
    }

    /// Begins a turn by `wait`, which calls [`Io::wait`](crate::io::Io::wait) with the time that it
    /// receives. The caller then runs the parts of the turn.
    ///
    /// # Errors
    /// As [`block_on`](Executor::block_on).
    pub fn begin_turn(
        &mut self,
        until: Option<Time>,
        wait: impl FnOnce(&mut I, Option<Time>) -> io::Result<()>,
    ) -> io::Result<Turn<'_, I>> {
        let core = &*self.core;
        let Some(local) = core.scheduler.local() else {
            return Err(io::ErrorKind::Unsupported.into()); // An executor stays on its thread.
        };
        {
            let state = &mut *core.state.borrow_mut();
            let until = match local.has_ready() {
                true => Some(state.io.now()),
                false => [until, state.timers.next_deadline()].into_iter().flatten().min(),
            };
            wait(&mut state.io, until)?;
            state.timers.expire(state.io.now(), &mut state.foreign);
        }
        let entered = core::enter(self.core.clone());
        local.start_turn();
        core.wake_foreign();
        Ok(Turn { executor: self, local, _entered: entered })
    }

    /// Takes the next completion of the turn, and runs the tasks that it wakes and then those that
    /// were ready before. Returns whether there was one.
    #[inline]
    fn run_next(&self, local: &Local) -> bool {
        let mut state = self.core.state.borrow_mut();
        let Some(completion) = state.io.next() else { return false };
        // The task of the completion runs first: others might use the same connection.
        let earlier = local.take();
        let token = completion.token;
        if matches!(completion.kind, CompletionKind::Woken) {
            drop(state);
            self.on_woken();
            state = self.core.state.borrow_mut();
        }
        let must_put_aside = state.dispatch(completion);
        let has_foreign = !state.foreign.is_empty();
        drop(state);
        if has_foreign {
            self.core.wake_foreign();
        }
        local.append(&earlier);
        self.run_tasks(local, POLLS_PER_COMPLETION);
        if must_put_aside {
            self.core.state.borrow_mut().put_aside(token);
        }
        true
    }

    #[cold]
    fn on_woken(&self) {
        self.core.scheduler.accept_remote();
        if self.core.scheduler.is_stopped() {
            self.begin_stop();
        }
    }

    fn begin_stop(&self) {
        let State { stopping, timers, sources, foreign, .. } = &mut *self.core.state.borrow_mut();
        if !std::mem::replace(stopping, true) {
            sources.wake_listeners(foreign);
            timers.stop(foreign);
        }
    }

    /// Runs up to `max` ready tasks.
    #[inline]
    fn run_tasks(&self, local: &Local, max: usize) {
        for _ in 0..max {
            let Some(task) = local.pop() else { return };
            self.run_task(task);
        }
    }

    #[inline]
    fn run_task(&self, task: Runnable) {
        if let Some(done) = task.run() {
            self.core.release(done);
        }
    }
}

/// A turn of an executor, in parts.
pub struct Turn<'e, I: Relay + 'static> {
    executor: &'e Executor<I>,
    local: &'e Local,
    _entered: Entered,
}

impl<I: Relay + 'static> fmt::Debug for Turn<'_, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Turn").field(&self.executor.core).finish()
    }
}

impl<I: Relay + 'static> Turn<'_, I> {
    /// Takes the next completion of the turn, and runs the tasks that it wakes and then those that
    /// were ready before. Returns whether there was one.
    #[inline]
    pub fn run_next(&mut self) -> bool {
        self.executor.run_next(self.local)
    }

    /// Returns whether tasks are ready.
    pub fn has_ready(&self) -> bool {
        self.local.has_ready()
    }

    /// Runs the tasks that are ready, up to a limit.
    pub fn finish(self) {
        let core = &*self.executor.core;
        core.wake_foreign();
        let ready = self.local.take();
        while let Some(task) = ready.pop() {
            self.executor.run_task(task);
        }
        self.executor.run_tasks(self.local, POLLS_PER_TURN);
        core.wake_foreign();
    }
}

impl<I: Relay + 'static> Drop for Executor<I> {
    fn drop(&mut self) {
        let _entered = core::enter(self.core.clone());
        self.core.scheduler.close();
        self.core.cancel_all();
    }
}

/// Stops an executor from any thread: its listeners fail, and [`stopped`](super::stopped) is ready. Tasks continue
/// until they end, or until [`Executor::shut_down`] drops them.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<Scheduler>);

impl Stopper {
    /// Stops the executor.
    pub fn stop(&self) {
        self.0.stop();
    }
}

/// The error of a listener whose executor stops.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the executor stops")]
pub struct Stopping;

/// Returns a handle that stops the executor whose task calls.
///
/// # Panics
/// Panics outside of a task.
pub fn stopper() -> Stopper {
    Stopper(Arc::clone(&core::current().scheduler))
}

/// Runs a future as a task of a new executor, over the mechanism or io_uring that `spec` names as
/// for [`io::find`](crate::io::find).
///
/// # Errors
/// The name or an option is unknown, or the kernel refuses the implementation. Errors of
/// [`Executor::block_on`].
pub fn block_on<F: Future + 'static>(spec: &str, future: F) -> io::Result<F::Output> {
    /// Runs a future over an implementation.
    struct BlockOn<F>(F);

    impl<F: Future + 'static> Visitor for BlockOn<F> {
        type Output = io::Result<F::Output>;

        fn visit<I: Relay + 'static>(self, _: &'static str, io: I) -> Self::Output {
            Executor::new(io).block_on(self.0)
        }
    }

    let visitor = BlockOn(future);
    visit(spec, &Policy::default(), Wakeups::new()?, visitor).map_err(io::Error::other)?
}

/// Starts a task on the executor whose task calls.
///
/// # Panics
/// Panics outside of a task.
pub fn spawn<F: Future + 'static>(future: F) -> JoinHandle<F::Output> {
    core::current().spawn(future)
}
