//! Starts and stops the worker threads of a server.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hearken::descriptors::{self, Table};
use hearken::io::readiness::Policy;
use hearken::io::{self as events, Address, ListenOptions, Relay, Spec};
use hearken::mechanism::{self, SelectError, Unavailable};
use hearken::timer::Time;
use hearken::{Waker, Wakeups};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

use super::access_log::{LogSink, LogWriter};
use super::dispatcher;
use super::event_loops::{Distribution, EventLoopConfig, Model};
use super::group::Group;
use super::limits::{self, WorkerLimits};
use super::metrics::{self, Metrics};
use super::wakers::Wakers;
use crate::sync::AtomicBool;

/// The error for a server that did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The settings have no route.
    #[error("no handler is configured: add at least one route")]
    NoHandler,
    /// A reverse proxy has no upstream server.
    #[error("no upstream server is configured: add at least one")]
    NoUpstream,
    /// A server with TLS has no settings or no valid name.
    #[error(
        "cannot connect to upstream server '{name}' over TLS: it needs TLS settings and a valid name"
    )]
    UpstreamTls {
        /// Name of the server.
        name: String,
    },
    /// A handler cannot be created.
    #[error("cannot serve '{name}': {error}")]
    Handler {
        /// The resource of the handler, such as a directory.
        name: String,
        /// The reason.
        error: io::Error,
    },
    /// The access log cannot be opened.
    #[error("cannot open access log '{path}': {error}")]
    Log {
        /// Path of the file.
        path: String,
        /// The reason.
        error: io::Error,
    },
    /// The server cannot listen on an address.
    #[error("cannot listen on {addr}: {error}")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// The reason.
        error: io::Error,
    },
    /// The mechanism is unknown or unavailable.
    #[error(transparent)]
    Mechanism(#[from] SelectError),
    /// The model and the mechanism do not fit together.
    #[error("cannot share connections over '{events}': {reason}")]
    Model {
        /// The mechanism.
        events: String,
        /// The reason.
        reason: &'static str,
    },
    /// A thread or its resources are unavailable.
    #[error("cannot start a thread of the server: {0}")]
    Worker(#[from] io::Error),
}

/// A running server. Dropping it stops the server and waits for its threads.
pub struct Server {
    addr: SocketAddr,
    events: String,
    connections: usize,
    own_tables_unavailable: Option<Unavailable>,
    stop: ServerHandle,
    worker_count: usize,
    workers: Vec<JoinHandle<io::Result<()>>>,
    supervisor: Option<JoinHandle<()>>,
    metrics: Arc<Metrics>,
    admin_addr: Option<SocketAddr>,
    redirect_addr: Option<SocketAddr>,
    warnings: Vec<String>,
    /// Background threads. Dropped after the workers have ended.
    background: Vec<Box<dyn Send + Sync>>,
    /// The access log. Dropped after the workers have ended.
    _log: Option<LogWriter>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("addr", &self.addr)
            .field("events", &self.events)
            .field("workers", &self.worker_count)
            .finish_non_exhaustive()
    }
}

/// The flag that is set when a server stops.
pub(crate) type StopFlag = Arc<AtomicBool>;

/// A handle that stops a server or reopens its access log, from any thread.
#[derive(Clone, Debug)]
pub struct ServerHandle {
    stop: Arc<AtomicBool>,
    log: Option<LogSink>,
    wakers: Wakers,
}

impl ServerHandle {
    /// Creates a handle without wakers.
    pub(crate) fn new(log: Option<LogSink>) -> ServerHandle {
        ServerHandle { stop: Arc::default(), log, wakers: Wakers::default() }
    }

    /// Returns the flag that is set when the server stops.
    pub(crate) fn stopping(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }

