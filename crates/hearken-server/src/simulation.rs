//! Servers over simulated networks and files.
//!
//! A [`SimulatedServer`] runs the event loops of a server without threads, system calls or clocks of
//! its own: everything that it reads comes from its [`Io`](hearken::io::Io) and its [`Environment`].
//! The caller runs each event loop, for example as a coroutine that its `Io` suspends in
//! [`wait`](hearken::io::Io::wait).

use std::cell::Cell;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hearken::io::Relay;

use crate::admin::{self, AdminService};
use crate::config::{Config, Handler};
use crate::runtime::access_log::LogCollector;
use crate::runtime::administration::UpstreamControl;
use crate::runtime::limits::WorkerLimits;
use crate::runtime::metrics::Metrics;
use crate::runtime::server::{
    self, ServerHandle, Source, StartError, WorkerContext, run_worker, worker_count, worker_seed,
};
use crate::side_server;
use crate::start::{Prepared, Service, StaticService, TlsService, admin_sources};

pub use crate::proxy::simulation::{LookupAnswer, ProxyUsage, SimulatedProxy};
pub use crate::static_files::memory::{Fault, Memory, Operation};

/// The inputs of a simulated server besides its network.
#[derive(Debug)]
pub struct Environment {
    /// Seed of the server's pseudo-random choices.
    pub seed: u64,
    /// Size of the descriptor table of each worker, from which its limits are computed.
    pub descriptors: usize,
    /// The file system of all routes with static files. Their root directories must exist.
    pub files: Memory,
}

/// A server whose event loops the caller runs.
///
/// Its listening address must have a port, unless the first worker runs before the others start.
pub struct SimulatedServer {
    service: Service<Memory>,
    environment: Environment,
    proxies: Vec<SimulatedProxy>,
    addr: Cell<SocketAddr>,
    workers: usize,
    metrics: Arc<Metrics>,
    handle: ServerHandle,
    admin_handle: ServerHandle,
    log: Option<LogCollector>,
}

impl SimulatedServer {
    /// Prepares a server. It collects the lines of an access log in memory, whatever its path, and
    /// does not measure the processor time of waits.
    ///
    /// # Errors
    /// [`StartError`] if there is no route, or a reverse proxy without an upstream server.
    pub fn new(config: &Config, environment: Environment) -> Result<SimulatedServer, StartError> {
        let mut config = config.clone();
        config.event_loops.measure_waits = false;
        if config.routes.is_empty() {
            return Err(StartError::NoHandler);
        }
        let workers = worker_count(&config.event_loops, environment.descriptors);
        let (mut routes, mut proxies) = (Vec::new(), Vec::new());
        for route in &config.routes {
            let handler = match &route.handler {
                Handler::StaticFiles(site) => {
                    Prepared::StaticFiles(site.clone(), environment.files.clone())
                }
                Handler::Proxy(proxy) => {
                    let proxy = SimulatedProxy::new(proxy, workers)?;
                    let shared = proxy.shared().clone();
                    proxies.push(proxy);
                    Prepared::Proxy(shared)
                }
            };
            routes.push((route.prefix.clone(), handler));
        }
        let metrics = Arc::new(Metrics::new(workers));
        let log = config.access_log.is_some().then(LogCollector::new);
        let sink = log.as_ref().map(LogCollector::sink);
        if let Some(sink) = &sink {
            metrics.set_access_log(sink.clone());
        }
        Ok(SimulatedServer {
            addr: Cell::new(config.event_loops.listen),
            service: Service { config: Arc::new(config), routes: routes.into() },
            environment,
            proxies,
            workers,
            metrics,
            handle: ServerHandle::new(sink),
            admin_handle: ServerHandle::new(None),
            log,
        })
    }

    /// Returns the address that the server listens on.
    pub fn addr(&self) -> SocketAddr {
        self.addr.get()
    }

    /// Returns the number of workers.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// Returns the proxies in the order of their routes. The caller also runs their health checks and
    /// name lookups, and stops these after the workers have ended.
    pub fn proxies(&self) -> &[SimulatedProxy] {
        &self.proxies
    }

