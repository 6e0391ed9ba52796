//! Runs several programs in one thread, each as a coroutine.
//!
//! A program runs until it waits. The scheduler selects one of those that can continue, by a decision
//! of the [`World`]. When none can, it advances the clock to the next event of the network or to the
//! end of a wait.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use hearken::io::Relay;
use hearken::io::sim::{Checked, Host, World};
use hearken::timer::Time;

use crate::finding::Finding;
use crate::panics;
use crate::program_io::ProgramIo;
use crate::report::Report;
use crate::waiter;

/// Size of a program's stack in bytes. Pages are committed as they are used.
const STACK_BYTES: usize = 512 * 1024;
/// Maximum number of unused stacks that a thread retains.
const MAX_STACKS: usize = 64;

thread_local! {
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

/// A program that waits yields the end of its wait.
pub(crate) type WaitYielder = Yielder<(), Option<Time>>;

/// Returns the earlier one of two times that may be missing.
#[inline]
pub(crate) fn earlier(a: Option<Time>, b: Option<Time>) -> Option<Time> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if b < a { b } else { a }),
        _ => a.or(b),
    }
}

/// The program's side of its coroutine.
#[derive(Clone, Copy)]
pub struct Program<'y> {
    yielder: &'y WaitYielder,
    host: &'y Host,
    report: &'y Rc<Report>,
}

impl std::fmt::Debug for Program<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Program").field("host", &self.host).finish_non_exhaustive()
    }
}

impl<'y> Program<'y> {
    /// Returns the host on which the program runs.
    pub fn host(self) -> &'y Host {
        self.host
    }

    /// Wraps an `Io` over the program's host: its waits let other programs run, and its completions
    /// are checked against the contract.
    pub fn io<I: Relay>(self, io: I) -> Checked<ProgramIo<I>> {
        Checked::new(ProgramIo::new(self.host, self.report, io, false))
    }

    /// Wraps an `Io` like [`io`](Program::io) that lends buffers to a ring. The ring may use those of
    /// a closed connection until its requests have ended.
    pub fn ring_io<I: Relay>(self, io: I) -> Checked<ProgramIo<I>> {
        Checked::new(ProgramIo::new(self.host, self.report, io, true))
    }

    /// Returns the report of the history.
    pub fn report(self) -> &'y Report {
        self.report
    }

    /// Lets other programs run until the program's host is ready or until `until`. May return early.
    pub fn suspend(self, until: Option<Time>) {
        self.yielder.suspend(until);
    }

    /// Lets other programs run until `time`.
    pub fn sleep_until(self, time: Time) {
        while self.host.world().now() < time {
            self.suspend(Some(time));
        }
    }
}

/// The limits of a history. A history that exceeds one of them would not end.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of times that programs continue.
    pub steps: u64,
    /// Maximum time.
    pub time: Duration,
}

/// Delays of programs that can continue, as on a machine that is busy.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stalls {
    /// Probability in thousandths.
    pub per_mille: u32,
    /// Maximum delay.
    pub max: Duration,
}

/// A program on its stack.
struct Task {
    name: String,
    host: Host,
    coroutine: Coroutine<(), Option<Time>, ()>,
    /// Whether the program runs at present.
    is_running: Rc<Cell<bool>>,
    /// Whether the program has not run yet.
    is_new: bool,
    /// End of the current wait.
    until: Option<Time>,
    /// Time at which the program could continue after the current wait.
    ready_since: Option<Time>,
}

impl Task {
    fn is_ready(&self, now: Time) -> bool {
        self.is_new || self.until.is_some_and(|until| until <= now) || self.host.is_ready()
    }

    /// Ends the program, which drops its values, and retains its stack. Returns what it panicked
    /// with.
    fn end(mut self) -> Option<Finding> {
        let unwound = panics::catch(|| self.coroutine.force_unwind());
        if self.coroutine.done() {
            STACKS.with_borrow_mut(|stacks| {
                if stacks.len() < MAX_STACKS {
                    stacks.push(self.coroutine.into_stack());
                }
            });
        }
        unwound.err().map(|panic| panic.into_finding(&self.name))
    }
}

/// Runs programs. See the [module](self).
pub struct Scheduler {
    world: World,
    tasks: Vec<Task>,
    /// Indices of the programs that can continue.
    ready: Vec<usize>,
    steps: u64,
    stalls: Stalls,
    report: Rc<Report>,
}

impl std::fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.tasks.iter().map(|task| &task.name).collect();
        f.debug_struct("Scheduler").field("tasks", &names).finish_non_exhaustive()
    }
}

impl Scheduler {
    /// Creates a scheduler without programs.
    pub fn new(world: &World, stalls: Stalls, report: Rc<Report>) -> Scheduler {
        let (tasks, ready) = (Vec::new(), Vec::new());
        Scheduler { world: world.clone(), tasks, ready, steps: 0, stalls, report }
    }

