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
use super::servers::{Servers, Tally};

mod choose;
mod hash;
mod picture;
mod places;
mod tried;

use choose::{Chooser, Chosen, Local, Policy};
use picture::{FULL, Group};
use places::Rotation;
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
    due: Time,
    /// When the balancer was last asked.
    now: Time,
    chooser: Chooser,
    locals: Box<[Local]>,
    /// What gets requests, and what does if all of these were tried.
    active: Group,
    spare: Group,
    /// Those whose pause is over and that had no trial yet that went well.
    trials: Vec<u32>,
    tally: Arc<[Tally]>,
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
        let room = || Vec::with_capacity(count);
        let mut locals: Box<[Local]> = config
            .servers
            .iter()
            .take(count)
            .map(|server| Local {
                full_weight: u64::from(server.weight.get()) * FULL,
                limit: config.max_requests.map_or(u32::MAX, |most| {
                    let workers = workers.max(1);
                    let rest = usize::from(worker % workers < most.get() % workers);
                    u32::try_from((most.get() / workers + rest).max(1)).unwrap_or(u32::MAX)
                }),
                backup: server.backup,
                ..Local::default()
            })
            .collect();
        for index in 0..count {
            // The same whatever the order of those in the configuration, and another for a second
            // one of the same name.
            let name = servers.name(index);
            let same = (0..index).filter(|&before| servers.name(before) == name).count() as u64;
            locals[index].seed = hash::mix(hash::hash(name.as_bytes()).wrapping_add(same));
        }
        let policy = match config.policy {
            Balance::RoundRobin => Policy::RoundRobin,
            Balance::LeastConnections => Policy::LeastConnections,
            Balance::RandomTwo => Policy::RandomTwo,
            Balance::Hash(_) => Policy::Hash,
        };
        let tally = servers.tally();
        let mut balancer = Balancer {
            version: 0,
            due: Time::default(),
            now: Time::default(),
            chooser: Chooser {
                policy,
                turn: 0,
                random: hash::mix(seed ^ hash::mix(worker as u64)),
            },
            locals,
            active: Group { members: room(), ..Group::default() },
            spare: Group { members: room(), ..Group::default() },
            trials: room(),
            tally,
            rotations: (0..count).map(|_| Rotation::new(worker)).collect(),
            addresses_version: 0,
            slow_start: servers.slow_start(),
            servers,
        };
        balancer.look(Time::default());
        balancer.stagger(worker, workers);
        balancer
    }

    /// Has it begin at another point of the cycle than those of other workers.
    fn stagger(&mut self, worker: usize, workers: usize) {
        let count = self.locals.len();
        self.chooser.turn = worker.checked_rem(workers).unwrap_or(0) * count / workers.max(1);
        if !self.active.in_turn && self.chooser.policy == Policy::RoundRobin {
            let cycle: u64 = self.locals.iter().map(|local| local.full_weight / FULL).sum();
            for _ in 0..(worker as u64 * cycle / workers.max(1) as u64).min(1 << 16) {
                choose::smooth(&mut self.locals, &self.active.members, |_, _| true);
            }
        }
    }

    /// Which server gets a request of this [hash key](Balancer::hash) (which the policy may make
    /// nothing of) that was tried on those of `tried`. It is in flight there from now on.
    #[inline]
    pub fn pick(&mut self, now: Time, key: u64, tried: Tried) -> Pick {
        self.now = now;
        if self.servers.version() != self.version || now >= self.due {
            self.look(now);
        }
        if tried.is_empty() && self.trials.is_empty() {
            let members = &*self.active.members;
            let next = match *members {
                [only] => Some(only),
                _ if self.active.in_turn => self.chooser.next_in_turn(members),
                _ => None,
            };
            if let Some(next) = next
                && self.locals[next as usize].has_room()
            {
                return self.take(next);
            }
        }
        self.pick_slowly(now, key, tried)
    }

    #[inline(never)]
    fn pick_slowly(&mut self, now: Time, key: u64, tried: Tried) -> Pick {
        let picked = self.choose(now, key, tried);
        if let Pick::Server(server) = picked
            && !tried.is_empty()
        {
            count(&self.tally[server].retries);
        }
        picked
    }

    fn choose(&mut self, now: Time, key: u64, tried: Tried) -> Pick {
        if let Some(server) = self.begin_trial(now, key, tried) {
            return self.take(server);
        }
        // Those that were tried come last, behind the backups.
        let mut chosen = Chosen::None;
        for (group, tried) in
            [(&self.active, tried), (&self.spare, tried), (&self.active, Tried::default())]
        {
            chosen = self.chooser.choose(&mut self.locals, group, key, tried);
            if chosen != Chosen::None {
                break;
            }
        }
        match chosen {
            Chosen::Server(server) => self.take(server),
            Chosen::Full => Pick::Full,
            Chosen::None => self.fail_open(tried),
        }
    }

    /// The server that this request is to be a trial of, if there is one.
    fn begin_trial(&mut self, now: Time, key: u64, tried: Tried) -> Option<u32> {
        for &server in &self.trials {
            let local = &self.locals[server as usize];
            let fits = local.has_room()
                && !tried.contains(server as usize)
                // By hash, only one that would go there if it were up.
                && (self.chooser.policy != Policy::Hash
                    || choose::wins(&self.locals, &self.active.members, server, key, tried));
            if fits && self.servers.begin_trial(server as usize, now) {
                self.locals[server as usize].holds_trial = true;
                return Some(server);
            }
        }
        None
    }

    /// All are paused or worse: the one whose pause ends first.
    fn fail_open(&mut self, tried: Tried) -> Pick {
        let first = (0..self.locals.len())
            .map(|server| (server, self.servers.condition(server)))
            .filter(|(_, condition)| condition.fit)
            .min_by_key(|&(server, condition)| {
                (tried.contains(server), !self.locals[server].has_room(), condition.paused_until)
            });
        match first {
            Some((server, _)) if self.locals[server].has_room() => self.take(server as u32),
            Some(_) => Pick::Full,
            None => Pick::Down,
        }
    }

    #[inline(always)]
    fn take(&mut self, server: u32) -> Pick {
        let local = &mut self.locals[server as usize];
        local.in_flight += 1;
        let tally = &self.tally[server as usize];
        count(&tally.requests);
        tally.in_flight.store(local.in_flight.into(), Ordering::Relaxed);
        Pick::Server(server as usize)
    }

    /// Whether a request may as well go to another of those that get some; by hash it belongs to one.
    pub fn has_another(&self, server: usize) -> bool {
        self.chooser.policy != Policy::Hash
            && self.active.members.iter().any(|&other| other as usize != server)
    }

    /// Whether it has room, and nothing is known against it.
    pub fn has_room(&self, server: usize) -> bool {
        let fit = |server| {
            let condition = self.servers.condition(server);
            condition.fit && condition.paused_until == 0
        };
        self.locals.get(server).is_some_and(Local::has_room) && fit(server)
    }

    /// How many requests this worker has in flight there.
    pub fn in_flight(&self, server: usize) -> usize {
        self.locals.get(server).map_or(0, |local| local.in_flight as usize)
    }

    /// A request ended that `server` was [picked](Balancer::pick) for.
    #[inline]
    pub fn ended(&mut self, server: usize, now: Time, how: Ended) {
        self.now = now;
        let Some(local) = self.locals.get_mut(server) else { return };
        local.in_flight = local.in_flight.saturating_sub(1);
        self.tally[server].in_flight.store(local.in_flight.into(), Ordering::Relaxed);
        let other = !self.active.members.is_empty();
        match how {
            Ended::Well => self.servers.well(server, now, other),
            Ended::Failed => {
                count(&self.tally[server].failures);
                self.servers.failed(server, now, other);
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
        let Some(local) = self.locals.get(server) else { return };
        let holds_trial = local.holds_trial;
        self.servers.well(server, now, !self.active.members.is_empty());
        if holds_trial {
            self.end_trial(server);
        }
    }

    /// Which request was the trial is not known: one that began before the pause ends it, too.
    #[cold]
    fn end_trial(&mut self, server: usize) {
        self.locals[server].holds_trial = false;
        self.servers.end_trial(server);
    }

    /// Where to connect to: each of a name's addresses in turn. None if the name has none.
    pub fn connected_to(&mut self, server: usize) -> Option<Where> {
        let version = self.servers.addresses_version();
        if version != self.addresses_version {
            self.addresses_version = version;
            self.servers.catch_up();
            for (server, rotation) in self.rotations.iter_mut().enumerate() {
                rotation.renew(self.servers.places(server));
            }
        }
        self.rotations.get_mut(server)?.next(self.now)
    }

    /// A connection to `addr` could not be made: for ten seconds, its name's other addresses go
    /// first.
    pub fn failed_at(&mut self, server: usize, addr: SocketAddr) {
        if let Some(rotation) = self.rotations.get_mut(server) {
            rotation.failed(addr, self.now + Duration::from_secs(10));
        }
    }

    /// The hash key of what a request is hashed by.
    pub fn hash(bytes: &[u8]) -> u64 {
        hash::hash(bytes)
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        for (server, local) in self.locals.iter().enumerate() {
            self.tally[server].in_flight.store(0, Ordering::Relaxed);
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
fn count(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}