    /// Stops the server. It accepts no more connections, completes requests in progress within the
    /// shutdown timeout, and ends its threads. Returns immediately.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wakers.wake_all();
    }

    /// Reopens the access log by its path, after a tool such as logrotate has renamed the file.
    pub fn reopen_log(&self) {
        if let Some(log) = &self.log {
            log.reopen();
        }
    }

    /// Sets the waker of a worker, to wake it when the server stops.
    pub(crate) fn set_waker(&self, index: usize, waker: Waker) {
        self.wakers.set(index, waker, |waker| {
            if self.stop.load(Ordering::Acquire) {
                waker.wake();
            }
        });
    }

    /// Returns the wakers of the workers, by worker index.
    pub(crate) fn wakers(&self) -> Wakers {
        self.wakers.clone()
    }
}

/// Notifies the supervisor when its worker ends, including by an error or a panic.
///
/// The worker cannot wake the other workers itself: their wakers use descriptors that may be in
/// another table.
struct StopOnExit(mpsc::Sender<()>);

impl Drop for StopOnExit {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

/// Starts the thread that stops all workers when one ends. The thread ends with the last worker.
fn supervise(ended: mpsc::Receiver<()>, stop: ServerHandle) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name("supervisor".to_owned()).spawn(move || {
        while ended.recv().is_ok() {
            stop.stop();
        }
    })
}

/// The source of a worker's connections.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// Its own listening socket. Several workers bind theirs to one address.
    Listener,
    /// Its own listening socket, and workers with more than their share of connections.
    Migrating,
    /// A listening socket that all workers share.
    SharedListener(Arc<OwnedFd>),
    /// The [dispatcher](super::dispatcher). A spare thread ends after a time without connections.
    Inbox { is_spare: bool },
}

/// The context in which a worker runs.
#[derive(Clone, Debug)]
pub(crate) struct WorkerContext {
    pub(crate) index: usize,
    pub(crate) workers: usize,
    pub(crate) source: Source,
    /// The workers that share or exchange connections with this one.
    pub(crate) group: Option<Arc<Group>>,
    /// Address of all listening sockets, with the port that the first worker got.
    pub(crate) listen: SocketAddr,
    pub(crate) limits: WorkerLimits,
    /// Seed of the worker's pseudo-random choices. Each worker has another.
    pub(crate) seed: u64,
    /// Whether the worker has its own descriptor table.
    pub(crate) own_table: bool,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) log: Option<LogSink>,
    pub(crate) metrics: Arc<Metrics>,
}

impl WorkerContext {
    /// Returns the maximum number of open connections. The worker accepts one above the limit before
    /// it closes an idle one.
    pub(crate) fn max_open(&self) -> usize {
        self.limits.descriptors + 1
    }

    /// Returns the worker's counters.
    pub(crate) fn worker_metrics(&self) -> Arc<metrics::WorkerMetrics> {
        self.metrics.workers.get(self.index).cloned().unwrap_or_default()
    }
}

/// A factory of workers.
pub(crate) trait Service: Clone + 'static {
    /// Creates a worker over `io` that accepts connections.
    fn worker<I: Relay + 'static>(
        self,
        io: I,
        context: &WorkerContext,
    ) -> Result<Box<dyn Worker>, StartError>;
}

/// An event loop.
pub(crate) trait Worker {
    /// Returns the address of the listening socket.
    fn addr(&self) -> SocketAddr;

    /// Returns the start time of the current turn.
    fn now(&self) -> Time;

    /// Waits for events and handles them. Returns whether there were any.
    fn turn(&mut self, until: Option<Time>) -> io::Result<bool>;

    /// Begins to stop: closes connections after their current response.
    fn begin_shutdown(&mut self);

    /// Closes the listening socket and all connections without a request.
    fn close_idle(&mut self);

    /// Returns whether no client connection is open.
    fn is_idle(&self) -> bool;

    /// Returns whether the thread is no longer needed. It then ends, although the server continues.
    fn has_ended(&self) -> bool {
        false
    }

