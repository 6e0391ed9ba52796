//! Event threads: a task for each connection, which drives the front.
//!
//! Each connection in the table of the front, whether of a client or to an upstream server, has a
//! task of [`hearken::task`]. It takes the completions of the connection one after another and passes
//! them to the front or the handler. When that makes the front open or close other connections, or
//! gives them a further request, their tasks start, end or continue.
//!
//! A panic in a task closes the connection of the task only.

#[cfg(all(test, feature = "simulation"))]
mod tests;

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use hearken::Token;
use hearken::io::{Completion, CompletionKind, Relay};
use hearken::task::{self, Completions, Executor, IoHandle, UnclaimedCompletions};
use hearken::timer::Time;

use crate::engine::Engine;
use crate::front::{Front, Handler, TableChange};
use crate::runtime::event_loops::EventLoopConfig;
use crate::runtime::server::{self, WorkerContext};

/// A worker that serves each connection in a task.
pub(crate) struct TaskLoop<I: Relay + 'static, H: Handler<I> + 'static> {
    executor: Executor<I>,
    /// Completions of the listening socket, and wake-ups.
    unclaimed: UnclaimedCompletions,
    shared: Rc<Shared<I, H>>,
}

/// The state that tasks share.
struct Shared<I: Relay + 'static, H> {
    /// Borrowed while a task handles a completion, but not while it waits.
    engine: RefCell<Engine<H>>,
    io: IoHandle<I>,
}

impl<I: Relay + 'static, H: Handler<I> + 'static> TaskLoop<I, H> {
    /// Creates a worker that accepts connections.
    pub(crate) fn new(
        mut io: I,
        mut front: Front,
        handler: H,
        context: &WorkerContext,
        loops: &EventLoopConfig,
        peers: bool,
    ) -> io::Result<TaskLoop<I, H>> {
        front.record_table_changes();
        let engine = Engine::new(&mut io, front, handler, context, loops, peers)?;
        let mut executor = Executor::new(io);
        executor.reserve(context.max_open());
        let io = executor.io();
        let unclaimed = io.unclaimed();
        let shared = Rc::new(Shared { engine: RefCell::new(engine), io });
        Ok(TaskLoop { executor, unclaimed, shared })
    }
}

impl<I: Relay + 'static, H: Handler<I> + 'static> Shared<I, H> {
    /// Calls a function with the engine and the `Io`.
    #[inline(always)]
    fn with<R>(&self, call: impl FnOnce(&mut Engine<H>, &mut I) -> R) -> R {
        self.io.with(|io| call(&mut self.engine.borrow_mut(), io))
    }

    /// Calls a function with the engine and the `Io`, and lets the tasks follow the front.
    #[inline(always)]
    fn step(self: &Rc<Self>, call: impl FnOnce(&mut Engine<H>, &mut I)) {
        let has_changed = self.with(|engine, io| {
            call(engine, io);
            engine.update_accepting(io);
            engine.front.has_table_changes() || engine.front.has_ready()
        });
        if has_changed {
            self.update_tasks();
        }
    }

    /// Starts tasks of new connections, ends those of closed ones, and continues those with a further
    /// request.
    fn update_tasks(self: &Rc<Self>) {
        let front = &mut self.engine.borrow_mut().front;
        while let Some(change) = front.next_table_change() {
            match change {
                TableChange::Opened(token) => {
                    let connection = self.io.adopt(token);
                    drop(task::spawn(serve(Rc::clone(self), connection)));
                }
                TableChange::Closed(token) => self.io.end(token),
            }
        }
        while let Some(client) = front.next_ready() {
            self.io.pass(client, CompletionKind::Woken);
        }
    }

    /// Handles a completion of a connection.
    #[inline]
    fn on_completion(self: &Rc<Self>, token: Token, kind: CompletionKind) {
        self.confine(token, |engine, io| match kind {
            CompletionKind::Woken => engine.next_request(io, token),
            kind => engine.on_completion(io, Completion { token, kind }),
        });
    }

    /// Performs a step of a connection. If it panics, closes the connection.
    #[inline(always)]
    fn confine(self: &Rc<Self>, token: Token, call: impl FnOnce(&mut Engine<H>, &mut I)) {
        if catch_unwind(AssertUnwindSafe(|| self.step(call))).is_err() {
            self.step(|engine, io| engine.on_panic(io, token));
        }
    }
}

/// Serves a connection until it is closed.
async fn serve<I: Relay + 'static, H: Handler<I> + 'static>(
    shared: Rc<Shared<I, H>>,
    connection: Completions,
) {
    let token = connection.token();
    while let Some(kind) = connection.next().await {
        shared.on_completion(token, kind);
    }
}

impl<I: Relay + 'static, H: Handler<I> + 'static> server::Worker for TaskLoop<I, H> {
    fn addr(&self) -> SocketAddr {
        self.shared.engine.borrow().addr()
    }

    fn now(&self) -> Time {
        self.shared.io.with(|io| io.now())
    }

    fn turn(&mut self, until: Option<Time>) -> io::Result<bool> {
        let TaskLoop { executor, unclaimed, shared } = self;
        let wait = |io: &mut I, until| shared.engine.borrow_mut().wait(io, until);
        let mut turn = executor.begin_turn(until, wait)?;
        shared.step(Engine::begin_turn);
        let mut any = turn.has_ready();
        while turn.run_next() {
            any = true;
            while let Some(completion) = unclaimed.take() {
                shared.step(|engine, io| engine.on_completion(io, completion));
            }
        }
        let pending = shared.engine.borrow().front.pending_streams();
        for _ in 0..pending {
            let Some(token) = shared.engine.borrow_mut().front.next_pending_streams() else {
                break;
            };
            shared.confine(token, |engine, io| engine.continue_one(io, token));
        }
        if shared.engine.borrow().has_pending_streams::<I>() {
            shared.step(Engine::flush_handler);
        }
        turn.finish();
        shared.with(|engine, io| engine.end_turn(io, any));
        Ok(any)
    }

    fn begin_shutdown(&mut self) {
        self.shared.engine.borrow_mut().begin_shutdown();
    }

    fn close_idle(&mut self) {
        self.shared.with(Engine::close_idle);
    }

    fn is_idle(&self) -> bool {
        self.shared.engine.borrow().is_idle()
    }

    fn finish(&mut self) -> io::Result<()> {
        self.shared.with(Engine::finish);
        Ok(())
    }
}
