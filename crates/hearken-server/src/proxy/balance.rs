//! Which server gets a request: one balancer for each worker, without a lock and without I/O.
//!
//! A balancer counts what its own worker has in flight, and has a picture of [`Servers`] that it makes
//! anew when something has changed there or a time has come. Those that get requests are the ordinary
//! ones that are up, or else the backups that are; if all are paused, the one whose pause ends first,
//! as a server that may be well is better than none.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hearken::timer::Time;

use super::config::{Balance, Upstreams};
use super::servers::{ServerCounters, Servers};

mod hash;
mod policy;
mod rotation;
mod snapshot;
mod tried;

use policy::{GroupSelection, LocalState, Policy, Selector};
use rotation::Rotation;
use snapshot::{Group, WEIGHT_SCALE};
pub use tried::Tried;

/// Which server gets a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pick {
    /// This one; the request counts as in flight there until [`Balancer::ended`].
    Server(usize),
    /// One that has as many as it may have.
    Full,
    /// None is up.
    Down,
}

/// How a request ended that a server had got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// It was answered.
    Well,
    /// It failed, which counts against the server.
    Failed,
    /// It was given up for a reason that says nothing of the server, such as that its client left.
    Cancelled,
}

/// Where to connect to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Where {
    /// To this address.
    Inet(SocketAddr),
    /// To this socket.
    Unix(Arc<Path>),
}

/// A worker's balancer. See the [module](self).
pub struct Balancer {
    servers: Arc<Servers>,
    /// What of them the picture was made of.
    version: u64,
    /// When it is out of date although nothing changes: a pause ends, a slow start goes on.
    refresh_at: Time,
    /// When the balancer was last asked.
    now: Time,
    selector: Selector,
    states: Box<[LocalState]>,
    /// What gets requests, and what does if all of these were tried.
    active: Group,
    fallback: Group,
    /// Those whose pause is over and that had no trial yet that went well.
    trials: Vec<u32>,
    counters: Arc<[ServerCounters]>,
    rotations: Box<[Rotation]>,
    addresses_version: u64,
    slow_start: u64,
}

