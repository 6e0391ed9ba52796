//! The state of the upstream servers, shared by all workers.
//!
//! The health checker, the resolver, the admin address and the balancers update it. The balancers
//! read it. The state consists of atomics, except for data that is rarely read and written. A
//! balancer has its own snapshot and refreshes it when the version changes.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hearken::timer::Time;

use super::config::{Protocol, Upstreams};
pub use crate::runtime::administration::UpstreamCommand;
use crate::sync::{AtomicU64, fence};

#[cfg(all(test, loom))]
mod models;
mod passive;
mod server_state;

use server_state::{DRAINING, NO_ADDRESS, OFF, ServerAddress, ServerState, UNHEALTHY};
pub(super) use server_state::{Endpoints, ServerCounters};

/// The state of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// The server gets requests according to its weight.
    Up,
    /// The server has recovered and gets requests according to a part of its weight (slow start).
    Starting,
    /// Requests failed. The server gets no requests until the pause ends, and then one trial request
    /// at a time until one succeeds.
    Paused,
    /// Health checks fail, or the name of the server has no address.
    Down,
    /// An administrator has stopped new requests to the server.
    Draining,
    /// An administrator has stopped new requests, and idle connections are closed.
    Off,
}

/// The counters of a server, over all workers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ServerStats {
    /// Requests sent to the server.
    pub requests: u64,
    /// Failed requests.
    pub failures: u64,
    /// Requests in flight.
    pub in_flight: u64,
    /// Requests that failed on another server before.
    pub retries: u64,
    /// Successful health checks.
    pub checks_ok: u64,
    /// Failed health checks.
    pub checks_failed: u64,
}

/// The state of all servers. See the [module](self).
pub struct Servers {
    servers: Box<[ServerState]>,
    /// Version of the state that determines which servers get requests.
    version: AtomicU64,
    /// Version of the addresses.
    addresses_version: AtomicU64,
    /// Number of consecutive failures that pause a server (0 disables it), and the length of the
    /// pause in nanoseconds.
    failures: u32,
    pause: u64,
    /// Duration of slow start in nanoseconds.
    slow_start: u64,
    /// Counters of each balancer, including dropped ones.
    counters: Mutex<Vec<Arc<[ServerCounters]>>>,
}

/// The part of a server's state that balancers use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Condition {
    /// Whether the server is neither disabled by an administrator nor down.
    pub(super) is_available: bool,
    /// End of the pause in nanoseconds; 0 if the server is not paused.
    pub(super) paused_until: u64,
    /// Time of the recovery in nanoseconds; 0 if the server was never down.
    pub(super) up_since: u64,
}

impl Servers {
    /// Creates the state of the servers in `config`. Servers with a name are down until it is resolved.
    pub fn new(config: &Upstreams) -> Servers {
        let nanos = |span: std::time::Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Servers {
            servers: super::tls::numbers(config)
                .zip(&config.servers)
                .map(|(tls, server)| {
                    ServerState::new(&server.address, tls, config.protocol(server))
                })
                .collect(),
            version: AtomicU64::new(1),
            addresses_version: AtomicU64::new(1),
            failures: config.passive.map_or(0, |passive| passive.max_fails.get()),
            pause: config.passive.map_or(0, |passive| nanos(passive.fail_timeout)),
            slow_start: nanos(config.slow_start),
            counters: Mutex::default(),
        }
    }

    /// Returns the number of servers.
    pub fn len(&self) -> usize {
        self.servers.len()
    }

    /// Returns whether there are no servers.
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    /// Returns the name of a server: `127.0.0.1:9000`, `origin.example:80`, `unix:/run/app`.
    pub fn name(&self, server: usize) -> &str {
        self.servers.get(server).map_or("", |shared| &shared.name)
    }

    /// Returns the protocol of connections to a server.
    pub(super) fn protocol(&self, server: usize) -> Protocol {
        self.servers.get(server).map_or(Protocol::Http1, |shared| shared.protocol)
    }

    /// Returns the number of the server's TLS settings in the list of the proxy, from 1; 0 without TLS.
    /// The next ones are for HTTP/1.1 only.
    pub(super) fn tls(&self, server: usize) -> u32 {
        self.servers.get(server).map_or(0, |shared| shared.tls)
    }

    /// Returns the default Host of a server: its host, and its port if that is not 80.
    pub fn authority(&self, server: usize) -> &str {
        self.servers.get(server).map_or("", |shared| &shared.authority)
    }

    /// Returns the state of a server at `now`.
    pub fn state(&self, server: usize, now: Time) -> State {
        let Some(shared) = self.servers.get(server) else { return State::Off };
        let flags = shared.flags.load(Relaxed);
        if flags & OFF != 0 {
            State::Off
        } else if flags & DRAINING != 0 {
            State::Draining
        } else if flags != 0 {
            State::Down
        } else if shared.paused_until.load(Relaxed) != 0 {
            State::Paused
        } else if self.is_starting(shared.up_since.load(Relaxed), now) {
            State::Starting
        } else {
            State::Up
        }
    }

    fn is_starting(&self, since: u64, now: Time) -> bool {
        since != 0 && self.slow_start != 0 && now.as_nanos() < since.saturating_add(self.slow_start)
    }

    /// Applies a command that an administrator gives at `now`.
    pub fn apply(&self, server: usize, order: UpstreamCommand, now: Time) {
        let Some(shared) = self.servers.get(server) else { return };
        let flag = match order {
            UpstreamCommand::Ready => 0,
            UpstreamCommand::Drain => DRAINING,
            UpstreamCommand::Off => OFF,
        };
        let change = |flags| Some(flags & !(DRAINING | OFF) | flag);
        let before = shared.flags.fetch_update(Relaxed, Relaxed, change).unwrap_or_default();
        let paused = shared.paused_until.load(Relaxed) != 0;
        if order == UpstreamCommand::Ready && (before & (DRAINING | OFF) != 0 || paused) {
            shared.recover(now);
        }
        self.increment_version();
    }