    /// Returns a handle that stops the workers.
    pub fn handle(&self) -> ServerHandle {
        self.handle.clone()
    }

    /// Returns a handle that stops the event loop of the admin address. A real server stops it after
    /// its workers have ended.
    pub fn admin_handle(&self) -> ServerHandle {
        self.admin_handle.clone()
    }

    /// Returns the counters of the workers.
    pub fn metrics(&self) -> Arc<Metrics> {
        self.metrics.clone()
    }

    /// Removes and returns the lines of the access log that were collected so far.
    pub fn take_log_lines(&self) -> Vec<u8> {
        self.log.as_ref().map(LogCollector::take).unwrap_or_default()
    }

    /// Runs the worker at `index` over `io` until the server has stopped. If it ends for another
    /// reason, it stops the server, as a real server does.
    ///
    /// # Errors
    /// The worker could not be created, or its `io` failed.
    pub fn run_worker<I: Relay + 'static>(&self, index: usize, io: I) -> io::Result<()> {
        let config = &self.service.config;
        let limits = WorkerLimits::new(
            &config.event_loops,
            self.service.connects(),
            self.workers,
            self.environment.descriptors,
            true,
            index,
        );
        let context = WorkerContext {
            index,
            workers: self.workers,
            source: Source::Listener,
            group: None,
            listen: self.addr.get(),
            limits,
            seed: worker_seed(self.environment.seed, index),
            own_table: false,
            stop: self.handle.stopping(),
            log: self.log.as_ref().map(LogCollector::sink),
            metrics: self.metrics.clone(),
        };
        let grace = config.event_loops.shutdown_timeout;
        self.handle.set_waker(index, io.waker());
        for proxy in &self.proxies {
            proxy.set_waker(index, io.waker());
        }
        let service = self.service.clone();
        let started = |addr| self.addr.set(addr);
        let ended = if let Some(tls) = config.tls.clone() {
            let service = TlsService { service, accepts: Some(tls), profiles: Arc::default() };
            run(service, io, &context, grace, started)
        } else if service.is_static() {
            run(StaticService(service), io, &context, grace, started)
        } else {
            run(service, io, &context, grace, started)
        };
        self.handle.stop();
        ended
    }

    /// Runs the event loop of the admin address over `io` until its handle stops it. Its metrics page
    /// omits the metrics of the process.
    ///
    /// # Errors
    /// The settings have no admin address, the event loop could not be created, or its `io` failed.
    pub fn run_admin<I: Relay + 'static>(&self, io: I) -> io::Result<()> {
        let Some(addr) = self.service.config.admin else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no admin address is set"));
        };
        let control = |proxy: &SimulatedProxy| -> Arc<dyn UpstreamControl> {
            Arc::new(proxy.shared().clone())
        };
        let sources = admin_sources(
            &self.metrics,
            self.proxies.iter().map(control).collect(),
            self.handle.stopping(),
            Metrics::render_without_process,
        );
        self.admin_handle.set_waker(0, io.waker());
        let context =
            side_server::context(addr, self.admin_handle.stopping(), admin::MAX_CONNECTIONS);
        run(AdminService(Arc::new(sources)), io, &context, Duration::ZERO, |_| ())
    }
}

/// Runs an event loop. Passes the address of its listening socket to `started`.
fn run<I: Relay + 'static>(
    service: impl server::Service,
    io: I,
    context: &WorkerContext,
    grace: Duration,
    started: impl FnOnce(SocketAddr),
) -> io::Result<()> {
    let mut refused = None;
    let ended = run_worker(service, io, context, grace, |result| match result {
        Ok(addr) => started(addr),
        Err(error) => refused = Some(error),
    });
    refused.map_or(ended, |error| Err(io::Error::other(error)))
}

