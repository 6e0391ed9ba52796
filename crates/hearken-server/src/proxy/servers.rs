//! What is known of each server, shared by all workers.
//!
//! Balancers go by it, one for each worker; the checker, the resolver, an administrator and the balancers
//! themselves write it. All of it is atomics, but for what changes rarely and is read rarely. A
//! balancer makes a picture of its own of it, and knows by the version when that is out of date.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hearken::timer::Time;

use super::config::Upstreams;
pub use crate::runtime::administration::Order;

mod passive;
mod server_state;

use server_state::{DRAINING, NO_ADDRESS, OFF, ServerAddress, ServerState, UNHEALTHY};
pub(super) use server_state::{Endpoints, ServerCounters};

/// How a server is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It gets its full share.
    Up,
    /// It came back a while ago, and gets part of its share.
    Starting,
    /// It failed, and gets nothing for a while, and then one request at a time until one goes well.
    Paused,
    /// It fails its checks, or its name has no address.
    Down,
    /// An administrator has it get nothing new.
    Draining,
    /// The same, and connections to it that are kept between requests are to be closed.
    Off,
}

/// What was counted of a server, over all workers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Figures {
    /// Requests that it got.
    pub requests: u64,
    /// Those that failed.
    pub failures: u64,
    /// Those that are in flight.
    pub in_flight: u64,
    /// Those that had been tried on another server before.
    pub retries: u64,
    /// Checks that found it well.
    pub checks_ok: u64,
    /// Checks that did not.
    pub checks_failed: u64,
}

/// All servers. See the [module](self).
pub struct Servers {
    servers: Box<[ServerState]>,
    /// Goes up with each change of what decides who gets requests.
    version: AtomicU64,
    /// Goes up with each change of addresses.
    addresses_version: AtomicU64,
    /// After how many failures in a row a server is paused (never for 0), and for how long, in
    /// nanoseconds.
    failures: u32,
    pause: u64,
    /// In nanoseconds.
    slow_start: u64,
    /// One for each balancer there was.
    counters: Mutex<Vec<Arc<[ServerCounters]>>>,
}

/// What a balancer goes by.
#[derive(Clone, Copy)]
pub(super) struct Condition {
    /// Neither an administrator nor a check is against it.
    pub(super) is_available: bool,
    /// 0 if it is not paused.
    pub(super) paused_until: u64,
    /// 0 if it has been up from the start.
    pub(super) up_since: u64,
}

