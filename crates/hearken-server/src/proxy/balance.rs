//! Load balancing: one balancer per worker, without locks and I/O.
//!
//! A balancer counts the requests in flight of its own worker. It keeps a snapshot of [`Servers`] and
//! refreshes it when the version of the servers changes or a deadline passes. It selects among the
//! regular servers that are up, or else among the backups that are up. If all servers are paused, it
//! selects the one whose pause ends first, because that server may have recovered.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hearken::timer::Time;

use super::config::{Balance, Upstreams};
use super::servers::{ServerCounters, Servers};
use crate::sync::AtomicU64;

pub(super) mod hash;
mod policy;
mod rotation;
mod snapshot;
mod tried;

use policy::{GroupSelection, LocalState, Policy, Selector};
use rotation::Rotation;
use snapshot::{Group, WEIGHT_SCALE};
pub use tried::TriedServers;

/// The result of the selection of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Selection {
    /// The selected server. The request counts as in flight there until its end is reported.
    Server(usize),
    /// All suitable servers have reached their request limit.
    Full,
    /// No server is up.
    Down,
}

/// The outcome of a request at a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestOutcome {
    /// The server responded.
    Succeeded,
    /// The request failed, which counts as a failure of the server.
    Failed,
    /// The request was cancelled for a reason unrelated to the server, such as a disconnected client.
    Cancelled,
}

/// An address to connect to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Endpoint {
    /// An IP address and port.
    Inet(SocketAddr),
    /// The path of a Unix socket.
    Unix(Arc<Path>),
}

/// The balancer of a worker. See the [module](self).
pub struct Balancer {
    servers: Arc<Servers>,
    /// Version of the servers in the snapshot.
    version: u64,
    /// Time at which the snapshot expires, because a pause ends or a slow start progresses.
    refresh_at: Time,
    /// Time of the last call.
    now: Time,
    selector: Selector,
    states: Box<[LocalState]>,
    /// Servers that get requests, and those that get them if all active servers were tried.
    active: Group,
    fallback: Group,
    /// Servers whose pause is over, but which have not completed a trial request yet.
    trials: Vec<u32>,
    counters: Arc<[ServerCounters]>,
    rotations: Box<[Rotation]>,
    addresses_version: u64,
    slow_start: u64,
}

impl Balancer {
    /// Creates the balancer of the worker with index `worker` of `workers`. `seed` initialises the
    /// random numbers.
    pub fn new(
        config: &Upstreams,
        servers: Arc<Servers>,
        worker: usize,
        workers: usize,
        seed: u64,
    ) -> Balancer {
        let count = servers.len();
        let with_capacity = || Vec::with_capacity(count);
        let mut states: Box<[LocalState]> = config
            .servers
            .iter()
            .take(count)
            .map(|server| LocalState {
                full_weight: u64::from(server.weight.get()) * WEIGHT_SCALE,
                limit: config.max_requests.map_or(u32::MAX, |max| {
                    let workers = workers.max(1);
                    let rest = usize::from(worker % workers < max.get() % workers);
                    u32::try_from((max.get() / workers + rest).max(1)).unwrap_or(u32::MAX)
                }),
                backup: server.backup,
                ..LocalState::default()
            })
            .collect();
        for index in 0..count {
            // Independent of the order in the configuration. Servers with the same name differ.
            let name = servers.name(index);
            let same = (0..index).filter(|&before| servers.name(before) == name).count() as u64;
            states[index].seed = hash::mix(hash::hash(name.as_bytes()).wrapping_add(same));
        }
        let policy = match config.balance {
            Balance::RoundRobin => Policy::RoundRobin,
            Balance::LeastConnections => Policy::LeastConnections,
            Balance::RandomTwo => Policy::RandomTwo,
            Balance::Hash(_) => Policy::Hash,
        };
        let tally = servers.counters();
        let mut balancer = Balancer {
            version: 0,
            refresh_at: Time::default(),
            now: Time::default(),
            selector: Selector {
                policy,
                turn: 0,
                random: hash::mix(seed ^ hash::mix(worker as u64)),
            },
            states,
            active: Group { members: with_capacity(), ..Group::default() },
            fallback: Group { members: with_capacity(), ..Group::default() },
            trials: with_capacity(),
            counters: tally,
            rotations: (0..count).map(|_| Rotation::new(worker)).collect(),
            addresses_version: 0,
            slow_start: servers.slow_start(),
            servers,
        };
        balancer.refresh(Time::default());
        balancer.stagger(worker, workers);
        balancer
    }

