//! Starting, stopping, and the worker threads.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hearken::descriptors::{self, Table};
use hearken::io::readiness::Policy;
use hearken::io::{self as events, Relay};
use hearken::mechanism::{self, SelectError, Unavailable};
use hearken::timer::Time;
use hearken::{Waker, Wakeups};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

use super::access_log::{LogSink, LogWriter};
use super::event_loops::Loops;
use super::limits::WorkerLimits;
use super::metrics::{self, Metrics};

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A handler cannot be set up.
    #[error("cannot serve {name}: {error}")]
    Handler {
        /// The directory, for example, that it was to serve.
        name: String,
        /// The reason.
        error: io::Error,
    },
    /// The access log cannot be written.
    #[error("cannot write the access log {path}: {error}")]
    Log {
        /// The file asked for.
        path: String,
        /// What the kernel said.
        error: io::Error,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {addr}: {error}")]
    Listen {
        /// The address asked for.
        addr: SocketAddr,
        /// What the kernel said.
        error: io::Error,
    },
    /// The mechanism cannot be had.
    #[error(transparent)]
    Mechanism(#[from] SelectError),
    /// A worker could not be set up.
    #[error("cannot start a worker: {0}")]
    Worker(#[from] io::Error),
}

/// A running server.
pub struct Server {
    addr: SocketAddr,
    events: String,
    connections: usize,
    own_tables_unavailable: Option<Unavailable>,
    stop: Stopper,
    workers: Vec<JoinHandle<io::Result<()>>>,
    supervisor: Option<JoinHandle<()>>,
    metrics: Arc<Metrics>,
    admin_addr: Option<SocketAddr>,
    warnings: Vec<String>,
    /// Threads that run beside the workers, and end after them.
    background: Vec<Box<dyn Send + Sync>>,
    /// The access log. Dropped after the workers have ended.
    _log: Option<LogWriter>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("addr", &self.addr)
            .field("events", &self.events)
            .field("workers", &self.workers.len())
            .finish_non_exhaustive()
    }
}

/// Stops a server, or has it open its log anew, from any thread.
#[derive(Clone, Debug)]
pub struct Stopper {
    stop: Arc<AtomicBool>,
    log: Option<LogSink>,
    wakers: Arc<Mutex<Vec<Waker>>>,
}

impl Stopper {
    /// Has the server accept no more, finish what is in flight within the grace period, and end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        for waker in &*self.wakers() {
            waker.wake();
        }
    }

    /// Opens the access log anew by its name, for use after it was renamed (as by logrotate).
    pub fn reopen_log(&self) {
        if let Some(log) = &self.log {
            log.reopen();
        }
    }

    /// Has a worker that may wait be woken to stop.
    fn add_waker(&self, waker: Waker) {
        let mut wakers = self.wakers();
        if self.stop.load(Ordering::Acquire) {
            waker.wake();
        }
        wakers.push(waker);
    }

    fn wakers(&self) -> MutexGuard<'_, Vec<Waker>> {
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// However a worker ends, by a failure or a panic too, the others are not to go on without it. It
/// cannot wake them: that takes descriptors of a table which may not be its own.
struct StopOnExit(mpsc::Sender<()>);

impl Drop for StopOnExit {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

/// Stops all workers once one has ended, and ends with the last.
fn supervise(ended: mpsc::Receiver<()>, stop: Stopper) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name("supervisor".to_owned()).spawn(move || {
        while ended.recv().is_ok() {
            stop.stop();
        }
    })
}

/// A worker's place among the others.
#[derive(Clone, Debug)]
pub(crate) struct WorkerContext {
    pub(crate) index: usize,
    pub(crate) workers: usize,
    /// The address that all listen on, with the port that the first was given.
    pub(crate) listen: SocketAddr,
    pub(crate) limits: WorkerLimits,
    /// Whether the worker has a table of descriptors of its own.
    pub(crate) own_table: bool,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) log: Option<LogSink>,
    pub(crate) metrics: Arc<Metrics>,
}

impl WorkerContext {
    /// Returns the worker's counters.
    pub(crate) fn worker_metrics(&self) -> Arc<metrics::Worker> {
        self.metrics.workers.get(self.index).cloned().unwrap_or_default()
    }
}

