//! Settings of the event loops.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use hearken::io::readiness::{ClosePolicy, InterestPolicy, Order, Policy};
use hearken::timer::TimerPolicy;

use super::limit_reached::LimitReached;

/// The way in which a worker serves its connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Model {
    /// An event loop, which calls the handlers of each event.
    #[default]
    Events,
    /// A task for each connection, over the same events ([`hearken::task`]).
    Tasks,
}

/// Settings of the listening socket and the event loops.
#[derive(Clone, Debug)]
pub struct EventLoopConfig {
    /// Address to listen on. Port 0 selects a free port.
    pub listen: SocketAddr,
    /// Event mechanism: a name accepted by [`hearken::io::find`], `uring`, or `auto`.
    pub events: String,
    /// The way in which a worker serves its connections.
    pub model: Model,
    /// Number of event loops. Each is a thread with its own listening socket (`SO_REUSEPORT`) and
    /// its own descriptor table, so the connection limit grows with the number of workers. With
    /// mechanisms that need privileges, such as `kernel-queue`, all workers share one table.
    pub workers: NonZeroUsize,
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
            events: hearken::mechanism::AUTO.to_owned(),
            model: Model::default(),
            workers: NonZeroUsize::MIN,
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