    /// Starts the cycle at another position than the balancers of other workers.
    fn stagger(&mut self, worker: usize, workers: usize) {
        let count = self.states.len();
        self.selector.turn = worker.checked_rem(workers).unwrap_or(0) * count / workers.max(1);
        if !self.active.simple_rotation && self.selector.policy == Policy::RoundRobin {
            let cycle: u64 = self.states.iter().map(|local| local.full_weight / WEIGHT_SCALE).sum();
            for _ in 0..(worker as u64 * cycle / workers.max(1) as u64).min(1 << 16) {
                policy::smooth_round_robin(&mut self.states, &self.active.members, |_, _| true);
            }
        }
    }

    /// Selects a server for a request with this [hash key](Balancer::hash), which only hash
    /// balancing uses. Avoids servers in `tried`. The request then counts as in flight there.
    #[inline]
    pub fn select(&mut self, now: Time, key: u64, tried: TriedServers) -> Selection {
        self.now = now;
        if self.servers.version() != self.version || now >= self.refresh_at {
            self.refresh(now);
        }
        if tried.is_empty() && self.trials.is_empty() {
            let members = &*self.active.members;
            let next = match *members {
                [only] => Some(only),
                _ if self.active.simple_rotation => self.selector.next_in_turn(members),
                _ => None,
            };
            if let Some(next) = next
                && self.states[next as usize].has_capacity()
            {
                return self.acquire(next);
            }
        }
        self.select_slow(now, key, tried)
    }

    #[inline(never)]
    fn select_slow(&mut self, now: Time, key: u64, tried: TriedServers) -> Selection {
        let selection = self.select_from_groups(now, key, tried);
        if let Selection::Server(server) = selection
            && !tried.is_empty()
        {
            increment(&self.counters[server].retries);
        }
        selection
    }

    fn select_from_groups(&mut self, now: Time, key: u64, tried: TriedServers) -> Selection {
        if let Some(server) = self.begin_trial(now, key, tried) {
            return self.acquire(server);
        }
        // Servers that were tried come last, after the backups.
        let mut selected = GroupSelection::None;
        for (group, tried) in [
            (&self.active, tried),
            (&self.fallback, tried),
            (&self.active, TriedServers::default()),
        ] {
            selected = self.selector.select(&mut self.states, group, key, tried);
            if selected != GroupSelection::None {
                break;
            }
        }
        match selected {
            GroupSelection::Server(server) => self.acquire(server),
            GroupSelection::Full => Selection::Full,
            GroupSelection::None => self.fail_open(tried),
        }
    }

    /// Returns a server for which this request becomes the trial, if any.
    fn begin_trial(&mut self, now: Time, key: u64, tried: TriedServers) -> Option<u32> {
        for &server in &self.trials {
            let local = &self.states[server as usize];
            let fits = local.has_capacity()
                && !tried.contains(server as usize)
                // With hash balancing, only if the request would go to this server if it were up.
                && (self.selector.policy != Policy::Hash
                    || policy::is_highest(&self.states, &self.active.members, server, key, tried));
            if fits && self.servers.begin_trial(server as usize, now) {
                self.states[server as usize].holds_trial = true;
                return Some(server);
            }
        }
        None
    }

    /// Selects the server whose pause ends first, because no server is up.
    fn fail_open(&mut self, tried: TriedServers) -> Selection {
        let first = (0..self.states.len())
            .map(|server| (server, self.servers.condition(server)))
            .filter(|(_, condition)| condition.is_available)
            .min_by_key(|&(server, condition)| {
                (
                    tried.contains(server),
                    !self.states[server].has_capacity(),
                    condition.paused_until,
                )
            });
        match first {
            Some((server, _)) if self.states[server].has_capacity() => self.acquire(server as u32),
            Some(_) => Selection::Full,
            None => Selection::Down,
        }
    }

