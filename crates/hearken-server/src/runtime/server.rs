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

use crate::config::{Config, Loops};
use crate::proxy::Beside;
use crate::runtime::access_log::{AccessLog, LogFormat, LogSink, LogWriter};
use crate::runtime::limits::Share;
use crate::runtime::metrics::Metrics;
use crate::static_files::Site;
use crate::worker;

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The directory cannot be served.
    #[error("cannot serve {root}: {error}")]
    Site {
        /// The directory asked for.
        root: String,
        /// What the kernel said.
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
#[derive(Debug)]
pub struct Server {
    addr: SocketAddr,
    events: String,
    connections: usize,
    one_table: Option<Unavailable>,
    stop: Stopper,
    workers: Vec<JoinHandle<io::Result<()>>>,
    supervisor: Option<JoinHandle<()>>,
    /// The access log. Dropped after the workers have ended.
    log: Option<LogWriter>,
    /// What runs beside the workers.
    pub(crate) beside: Option<Beside>,
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
    fn add(&self, waker: Waker) {
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
struct EndsAll(mpsc::Sender<()>);

impl Drop for EndsAll {
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

/// Starts a static server: when this returns, it accepts connections.
///
/// # Errors
/// [`StartError`]: the directory, the address, the mechanism, or the limits of the process.
pub fn start(config: &Config) -> Result<Server, StartError> {
    launch(&config.loops, false, config.access_log.as_deref(), &Static(config.clone()))
}

/// A worker's place among the others.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    pub(crate) index: usize,
    pub(crate) workers: usize,
    /// Where all listen: on the port that the first was given.
    pub(crate) listen: SocketAddr,
    pub(crate) share: Share,
    /// Whether its table of descriptors is its own.
    pub(crate) own_table: bool,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) log: Option<LogSink>,
}

/// What makes the workers of a server.
pub(crate) trait Service: Clone + Send + 'static {
    /// The worker that has this seat, over `io`; it accepts connections.
    fn worker<I: Relay>(self, io: I, seat: &Seat) -> Result<impl Worker, StartError>;
}

/// One event loop.
pub(crate) trait Worker {
    /// Where it listens.
    fn addr(&self) -> io::Result<SocketAddr>;

    /// When its last turn began.
    fn now(&self) -> Time;

    /// Waits for what happens, deals with it, and tells whether anything did.
    fn turn(&mut self, until: Option<Time>) -> io::Result<bool>;

    /// What is in flight is the last; returns when its patience with that ends.
    fn begin_to_stop(&mut self) -> Time;

    /// Accepts no more, and lets those go who have asked for nothing.
    fn let_go(&mut self);

    /// Whether nobody is left.
    fn is_idle(&self) -> bool;

    /// There is no turn any more.
    fn end(&mut self) {}
}

/// For how long, at most, a server that is to stop takes in what had come by then.
const LAST_CALL: Duration = Duration::from_millis(100);

/// Serves until it is stopped and what was in flight has ended, or patience has.
fn serve(worker: &mut impl Worker, stop: &AtomicBool) -> io::Result<()> {
    while !stop.load(Ordering::Acquire) {
        worker.turn(None)?;
    }
    let patience_ends = worker.begin_to_stop();
    // What clients sent before they could know is still answered. By some policies it takes several
    // turns from an accept to an answer.
    let last_call = worker.now() + LAST_CALL;
    while worker.turn(Some(worker.now()))? && worker.now() < last_call {}
    worker.let_go();
    while !worker.is_idle() && worker.now() < patience_ends {
        worker.turn(Some(patience_ends))?;
    }
    worker.end();
    Ok(())
}

/// Starts the workers, which connect to others for those who connect to them, or do not.
pub(crate) fn launch(
    loops: &Loops,
    connects: bool,
    log: Option<&Path>,
    service: &impl Service,
) -> Result<Server, StartError> {
    let spec = events::find(&loops.events)?;
    let descriptors = descriptors::raise_limit().and_then(|limit| usize::try_from(limit).ok());
    let descriptors = descriptors.unwrap_or(1 << 20);
    // One that may have no connection would leave those waiting that the kernel deals to it.
    let workers = loops.max_connections.map_or(loops.workers, |most| most.min(loops.workers));
    if workers.get() > 1 && loops.listen.port() != 0 {
        check_free(loops.listen)
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
    let stop = Stopper { stop: Arc::default(), log: sink.clone(), wakers: Arc::default() };
    let mut server = Server {
        addr: loops.listen,
        events: spec.to_string(),
        connections: 0,
        one_table: refused,
        stop,
        workers: Vec::new(),
        supervisor: None,
        log,
        beside: None,
    };
    let (ends, ended) = mpsc::channel();
    server.supervisor = Some(supervise(ended, server.stop.clone())?);
    let auto = loops.events == mechanism::AUTO;
    let mut policy = Policy::default();
    policy.order = loops.order;
    policy.accept_limit = loops.accept_limit;
    policy.interest = loops.interest;
    for index in 0..workers.get() {
        let share =
            Share::of(loops, connects, workers.get(), descriptors, table == Table::Own, index);
        let (ready, started) = mpsc::sync_channel(1);
        let start = Start {
            service: service.clone(),
            events: loops.events.clone(),
            policy,
            seat: Seat {
                index,
                workers: workers.get(),
                listen: server.addr,
                share,
                own_table: table == Table::Own,
                stop: server.stop.stop.clone(),
                log: sink.clone(),
            },
            ready,
            ends_all: EndsAll(ends.clone()),
        };
        let thread = thread::Builder::new().name(format!("worker-{index}"));
        // Where one fails, dropping the server stops those that did start.
        let (worker, waker) = table.spawn(thread, start, run_worker)?;
        server.workers.push(worker);
        server.stop.add(waker);
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
        self.one_table.as_ref()
    }

    /// Where metrics are told; nowhere for a static server.
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.beside.as_ref().and_then(Beside::admin_addr)
    }

    /// What it counts; nothing for a static server.
    pub fn metrics(&self) -> Option<Arc<Metrics>> {
        self.beside.as_ref().map(|beside| beside.metrics.clone())
    }

    /// What is not as it should be, though it runs: a server's name that has no address yet.
    pub fn warnings(&self) -> &[String] {
        self.beside.as_ref().map_or(&[], |beside| &beside.warnings)
    }

    /// Wakes the workers, in their order.
    pub(crate) fn wakers(&self) -> Vec<Waker> {
        self.stop.wakers().clone()
    }

    /// Returns the queue of the access log, if there is one.
    pub(crate) fn log_sink(&self) -> Option<LogSink> {
        self.log.as_ref().map(LogWriter::sink)
    }

    /// Is set once it is to stop.
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
struct Start<S> {
    service: S,
    events: String,
    policy: Policy,
    seat: Seat,
    ready: mpsc::SyncSender<Ready>,
    ends_all: EndsAll,
}

/// Where the worker listens, and by which mechanism it waits.
type Ready = Result<(SocketAddr, &'static str), StartError>;

/// All that a worker's thread does.
fn run_worker<S: Service>(start: Start<S>, wakeups: Wakeups) -> io::Result<()> {
    let Start { service, events, policy, seat, ready, ends_all } = start;
    let _ends_all = ends_all;
    let refusal = ready.clone();
    let start = StartWorker { service, seat, ready };
    events::visit(&events, &policy, wakeups, start).unwrap_or_else(|refused| {
        let _ = refusal.send(Err(refused.into()));
        Ok(())
    })
}

struct StartWorker<S> {
    service: S,
    seat: Seat,
    ready: mpsc::SyncSender<Ready>,
}

impl<S: Service> events::Visitor for StartWorker<S> {
    type Output = io::Result<()>;

    fn visit<I: Relay>(self, name: &'static str, io: I) -> io::Result<()> {
        let StartWorker { service, seat, ready } = self;
        let stop = seat.stop.clone();
        let started = service.worker(io, &seat).and_then(|worker| Ok((worker.addr()?, worker)));
        match started {
            Ok((addr, mut worker)) => {
                let _ = ready.send(Ok((addr, name)));
                serve(&mut worker, &stop)
            }
            Err(error) => {
                let _ = ready.send(Err(error));
                Ok(())
            }
        }
    }
}

/// The workers of a static server.
#[derive(Clone)]
struct Static(Config);

impl Service for Static {
    fn worker<I: Relay>(self, io: I, seat: &Seat) -> Result<impl Worker, StartError> {
        let Static(config) = self;
        let site = crate::static_files::SiteConfig {
            open_files: seat.share.open_files.min(config.site.open_files),
            ..config.site.clone()
        };
        let root = site.root.display().to_string();
        let site = Site::open(&site).map_err(|error| StartError::Site { root, error })?;
        let log = seat.log.clone().map(|sink| AccessLog::new(sink, LogFormat::Combined));
        worker::Worker::new(io, site, log, &config, seat)
            .map_err(|error| StartError::Listen { addr: seat.listen, error })
    }
}

/// Finds out whether nobody else has a port: with `SO_REUSEPORT` a second server on the address
/// would silently take a share of the connections.
fn check_free(addr: SocketAddr) -> io::Result<()> {
    let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let probe = net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&probe, true)?;
    net::bind(&probe, &addr)?;
    Ok(net::listen(&probe, 1)?)
}
