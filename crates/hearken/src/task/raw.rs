//! Tasks in memory: one allocation with a header and the future, wakers, and the ready queues.
//!
//! A task belongs to the thread of its executor. Wakers may be anywhere. They contain a counted
//! reference to the allocation. On the task's own thread a wake-up is a flag and a link in the ready
//! queue, without an atomic operation. On another thread it goes through the [`RemoteQueue`].
//!
//! Rules that make this sound:
//!
//! a) Only the owner's thread accesses the cells of a header, the stage and the ready queues.
//!    [`Scheduler::local`] checks this.
//! b) The executor holds a reference to each task that is not done or that is in a ready queue. So
//!    links between tasks stay valid.
//! c) The future is dropped when the task is done, and its output when it is taken or the handle is
//!    dropped. Both happen on the owner's thread. So the last reference, which any thread may drop,
//!    finds nothing left of the future.
//! d) A scheduler that is closed ignores wake-ups, so no freed task is linked.

// The pointers of wakers have no types. Each block states why that is sound.
#![allow(unsafe_code)]

use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::future::Future;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{self, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

use super::join::JoinError;
use super::remote::{self, RemoteQueue};
use crate::sync::AtomicBool;
use crate::waker;

bitflags::bitflags! {
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    struct State: u8 {
        /// In a ready queue.
        const QUEUED = 1;
        /// Being polled.
        const RUNNING = 2;
        /// The future is dropped.
        const DONE = 4;
        /// The next run drops the future instead of polling it.
        const CANCELLED = 8;
        /// A handle wants the output.
        const HAS_HANDLE = 16;
    }
}

/// The part of a task that does not depend on its future.
struct Header {
    vtable: &'static Vtable,
    scheduler: Arc<Scheduler>,
    references: AtomicU32,
    /// Whether the task is in the remote queue.
    remote: AtomicBool,
    state: Cell<State>,
    /// Position in the executor's list.
    index: Cell<u32>,
    /// The next task in the ready queue.
    next: Cell<Option<NonNull<Header>>>,
    /// The waker of the task that waits for the output.
    joiner: Cell<Option<Waker>>,
}

#[cfg(not(all(test, loom)))]
const _: () = assert!(size_of::<Header>() <= 56);

/// Functions of a task that depend on its future.
struct Vtable {
    /// Polls the future. Returns whether it is done, and then dropped.
    poll: unsafe fn(NonNull<Header>) -> bool,
    /// Drops the future.
    cancel: unsafe fn(NonNull<Header>),
    /// Moves the output to the pointer. Returns whether there was one.
    take: unsafe fn(NonNull<Header>, *mut ()) -> bool,
    /// Frees the task.
    free: unsafe fn(NonNull<Header>),
}

/// A task with its future.
// The header is first, so that a pointer to one is a pointer to the other.
#[repr(C)]
struct Allocation<F: Future> {
    header: Header,
    stage: UnsafeCell<Stage<F>>,
}

enum Stage<F: Future> {
    Future(F),
    Output(Result<F::Output, JoinError>),
    Taken,
}

impl<F: Future> Allocation<F> {
    const VTABLE: Vtable =
        Vtable { poll: Self::poll, cancel: Self::cancel, take: Self::take, free: Self::free };

    /// Returns the stage.
    ///
    /// # Safety
    /// `task` is an allocation of this type.
    unsafe fn stage(task: NonNull<Header>) -> *mut Stage<F> {
        // SAFETY: the pointer was made from one to the whole allocation.
        UnsafeCell::raw_get(unsafe { &raw const (*task.cast::<Self>().as_ptr()).stage })
    }

    /// Drops the stage and stores another. A panic of the drop becomes the output.
    ///
    /// # Safety
    /// As [`stage`](Self::stage); on the owner's thread, and nothing else uses the stage.
    unsafe fn replace(task: NonNull<Header>, stage: Stage<F>) {
        // SAFETY: required of the caller.
        let place = unsafe { Self::stage(task) };
        // SAFETY: the stage is initialised, and replaced whether or not this panics.
        let dropped = catch_unwind(AssertUnwindSafe(|| unsafe { place.drop_in_place() }));
        let stage = match (dropped, stage) {
            (Err(panic), Stage::Output(Ok(output))) => {
                // The output may panic as well when it is dropped.
                let _ = catch_unwind(AssertUnwindSafe(|| drop(output)));
                Stage::Output(Err(JoinError::panicked(panic)))
            }
            (_, stage) => stage,
        };
        // SAFETY: the place was dropped.
        unsafe { place.write(stage) };
    }

    unsafe fn poll(task: NonNull<Header>) -> bool {
        let waker = borrowed_waker(task);
        let mut context = Context::from_waker(&waker);
        // SAFETY: the executor calls this for a task of this type, on the owner's thread, and not
        // again while the future is polled. The future does not move until it is dropped.
        let polled = catch_unwind(AssertUnwindSafe(|| unsafe {
            match &mut *Self::stage(task) {
                Stage::Future(future) => Pin::new_unchecked(future).poll(&mut context),
                Stage::Output(_) | Stage::Taken => Poll::Pending,
            }
        }));
        let output = match polled {
            Ok(Poll::Pending) => return false,
            Ok(Poll::Ready(output)) => Ok(output),
            Err(panic) => Err(JoinError::panicked(panic)),
        };
        // SAFETY: as above; the future is no longer polled.
        unsafe { Self::replace(task, Stage::Output(output)) };
        true
    }

    unsafe fn cancel(task: NonNull<Header>) {
        // SAFETY: the executor calls this on the owner's thread, while the future is not polled.
        unsafe { Self::replace(task, Stage::Output(Err(JoinError::cancelled()))) };
    }

    unsafe fn take(task: NonNull<Header>, output: *mut ()) -> bool {
        // SAFETY: the task is done, so nothing else uses the stage, and the caller is its handle.
        let stage = unsafe { Self::stage(task).replace(Stage::Taken) };
        let Stage::Output(result) = stage else { return false };
        // SAFETY: the handle passes a pointer to a place for this type.
        unsafe { output.cast::<Result<F::Output, JoinError>>().write(result) };
        true
    }

    unsafe fn free(task: NonNull<Header>) {
        // SAFETY: there are no more references, and the allocation was a box.
        drop(unsafe { Box::from_raw(task.cast::<Self>().as_ptr()) });
    }
}

/// A counted reference to a task.
pub(super) struct Task(NonNull<Header>);

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Task({:p})", self.0)
    }
}

