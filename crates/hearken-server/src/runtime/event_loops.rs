//! Settings of the event loops.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use hearken::io::readiness::{InterestPolicy, Order, Policy};

use super::limit_reached::LimitReached;

/// How a server listens, and its event loops.
#[derive(Clone, Debug)]
pub struct Loops {
    /// Address to listen on; port 0 takes any that is free.
    pub listen: SocketAddr,
    /// How events are delivered, as [`hearken::io::find`] takes it: a mechanism's name, `uring`, or
    /// `auto`.
    pub events: String,
    /// Number of event loops, each a thread with its own listening socket (`SO_REUSEPORT`) and its
    /// own table of descriptors: each holds as many connections as one alone. `kernel-queue` and
    /// the like have one table for all.
    pub workers: NonZeroUsize,
    /// Maximum number of connections accepted per readiness of the listening socket; all if `None`.
    pub accept_limit: Option<NonZeroU32>,
    /// How long, at most, the kernel keeps a connection back until its first bytes have come
    /// ([`ListenOptions::defer`](hearken::io::ListenOptions::defer)); not at all for zero.
    pub defer_accept: Duration,
    /// Whether calls are tried before they are waited for.
    pub order: Order,
    /// When interest is changed.
    pub interest: InterestPolicy,
    /// Maximum number of open connections, over all workers; as many as the tables of descriptors
    /// hold if `None`. Each worker has its share: a connection that the kernel deals to a full one
    /// waits, even if another has room.
    pub max_connections: Option<NonZeroUsize>,
    /// Grace period for requests in progress when the server is stopped.
    pub grace: Duration,
    /// Measures the processor time of waits for events, for experiments: two readings of the
    /// thread's processor clock for each.
    pub meter_waits: bool,
    /// Reports which limit a worker reached, in the worker's thread and at most once a minute. It
    /// uses no descriptor but the standard ones.
    pub on_limit: fn(&LimitReached<'_>),
}

impl Default for Loops {
    fn default() -> Loops {
        let policy = Policy::default();
        Loops {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            events: hearken::mechanism::AUTO.to_owned(),
            workers: NonZeroUsize::MIN,
            accept_limit: policy.accept_limit,
            defer_accept: Duration::ZERO,
            order: policy.order,
            interest: policy.interest,
            max_connections: None,
            grace: Duration::from_secs(10),
            meter_waits: false,
            on_limit: |_| (),
        }
    }
}