    /// Adds a program that runs on `host`, alone.
    ///
    /// # Panics
    /// Panics if the process is out of memory for a stack.
    pub fn spawn(
        &mut self,
        name: impl Into<String>,
        host: &Host,
        program: impl FnOnce(Program<'_>) + 'static,
    ) {
        let stack = STACKS.with_borrow_mut(Vec::pop);
        let stack = stack.unwrap_or_else(|| DefaultStack::new(STACK_BYTES).expect("a stack"));
        let (of_program, report) = (host.clone(), self.report.clone());
        let is_running: Rc<Cell<bool>> = Rc::default();
        let running = is_running.clone();
        let coroutine = Coroutine::with_stack(stack, move |yielder: &WaitYielder, ()| {
            waiter::set(&of_program, yielder, running);
            program(Program { yielder, host: &of_program, report: &report });
        });
        let (name, host) = (name.into(), host.clone());
        self.tasks.push(Task {
            name,
            host,
            coroutine,
            is_running,
            is_new: true,
            until: None,
            ready_since: None,
        });
    }

    /// Returns the number of times that programs have continued.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Runs all programs until they end. Afterwards no program is left.
    ///
    /// # Errors
    /// A program panicked, all programs wait for each other, or a limit is exceeded.
    pub fn run(&mut self, limits: Limits) -> Result<(), Finding> {
        let mut result = self.run_programs(limits);
        for task in self.tasks.drain(..) {
            let panicked = task.end();
            if let Some(finding) = panicked {
                result = result.and(Err(finding));
            }
        }
        result
    }

    fn run_programs(&mut self, limits: Limits) -> Result<(), Finding> {
        let end = self.world.now() + limits.time;
        while !self.tasks.is_empty() {
            let now = self.world.now();
            let next = self.find_ready(now);
            if self.ready.is_empty() {
                self.advance(next, end)?;
                continue;
            }
            self.steps += 1;
            if self.steps > limits.steps {
                let running = self.ready.iter().map(|&index| &*self.tasks[index].name);
                let running: Vec<_> = running.collect();
                let detail =
                    format!("{} steps were not enough; running: {running:?}", limits.steps);
                return Err(Finding::new("endless", detail));
            }
            if self.stalls.per_mille > 0 && self.world.has_fault(self.stalls.per_mille) {
                let max = u32::try_from(self.stalls.max.as_nanos()).unwrap_or(u32::MAX);
                let delay = Duration::from_nanos(self.world.decide(max).into());
                self.world.advance(now + delay);
            }
            let chosen = self.world.decide(self.ready.len() as u32) as usize;
            self.resume(self.ready[chosen])?;
            if let Some(finding) = self.report.take_finding() {
                return Err(finding);
            }
        }
        Ok(())
    }

    /// Collects the programs that can continue. Returns the end of the first wait.
    fn find_ready(&mut self, now: Time) -> Option<Time> {
        self.ready.clear();
        let mut next = None;
        for (index, task) in self.tasks.iter_mut().enumerate() {
            if task.is_ready(now) {
                let since = task.until.map_or(now, |until| until.min(now));
                task.ready_since.get_or_insert(since);
                self.ready.push(index);
            } else if let Some(until) = task.until
                && next.is_none_or(|next| until < next)
            {
                next = Some(until);
            }
        }
        next
    }

    /// Lets the program at `index` continue until it waits or ends.
    fn resume(&mut self, index: usize) -> Result<(), Finding> {
        let task = &mut self.tasks[index];
        task.is_new = false;
        if let Some(since) = task.ready_since.take() {
            self.report.add_lateness(self.world.now().duration_since(since));
        }
        task.is_running.set(true);
        let resumed = panics::catch(|| task.coroutine.resume(()));
        task.is_running.set(false);
        match resumed {
            Ok(CoroutineResult::Yield(until)) => {
                task.until = until.map(|until| until.max(self.world.now()));
                Ok(())
            }
            Ok(CoroutineResult::Return(())) => {
                let _ = self.tasks.remove(index).end();
                Ok(())
            }
            Err(panic) => {
                let task = self.tasks.remove(index);
                let finding = panic.into_finding(&task.name);
                let _ = task.end();
                Err(finding)
            }
        }
    }

    /// Advances the clock to the next event or to the end of the first wait.
    fn advance(&mut self, wait: Option<Time>, end: Time) -> Result<(), Finding> {
        let Some(next) = earlier(wait, self.world.next_event()) else {
            let names: Vec<_> = self.tasks.iter().map(|task| &*task.name).collect();
            let detail = format!("nothing can end the waits of {names:?}");
            return Err(Finding::new("deadlock", detail));
        };
        if next > end {
            let names: Vec<_> = self.tasks.iter().map(|task| &*task.name).collect();
            return Err(Finding::new("overdue", format!("still running: {names:?}")));
        }
        self.world.advance(next);
        Ok(())
    }
}