    /// Publishes counters and flushes the log after the last turn.
    ///
    /// # Errors
    /// A thread of the worker failed.
    fn finish(&mut self) -> io::Result<()>;
}

/// Maximum time for which a stopping server accepts connections that are already in the queue.
const ACCEPT_DRAIN_TIMEOUT: Duration = Duration::from_millis(100);

/// Runs a worker until the server stops and requests in progress are complete, or until `grace` after
/// the stop.
fn run_until_stopped(
    worker: &mut dyn Worker,
    stop: &AtomicBool,
    grace: Duration,
) -> io::Result<()> {
    while !stop.load(Ordering::Acquire) {
        worker.turn(None)?;
        if worker.has_ended() {
            return worker.finish();
        }
    }
    worker.begin_shutdown();
    let grace_ends = worker.now() + grace;
    // Answers requests that clients sent before the stop. Some policies take several turns from an
    // accept to a response.
    let drain_ends = worker.now() + ACCEPT_DRAIN_TIMEOUT;
    while worker.turn(Some(worker.now()))? && worker.now() < drain_ends {}
    worker.close_idle();
    while !worker.is_idle() && worker.now() < grace_ends {
        worker.turn(Some(grace_ends))?;
    }
    worker.finish()
}

/// Returns the number of workers. `descriptors` is the size of a descriptor table.
pub(crate) fn worker_count(loops: &EventLoopConfig, descriptors: usize) -> usize {
    // Without a connection of its own, a worker would never accept what the kernel assigns to it.
    let workers = loops.worker_limit();
    let workers = loops.max_connections.map_or(workers, |max| workers.min(max.get()));
    match loops.model.has_thread_per_connection() {
        true => workers.min(limits::max_threads(descriptors)),
        false => workers,
    }
}

/// Returns the source of the workers' connections.
fn source(loops: &EventLoopConfig) -> Result<Source, StartError> {
    Ok(match loops.exchange() {
        None => Source::Listener,
        Some(Distribution::HandOver) => Source::Inbox { is_spare: loops.model == Model::Threads },
        Some(Distribution::Shared) => {
            let mut options = ListenOptions::default();
            options.defer = loops.defer_accept;
            let socket = events::create_listener(&Address::Inet(loops.listen), &options)
                .map_err(|error| StartError::Listen { addr: loops.listen, error })?;
            Source::SharedListener(Arc::new(socket))
        }
        Some(_) if matches!(events::find(&loops.events)?, Spec::Uring(_)) => {
            let reason = "io_uring may be receiving from a connection that is handed over";
            return Err(StartError::Model { events: loops.events.clone(), reason });
        }
        Some(_) => Source::Migrating,
    })
}

