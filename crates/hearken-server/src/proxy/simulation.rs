//! A proxy whose background programs run over any [`Io`], to simulate it in one thread.

use std::cell::OnceCell;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hearken::Waker;
use hearken::io::Io;
use hearken::timer::Time;

use super::config::{Config, ProxyMode};
use super::handler::Proxy;
use super::health::Checks;
use super::resolver::{Resolver, ResolverLoop};
use super::servers::lock;
use super::start::SharedState;
use crate::runtime::administration::{NoSuchUpstream, UpstreamCommand, UpstreamControl};
use crate::runtime::metrics::UpstreamStats;
use crate::runtime::server::StartError;

/// The result of a simulated name lookup, and the time that it takes.
pub type LookupAnswer = (Duration, io::Result<Vec<SocketAddr>>);

/// The state that the workers of a proxy share, and its background programs.
pub struct SimulatedProxy {
    shared: SharedState,
    resolver: Resolver,
    lookups: ResolverLoop,
    is_stopping: AtomicBool,
    checker: OnceCell<Waker>,
}

impl SimulatedProxy {
    /// Creates a proxy with `workers` workers. Names of its servers are not resolved yet.
    ///
    /// # Errors
    /// No upstream server is configured.
    pub fn new(config: &Config, workers: usize) -> Result<SimulatedProxy, StartError> {
        let (resolver, lookups) = Resolver::simulated();
        let mut shared = SharedState::new(config, workers, &resolver)?;
        shared.usage = Some(Arc::new(Mutex::new(vec![ProxyUsage::default(); workers])));
        if let ProxyMode::Reverse(upstreams) = &config.mode {
            resolver.watch_servers_from_start(upstreams, &shared.servers);
        }
        let (is_stopping, checker) = (AtomicBool::new(false), OnceCell::new());
        Ok(SimulatedProxy { shared, resolver, lookups, is_stopping, checker })
    }

    /// Returns the state from which handlers are created.
    pub(crate) fn shared(&self) -> &SharedState {
        &self.shared
    }

    /// Sets the waker of a worker, which is woken when names are resolved.
    pub(crate) fn set_waker(&self, worker: usize, waker: Waker) {
        self.resolver.set_waker(worker, waker);
    }

    /// Performs health checks until [`stop`](SimulatedProxy::stop), if they are enabled. `seed`
    /// determines their jitter.
    ///
    /// # Errors
    /// Errors of [`Io::wait`].
    pub fn run_health_checks(&self, io: &mut impl Io, seed: u64) -> io::Result<()> {
        let ProxyMode::Reverse(upstreams) = &self.shared.config.mode else { return Ok(()) };
        let Some(active) = upstreams.health.clone() else { return Ok(()) };
        self.checker.get_or_init(|| io.waker());
        let servers = self.shared.servers.clone();
        let mut checks =
            Checks::new(active, upstreams.send_proxy_protocol, servers, seed, io.now());
        checks.run(io, &self.is_stopping)
    }

    /// Resolves names until [`stop`](SimulatedProxy::stop). `lookup` gets a host and a port. As in a
    /// server, up to two lookups take place concurrently.
    ///
    /// # Errors
    /// Errors of [`Io::wait`].
    pub fn run_resolver(
        &self,
        io: &mut impl Io,
        lookup: impl FnMut(&str, u16) -> LookupAnswer,
    ) -> io::Result<()> {
        self.lookups.run(io, lookup)
    }

    /// Ends health checks at once, and name resolution after the current lookups.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        if let Some(checker) = self.checker.get() {
            checker.wake();
        }
        self.resolver.stop();
    }

    /// Returns the state and counters of the servers at `now`.
    pub fn upstreams(&self, now: Time) -> Vec<UpstreamStats> {
        self.shared.stats(now)
    }

    /// Returns the sizes of the tables and buffers in a worker at the end of its last turn.
    pub fn usage(&self, worker: usize) -> ProxyUsage {
        let all = self.shared.usage.as_ref();
        all.and_then(|all| lock(all).get(worker).copied()).unwrap_or_default()
    }

    /// Applies a command that is given at `now` to the servers with this name.
    ///
    /// # Errors
    /// No server has this name.
    pub fn apply(
        &self,
        name: &str,
        command: UpstreamCommand,
        now: Time,
    ) -> Result<(), NoSuchUpstream> {
        self.shared.apply(name, command, now)
    }
}

impl fmt::Debug for SimulatedProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedProxy")
            .field("servers", &self.shared.servers)
            .field("resolver", &self.resolver)
            .finish_non_exhaustive()
    }
}

/// The sizes of the tables and buffers of a proxy in one worker.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ProxyUsage {
    /// Number of requests in progress.
    pub exchanges: usize,
    /// Number of slots in the table of requests.
    pub exchange_slots: usize,
    /// Number of requests in progress that are in flight at a server.
    pub attempts: usize,
    /// Number of requests that the balancer of a reverse proxy counts as in flight.
    pub in_flight: usize,
    /// Number of upstream connections, including idle ones. Streams count instead of the connections that
    /// carry them.
    pub connections: usize,
    /// Number of idle upstream connections.
    pub idle_connections: usize,
    /// Number of slots in the table of upstream connections.
    pub connection_slots: usize,
    /// Number of entries in the queue, including those of requests that have ended.
    pub queued: usize,
    /// Number of received bytes of incomplete response heads, and of buffered bytes of HTTP/2 connections.
    pub buffered_bytes: usize,
}

