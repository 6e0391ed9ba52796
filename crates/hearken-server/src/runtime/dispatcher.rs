//! The thread that accepts connections and hands them to the workers of a group.
//!
//! It starts the threads of the group, restarts those that ended while connections wait for them, and
//! stops accepting while no worker can take a connection.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use hearken::Token;
use hearken::io::{CompletionKind, Relay};
use hearken::mechanism;
use hearken::timer::Time;

use super::acceptor::Acceptor;
use super::event_loops::EventLoopConfig;
use super::group::{Choice, Group, HandedOver};
use super::limit_reached::LimitReporter;
use super::server::{
    ServerHandle, Service, Source, StartError, Worker, WorkerContext, WorkerStart, start_worker,
    worker_seed,
};
use crate::sync::AtomicBool;

/// Starts the thread of a member.
type StartMember =
    dyn Fn(usize, SocketAddr) -> Result<JoinHandle<io::Result<()>>, StartError> + Send + Sync;

/// A factory of dispatchers.
#[derive(Clone)]
pub(crate) struct DispatcherService {
    loops: EventLoopConfig,
    group: Arc<Group>,
    /// Number of members that start with the dispatcher.
    started: usize,
    /// Stops the members, after the listening socket was closed.
    stop_members: Arc<AtomicBool>,
    start: Arc<StartMember>,
}

impl DispatcherService {
    fn stop_members(&self) {
        self.stop_members.store(true, Ordering::Release);
        self.group.wake_all();
    }
}

/// Returns the parameters of the dispatcher's thread. `worker` are those of each member, apart from its
/// index. `connections` is the connection limit of the server.
pub(crate) fn start<S: Service + Send + Sync>(
    loops: &EventLoopConfig,
    mut worker: WorkerStart<S>,
    connections: usize,
    stop: ServerHandle,
) -> WorkerStart<DispatcherService> {
    let workers = worker.context.workers;
    let group = worker.context.group.clone().unwrap_or_else(|| Group::new(0, 0, stop.wakers()));
    let on_demand = matches!(worker.context.source, Source::Inbox { is_spare: true });
    let mut context = worker.context.clone();
    context.index = workers;
    (context.workers, context.source, context.group) = (1, Source::Listener, None);
    context.limits.connections = connections;
    let stop_members = Arc::new(AtomicBool::new(false));
    worker.context.stop = Arc::clone(&stop_members);
    let (policy, grace) = (worker.policy, worker.grace);
    let start = move |index: usize, addr| {
        let mut start = worker.clone();
        start.context.index = index;
        start.context.listen = addr;
        start.context.seed = worker_seed(worker.context.seed, index);
        let started = start_worker(format!("worker-{index}"), start, ())?;
        stop.set_waker(index, started.waker);
        Ok(started.thread)
    };
    // The first thread shows at the start whether the handlers can be created.
    let started = if on_demand { 1 } else { workers };
    let (loops, start) = (loops.clone(), Arc::new(start));
    let service = DispatcherService { loops, group, started, stop_members, start };
    // Handing over a connection takes it out of the event mechanism, which io_uring cannot do.
    let events = mechanism::AUTO.to_owned();
    WorkerStart { service, events, policy, grace, stack_size: None, context }
}

impl Service for DispatcherService {
    fn worker<I: Relay + 'static>(
        self,
        mut io: I,
        context: &WorkerContext,
    ) -> Result<Box<dyn Worker>, StartError> {
        let acceptor = Acceptor::open(&mut io, context, &self.loops, true)
            .map_err(|error| StartError::Listen { addr: context.listen, error })?;
        let started = self.started;
        let mut dispatcher = Dispatcher {
            io,
            acceptor,
            threads: Vec::new(),
            limits: LimitReporter::new(self.loops.on_limit),
            service: self,
            context: context.clone(),
            result: Ok(()),
            is_stopping: false,
        };
        (0..started).try_for_each(|index| dispatcher.start(index))?;
        Ok(Box::new(dispatcher))
    }
}

/// A worker that serves no connections itself.
struct Dispatcher<I> {
    io: I,
    acceptor: Acceptor,
    service: DispatcherService,
    context: WorkerContext,
    /// The threads of the members, by index.
    threads: Vec<Option<JoinHandle<io::Result<()>>>>,
    limits: LimitReporter,
    /// The first error of a member.
    result: io::Result<()>,
    is_stopping: bool,
}

impl<I: Relay> Dispatcher<I> {
    fn group(&self) -> &Group {
        &self.service.group
    }

