//! Starting, stopping, and the worker threads.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};

use hearken::io::readiness::{Policy, ReadinessIo};
use hearken::mechanism::{self, Open, SelectError, Visitor};
use hearken::{Waker, descriptors};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

use crate::config::Config;
use crate::log::AccessLog;
use crate::site::Site;
use crate::worker::Worker;

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
    stop: Stopper,
    workers: Vec<JoinHandle<io::Result<()>>>,
}

/// Stops a server, from any thread.
#[derive(Clone, Debug)]
pub struct Stopper {
    stop: Arc<AtomicBool>,
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

/// However a worker ends, by a failure or a panic too, the others are not to go on without it.
struct EndsAll(Stopper);

impl Drop for EndsAll {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Starts a server: when this returns, it accepts connections.
///
/// # Errors
/// [`StartError`]: the directory, the address, the mechanism, or the limits of the process.
pub fn start(config: &Config) -> Result<Server, StartError> {
    let events = mechanism::find(&config.events)?.to_string();
    let descriptors = descriptors::raise_limit().and_then(|limit| usize::try_from(limit).ok());
    let descriptors = descriptors.unwrap_or(1 << 20);
    // One that may have no connection would leave those waiting that the kernel deals to it.
    let workers = config.max_connections.map_or(config.workers, |most| most.min(config.workers));
    if workers.get() > 1 && config.listen.port() != 0 {
        check_free(config.listen)
            .map_err(|error| StartError::Listen { addr: config.listen, error })?;
    }
    let stop = Stopper { stop: Arc::default(), wakers: Arc::default() };
    let mut server = Server { addr: config.listen, events, stop, workers: Vec::new() };
    let auto = config.events == mechanism::AUTO;
    for index in 0..workers.get() {
        // All on the port that the first was given.
        let config = Config { listen: server.addr, workers, ..config.clone() };
        let share = Share::of(&config, descriptors, index);
        let (ready, started) = mpsc::sync_channel(1);
        let start = StartWorker { config, share, stop: server.stop.stop.clone(), ready };
        let ends_all = EndsAll(server.stop.clone());
        let worker = thread::Builder::new().name(format!("worker-{index}")).spawn(move || {
            let _ends_all = ends_all;
            let (name, ready) = (start.config.events.clone(), start.ready.clone());
            match mechanism::visit(&name, start) {
                Ok(ended) => ended,
                Err(refused) => {
                    let _ = ready.send(Err(refused.into()));
                    Ok(())
                }
            }
        });
        // Where one fails, dropping the server stops those that did start.
        server.workers.push(worker?);
        let started = started.recv().map_err(|_| io::Error::other("the worker ended"))?;
        let (addr, waker, events) = started?;
        server.addr = addr;
        // What auto stands for can fall back as it is opened.
        if auto {
            server.events = events.to_owned();
        }
        server.stop.add(waker);
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

/// A worker's share of what the process may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    /// How many connections it may have open.
    pub(crate) connections: usize,
    /// How many files it may keep open between requests.
    pub(crate) open_files: usize,
}

impl Share {
    /// That of the worker at `index`; the first ones take what cannot be divided.
    fn of(config: &Config, descriptors: usize, index: usize) -> Share {
        let workers = config.workers.get();
        // Open connections go on getting files when there is no descriptor for one connection more.
        let files = (descriptors / 8).clamp(8, 512);
        let own = 8 + 8 * workers;
        let room = descriptors.saturating_sub(files + own);
        let connections = config.max_connections.map_or(room, |most| most.get().min(room));
        let rest = usize::from(index < connections % workers);
        Share {
            connections: (connections / workers + rest).max(1),
            open_files: (files / 2 / workers).max(1).min(config.site.open_files),
        }
    }
}

struct StartWorker {
    config: Config,
    share: Share,
    stop: Arc<AtomicBool>,
    ready: mpsc::SyncSender<Result<(SocketAddr, Waker, &'static str), StartError>>,
}

impl Visitor for StartWorker {
    type Output = io::Result<()>;

    fn visit<M: Open>(self, mechanism: M) -> io::Result<()> {
        let StartWorker { config, share, stop, ready } = self;
        let policy = Policy {
            order: config.order,
            accept_limit: config.accept_limit,
            interest: config.interest,
            ..Policy::default()
        };
        let started = (|| {
            let site =
                crate::site::SiteConfig { open_files: share.open_files, ..config.site.clone() };
            let root = site.root.display().to_string();
            let site = Site::open(&site).map_err(|error| StartError::Site { root, error })?;
            let log = config.access_log.as_deref().map(|path| {
                AccessLog::open(path)
                    .map_err(|error| StartError::Log { path: path.display().to_string(), error })
            });
            let io = ReadinessIo::new(mechanism, policy)?;
            let addr = config.listen;
            let worker = Worker::new(io, site, log.transpose()?, &config, share, stop)
                .map_err(|error| StartError::Listen { addr, error })?;
            Ok((worker.addr()?, worker))
        })();
        match started {
            Ok((addr, worker)) => {
                let _ = ready.send(Ok((addr, worker.waker(), M::NAME)));
                worker.run()
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
fn check_free(addr: SocketAddr) -> io::Result<()> {
    let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let probe = net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&probe, true)?;
    net::bind(&probe, &addr)?;
    Ok(net::listen(&probe, 1)?)
}