/// The usage of each worker.
pub(crate) type SharedUsage = Arc<Mutex<Vec<ProxyUsage>>>;

impl Proxy {
    /// Records the sizes of the tables and buffers, if the proxy is simulated.
    pub(super) fn record_usage(&self) {
        let Some((all, worker)) = &self.usage else { return };
        let (exchanges, exchange_slots) = self.exchanges.count();
        let (connections, connection_slots) = self.upstreams.count();
        if let Some(usage) = lock(all).get_mut(*worker) {
            *usage = ProxyUsage {
                exchanges,
                exchange_slots,
                attempts: self.exchanges.count_attempts(),
                in_flight: self.destination.in_flight(),
                connections,
                idle_connections: self.upstreams.idle().len(),
                connection_slots,
                queued: self.queue.len(),
                buffered_bytes: self.exchanges.buffered_bytes() + self.http2.buffered_bytes(),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::HashMap;
    use std::net::IpAddr;
    use std::rc::Rc;

    use hearken::Token;
    use hearken::io::sim::{Decisions, Host, NetworkSettings, SimIo, SimIoSettings, World};
    use hearken::io::{Address as Endpoint, CompletionKind, ListenOptions};

    use super::*;
    use crate::proxy::config::{Address, Forward, HealthCheck, Server, Upstreams};
    use crate::proxy::resolver::LookupResult;

    const ORIGIN: [u8; 4] = [10, 0, 0, 2];

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn world(seed: u64) -> (World, Host) {
        let mut settings = NetworkSettings::default();
        (settings.min_window, settings.jitter) = (1, Duration::from_millis(1));
        let world = World::new(Decisions::from_seed(seed), settings);
        let host = world.host(IpAddr::from([10, 0, 0, 1]));
        (world, host)
    }

    fn reverse(address: Address) -> Upstreams {
        Upstreams { slow_start: secs(5), ..Upstreams::new(vec![Server::new(address)]) }
    }

    fn proxy(upstreams: Upstreams) -> Rc<SimulatedProxy> {
        let config = Config::new(ProxyMode::Reverse(upstreams));
        Rc::new(SimulatedProxy::new(&config, 1).unwrap())
    }

    /// An origin that answers the first request of each connection.
    struct Origin {
        io: SimIo,
        requests: HashMap<Token, Vec<u8>>,
        response: fn(Duration) -> &'static str,
    }

    impl Origin {
        fn new(world: &World, response: fn(Duration) -> &'static str) -> Origin {
            let mut io = SimIo::new(&world.host(ORIGIN.into()), SimIoSettings::default());
            let address = Endpoint::Inet((ORIGIN, 80).into());
            let listener = io.listen(&address, &ListenOptions::default()).unwrap();
            io.start(listener);
            Origin { io, requests: HashMap::new(), response }
        }

        fn turn(&mut self, elapsed: Duration) {
            let now = self.io.now();
            self.io.wait(Some(now)).unwrap();
            while let Some(completion) = self.io.next() {
                let token = completion.token;
                match completion.kind {
                    CompletionKind::Accepted { token, .. } => self.io.start(token),
                    CompletionKind::Received(bytes) => {
                        let request = self.requests.entry(token).or_default();
                        request.extend_from_slice(&bytes);
                        if request.ends_with(b"\r\n\r\n") {
                            self.io.send_now(token, (self.response)(elapsed).as_bytes());
                        }
                    }
                    CompletionKind::End | CompletionKind::ReceiveFailed(_) => self.io.close(token),
                    _ => {}
                }
            }
        }
    }

    /// A change of a server's state: the time in seconds, the state and the last failure.
    type Change = (u64, &'static str, Option<String>);

    /// Checks an origin for two minutes. Returns the changes of its state and the hash of the trace.
    fn check(seed: u64, response: fn(Duration) -> &'static str) -> (Vec<Change>, u64) {
        let (world, host) = world(seed);
        let (start, until_end) = (world.now(), world.now() + secs(120));
        let health = HealthCheck { interval: secs(5), timeout: secs(2), ..HealthCheck::default() };
        let address = Address::Inet((ORIGIN, 80).into());
        let proxy = proxy(Upstreams { health: Some(health), ..reverse(address) });
        let origin = RefCell::new(Origin::new(&world, response));
        let changes = Rc::<RefCell<Vec<Change>>>::default();
        let (shared, record) = (Rc::clone(&proxy), Rc::clone(&changes));
        let (network, checker) = (world.clone(), host.clone());
        host.set_waiter(move |until| {
            while !checker.is_ready() && until.is_none_or(|until| network.now() < until) {
                let now = network.now();
                if now >= until_end {
                    return shared.stop();
                }
                origin.borrow_mut().turn(now - start);
                let stats = shared.upstreams(now).remove(0);
                let mut record = record.borrow_mut();
                if record.last().map(|last| last.1) != Some(stats.state) {
                    record.push(((now - start).as_secs(), stats.state, stats.last_failure));
                }
                let next = [network.next_event(), until].into_iter().flatten().min();
                network.advance(next.unwrap_or(until_end).max(now));
            }
        });
        let mut io = SimIo::new(&host, SimIoSettings::default());
        proxy.run_health_checks(&mut io, seed).unwrap();
        assert_eq!(host.open_sockets(), 0);
        let changes = changes.borrow().clone();
        (changes, world.trace_hash())
    }

    #[test]
    fn checks_follow_the_state_of_a_server() {
        let (changes, trace) = check(7, |elapsed| match elapsed.as_secs() {
            20..60 => "HTTP/1.1 503 Service Unavailable\r\n\r\n",
            _ => "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
        });
        let states: Vec<_> = changes.iter().map(|change| change.1).collect();
        assert_eq!(states, ["up", "down", "starting", "up"]);
        let reason = Some("status 503 Service Unavailable".to_owned());
        assert_eq!(changes[1].2, reason);
        // Three checks fail, and two succeed, at intervals of 5 s with up to 5 % of jitter.
        assert!((30..37).contains(&changes[1].0), "{changes:?}");
        assert!((65..72).contains(&changes[2].0), "{changes:?}");
        assert!((5..7).contains(&(changes[3].0 - changes[2].0)), "{changes:?}");
        let repeated = check(7, |elapsed| match elapsed.as_secs() {
            20..60 => "HTTP/1.1 503 Service Unavailable\r\n\r\n",
            _ => "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
        });
        assert_eq!(repeated, (changes, trace));
    }

    #[test]
    fn checks_without_a_response_time_out_in_virtual_time() {
        for seed in 0..20 {
            let (changes, _) = check(seed, |_| "HTTP/1.1 200 OK\r\n");
            let [(0, "up", None), (at, "down", Some(reason))] = &changes[..] else {
                panic!("{changes:?}")
            };
            assert!((12..14).contains(at), "{changes:?}");
            assert_eq!(reason, "no response within 2s");
        }
    }

    #[test]
    fn names_are_resolved_in_virtual_time() {
        let (world, host) = world(1);
        let start = world.now();
        let proxy = proxy(reverse(Address::Name("origin.example".to_owned(), 80)));
        let mut lookups = Vec::new();
        let mut io = SimIo::new(&host, SimIoSettings::default());
        let run = proxy.run_resolver(&mut io, |host, port| {
            assert_eq!((host, port), ("origin.example", 80));
            let now = world.now();
            let state = proxy.upstreams(now)[0].state;
            lookups.push(((now - start).as_secs(), state));
            match lookups.len() {
                // Fails late, then succeeds after two seconds, and fails again.
                1 => (secs(3), Err(io::Error::other("no such name"))),
                2 => (secs(2), Ok(vec![(ORIGIN, port).into()])),
                3 => (secs(1), Err(io::Error::other("temporary failure"))),
                _ => {
                    proxy.stop();
                    (Duration::ZERO, Ok(Vec::new()))
                }
            }
        });
        run.unwrap();
        // A name without an address is resolved again after 5 s, another one after 30 s.
        assert_eq!(lookups, [(0, "down"), (8, "down"), (40, "up"), (71, "up")]);
        let failure = proxy.upstreams(world.now())[0].last_failure.clone();
        assert_eq!(failure.as_deref(), Some("name 'origin.example' has no address"));
    }

    #[test]
    fn simulated_lookups_of_workers_are_concurrent() {
        let (world, host) = world(1);
        let config = Config::new(ProxyMode::Forward(Forward::default()));
        let proxy = SimulatedProxy::new(&config, 1).unwrap();
        let start = world.now();
        let mut lookups = proxy.resolver.lookups();
        for (ticket, name) in ["a.example", "b.example", "c.example"].into_iter().enumerate() {
            assert_eq!(lookups.look_up(name, 80, ticket as u64, start), LookupResult::Pending);
        }
        let mut begun = Vec::new();
        let mut io = SimIo::new(&host, SimIoSettings::default());
        let run = proxy.run_resolver(&mut io, |host, _| {
            begun.push((host.to_owned(), (world.now() - start).as_secs()));
            if host == "c.example" {
                proxy.stop();
            }
            (secs(4), Ok(vec![(ORIGIN, 0).into()]))
        });
        run.unwrap();
        let begun: Vec<_> = begun.iter().map(|(host, at)| (host.as_str(), *at)).collect();
        assert_eq!(begun, [("a.example", 0), ("b.example", 0), ("c.example", 4)]);
        let mut tickets = Vec::new();
        lookups.take_results(world.now(), |ticket, found| tickets.push((ticket, found.is_ok())));
        assert_eq!(tickets, [(0, true), (1, true), (2, true)]);
        assert_eq!((world.now() - start).as_secs(), 8);
    }
}