impl Task {
    /// Creates a task and puts it into the ready queue. `index` is its position in the executor's
    /// list. Returns the reference of the executor and that of the handle.
    pub(super) fn new<F: Future + 'static>(
        scheduler: &Arc<Scheduler>,
        index: u32,
        future: F,
    ) -> [Task; 2] {
        let header = Header {
            vtable: &Allocation::<F>::VTABLE,
            scheduler: Arc::clone(scheduler),
            references: AtomicU32::new(2),
            remote: AtomicBool::new(false),
            state: Cell::new(State::HAS_HANDLE),
            index: Cell::new(index),
            next: Cell::new(None),
            joiner: Cell::new(None),
        };
        let allocation = Allocation { header, stage: UnsafeCell::new(Stage::Future(future)) };
        let task = NonNull::from(Box::leak(Box::new(allocation))).cast::<Header>();
        wake(task);
        [Task(task), Task(task)]
    }

    #[inline]
    fn header(&self) -> &Header {
        header(&self.0)
    }

    /// Sets the position in the executor's list.
    pub(super) fn set_index(&self, index: u32) {
        self.header().index.set(index);
    }

    /// Drops the future of a task that is not running.
    pub(super) fn cancel(&self) {
        let header = self.header();
        if !header.state.get().intersects(State::DONE | State::RUNNING) {
            // SAFETY: the future is not polled, and this is called on the owner's thread, by the
            // executor, which is not `Send`.
            unsafe { (header.vtable.cancel)(self.0) };
            finish(self.0);
        }
    }

    /// Lets the executor drop the future instead of polling it again.
    pub(super) fn cancel_later(&self) {
        self.header().insert(State::CANCELLED);
        wake(self.0);
    }

    /// Returns whether the future is dropped.
    pub(super) fn is_done(&self) -> bool {
        self.header().state.get().contains(State::DONE)
    }

    /// Returns the output if the task is done, and registers the waker otherwise. The output is
    /// returned once.
    ///
    /// # Safety
    /// `T` is the type of the future's output.
    pub(super) unsafe fn poll_output<T>(
        &self,
        context: &Context<'_>,
    ) -> Poll<Result<T, JoinError>> {
        let header = self.header();
        if !self.is_done() {
            header.joiner.set(Some(context.waker().clone()));
            return Poll::Pending;
        }
        let mut output = MaybeUninit::<Result<T, JoinError>>::uninit();
        // SAFETY: the task is done, and the place has the type that the caller promises.
        if unsafe { (header.vtable.take)(self.0, output.as_mut_ptr().cast()) } {
            // SAFETY: `take` has written it.
            return Poll::Ready(unsafe { output.assume_init() });
        }
        Poll::Ready(Err(JoinError::cancelled()))
    }

    /// Gives up the output, which is dropped now or when the task is done.
    ///
    /// # Safety
    /// As [`poll_output`](Task::poll_output).
    pub(super) unsafe fn detach<T>(&self) {
        let header = self.header();
        header.remove(State::HAS_HANDLE);
        drop(header.joiner.take());
        if self.is_done() {
            let context = Context::from_waker(Waker::noop());
            // SAFETY: required of the caller.
            drop(unsafe { self.poll_output::<T>(&context) });
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if self.header().references.fetch_sub(1, Ordering::Release) == 1 {
            atomic::fence(Ordering::Acquire);
            // SAFETY: this was the last reference.
            unsafe { (self.header().vtable.free)(self.0) };
        }
    }
}