/// Creates the workers of a server.
pub(crate) trait Service: Clone + Send + 'static {
    /// Creates a worker over `io`, which accepts connections.
    fn worker<I: Relay>(self, io: I, context: &WorkerContext) -> Result<impl Worker, StartError>;
}

/// One event loop.
pub(crate) trait Worker {
    /// Returns the address that it listens on.
    fn addr(&self) -> io::Result<SocketAddr>;

    /// Returns when its last turn began.
    fn now(&self) -> Time;

    /// Waits for events, deals with them, and returns whether there were any.
    fn turn(&mut self, until: Option<Time>) -> io::Result<bool>;

    /// Begins to stop: requests in progress are the last.
    fn begin_shutdown(&mut self);

    /// Accepts no more, and closes connections without a request.
    fn close_idle(&mut self);

    /// Returns whether no connection is left.
    fn is_idle(&self) -> bool;

    /// Ends: no turn follows.
    fn finish(&mut self);
}

/// How long, at most, a server that is stopping takes in what had come by then.
const ACCEPT_DRAIN_TIMEOUT: Duration = Duration::from_millis(100);

/// Serves until the server is stopped and requests in progress have ended, or the grace period has.
fn run_until_stopped(
    worker: &mut impl Worker,
    stop: &AtomicBool,
    grace: Duration,
) -> io::Result<()> {
    while !stop.load(Ordering::Acquire) {
        worker.turn(None)?;
    }
    worker.begin_shutdown();
    let grace_ends = worker.now() + grace;
    // Requests that clients sent before they could know are still answered. By some policies it
    // takes several turns from an accept to a response.
    let last_call = worker.now() + ACCEPT_DRAIN_TIMEOUT;
    while worker.turn(Some(worker.now()))? && worker.now() < last_call {}
    worker.close_idle();
    while !worker.is_idle() && worker.now() < grace_ends {
        worker.turn(Some(grace_ends))?;
    }
    worker.finish();
    Ok(())
}

/// Starts the workers. `connects` tells whether they make connections themselves.
pub(crate) fn start_workers(
    loops: &Loops,
    connects: bool,
    log: Option<&Path>,
    metrics: &Arc<Metrics>,
    service: &impl Service,
) -> Result<Server, StartError> {
    let spec = events::find(&loops.events)?;
    let descriptors = descriptors::raise_limit().and_then(|limit| usize::try_from(limit).ok());
    let descriptors = descriptors.unwrap_or(1 << 20);
    // One that may have no connection would leave those waiting that the kernel deals to it.
    let workers = loops.max_connections.map_or(loops.workers, |most| most.min(loops.workers));
    if workers.get() > 1 && loops.listen.port() != 0 {
        check_address_free(loops.listen)
            .map_err(|error| StartError::Listen { addr: loops.listen, error })?;
    }
    // Programs in the kernel tell descriptors by their number for the whole process. For one worker
    // alone a table of its own saves the kernel a reference count in each call.
    let may_own = !spec.needs_privileges();
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
    let stop = Stopper { stop: Arc::default(), log: sink.clone(), wakers: Arc::default() };
    let mut server = Server {
        addr: loops.listen,
        events: spec.to_string(),
        connections: 0,
        own_tables_unavailable: refused,
        stop,
        workers: Vec::new(),
        supervisor: None,
        metrics: metrics.clone(),
        admin_addr: None,
        warnings: Vec::new(),
        background: Vec::new(),
        _log: log,
    };
    let (ends, ended) = mpsc::channel();
    server.supervisor = Some(supervise(ended, server.stop.clone())?);
    let auto = loops.events == mechanism::AUTO;
    let mut policy = Policy::default();
    policy.order = loops.order;
    policy.accept_limit = loops.accept_limit;
    policy.interest = loops.interest;
    for index in 0..workers.get() {
        let share = WorkerLimits::new(
            loops,
            connects,
            workers.get(),
            descriptors,
            table == Table::Own,
            index,
        );
        let (ready, started) = mpsc::sync_channel(1);
        let start = WorkerStart {
            service: service.clone(),
            events: loops.events.clone(),
            policy,
            grace: loops.grace,
            context: WorkerContext {
                index,
                workers: workers.get(),
                listen: server.addr,
                limits: share,
                own_table: table == Table::Own,
                stop: server.stop.stop.clone(),
                log: sink.clone(),
                metrics: metrics.clone(),
            },
            ready,
            stop_on_exit: StopOnExit(ends.clone()),
        };
        let thread = thread::Builder::new().name(format!("worker-{index}"));
        // Where one fails, dropping the server stops those that did start.
        let (worker, waker) = table.spawn(thread, start, run_worker)?;
        server.workers.push(worker);
        server.stop.add_waker(waker);
        let started = started.recv().map_err(|_| io::Error::other("the worker ended"))?;
        let (addr, events) = started?;
        server.addr = addr;
        server.connections = server.connections.saturating_add(share.connections);
        // What auto stands for can fall back as it is opened.
        if auto {
            server.events = events.to_owned();
        }
    }
    Ok(server)
}