impl fmt::Debug for SimulatedServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedServer")
            .field("addr", &self.addr.get())
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use hearken::io::sim::{Decisions, Host, NetworkSettings, SimIo, SimIoSettings, World};
    use hearken::io::{Address, CompletionKind, Io};

    use super::*;
    use crate::static_files::SiteConfig;

    const SERVER: [u8; 4] = [10, 0, 0, 1];

    /// A client that sends requests one after another, and the responses that it received.
    struct Client {
        io: SimIo,
        requests: std::vec::IntoIter<&'static str>,
        responses: Vec<Vec<u8>>,
        token: Option<hearken::Token>,
    }

    impl Client {
        fn new(world: &World, port: u16, requests: Vec<&'static str>) -> Client {
            let host = world.host([10, 0, 0, 2].into());
            let mut io = SimIo::new(&host, SimIoSettings::default());
            let token = io.connect(&Address::Inet((SERVER, port).into()), None).ok();
            Client { io, requests: requests.into_iter(), responses: Vec::new(), token }
        }

        /// Handles completions. Returns whether all responses were received.
        fn turn(&mut self, before_request: &dyn Fn(usize)) -> bool {
            let now = self.io.now();
            self.io.wait(Some(now)).unwrap();
            while let Some(completion) = self.io.next() {
                match completion.kind {
                    CompletionKind::Connected(connected) => connected.unwrap(),
                    CompletionKind::Received(bytes) => {
                        self.responses.last_mut().unwrap().extend_from_slice(&bytes);
                    }
                    CompletionKind::Sent(sent) => sent.unwrap(),
                    kind => panic!("{kind:?}"),
                }
                self.io.start(completion.token);
                if self.responses.last().is_none_or(|response| is_complete(response)) {
                    let Some(path) = self.requests.next() else { return true };
                    before_request(self.responses.len());
                    self.responses.push(Vec::new());
                    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
                    self.io.send_now(completion.token, request.as_bytes());
                }
            }
            false
        }
    }

    fn head_and_body(response: &[u8]) -> Option<(&str, &[u8])> {
        let end = response.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
        Some((std::str::from_utf8(&response[..end]).unwrap(), &response[end + 4..]))
    }

    fn is_complete(response: &[u8]) -> bool {
        head_and_body(response).is_some_and(|(head, body)| {
            let length = head.split_once("Content-Length: ").unwrap().1;
            length.split("\r\n").next() == Some(&*body.len().to_string())
        })
    }

    /// Runs `server` on a host while a client sends requests. Returns the responses.
    fn run(
        world: &World,
        client: Client,
        before_request: impl Fn(usize) + 'static,
        stop: &ServerHandle,
        server: impl FnOnce(SimIo) -> io::Result<()>,
    ) -> Vec<Vec<u8>> {
        let host = world.host(SERVER.into());
        let client = Rc::new(RefCell::new(client));
        let (network, this, other) = (world.clone(), host.clone(), client.clone());
        let stop = stop.clone();
        host.set_waiter(move |until| {
            while !Host::is_ready(&this) && until.is_none_or(|until| network.now() < until) {
                let mut client = other.borrow_mut();
                if client.token.is_some() && client.turn(&before_request) {
                    let token = client.token.take().unwrap();
                    client.io.close(token);
                    stop.stop();
                }
                let next = [network.next_event(), until].into_iter().flatten().min();
                network.advance(next.unwrap_or(network.now()));
            }
        });
        server(SimIo::new(&host, SimIoSettings::default())).unwrap();
        assert_eq!(host.open_sockets(), 0);
        client.borrow_mut().responses.split_off(0)
    }

    /// Creates a server with a small and a large file. Returns it and its files.
    fn server(world: &World) -> (Rc<SimulatedServer>, Memory) {
        let clock = world.host(SERVER.into());
        let files = Memory::new(move || clock.unix_time(), |_, _| None);
        files.write("/www/index.html", *b"first", Duration::from_secs(1_000_000_000));
        let large: Vec<u8> = (0..200_000_u32).map(|number| (number % 251) as u8).collect();
        files.write("/www/a/large", large, Duration::from_secs(1_000_000_000));
        let mut config =
            Config::static_files(SiteConfig { root: "/www".into(), ..SiteConfig::default() });
        config.event_loops.listen = (SERVER, 80).into();
        config.admin = Some((SERVER, 81).into());
        config.access_log = Some("-".into());
        let environment = Environment { seed: 1, descriptors: 1024, files: files.clone() };
        (Rc::new(SimulatedServer::new(&config, environment).unwrap()), files)
    }

    fn serve_files(seed: u64) -> (Vec<Vec<u8>>, Vec<u8>, u64) {
        let mut settings = NetworkSettings::default();
        (settings.min_window, settings.jitter) = (1, Duration::from_millis(1));
        let world = World::new(Decisions::from_seed(seed), settings);
        let (server, files) = server(&world);
        let client = Client::new(&world, 80, vec!["/", "/a/large", "/", "/a", "/none"]);
        let clock = world.host(SERVER.into());
        let replace = move |request| {
            if request == 2 {
                files.replace("/www/index.html", *b"second", clock.unix_time());
            }
        };
        let responses =
            run(&world, client, replace, &server.handle(), |io| server.run_worker(0, io));
        (responses, server.take_log_lines(), world.trace_hash())
    }

    #[test]
    fn a_worker_serves_files_in_memory() {
        let (responses, log, trace) = serve_files(5);
        let parts: Vec<_> =
            responses.iter().map(|response| head_and_body(response).unwrap()).collect();
        let statuses: Vec<_> = parts.iter().map(|(head, _)| &head[9..12]).collect();
        assert_eq!(statuses, ["200", "200", "200", "301", "404"]);
        assert_eq!((parts[0].1, parts[2].1), (&b"first"[..], &b"second"[..]));
        let large = parts[1].1.iter().zip(0_u32..).all(|(&byte, at)| byte == (at % 251) as u8);
        assert!(large && parts[1].1.len() == 200_000);
        let log = String::from_utf8(log).unwrap();
        assert_eq!(log.lines().count(), 5, "{log}");
        assert_eq!(serve_files(5), (responses, log.into_bytes(), trace));
    }

    #[test]
    fn tables_and_buffers_are_measured() {
        let world = World::new(Decisions::from_seed(1), NetworkSettings::default());
        let (server, _) = server(&world);
        let client = Client::new(&world, 80, vec!["/", "/none", "/"]);
        let worker = server.metrics().workers[0].clone();
        let open = Rc::new(Cell::new(0));
        let (before, seen) = (worker.clone(), open.clone());
        let record = move |_| seen.set(before.usage.connections.get());
        run(&world, client, record, &server.handle(), |io| server.run_worker(0, io));
        assert_eq!(open.get(), 1);
        let usage = &worker.usage;
        assert_eq!((usage.connections.get(), usage.requests.get()), (0, 0));
        assert_eq!(usage.buffered_bytes.get(), 0);
        assert!(usage.connection_slots.get() > 0 && usage.request_slots.get() <= 1);
    }

    #[test]
    fn the_admin_address_is_served() {
        let world = World::new(Decisions::from_seed(1), NetworkSettings::default());
        let (server, _) = server(&world);
        let client = Client::new(&world, 81, vec!["/healthz", "/metrics"]);
        let responses =
            run(&world, client, |_| (), &server.admin_handle(), |io| server.run_admin(io));
        assert_eq!(head_and_body(&responses[0]).unwrap().1, b"ok\n");
        let page = std::str::from_utf8(head_and_body(&responses[1]).unwrap().1).unwrap();
        assert!(page.contains("hearken_connections_open{worker=\"0\"} 0\n"), "{page}");
        assert!(!page.contains("process_"), "{page}");
    }

    #[test]
    fn errors_of_the_start_are_returned() {
        let world = World::new(Decisions::from_seed(1), NetworkSettings::default());
        let (server, files) = server(&world);
        files.remove("/www");
        let io = SimIo::new(&world.host(SERVER.into()), SimIoSettings::default());
        let failed = server.run_worker(0, io).unwrap_err();
        assert!(failed.to_string().starts_with("cannot serve '/www': "), "{failed}");
        let mut config = Config::static_files(SiteConfig::default());
        config.routes.clear();
        let environment = Environment { seed: 1, descriptors: 1024, files };
        assert!(matches!(SimulatedServer::new(&config, environment), Err(StartError::NoHandler)));
    }
}