impl Servers {
    /// Those of `config`: all up, but for names, which have no address yet.
    pub fn new(config: &Upstreams) -> Servers {
        let nanos = |span: std::time::Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Servers {
            servers: config
                .servers
                .iter()
                .map(|server| ServerState::new(&server.address))
                .collect(),
            version: AtomicU64::new(1),
            addresses_version: AtomicU64::new(1),
            failures: config.passive.map_or(0, |passive| passive.failures.get()),
            pause: config.passive.map_or(0, |passive| nanos(passive.pause)),
            slow_start: nanos(config.slow_start),
            counters: Mutex::default(),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.servers.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    /// What it is called: `127.0.0.1:9000`, `origin.example:80`, `unix:/run/app`.
    pub fn name(&self, server: usize) -> &str {
        self.servers.get(server).map_or("", |shared| &shared.name)
    }

    /// What Host says to it: its host, and its port if that is not 80.
    pub fn authority(&self, server: usize) -> &str {
        self.servers.get(server).map_or("", |shared| &shared.authority)
    }

    /// How it is.
    pub fn state(&self, server: usize) -> State {
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
        } else if self.is_starting(shared.up_since.load(Relaxed)) {
            State::Starting
        } else {
            State::Up
        }
    }

    fn is_starting(&self, since: u64) -> bool {
        since != 0
            && self.slow_start != 0
            && Time::now().as_nanos() < since.saturating_add(self.slow_start)
    }

    /// Has an administrator's will done.
    pub fn set(&self, server: usize, order: Order) {
        let Some(shared) = self.servers.get(server) else { return };
        let flag = match order {
            Order::Ready => 0,
            Order::Drain => DRAINING,
            Order::Off => OFF,
        };
        let change = |flags| Some(flags & !(DRAINING | OFF) | flag);
        let before = shared.flags.fetch_update(Relaxed, Relaxed, change).unwrap_or_default();
        let paused = shared.paused_until.load(Relaxed) != 0;
        if order == Order::Ready && (before & (DRAINING | OFF) != 0 || paused) {
            shared.recover(Time::now());
        }
        self.increment_version();
    }

    /// Notes what came of a check, and why it failed. What follows of it is
    /// [`set_down`](Servers::set_down)'s.
    pub fn checked(&self, server: usize, outcome: Result<(), String>) {
        let Some(shared) = self.servers.get(server) else { return };
        match outcome {
            Ok(()) => drop(shared.checks_ok.fetch_add(1, Relaxed)),
            Err(reason) => {
                shared.checks_failed.fetch_add(1, Relaxed);
                *lock(&shared.last_failure) = Some(reason);
            }
        }
    }

    /// Notes why it could not be checked, or a request failed there.
    pub(super) fn set_last_failure(&self, server: usize, reason: String) {
        if let Some(shared) = self.servers.get(server) {
            *lock(&shared.last_failure) = Some(reason);
        }
    }

    /// Whether it is down by its checks. One that is up again has no pause left.
    pub fn set_down(&self, server: usize, down: bool) {
        let Some(shared) = self.servers.get(server) else { return };
        if down {
            shared.flags.fetch_or(UNHEALTHY, Relaxed);
        } else if shared.flags.load(Relaxed) & UNHEALTHY != 0 {
            shared.recover(Time::now());
            shared.flags.fetch_and(!UNHEALTHY, Relaxed);
        }
        self.increment_version();
    }

    /// What became of looking its name up. The last good addresses are kept where that failed;
    /// without any it is down. Nothing for one that has no name.
    pub fn resolved(&self, server: usize, found: Result<&[SocketAddr], String>) {
        let Some(shared) = self.servers.get(server) else { return };
        let ServerAddress::Name(addresses) = &shared.address else { return };
        match found {
            Ok([]) => *lock(&shared.last_failure) = Some("its name has no address".to_owned()),
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

    /// Whether there is any place to connect to.
    pub(super) fn has_address(&self, server: usize) -> bool {
        let flags = self.servers.get(server).map(|shared| shared.flags.load(Relaxed));
        flags.is_some_and(|flags| flags & NO_ADDRESS == 0)
    }

    /// Why a request, a check or a look-up of its name failed last.
    pub fn last_failure(&self, server: usize) -> Option<String> {
        self.servers.get(server).and_then(|shared| lock(&shared.last_failure).clone())
    }

    /// What was counted of it.
    pub fn figures(&self, server: usize) -> Figures {
        let Some(shared) = self.servers.get(server) else { return Figures::default() };
        let mut figures = Figures {
            checks_ok: shared.checks_ok.load(Relaxed),
            checks_failed: shared.checks_failed.load(Relaxed),
            ..Figures::default()
        };
        for counters in lock(&self.counters).iter().filter_map(|all| all.get(server)) {
            figures.requests += counters.requests.load(Relaxed);
            figures.failures += counters.failures.load(Relaxed);
            figures.retries += counters.retries.load(Relaxed);
            figures.in_flight += counters.in_flight.load(Relaxed);
        }
        figures
    }

    /// Where a balancer counts.
    pub(super) fn counters(&self) -> Arc<[ServerCounters]> {
        let counters: Arc<[ServerCounters]> =
            (0..self.len()).map(|_| ServerCounters::default()).collect();
        lock(&self.counters).push(Arc::clone(&counters));
        counters
    }

    /// What differs once anything has changed that decides who gets requests.
    #[inline(always)]
    pub(super) fn version(&self) -> u64 {
        self.version.load(Relaxed)
    }

    /// What differs once addresses have changed.
    #[inline(always)]
    pub(super) fn addresses_version(&self) -> u64 {
        self.addresses_version.load(Relaxed)
    }

    /// What [`condition`](Servers::condition) tells next is not older than the version that was seen.
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

    /// Over what time one that is back gets up to its full share, in nanoseconds.
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
        let states = (0..self.len()).map(|server| (self.name(server), self.state(server)));
        f.debug_map().entries(states).finish()
    }
}

/// What a panic of another thread left is whole: each holder does one store.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