impl Server {
    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The name of its mechanism.
    pub fn events(&self) -> &str {
        &self.events
    }

    /// How many workers it has.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// How many connections it may have open at a time, over all workers.
    pub fn connections(&self) -> usize {
        self.connections
    }

    /// Why the workers share the process's table of descriptors, if they could not have their own.
    pub fn one_table(&self) -> Option<&Unavailable> {
        self.own_tables_unavailable.as_ref()
    }

    /// Returns the admin address, if there is one.
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.admin_addr
    }

    /// Returns the counters of the workers.
    pub fn metrics(&self) -> Arc<Metrics> {
        self.metrics.clone()
    }

    /// Returns what is not as it should be, though the server runs: the name of an upstream server
    /// that has no address yet.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Adds warnings.
    pub(crate) fn add_warnings(&mut self, warnings: Vec<String>) {
        self.warnings.extend(warnings);
    }

    /// Keeps what runs beside the workers until these have ended.
    pub(crate) fn add_background(&mut self, background: impl Send + Sync + 'static) {
        self.background.push(Box::new(background));
    }

    /// Sets the admin address.
    pub(crate) fn set_admin_addr(&mut self, addr: SocketAddr) {
        self.admin_addr = Some(addr);
    }

    /// Returns the wakers of the workers, in their order.
    pub(crate) fn wakers(&self) -> Vec<Waker> {
        self.stop.wakers().clone()
    }

    /// Returns the flag that is set once the server is stopping.
    pub(crate) fn stopping(&self) -> Arc<AtomicBool> {
        self.stop.stop.clone()
    }

    /// A handle that stops it.
    pub fn stopper(&self) -> Stopper {
        self.stop.clone()
    }

    /// Waits until it has ended: it was stopped, or a worker failed, which stops the others.
    ///
    /// # Errors
    /// That of a worker that failed: its mechanism's.
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
            let _ = supervisor.join(); // It has nothing to tell.
        }
        result
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.stop();
        // There is nobody to tell; wait() is for those who ask.
        let _ = self.join();
    }
}

/// What a worker starts with: no descriptor, as its table may be another.
struct WorkerStart<S> {
    service: S,
    events: String,
    policy: Policy,
    grace: Duration,
    context: WorkerContext,
    ready: mpsc::SyncSender<StartResult>,
    stop_on_exit: StopOnExit,
}

/// Where the worker listens, and by which mechanism it waits.
type StartResult = Result<(SocketAddr, &'static str), StartError>;

/// All that a worker's thread does.
fn run_worker<S: Service>(start: WorkerStart<S>, wakeups: Wakeups) -> io::Result<()> {
    let WorkerStart { service, events, policy, grace, context, ready, stop_on_exit: ends_all } =
        start;
    let _ends_all = ends_all;
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

    fn visit<I: Relay>(self, name: &'static str, io: I) -> io::Result<()> {
        let StartWorker { service, grace, context, ready } = self;
        let stop = context.stop.clone();
        let started = service.worker(io, &context).and_then(|worker| Ok((worker.addr()?, worker)));
        match started {
            Ok((addr, mut worker)) => {
                let _ = ready.send(Ok((addr, name)));
                run_until_stopped(&mut worker, &stop, grace)
            }
            Err(error) => {
                let _ = ready.send(Err(error));
                Ok(())
            }
        }
    }
}

/// Finds out whether nobody else has a port: with `SO_REUSEPORT` a second server on the address
/// would silently take a share of the connections.
fn check_address_free(addr: SocketAddr) -> io::Result<()> {
    let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let probe = net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&probe, true)?;
    net::bind(&probe, &addr)?;
    Ok(net::listen(&probe, 1)?)
}