impl Header {
    #[inline]
    fn insert(&self, state: State) {
        self.state.set(self.state.get() | state);
    }

    #[inline]
    fn remove(&self, state: State) {
        self.state.set(self.state.get() - state);
    }
}

/// Returns the header of a task to which a reference exists.
#[inline]
fn header(task: &NonNull<Header>) -> &Header {
    // SAFETY: all pointers of this module come from a reference or from a queue, where rule (b)
    // holds. Only cells and atomics of a header change.
    unsafe { task.as_ref() }
}

/// A task that was taken from a ready queue.
pub(super) struct Runnable(NonNull<Header>);

impl Runnable {
    /// Polls the task. Returns the position in the executor's list of a task that is done: the
    /// executor then drops its reference.
    #[inline]
    pub(super) fn run(self) -> Option<u32> {
        let Runnable(task) = self;
        let header = header(&task);
        header.remove(State::QUEUED);
        let state = header.state.get();
        if state.contains(State::DONE) {
            return Some(header.index.get());
        }
        if !state.contains(State::CANCELLED) {
            header.insert(State::RUNNING);
            // SAFETY: the vtable is that of the task, which is on its thread and not running.
            let done = unsafe { (header.vtable.poll)(task) };
            header.remove(State::RUNNING);
            if !done && !header.state.get().contains(State::CANCELLED) {
                return None;
            }
            if done {
                return finish(task);
            }
        }
        // SAFETY: as above; the future is not done.
        unsafe { (header.vtable.cancel)(task) };
        finish(task)
    }
}

/// Marks a task as done and passes on its output. Returns its position in the executor's list,
/// unless it is still in a ready queue.
fn finish(task: NonNull<Header>) -> Option<u32> {
    let header = header(&task);
    header.insert(State::DONE);
    if header.state.get().contains(State::HAS_HANDLE) {
        if let Some(joiner) = header.joiner.take() {
            joiner.wake();
        }
    } else {
        drop_output(task);
    }
    (!header.state.get().contains(State::QUEUED)).then(|| header.index.get())
}