/// Derives the seed of a worker from the seed of its server.
pub(crate) fn worker_seed(seed: u64, index: usize) -> u64 {
    // Steps by an odd number, so that different workers have different seeds.
    seed.wrapping_add((index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// Starts the workers. `connects` is whether they open upstream connections.
pub(crate) fn start_workers(
    loops: &EventLoopConfig,
    connects: bool,
    log: Option<&Path>,
    metrics: &Arc<Metrics>,
    service: &(impl Service + Send + Sync),
) -> Result<Server, StartError> {
    let spec = events::find(&loops.events)?;
    let descriptors = descriptors::raise_limit().and_then(|limit| usize::try_from(limit).ok());
    let descriptors = descriptors.unwrap_or(1 << 20);
    let workers = worker_count(loops, descriptors);
    let exchange = loops.exchange();
    let has_one_listener = matches!(exchange, Some(Distribution::HandOver | Distribution::Shared));
    if workers > 1 && !has_one_listener && loops.listen.port() != 0 {
        check_address_free(loops.listen)
            .map_err(|error| StartError::Listen { addr: loops.listen, error })?;
    }
    // Kernel programs identify descriptors by their number within the process, so these mechanisms
    // need a shared table. Even for a single worker, its own table saves the kernel a reference
    // count per system call.
    let may_own = !spec.needs_privileges() && exchange.is_none();
    let refused = if may_own { Table::Own.probe().err() } else { None };
    let table = if may_own && refused.is_none() { Table::Own } else { Table::Shared };
    let log = log.map(|path| {
        LogWriter::start(path)
            .map_err(|error| StartError::Log { path: path.display().to_string(), error })
    });
    let log = log.transpose()?;
    let sink = log.as_ref().map(LogWriter::sink);
    if let Some(sink) = &sink {
        metrics.set_access_log(sink.clone());
    }
    let stop = ServerHandle::new(sink.clone());
    let limits = |index| {
        WorkerLimits::new(loops, connects, workers, descriptors, table == Table::Own, index)
    };
    let capacity = limits(0).connections;
    let group = exchange.map(|_| Group::new(workers, capacity, stop.wakers()));
    let template = WorkerStart {
        service: service.clone(),
        events: loops.mechanism().to_owned(),
        policy: loops.policy(),
        grace: loops.shutdown_timeout,
        stack_size: loops.stack_size(),
        context: WorkerContext {
            index: 0,
            workers,
            source: source(loops)?,
            group,
            listen: loops.listen,
            limits: limits(0),
            seed: RandomState::new().build_hasher().finish(),
            own_table: table == Table::Own,
            stop: stop.stopping(),
            log: sink,
            metrics: metrics.clone(),
        },
    };
    let mut server = Server {
        addr: loops.listen,
        events: loops.mechanism().to_owned(),
        connections: (0..workers).map(|index| limits(index).connections).sum(),
        own_tables_unavailable: refused,
        stop,
        worker_count: workers,
        workers: Vec::new(),
        supervisor: None,
        metrics: metrics.clone(),
        admin_addr: None,
        redirect_addr: None,
        warnings: Vec::new(),
        background: Vec::new(),
        _log: log,
    };
    let (ends, ended) = mpsc::channel();
    server.supervisor = Some(supervise(ended, server.stop.clone())?);
    if let Source::Inbox { .. } = template.context.source {
        let start = dispatcher::start(loops, template, server.connections, server.stop.clone());
        let events = server.add_worker("acceptor".to_owned(), workers, start, StopOnExit(ends))?;
        if loops.mechanism() == mechanism::AUTO {
            server.events = events.to_owned();
        }
        return Ok(server);
    }
    for index in 0..workers {
        let mut start = template.clone();
        start.context.index = index;
        start.context.limits = limits(index);
        start.context.seed = worker_seed(template.context.seed, index);
        // The first worker may have selected a free port.
        start.context.listen = server.addr;
        // If one fails, dropping the server stops the workers that have started.
        let started = StopOnExit(ends.clone());
        let events = server.add_worker(format!("worker-{index}"), index, start, started)?;
        // The mechanism that `auto` selects may fall back to another when it is opened.
        if loops.events == mechanism::AUTO {
            server.events = events.to_owned();
        }
    }
    Ok(server)
}

impl Server {
    /// Returns the address that the server listens on.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the name of the event mechanism.
    pub fn mechanism(&self) -> &str {
        &self.events
    }

    /// Returns the number of workers.
    pub fn workers(&self) -> usize {
        self.worker_count
    }

    /// Returns the maximum number of open client connections over all workers.
    pub fn max_connections(&self) -> usize {
        self.connections
    }

    /// Returns the reason if the workers share a descriptor table because they cannot have their own.
    pub fn own_tables_unavailable(&self) -> Option<&Unavailable> {
        self.own_tables_unavailable.as_ref()
    }

    /// Returns the admin address, if there is one.
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.admin_addr
    }

    /// Returns the address that redirects to TLS, if there is one.
    pub fn redirect_addr(&self) -> Option<SocketAddr> {
        self.redirect_addr
    }

    /// Returns the counters of the workers.
    pub fn metrics(&self) -> Arc<Metrics> {
        self.metrics.clone()
    }

    /// Returns warnings about problems that did not prevent the start, such as an upstream server
    /// whose name has no address.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Starts a worker thread. Returns the name of its mechanism.
    fn add_worker<S: Service + Send>(
        &mut self,
        name: String,
        index: usize,
        start: WorkerStart<S>,
        on_exit: StopOnExit,
    ) -> Result<&'static str, StartError> {
        let started = start_worker(name, start, on_exit)?;
        self.workers.push(started.thread);
        self.stop.set_waker(index, started.waker);
        self.addr = started.addr;
        Ok(started.events)
    }

    /// Adds warnings.
    pub(crate) fn add_warnings(&mut self, warnings: Vec<String>) {
        self.warnings.extend(warnings);
    }

    /// Adds a background thread, which is dropped after the workers have ended.
    pub(crate) fn add_background(&mut self, background: impl Send + Sync + 'static) {
        self.background.push(Box::new(background));
    }

    /// Sets the address that redirects to TLS.
    pub(crate) fn set_redirect_addr(&mut self, addr: SocketAddr) {
        self.redirect_addr = Some(addr);
    }

    /// Sets the admin address.
    pub(crate) fn set_admin_addr(&mut self, addr: SocketAddr) {
        self.admin_addr = Some(addr);
    }

    /// Returns the wakers of the workers, by worker index.
    pub(crate) fn wakers(&self) -> Wakers {
        self.stop.wakers()
    }

    /// Returns the flag that is set when the server stops.
    pub(crate) fn stopping(&self) -> Arc<AtomicBool> {
        self.stop.stopping()
    }

    /// Returns a handle that stops the server.
    pub fn handle(&self) -> ServerHandle {
        self.stop.clone()
    }

    /// Waits until the server has ended, after a stop or the failure of a worker.
    ///
    /// # Errors
    /// The event mechanism of a worker failed, or a worker panicked.
    pub fn wait(mut self) -> io::Result<()> {
        self.join()
    }

    fn join(&mut self) -> io::Result<()> {
        let mut result = Ok(());
        for worker in std::mem::take(&mut self.workers) {
            let ended =
                worker.join().unwrap_or_else(|_| Err(io::Error::other("a worker panicked")));
            result = result.and(ended);
        }
        if let Some(supervisor) = self.supervisor.take() {
            let _ = supervisor.join(); // Its panic would already be on stderr.
        }
        result
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.stop();
        // Callers that need the error use `wait`.
        let _ = self.join();
    }
}

/// The parameters of a worker thread. They contain no descriptor if the thread has another descriptor
/// table.
#[derive(Clone)]
pub(crate) struct WorkerStart<S> {
    pub(crate) service: S,
    /// The event mechanism.
    pub(crate) events: String,
    pub(crate) policy: Policy,
    /// Maximum time for requests in progress to complete after the stop.
    pub(crate) grace: Duration,
    /// Size of the thread's stack in bytes; the default of the system if `None`.
    pub(crate) stack_size: Option<usize>,
    pub(crate) context: WorkerContext,
}

/// A worker thread that accepts connections.
pub(crate) struct StartedWorker {
    pub(crate) thread: JoinHandle<io::Result<()>>,
    pub(crate) waker: Waker,
    /// The listening address.
    pub(crate) addr: SocketAddr,
    /// Name of the event mechanism.
    pub(crate) events: &'static str,
}

/// The listening address of a started worker and the name of its mechanism.
type StartResult = Result<(SocketAddr, &'static str), StartError>;

/// Starts a worker thread and waits until it accepts connections. The thread drops `on_exit` when it
/// ends.
pub(crate) fn start_worker<S: Service + Send>(
    name: String,
    start: WorkerStart<S>,
    on_exit: impl Send + 'static,
) -> Result<StartedWorker, StartError> {
    let (ready, started) = mpsc::sync_channel(1);
    let table = if start.context.own_table { Table::Own } else { Table::Shared };
    let mut thread = thread::Builder::new().name(name);
    if let Some(size) = start.stack_size {
        thread = thread.stack_size(size);
    }
    let (thread, waker) = table.spawn(thread, (start, ready, on_exit), run_thread)?;
    let ended = || StartError::from(io::Error::other("the worker ended"));
    match started.recv().unwrap_or_else(|_| Err(ended())) {
        Ok((addr, events)) => Ok(StartedWorker { thread, waker, addr, events }),
        Err(error) => {
            let _ = thread.join(); // Its panic is already on stderr.
            Err(error)
        }
    }
}

/// Runs a worker thread.
fn run_thread<S: Service, E>(
    (start, ready, _on_exit): (WorkerStart<S>, mpsc::SyncSender<StartResult>, E),
    wakeups: Wakeups,
) -> io::Result<()> {
    let WorkerStart { service, events, policy, grace, context, .. } = start;
    let refusal = ready.clone();
    let start = StartWorker { service, grace, context, ready };
    events::visit(&events, &policy, wakeups, start).unwrap_or_else(|refused| {
        let _ = refusal.send(Err(refused.into()));
        Ok(())
    })
}

struct StartWorker<S> {
    service: S,
    grace: Duration,
    context: WorkerContext,
    ready: mpsc::SyncSender<StartResult>,
}

impl<S: Service> events::Visitor for StartWorker<S> {
    type Output = io::Result<()>;

    fn visit<I: Relay + 'static>(self, name: &'static str, io: I) -> io::Result<()> {
        let StartWorker { service, grace, context, ready } = self;
        run_worker(service, io, &context, grace, |started| {
            let _ = ready.send(started.map(|addr| (addr, name)));
        })
    }
}

/// Runs a worker over `io` until the server has stopped. Passes the address of its listening socket
/// to `started`, or the error if the worker cannot be created.
pub(crate) fn run_worker<I: Relay + 'static>(
    service: impl Service,
    io: I,
    context: &WorkerContext,
    grace: Duration,
    started: impl FnOnce(Result<SocketAddr, StartError>),
) -> io::Result<()> {
    match service.worker(io, context) {
        Ok(mut worker) => {
            started(Ok(worker.addr()));
            run_until_stopped(&mut *worker, &context.stop, grace)
        }
        Err(error) => {
            started(Err(error));
            Ok(())
        }
    }
}