impl Balancer {
    /// That of the worker at index `worker` of `workers`. Drawing at random goes by `seed`.
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
                limit: config.max_requests.map_or(u32::MAX, |most| {
                    let workers = workers.max(1);
                    let rest = usize::from(worker % workers < most.get() % workers);
                    u32::try_from((most.get() / workers + rest).max(1)).unwrap_or(u32::MAX)
                }),
                backup: server.backup,
                ..LocalState::default()
            })
            .collect();
        for index in 0..count {
            // The same whatever the order of those in the configuration, and another for a second
            // one of the same name.
            let name = servers.name(index);
            let same = (0..index).filter(|&before| servers.name(before) == name).count() as u64;
            states[index].seed = hash::mix(hash::hash(name.as_bytes()).wrapping_add(same));
        }
        let policy = match config.policy {
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

    /// Has it begin at another point of the cycle than those of other workers.
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

    /// Which server gets a request of this [hash key](Balancer::hash) (which the policy may make
    /// nothing of) that was tried on those of `tried`. It is in flight there from now on.
    #[inline]
    pub fn pick(&mut self, now: Time, key: u64, tried: Tried) -> Pick {
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
    fn select_slow(&mut self, now: Time, key: u64, tried: Tried) -> Pick {
        let picked = self.select_from_groups(now, key, tried);
        if let Pick::Server(server) = picked
            && !tried.is_empty()
        {
            increment(&self.counters[server].retries);
        }
        picked
    }

    fn select_from_groups(&mut self, now: Time, key: u64, tried: Tried) -> Pick {
        if let Some(server) = self.begin_trial(now, key, tried) {
            return self.acquire(server);
        }
        // Those that were tried come last, behind the backups.
        let mut chosen = GroupSelection::None;
        for (group, tried) in
            [(&self.active, tried), (&self.fallback, tried), (&self.active, Tried::default())]
        {
            chosen = self.selector.select(&mut self.states, group, key, tried);
            if chosen != GroupSelection::None {
                break;
            }
        }
        match chosen {
            GroupSelection::Server(server) => self.acquire(server),
            GroupSelection::Full => Pick::Full,
            GroupSelection::None => self.fail_open(tried),
        }
    }

    /// The server that this request is to be a trial of, if there is one.
    fn begin_trial(&mut self, now: Time, key: u64, tried: Tried) -> Option<u32> {
        for &server in &self.trials {
            let local = &self.states[server as usize];
            let fits = local.has_capacity()
                && !tried.contains(server as usize)
                // By hash, only one that would go there if it were up.
                && (self.selector.policy != Policy::Hash
                    || policy::is_highest(&self.states, &self.active.members, server, key, tried));
            if fits && self.servers.begin_trial(server as usize, now) {
                self.states[server as usize].holds_trial = true;
                return Some(server);
            }
        }
        None
    }

    /// All are paused or worse: the one whose pause ends first.
    fn fail_open(&mut self, tried: Tried) -> Pick {
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
            Some(_) => Pick::Full,
            None => Pick::Down,
        }
    }

    #[inline(always)]
    fn acquire(&mut self, server: u32) -> Pick {
        let local = &mut self.states[server as usize];
        local.in_flight += 1;
        let tally = &self.counters[server as usize];
        increment(&tally.requests);
        tally.in_flight.store(local.in_flight.into(), Ordering::Relaxed);
        Pick::Server(server as usize)
    }

    /// Whether a request may as well go to another of those that get some; by hash it belongs to one.
    pub fn has_alternative(&self, server: usize) -> bool {
        self.selector.policy != Policy::Hash
            && self.active.members.iter().any(|&other| other as usize != server)
    }

    /// Whether it has room, and nothing is known against it.
    pub fn has_room(&self, server: usize) -> bool {
        let fit = |server| {
            let condition = self.servers.condition(server);
            condition.is_available && condition.paused_until == 0
        };
        self.states.get(server).is_some_and(LocalState::has_capacity) && fit(server)
    }

    /// How many requests this worker has in flight there.
    pub fn in_flight(&self, server: usize) -> usize {
        self.states.get(server).map_or(0, |local| local.in_flight as usize)
    }

    /// A request ended that `server` was [picked](Balancer::pick) for.
    #[inline]
    pub fn ended(&mut self, server: usize, now: Time, how: Ended) {
        self.now = now;
        let Some(local) = self.states.get_mut(server) else { return };
        local.in_flight = local.in_flight.saturating_sub(1);
        self.counters[server].in_flight.store(local.in_flight.into(), Ordering::Relaxed);
        let other = !self.active.members.is_empty();
        match how {
            Ended::Well => self.servers.record_success(server, now, other),
            Ended::Failed => {
                increment(&self.counters[server].failures);
                self.servers.record_failure(server, now, other);
            }
            Ended::Cancelled => {}
        }
        if local.holds_trial {
            self.end_trial(server);
        }
    }

    /// A request goes well, and goes on: for one that may take long, such as a tunnel, so that a server
    /// on trial need not wait for its end. It is still in flight.
    #[inline]
    pub fn goes_well(&mut self, server: usize, now: Time) {
        self.now = now;
        let Some(local) = self.states.get(server) else { return };
        let holds_trial = local.holds_trial;
        self.servers.record_success(server, now, !self.active.members.is_empty());
        if holds_trial {
            self.end_trial(server);
        }
    }

    /// Which request was the trial is not known: one that began before the pause ends it, too.
    #[cold]
    fn end_trial(&mut self, server: usize) {
        self.states[server].holds_trial = false;
        self.servers.end_trial(server);
    }

    /// Where to connect to: each of a name's addresses in turn. None if the name has none.
    pub fn connected_to(&mut self, server: usize) -> Option<Where> {
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

    /// A connection to `addr` could not be made: for ten seconds, its name's other addresses go
    /// first.
    pub fn failed_at(&mut self, server: usize, addr: SocketAddr) {
        if let Some(rotation) = self.rotations.get_mut(server) {
            rotation.record_failure(addr, self.now + Duration::from_secs(10));
        }
    }

    /// The hash key of what a request is hashed by.
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

/// One more. Only this thread writes it.
#[inline(always)]
fn increment(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}