    /// Starts the thread of a member.
    fn start(&mut self, index: usize) -> Result<(), StartError> {
        self.join(index);
        let thread = (self.service.start)(index, self.acceptor.addr())?;
        if self.threads.len() <= index {
            self.threads.resize_with(index + 1, || None);
        }
        self.threads[index] = Some(thread);
        // Connections that were handed over before the thread had a waker did not wake it.
        self.group().wake_if_waiting(index);
        Ok(())
    }

    /// Waits for a thread that has ended or is about to.
    fn join(&mut self, index: usize) {
        // The panic of a member has closed its connections and is already on stderr.
        if let Some(Ok(Err(error))) =
            self.threads.get_mut(index).and_then(Option::take).map(JoinHandle::join)
            && self.result.is_ok()
        {
            self.result = Err(error);
        }
    }

    /// Starts the thread of a member, or closes the connections that wait for it.
    fn start_or_discard(&mut self, index: usize) {
        if let Err(error) = self.start(index) {
            let error = io::Error::other(error);
            self.limits.report(self.io.now(), self.group().open(), Some(&error));
            self.group().discard(index);
        }
    }

    /// Joins the threads that have ended, and restarts those for which connections wait.
    fn restart_ended(&mut self) {
        while let Some(index) = self.group().take_ended() {
            // A thread that was restarted since then is running.
            if !self.group().is_running(index) {
                self.join(index);
                if self.group().has_waiting(index) {
                    self.start_or_discard(index);
                }
            }
        }
    }

    fn on_accepted(&mut self, token: Token, peer: Option<SocketAddr>) {
        // All members are busy if the mechanism accepted more connections than it was asked for.
        let choice = self.group().choose().map_or(0, Choice::member);
        let Some(socket) = self.io.release(token) else {
            self.io.close(token);
            return;
        };
        let now = self.io.now();
        if !self.group().hand_over(now, choice, HandedOver { socket, peer, is_served: false }) {
            self.start_or_discard(choice);
        }
    }

    fn on_accept_failed(&mut self, error: &io::Error) {
        let group = &self.service.group;
        group.set_awaited(true);
        if self.acceptor.on_accept_failed(&mut self.io, group.open(), group.has_idle(), error) {
            group.evict();
            self.acceptor.retry(&mut self.io);
        }
    }

    fn update_accepting(&mut self) {
        let group = &self.service.group;
        if self.acceptor.needs_update(group.open()) {
            // Set first, so that no wake-up is lost.
            group.set_awaited(true);
            self.acceptor.update(&mut self.io, group.open(), group.has_idle());
            group.set_awaited(self.acceptor.is_paused());
        }
    }
}

impl<I> Drop for Dispatcher<I> {
    fn drop(&mut self) {
        // Without a dispatcher, nothing else would stop them.
        self.service.stop_members();
    }
}

impl<I: Relay> Worker for Dispatcher<I> {
    fn addr(&self) -> SocketAddr {
        self.acceptor.addr()
    }

    fn now(&self) -> Time {
        self.io.now()
    }

    fn turn(&mut self, until: Option<Time>) -> io::Result<bool> {
        self.io.wait(until)?;
        if !self.is_stopping && self.context.stop.load(Ordering::Acquire) {
            self.begin_shutdown();
        }
        let mut any = false;
        loop {
            self.update_accepting();
            let Some(completion) = self.io.next() else { return Ok(any) };
            any = true;
            match completion.kind {
                CompletionKind::Accepted { token, peer } => {
                    self.on_accepted(token, peer.map(|peer| *peer));
                }
                CompletionKind::AcceptFailed(error) | CompletionKind::ReceiveFailed(error) => {
                    self.on_accept_failed(&error);
                }
                CompletionKind::Deadline => self.acceptor.retry(&mut self.io),
                CompletionKind::Woken => self.restart_ended(),
                _ => {}
            }
        }
    }

    fn begin_shutdown(&mut self) {
        self.is_stopping = true;
        self.acceptor.stop();
    }

    fn close_idle(&mut self) {
        self.acceptor.close(&mut self.io);
        self.service.stop_members();
    }

    fn is_idle(&self) -> bool {
        (0..self.threads.len()).all(|index| !self.group().is_running(index))
    }

    fn finish(&mut self) -> io::Result<()> {
        self.restart_ended();
        (0..self.threads.len()).for_each(|index| self.join(index));
        std::mem::replace(&mut self.result, Ok(()))
    }
}
