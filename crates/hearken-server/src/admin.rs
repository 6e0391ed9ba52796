//! The admin address: metrics, and the state and control of upstream servers, over HTTP.
//!
//! Its event loop has its own thread, so it responds even if the workers are busy. Its requests do
//! not count in the server's metrics.
//!
//! Every client that can connect to the address may use it. A browser on the same machine can
//! connect on behalf of any site, so requests that pages of other sites cause are rejected. They are
//! recognised by their Origin and Sec-Fetch-Site fields. On a loopback address, a Host with a name is
//! rejected too, because the name may belong to a site that resolves it to this machine (DNS
//! rebinding).

mod handler;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use hearken::Waker;
use hearken::io::Relay;
use hearken::io::readiness::Policy;
use hearken_http::Limits;

use crate::event_loop::EventLoop;
use crate::front::{Front, HalfClose, Settings, Timeouts};
use crate::runtime::administration::AdminSources;
use crate::runtime::event_loops::EventLoopConfig;
use crate::runtime::limits::WorkerLimits;
use crate::runtime::metrics::Metrics;
use crate::runtime::server::{
    Service, Source, StartError, StopFlag, Worker, WorkerContext, WorkerStart, start_worker,
};
use handler::Admin;

/// Maximum number of connections.
const MAX_CONNECTIONS: usize = 64;

const TIMEOUTS: Timeouts = Timeouts {
    header: Duration::from_secs(5),
    body: Duration::from_secs(5),
    upload: Duration::from_secs(10),
    keepalive: Duration::from_secs(60),
    send: Duration::from_secs(10),
};
const LIMITS: Limits =
    Limits { max_head_bytes: 8 * 1024, max_fields: 64, max_target_bytes: 4 * 1024 };

/// A server at the admin address. Dropping it closes all connections and ends its thread.
#[derive(Debug)]
pub struct AdminServer {
    addr: SocketAddr,
    stop: StopFlag,
    waker: Waker,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl AdminServer {
    /// Returns the address of the listening socket.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for AdminServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            // The thread itself has reported a panic.
            let _ = thread.join();
        }
    }
}

/// Listens on `addr` and serves `sources` in a thread that shares the caller's descriptor table.
///
/// # Errors
/// Listening on the address failed, or the thread cannot be started.
pub fn start(addr: SocketAddr, sources: AdminSources) -> Result<AdminServer, StartError> {
    let service = AdminService(Arc::new(sources));
    let stop = StopFlag::default();
    let start = |events: &str| {
        let start = WorkerStart {
            service: service.clone(),
            events: events.to_owned(),
            policy: Policy::default(),
            grace: Duration::ZERO,
            stack_size: None,
            context: context(addr, stop.clone()),
        };
        start_worker("admin".to_owned(), start, ())
    };
    let started = match start("epoll-level") {
        Err(StartError::Mechanism(_)) => start("poll"),
        started => started,
    }?;
    Ok(AdminServer { addr: started.addr, stop, waker: started.waker, thread: Some(started.thread) })
}

/// Creates the context in which the event loop of the admin address runs.
pub(crate) fn context(addr: SocketAddr, stop: StopFlag) -> WorkerContext {
    WorkerContext {
        index: 0,
        workers: 1,
        source: Source::Listener,
        group: None,
        listen: addr,
        limits: WorkerLimits {
            connections: MAX_CONNECTIONS,
            descriptors: MAX_CONNECTIONS,
            open_files: 0,
            cache_shares: 1,
        },
        seed: 0,
        own_table: false,
        stop,
        log: None,
        metrics: Arc::new(Metrics::new(0)),
    }
}

/// Creates the event loop of the admin address.
#[derive(Clone)]
pub(crate) struct AdminService(pub(crate) Arc<AdminSources>);

impl Service for AdminService {
    fn worker<I: Relay + 'static>(
        self,
        io: I,
        context: &WorkerContext,
    ) -> Result<Box<dyn Worker>, StartError> {
        let settings = Settings {
            timeouts: TIMEOUTS,
            min_rate: 1024,
            limits: LIMITS,
            half_close: HalfClose::Respond,
            proxy_protocol: Vec::new(),
            needs_peers: false,
        };
        let front = Front::new(settings, MAX_CONNECTIONS, None, context.worker_metrics());
        let loops = EventLoopConfig::default();
        match EventLoop::new(io, front, Admin::new(self.0), context, &loops, false) {
            Ok(worker) => Ok(Box::new(worker)),
            Err(error) => Err(StartError::Listen { addr: context.listen, error }),
        }
    }
}
