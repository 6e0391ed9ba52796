//! Settings of the event loops.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::{NonZeroU32, NonZeroUsize};
use std::thread;
use std::time::Duration;

use hearken::io::readiness::{ClosePolicy, InterestPolicy, Order, Policy};
use hearken::mechanism::poll::Poll;
use hearken::mechanism::{AUTO, Open};
use hearken::timer::TimerPolicy;

use super::limit_reached::LimitReached;

/// The concurrency model of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Model {
    /// Independent event loops, each with its own listening socket.
    #[default]
    Events,
    /// Independent loops that serve each connection in a task, over the same events ([`hearken::task`]).
    Tasks,
    /// Event loops that distribute connections as [`EventLoopConfig::distribution`] says.
    Hybrid,
    /// A thread for each connection, started on demand. A thread without a connection ends after 10 s.
    Threads,
    /// A fixed number of threads, each of which serves one connection at a time.
    Pool,
}

impl Model {
    /// Returns whether each thread serves one connection at a time.
    pub fn has_thread_per_connection(self) -> bool {
        matches!(self, Model::Threads | Model::Pool)
    }

    /// Returns the default number of workers.
    pub fn default_workers(self) -> usize {
        match self {
            Model::Events | Model::Tasks => 1,
            Model::Hybrid => thread::available_parallelism().map_or(1, NonZeroUsize::get),
            Model::Pool => 64,
            Model::Threads => 1024,
        }
    }
}

/// The distribution of connections over the event loops of [`Model::Hybrid`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Distribution {
    /// Each loop has a listening socket, and the kernel selects one for each connection
    /// (`SO_REUSEPORT`).
    #[default]
    ReusePort,
    /// A thread accepts all connections and hands each to the loop with the fewest.
    HandOver,
    /// The loops share a listening socket. A connection wakes as few of them as the mechanism allows.
    Shared,
    /// Like [`ReusePort`](Distribution::ReusePort), and a loop with more than its share of connections
    /// hands new and idle ones to the loop with the fewest.
    Migrate,
}

/// Settings of the listening socket and the event loops.
#[derive(Clone, Debug)]
pub struct EventLoopConfig {
    /// Address to listen on. Port 0 selects a free port.
    pub listen: SocketAddr,
    /// Event mechanism: a name accepted by [`hearken::io::find`], `uring`, or `auto`, which is `poll`
    /// for models with a thread per connection.
    pub events: String,
    /// The concurrency model.
    pub model: Model,
    /// The distribution of connections over the event loops of [`Model::Hybrid`].
    pub distribution: Distribution,
    /// Number of event loops or pool threads; maximum number of threads of [`Model::Threads`]. Each
    /// event loop is a thread with its own listening socket (`SO_REUSEPORT`) and its own descriptor
    /// table, so the connection limit grows with the number of workers. All workers share one table
    /// with mechanisms that need privileges, such as `kernel-queue`, and if they exchange connections.
    /// The default is 1, for [`Model::Hybrid`] the number of processors, for [`Model::Pool`] 64 and
    /// for [`Model::Threads`] 1,024.
    pub workers: Option<NonZeroUsize>,
    /// Maximum number of connections accepted per readiness event of the listening socket; unlimited
    /// if `None`.
    pub accept_limit: Option<NonZeroU32>,
    /// Maximum time for which the kernel delays a new connection until it has received data
    /// (`TCP_DEFER_ACCEPT`). Zero disables the delay.
    pub defer_accept: Duration,
    /// Whether operations are tried before the worker waits for readiness.
    pub order: Order,
    /// Policy for changes of interest.
    pub interest: InterestPolicy,
    /// The call that revokes the interest in a connection that is closed.
    pub close: ClosePolicy,
    /// Whether to send a head and the file range after it between two calls that set `TCP_CORK`.
    pub cork: bool,
    /// Method of finding expired deadlines.
    pub timers: TimerPolicy,
    /// Maximum number of events per wait.
    pub batch: NonZeroUsize,
    /// Maximum number of open client connections over all workers. If `None`, the descriptor limit
    /// determines it. The workers divide the limit. The kernel distributes connections, and a
    /// connection assigned to a full worker waits even if another worker has capacity.
    pub max_connections: Option<NonZeroUsize>,
    /// Maximum time for requests in progress to complete when the server stops.
    pub shutdown_timeout: Duration,
    /// Whether to measure waits for events: their processor time, events and accepted connections.
    /// Each wait then reads the processor clock of the thread twice.
    pub measure_waits: bool,
    /// Function that reports an exhausted limit. The worker's thread calls it at most once a minute.
    /// It must not use descriptors other than the standard ones.
    pub on_limit: fn(&LimitReached<'_>),
}

impl Default for EventLoopConfig {
    fn default() -> EventLoopConfig {
        let policy = Policy::default();
        EventLoopConfig {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            events: AUTO.to_owned(),
            model: Model::default(),
            distribution: Distribution::default(),
            workers: None,
            accept_limit: policy.accept_limit,
            defer_accept: Duration::ZERO,
            order: policy.order,
            interest: policy.interest,
            close: policy.close,
            cork: policy.cork,
            timers: policy.timers,
            batch: NonZeroUsize::new(policy.batch).unwrap_or(NonZeroUsize::MIN),
            max_connections: None,
            shutdown_timeout: Duration::from_secs(10),
            measure_waits: false,
            on_limit: |_| (),
        }
    }
}

impl EventLoopConfig {
    /// Returns the distribution of connections, if the workers exchange or share them.
    pub(crate) fn exchange(&self) -> Option<Distribution> {
        match (self.model, self.distribution) {
            (Model::Threads | Model::Pool, _) => Some(Distribution::HandOver),
            (Model::Events | Model::Tasks, _) | (_, Distribution::ReusePort) => None,
            (Model::Hybrid, distribution) => Some(distribution),
        }
    }

    /// Returns the maximum number of workers. Other limits may reduce it.
    pub fn worker_limit(&self) -> usize {
        self.workers.map_or_else(|| self.model.default_workers(), NonZeroUsize::get)
    }

    /// Returns the event mechanism.
    pub(crate) fn mechanism(&self) -> &str {
        if self.model.has_thread_per_connection() && self.events == AUTO {
            // The best for so few descriptors: it needs no descriptor and no call for registering.
            return Poll::NAME;
        }
        &self.events
    }

    /// Returns the size in bytes of the stacks of the workers; `None` for the default.
    pub(crate) fn stack_size(&self) -> Option<usize> {
        self.model.has_thread_per_connection().then_some(256 << 10)
    }

    /// Returns the settings of waiting.
    pub(crate) fn policy(&self) -> Policy {
        let mut policy = Policy::default();
        policy.order = self.order;
        policy.accept_limit = self.accept_limit;
        policy.interest = self.interest;
        policy.close = self.close;
        policy.cork = self.cork;
        policy.timers = self.timers;
        policy.batch = self.batch.get();
        policy
    }
}