/// Checks that no other socket uses the address. With `SO_REUSEPORT`, a second server on the same
/// address would start and silently receive part of the connections.
fn check_address_free(addr: SocketAddr) -> io::Result<()> {
    let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let probe = net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&probe, true)?;
    net::bind(&probe, &addr)?;
    Ok(net::listen(&probe, 1)?)
}

#[cfg(all(test, loom))]
mod models {
    //! Models of stopping, checked by loom: `scripts/loom`.

    use std::time::Duration;

    use hearken::EventQueue;
    use loom::thread;

    use super::*;

    // A worker may check for the stop and sleep before its waker is added.
    #[test]
    fn a_stop_wakes_a_worker_that_is_being_started() {
        loom::model(|| {
            let queue = EventQueue::<()>::new().unwrap();
            let waker = queue.waker();
            let stop = ServerHandle::new(None);
            let stopping = stop.clone();
            let stopping = thread::spawn(move || stopping.stop());
            let flag = Arc::clone(&stop.stop);
            let worker = thread::spawn(move || flag.load(Ordering::Acquire));
            stop.set_waker(0, waker);
            stopping.join().unwrap();
            let saw_stop = worker.join().unwrap();
            let woken = queue.next_events(1, Some(Duration::ZERO)).unwrap().woken();
            assert!(saw_stop || woken);
        });
    }
}