/// Drops the output of a task that is done, and ignores a panic of the drop.
fn drop_output(task: NonNull<Header>) {
    // SAFETY: the task is done and has no handle. A second cancellation replaces the output by an
    // error, whose drop does nothing to the task.
    unsafe { (header(&task).vtable.cancel)(task) };
}

/// Returns a number that identifies this thread for the life of the process.
fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let mut number = THREAD.get();
    if number == 0 {
        number = NEXT.fetch_add(1, Ordering::Relaxed);
        THREAD.set(number);
    }
    number
}

thread_local! {
    /// The number of this thread, or zero if it has none yet.
    static THREAD: Cell<u64> = const { Cell::new(0) };
}

/// The ready queues of an executor, and the means by which other threads reach it.
pub(super) struct Scheduler {
    /// Number of the executor's thread.
    owner: u64,
    local: Local,
    remote: RemoteQueue<Task>,
    /// Whether another thread has asked the executor to stop.
    stops: AtomicBool,
    notifier: waker::Waker,
}

// SAFETY: other threads use the remote queue, the flag and the notifier only. `local()` returns the
// ready queues to the owner's thread only, and of the tasks of the remote queue they only count
// references.
unsafe impl Send for Scheduler {}
// SAFETY: as above.
unsafe impl Sync for Scheduler {}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler").field("owner", &self.owner).finish_non_exhaustive()
    }
}

/// Ready queues, for the owner's thread only.
pub(super) struct Local {
    ready: ReadyQueue,
    /// Tasks that woke themselves, which run in the next turn.
    later: ReadyQueue,
    closed: Cell<bool>,
}

impl Scheduler {
    /// Creates the scheduler of an executor on this thread.
    pub(super) fn new(notifier: waker::Waker) -> Scheduler {
        let local =
            Local { ready: ReadyQueue::new(), later: ReadyQueue::new(), closed: Cell::new(false) };
        Scheduler {
            owner: thread_number(),
            local,
            remote: RemoteQueue::new(),
            stops: AtomicBool::new(false),
            notifier,
        }
    }

    /// Returns the ready queues if this is the owner's thread.
    #[inline]
    pub(super) fn local(&self) -> Option<&Local> {
        (THREAD.get() == self.owner).then_some(&self.local)
    }

    /// Makes the executor stop.
    pub(super) fn stop(&self) {
        self.stops.store(true, Ordering::Release);
        self.notifier.wake();
    }

    /// Returns whether the executor was asked to stop.
    pub(super) fn is_stopped(&self) -> bool {
        self.stops.load(Ordering::Acquire)
    }

    /// Makes the tasks ready that other threads have woken.
    pub(super) fn accept_remote(&self) {
        for task in self.remote.take() {
            remote::accept(&task.header().remote);
            wake(task.0);
        }
    }

    /// Ignores all later wake-ups.
    pub(super) fn close(&self) {
        if let Some(local) = self.local() {
            local.closed.set(true);
            local.ready.take();
            local.later.take();
        }
        drop(self.remote.close());
    }
}

impl Local {
    #[inline]
    fn push(&self, task: NonNull<Header>) {
        let header = header(&task);
        let state = header.state.get();
        if state.intersects(State::QUEUED | State::DONE) || self.closed.get() {
            return;
        }
        header.state.set(state | State::QUEUED);
        let queue = if state.contains(State::RUNNING) { &self.later } else { &self.ready };
        queue.push(task);
    }

    /// Moves the tasks that woke themselves in the last turn to the ready queue.
    pub(super) fn start_turn(&self) {
        self.ready.append(&self.later);
    }

    /// Returns whether a task is ready for this turn or the next.
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty() || !self.later.is_empty()
    }

    /// Removes and returns the first ready task.
    #[inline]
    pub(super) fn pop(&self) -> Option<Runnable> {
        self.ready.pop()
    }

    /// Removes and returns all tasks that are ready now.
    #[inline]
    pub(super) fn take(&self) -> ReadyQueue {
        self.ready.take()
    }

    /// Moves the tasks of a queue behind those that are ready.
    #[inline]
    pub(super) fn append(&self, queue: &ReadyQueue) {
        self.ready.append(queue);
    }
}

