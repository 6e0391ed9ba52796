//! A small server next to the main one: an event loop in a thread of its own, over one address.
//!
//! It responds even if the workers are busy. Its requests do not count in the server's metrics.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use hearken::Waker;
use hearken::io::Relay;
use hearken::io::readiness::Policy;
use hearken_http::{Limits, h2};

use crate::event_loop::EventLoop;
use crate::front::{Front, HalfClose, Handler, Settings, Timeouts};
use crate::runtime::event_loops::EventLoopConfig;
use crate::runtime::limits::WorkerLimits;
use crate::runtime::metrics::Metrics;
use crate::runtime::server::{
    Service, Source, StartError, StopFlag, Worker, WorkerContext, WorkerStart, start_worker,
};

const TIMEOUTS: Timeouts = Timeouts {
    header: Duration::from_secs(5),
    body: Duration::from_secs(5),
    upload: Duration::from_secs(10),
    keepalive: Duration::from_secs(60),
    send: Duration::from_secs(10),
};
const LIMITS: Limits =
    Limits { max_head_bytes: 8 * 1024, max_fields: 64, max_target_bytes: 4 * 1024 };

/// A server in a thread of its own. Dropping it closes all connections and ends its thread.
#[derive(Debug)]
pub struct SideServer {
    addr: SocketAddr,
    stop: StopFlag,
    waker: Waker,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl SideServer {
    /// Returns the address of the listening socket.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Listens on `addr` and serves it in a thread that shares the caller's descriptor table, with at
    /// most `connections` connections.
    ///
    /// # Errors
    /// Listening on the address failed, or the thread cannot be started.
    pub(crate) fn start(
        name: &str,
        addr: SocketAddr,
        service: &(impl Service + Send),
        connections: usize,
    ) -> Result<SideServer, StartError> {
        let stop = StopFlag::default();
        let start = |events: &str| {
            let start = WorkerStart {
                service: service.clone(),
                events: events.to_owned(),
                policy: Policy::default(),
                grace: Duration::ZERO,
                stack_size: None,
                context: context(addr, stop.clone(), connections),
            };
            start_worker(name.to_owned(), start, ())
        };
        let started = match start("epoll-level") {
            Err(StartError::Mechanism(_)) => start("poll"),
            started => started,
        }?;
        let thread = Some(started.thread);
        Ok(SideServer { addr: started.addr, stop, waker: started.waker, thread })
    }
}

impl Drop for SideServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            // The thread itself has reported a panic.
            let _ = thread.join();
        }
    }
}

/// Creates the context in which the event loop runs.
pub(crate) fn context(addr: SocketAddr, stop: StopFlag, connections: usize) -> WorkerContext {
    WorkerContext {
        index: 0,
        workers: 1,
        source: Source::Listener,
        group: None,
        listen: addr,
        limits: WorkerLimits {
            connections,
            descriptors: connections,
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

/// Creates the event loop for a handler.
pub(crate) fn worker<I: Relay + 'static>(
    io: I,
    handler: impl Handler<I> + 'static,
    context: &WorkerContext,
) -> Result<Box<dyn Worker>, StartError> {
    let settings = Settings {
        timeouts: TIMEOUTS,
        min_rate: 1024,
        limits: LIMITS,
        half_close: HalfClose::Respond,
        proxy_protocol: Vec::new(),
        needs_peers: false,
        hsts: None,
        http2: Some(h2::Config::default()),
    };
    let front = Front::new(settings, context.limits.connections, None, context.worker_metrics());
    match EventLoop::new(io, front, handler, context, &EventLoopConfig::default(), false) {
        Ok(worker) => Ok(Box::new(worker)),
        Err(error) => Err(StartError::Listen { addr: context.listen, error }),
    }
}
