//! What can be set, and its defaults.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use hearken::io::readiness::{InterestPolicy, Order, Policy};

use crate::runtime::limit_reached::LimitReached;
use crate::static_files::SiteConfig;

/// A server's settings.
#[derive(Clone, Debug)]
pub struct Config {
    /// What is served.
    pub site: SiteConfig,
    /// How it listens, and its event loops.
    pub loops: Loops,
    /// How long it waits for what.
    pub timeouts: Timeouts,
    /// The rate, in bytes per second, below which a client that is being sent to is cut off: if 0,
    /// one that takes nothing for [`Timeouts::send`].
    pub min_rate: u64,
    /// How large a request's head may be.
    pub limits: hearken_http::Limits,
    /// Where a line is written for each answer, in the combined format; `-` for standard output.
    pub access_log: Option<PathBuf>,
    /// How many bytes of a request's body are read (and discarded) before it is refused with 413.
    pub body_limit: u64,
}

/// How a server listens, and its event loops.
#[derive(Clone, Debug)]
pub struct Loops {
    /// Where it listens; port 0 takes any that is free.
    pub listen: SocketAddr,
    /// How events are had, as [`hearken::io::find`] takes it: a mechanism's name, `uring`, or `auto`.
    pub events: String,
    /// How many event loops there are, each a thread with its own listening socket
    /// (`SO_REUSEPORT`) and its own table of descriptors: each holds as many connections as one
    /// alone. `kernel-queue` and the like have one table for all.
    pub workers: NonZeroUsize,
    /// How many connections a readiness of the listening socket accepts; all if `None`.
    pub accept_limit: Option<NonZeroU32>,
    /// For how long, at most, the kernel keeps a connection back until its first bytes have come
    /// ([`ListenOptions::defer`](hearken::io::ListenOptions::defer)); not at all for zero.
    pub defer_accept: Duration,
    /// Whether calls are tried before they are waited for.
    pub order: Order,
    /// When interest is changed.
    pub interest: InterestPolicy,
    /// How many connections may be open at a time, over all workers; as many as the tables of
    /// descriptors hold if `None`. Each worker has its share: a connection that the kernel deals to
    /// a full one waits, even if another has room.
    pub max_connections: Option<NonZeroUsize>,
    /// Called in a worker's thread when a limit keeps it from accepting connections, at most once a
    /// minute per limit. It must use no descriptor but the standard ones.
    pub on_limit: fn(&LimitReached<'_>),
}

/// How long a server waits. All on the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For a whole head, however it trickles, from its first byte or from the accept (408).
    pub head: Duration,
    /// For a whole request body (408).
    pub body: Duration,
    /// For the next request on a connection that has had one.
    pub idle: Duration,
    /// Over what time the rate of sending is measured.
    pub send: Duration,
    /// For requests in flight to end once the server is stopped.
    pub grace: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            site: SiteConfig::default(),
            loops: Loops::default(),
            timeouts: Timeouts::default(),
            min_rate: 256,
            limits: hearken_http::Limits::default(),
            access_log: None,
            body_limit: 1024 * 1024,
        }
    }
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
            on_limit: |_| (),
        }
    }
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            head: Duration::from_secs(10),
            body: Duration::from_secs(30),
            idle: Duration::from_secs(60),
            // A window that was full opens in large steps, which may be far apart.
            send: Duration::from_secs(30),
            grace: Duration::from_secs(10),
        }
    }
}