    /// Records the result of a health check. The caller decides about [`set_down`](Servers::set_down).
    pub fn record_check(&self, server: usize, outcome: Result<(), String>) {
        let Some(shared) = self.servers.get(server) else { return };
        match outcome {
            Ok(()) => drop(shared.checks_ok.fetch_add(1, Relaxed)),
            Err(reason) => {
                shared.checks_failed.fetch_add(1, Relaxed);
                *lock(&shared.last_failure) = Some(reason);
            }
        }
    }

    /// Records the reason of a failed request or of a health check that could not be performed.
    pub(super) fn set_last_failure(&self, server: usize, reason: String) {
        if let Some(shared) = self.servers.get(server) {
            *lock(&shared.last_failure) = Some(reason);
        }
    }

    /// Sets whether a server is down by its health checks from `now` on. Recovery also ends a pause.
    pub fn set_down(&self, server: usize, down: bool, now: Time) {
        let Some(shared) = self.servers.get(server) else { return };
        if down {
            shared.flags.fetch_or(UNHEALTHY, Relaxed);
        } else if shared.flags.load(Relaxed) & UNHEALTHY != 0 {
            shared.recover(now);
            shared.flags.fetch_and(!UNHEALTHY, Relaxed);
        }
        self.increment_version();
    }

    /// Records the result of resolving the name of a server. After a failure, the server keeps its
    /// previous addresses; without any, it is down. Ignores servers without a name.
    pub fn record_resolution(&self, server: usize, found: Result<&[SocketAddr], String>) {
        let Some(shared) = self.servers.get(server) else { return };
        let ServerAddress::Name(addresses) = &shared.address else { return };
        match found {
            Ok([]) => *lock(&shared.last_failure) = Some("the name has no address".to_owned()),
            Ok(found) => {
                let mut addresses = lock(addresses);
                if **addresses != *found {
                    *addresses = found.into();
                    drop(addresses);
                    shared.flags.fetch_and(!NO_ADDRESS, Relaxed);
                    self.addresses_version.fetch_add(1, Release);
                    self.increment_version();
                }
            }
            Err(reason) => *lock(&shared.last_failure) = Some(reason),
        }
    }

    /// Returns whether the server has an address.
    pub(super) fn has_address(&self, server: usize) -> bool {
        let flags = self.servers.get(server).map(|shared| shared.flags.load(Relaxed));
        flags.is_some_and(|flags| flags & NO_ADDRESS == 0)
    }

    /// Returns the reason of the last failed request, health check or name lookup.
    pub fn last_failure(&self, server: usize) -> Option<String> {
        self.servers.get(server).and_then(|shared| lock(&shared.last_failure).clone())
    }

    /// Returns the counters of a server.
    pub fn stats(&self, server: usize) -> ServerStats {
        let Some(shared) = self.servers.get(server) else { return ServerStats::default() };
        let mut stats = ServerStats {
            checks_ok: shared.checks_ok.load(Relaxed),
            checks_failed: shared.checks_failed.load(Relaxed),
            ..ServerStats::default()
        };
        for counters in lock(&self.counters).iter().filter_map(|all| all.get(server)) {
            stats.requests += counters.requests.load(Relaxed);
            stats.failures += counters.failures.load(Relaxed);
            stats.retries += counters.retries.load(Relaxed);
            stats.in_flight += counters.in_flight.load(Relaxed);
        }
        stats
    }

    /// Creates the counters of a balancer.
    pub(super) fn counters(&self) -> Arc<[ServerCounters]> {
        let counters: Arc<[ServerCounters]> =
            (0..self.len()).map(|_| ServerCounters::default()).collect();
        lock(&self.counters).push(Arc::clone(&counters));
        counters
    }

    /// Returns the version of the state that determines which servers get requests.
    #[inline(always)]
    pub(super) fn version(&self) -> u64 {
        self.version.load(Relaxed)
    }

    /// Returns the version of the addresses.
    #[inline(always)]
    pub(super) fn addresses_version(&self) -> u64 {
        self.addresses_version.load(Relaxed)
    }

    /// Ensures that later reads are at least as recent as the version that was read before.
    pub(super) fn synchronise(&self) {
        fence(Acquire);
    }

    pub(super) fn condition(&self, server: usize) -> Condition {
        let shared = &self.servers[server];
        Condition {
            is_available: shared.flags.load(Relaxed) == 0,
            paused_until: shared.paused_until.load(Relaxed),
            up_since: shared.up_since.load(Relaxed),
        }
    }

    /// Returns the duration of slow start in nanoseconds.
    pub(super) fn slow_start(&self) -> u64 {
        self.slow_start
    }

    pub(super) fn endpoints(&self, server: usize) -> Endpoints {
        match &self.servers[server].address {
            ServerAddress::Inet(addr) => Endpoints::Inet([*addr].into()),
            ServerAddress::Name(addresses) => Endpoints::Inet(Arc::clone(&lock(addresses))),
            ServerAddress::Unix(path) => Endpoints::Unix(Arc::clone(path)),
        }
    }

    fn increment_version(&self) {
        self.version.fetch_add(1, Release);
    }
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let conditions = (0..self.len()).map(|server| (self.name(server), self.condition(server)));
        f.debug_map().entries(conditions).finish()
    }
}

/// Locks a mutex. Poisoning is harmless, because each holder only performs a single store.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