/// A queue of tasks, linked through their headers.
pub(super) struct ReadyQueue {
    /// The first and the last task.
    ends: Cell<Option<[NonNull<Header>; 2]>>,
}

impl ReadyQueue {
    fn new() -> ReadyQueue {
        ReadyQueue { ends: Cell::new(None) }
    }

    fn is_empty(&self) -> bool {
        self.ends.get().is_none()
    }

    #[inline]
    fn push(&self, task: NonNull<Header>) {
        header(&task).next.set(None);
        let first = match self.ends.get() {
            Some([first, last]) => {
                header(&last).next.set(Some(task));
                first
            }
            None => task,
        };
        self.ends.set(Some([first, task]));
    }

    #[inline]
    pub(super) fn pop(&self) -> Option<Runnable> {
        let [first, last] = self.ends.get()?;
        self.ends.set(header(&first).next.take().map(|next| [next, last]));
        Some(Runnable(first))
    }

    #[inline]
    fn take(&self) -> ReadyQueue {
        ReadyQueue { ends: Cell::new(self.ends.take()) }
    }

    /// Moves all tasks of `other` to the end.
    #[inline]
    fn append(&self, other: &ReadyQueue) {
        let Some([first, last]) = other.ends.take() else { return };
        let head = match self.ends.get() {
            Some([head, tail]) => {
                header(&tail).next.set(Some(first));
                head
            }
            None => first,
        };
        self.ends.set(Some([head, last]));
    }
}

// A static, so that all wakers of tasks have the same address of it.
static WAKER: RawWakerVTable =
    RawWakerVTable::new(clone_waker, wake_waker, wake_by_ref, drop_waker);

/// Returns whether a waker belongs to a task of an executor. To wake it runs no foreign code.
#[inline]
pub(super) fn is_of_task(waker: &Waker) -> bool {
    std::ptr::eq(waker.vtable(), &raw const WAKER)
}

/// Returns a waker that is not counted as a reference.
#[inline]
fn borrowed_waker(task: NonNull<Header>) -> ManuallyDrop<Waker> {
    // SAFETY: the functions of the table expect a pointer to a task. The task outlives the waker,
    // which is never dropped, and clones are counted.
    ManuallyDrop::new(unsafe { Waker::new(task.as_ptr().cast_const().cast(), &WAKER) })
}

/// Returns the task of a waker.
#[inline]
fn task_of(data: *const ()) -> NonNull<Header> {
    // SAFETY: wakers are created from non-null pointers.
    unsafe { NonNull::new_unchecked(data.cast_mut().cast()) }
}

unsafe fn clone_waker(data: *const ()) -> RawWaker {
    header(&task_of(data)).references.fetch_add(1, Ordering::Relaxed);
    RawWaker::new(data, &WAKER)
}

unsafe fn wake_waker(data: *const ()) {
    let task = reference_of_waker(data);
    wake(task.0);
}

unsafe fn wake_by_ref(data: *const ()) {
    wake(task_of(data));
}

unsafe fn drop_waker(data: *const ()) {
    drop(reference_of_waker(data));
}

/// Returns the reference that a waker owned.
fn reference_of_waker(data: *const ()) -> Task {
    Task(task_of(data))
}

/// Puts a task into its ready queue, or passes it to the thread of its executor.
#[inline]
fn wake(task: NonNull<Header>) {
    let header = header(&task);
    match header.scheduler.local() {
        Some(local) => local.push(task),
        None => wake_remotely(task),
    }
}

#[cold]
fn wake_remotely(task: NonNull<Header>) {
    let Header { scheduler, remote, references, .. } = header(&task);
    let must_notify = scheduler.remote.push(remote, || {
        references.fetch_add(1, Ordering::Relaxed);
        Task(task)
    });
    if must_notify {
        scheduler.notifier.wake();
    }
}