    #[inline(always)]
    fn acquire(&mut self, server: u32) -> Selection {
        let local = &mut self.states[server as usize];
        local.in_flight += 1;
        let tally = &self.counters[server as usize];
        increment(&tally.requests);
        tally.in_flight.store(local.in_flight.into(), Ordering::Relaxed);
        Selection::Server(server as usize)
    }

    /// Returns whether another server could get the request. With hash balancing, none could.
    pub fn has_alternative(&self, server: usize) -> bool {
        self.selector.policy != Policy::Hash
            && self.active.members.iter().any(|&other| other as usize != server)
    }

    /// Returns whether the server is up and below its request limit.
    pub fn has_capacity(&self, server: usize) -> bool {
        let fit = |server| {
            let condition = self.servers.condition(server);
            condition.is_available && condition.paused_until == 0
        };
        self.states.get(server).is_some_and(LocalState::has_capacity) && fit(server)
    }

    /// Returns the number of requests that this worker has in flight at the server.
    pub fn in_flight(&self, server: usize) -> usize {
        self.states.get(server).map_or(0, |local| local.in_flight as usize)
    }

    /// Reports the end of a request for which `server` was selected.
    #[inline]
    pub fn end_request(&mut self, server: usize, now: Time, how: RequestOutcome) {
        self.now = now;
        let Some(local) = self.states.get_mut(server) else { return };
        local.in_flight = local.in_flight.saturating_sub(1);
        self.counters[server].in_flight.store(local.in_flight.into(), Ordering::Relaxed);
        let other = !self.active.members.is_empty();
        match how {
            RequestOutcome::Succeeded => self.servers.record_success(server, now, other),
            RequestOutcome::Failed => {
                increment(&self.counters[server].failures);
                self.servers.record_failure(server, now, other);
            }
            RequestOutcome::Cancelled => {}
        }
        if local.holds_trial {
            self.end_trial(server);
        }
    }

    /// Reports the success of a request that is still in flight and may take long, such as a tunnel.
    /// A trial thus ends before the request does.
    #[inline]
    pub fn record_success(&mut self, server: usize, now: Time) {
        self.now = now;
        let Some(local) = self.states.get(server) else { return };
        let holds_trial = local.holds_trial;
        self.servers.record_success(server, now, !self.active.members.is_empty());
        if holds_trial {
            self.end_trial(server);
        }
    }

    /// Ends the trial of a server. It is unknown which request is the trial, so a request that
    /// started before the pause can end it, too.
    #[cold]
    fn end_trial(&mut self, server: usize) {
        self.states[server].holds_trial = false;
        self.servers.end_trial(server);
    }

    /// Returns the next address of a server, in rotation; `None` if its name has no address.
    pub fn next_endpoint(&mut self, server: usize) -> Option<Endpoint> {
        let version = self.servers.addresses_version();
        if version != self.addresses_version {
            self.addresses_version = version;
            self.servers.synchronise();
            for (server, rotation) in self.rotations.iter_mut().enumerate() {
                rotation.set_addresses(self.servers.endpoints(server));
            }
        }
        self.rotations.get_mut(server)?.next(self.now)
    }

    /// Reports a failed connection to `addr`. For ten seconds, the other addresses of the server take
    /// precedence.
    pub fn record_connect_failure(&mut self, server: usize, addr: SocketAddr) {
        if let Some(rotation) = self.rotations.get_mut(server) {
            rotation.record_failure(addr, self.now + Duration::from_secs(10));
        }
    }

    /// Computes the hash key of the hashed part of a request.
    pub fn hash(bytes: &[u8]) -> u64 {
        hash::hash(bytes)
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        for (server, local) in self.states.iter().enumerate() {
            self.counters[server].in_flight.store(0, Ordering::Relaxed);
            if local.holds_trial {
                self.servers.end_trial(server);
            }
        }
    }
}

impl fmt::Debug for Balancer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Balancer").field("servers", &self.servers).finish_non_exhaustive()
    }
}

/// Increments a counter of which this thread is the only writer.
#[inline(always)]
fn increment(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}
