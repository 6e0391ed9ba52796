//! Servers and proxies in this process, with an I/O mechanism and its policies.

use std::net::{IpAddr, SocketAddr};
use std::num::{NonZeroU32, NonZeroUsize};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use hearken::io::readiness::{InterestPolicy, Order};
use hearken::mechanism::{Open, Unavailable};
use hearken_http::forward::HeaderPolicy;
use hearken_server::proxy::{
    self,
    config::{Address, ProxyMode, Server as Upstream, Upstreams},
};
use hearken_server::runtime::network::Network;
use hearken_server::static_files::SiteConfig;
use hearken_server::{Config, Distribution, Model, Server, StartError, start};

use super::TEST_TIMEOUT;
use super::admin::wait_for_metric;
use super::client::Client;
use super::connection::Connection;
use super::files::Site;
use super::wire::Kind;

/// An environment variable that makes unavailable mechanisms an error, unless they need privileges.
pub(crate) const REQUIRE_MECHANISMS: &str = "HEARKEN_REQUIRE_MECHANISMS";

/// The name of the mechanism that most tests use.
pub(crate) const DEFAULT_EVENTS: &str = "epoll-edge";

/// An io_uring configuration that exhausts each of its resources.
pub(crate) const SMALL_URING: &str = "uring:sends=ring:buffers=2:size=64:completions=16";

/// The I/O mechanism and policies of a server.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) events: &'static str,
    pub(crate) model: Model,
    pub(crate) distribution: Distribution,
    pub(crate) order: Order,
    pub(crate) accept_limit: Option<NonZeroU32>,
    pub(crate) interest: InterestPolicy,
    /// Whether a proxy moves bodies within the kernel.
    pub(crate) splice: bool,
    pub(crate) workers: usize,
}

impl Setup {
    /// Returns a mechanism with the default policies.
    pub(crate) fn new<M: Open>() -> Setup {
        Setup::named(M::NAME)
    }

    pub(crate) fn named(events: &'static str) -> Setup {
        Setup {
            events,
            model: Model::Events,
            distribution: Distribution::default(),
            order: Order::default(),
            accept_limit: None,
            interest: InterestPolicy::default(),
            splice: true,
            workers: 1,
        }
    }

    /// Returns a mechanism with a task for each connection.
    pub(crate) fn tasks(events: &'static str) -> Setup {
        Setup { model: Model::Tasks, ..Setup::named(events) }
    }

    /// Returns a setup of the models in which threads share or exchange connections.
    pub(crate) fn model(name: &str) -> Setup {
        let (model, distribution) = match name {
            "threads" => (Model::Threads, Distribution::default()),
            "pool" => (Model::Pool, Distribution::default()),
            "hand-over" => (Model::Hybrid, Distribution::HandOver),
            "shared" => (Model::Hybrid, Distribution::Shared),
            "migrate" => (Model::Hybrid, Distribution::Migrate),
            name => panic!("unknown model {name:?}"),
        };
        let is_hybrid = model == Model::Hybrid;
        let events = if is_hybrid { DEFAULT_EVENTS } else { "poll" };
        let workers = if is_hybrid { 2 } else { 100 };
        Setup { model, distribution, workers, ..Setup::named(events) }
    }

    /// Returns whether each worker serves one connection at a time.
    pub(crate) fn has_thread_per_connection(&self) -> bool {
        self.model.has_thread_per_connection()
    }

    /// Returns whether a connection is accepted wherever the limit allows one more. Otherwise each worker
    /// has its share of the limit, and the kernel assigns connections to workers.
    pub(crate) fn has_one_limit(&self) -> bool {
        self.workers == 1
            || self.has_thread_per_connection()
            || self.distribution == Distribution::HandOver
    }

    /// Returns a connection limit with which no idle connection is closed for a new one while a single
    /// event loop with this limit would notice in time that others have disconnected.
    pub(crate) fn limit_for(&self, limit: usize) -> usize {
        if self.has_thread_per_connection() { self.workers } else { limit * self.workers }
    }

    /// Returns by how many connections `workers` workers may exceed the limit. A connection may become
    /// active while another one is handed over to take its place.
    pub(crate) fn may_exceed_limit(&self, workers: usize) -> usize {
        let is_handed_over = self.distribution == Distribution::HandOver;
        if self.has_thread_per_connection() || is_handed_over { workers } else { 0 }
    }

    /// Returns whether each worker has its own descriptor table.
    pub(crate) fn has_own_tables(&self) -> bool {
        matches!(self.model, Model::Events | Model::Tasks) && !self.needs_privileges()
    }

    /// Returns every setup that the proxy is tested with.
    pub(crate) fn all() -> Vec<Setup> {
        let mut all: Vec<Setup> =
            hearken::io::names().chain([SMALL_URING]).map(Setup::named).collect();
        all.push(Setup { splice: false, ..Setup::named(DEFAULT_EVENTS) });
        all.push(Setup::named(DEFAULT_EVENTS).with_conservative_policies());
        all.push(Setup::named("poll").with_conservative_policies());
        all.push(Setup { workers: 3, ..Setup::named(DEFAULT_EVENTS) });
        all.extend([DEFAULT_EVENTS, SMALL_URING].map(Setup::tasks));
        all
    }

    pub(crate) fn with_policy(mut self, change: impl FnOnce(&mut Setup)) -> Setup {
        change(&mut self);
        self
    }

    /// Sets the policies of early event-driven servers: wait before each call, accept one connection
    /// per event, and change the interest at every state.
    pub(crate) fn with_conservative_policies(self) -> Setup {
        self.with_policy(|setup| {
            setup.order = Order::WaitFirst;
            setup.accept_limit = NonZeroU32::new(1);
            setup.interest = InterestPolicy::EveryState;
        })
    }

    pub(crate) fn name(&self) -> String {
        let mut name = self.events.to_owned();
        for (is_set, suffix) in [
            (!self.splice, "-copying"),
            (self.order == Order::WaitFirst, "-conservative"),
            (self.workers > 1, "-three-workers"),
            (self.model == Model::Tasks, "-tasks"),
        ] {
            if is_set {
                name.push_str(suffix);
            }
        }
        name
    }

    pub(crate) fn is_default(&self) -> bool {
        self.name() == DEFAULT_EVENTS
    }

    pub(crate) fn probe(&self) -> Result<(), Unavailable> {
        hearken::io::find(self.events).unwrap().probe()
    }

    pub(crate) fn needs_privileges(&self) -> bool {
        hearken::io::find(self.events).unwrap().needs_privileges()
    }

    /// Returns whether an unavailable mechanism is an error here.
    pub(crate) fn is_required(&self) -> bool {
        std::env::var_os(REQUIRE_MECHANISMS).is_some() && !self.needs_privileges()
    }

    /// Returns this setup if its mechanism is available, and reports a skipped test if not.
    pub(crate) fn available(self) -> Option<Setup> {
        match self.probe() {
            Ok(()) => Some(self),
            Err(reason) => {
                assert!(!self.is_required(), "{} is not available: {reason}", self.events);
                eprintln!("skipped: {} is not available: {reason}", self.events);
                None
            }
        }
    }

    fn apply(&self, config: &mut Config) {
        config.event_loops.listen = SocketAddr::from(([127, 0, 0, 1], 0));
        config.event_loops.events = self.events.to_owned();
        config.event_loops.model = self.model;
        config.event_loops.distribution = self.distribution;
        config.event_loops.accept_limit = self.accept_limit;
        config.event_loops.order = self.order;
        config.event_loops.interest = self.interest;
        config.event_loops.workers = workers(self.workers);
        config.event_loops.shutdown_timeout = TEST_TIMEOUT / 2;
    }

    /// Returns a configuration that serves `site` on a free port of the loopback interface.
    pub(crate) fn files_config(&self, site: &Site) -> Config {
        self.files_config_at(site.root())
    }

    pub(crate) fn files_config_at(&self, root: PathBuf) -> Config {
        let mut config = Config::static_files(SiteConfig { root, ..SiteConfig::default() });
        self.apply(&mut config);
        config
    }

    /// Returns a configuration of a proxy on a free port of the loopback interface.
    pub(crate) fn proxy_config(&self, to: ProxyMode) -> Config {
        let mut config = Config::proxy(proxy::Config::new(to));
        self.apply(&mut config);
        proxy_config(&mut config).splice = self.splice;
        config
    }

    /// Starts a server of `site`.
    pub(crate) fn serve(&self, site: &Site, change: impl FnOnce(&mut Config)) -> RunningServer {
        self.start(self.files_config(site), change)
    }

    /// Starts a proxy of these upstream servers.
    pub(crate) fn proxy(
        &self,
        upstreams: &[SocketAddr],
        change: impl FnOnce(&mut Config),
    ) -> RunningServer {
        self.proxy_to(ProxyMode::Reverse(upstreams_at(upstreams)), change)
    }

    pub(crate) fn proxy_to(
        &self,
        to: ProxyMode,
        change: impl FnOnce(&mut Config),
    ) -> RunningServer {
        self.start(self.proxy_config(to), change)
    }

    fn start(&self, mut config: Config, change: impl FnOnce(&mut Config)) -> RunningServer {
        change(&mut config);
        let server = start(&config).unwrap_or_else(|error: StartError| panic!("{self:?}: {error}"));
        RunningServer { server: Some(server), setup: self.clone() }
    }
}

/// Returns upstream servers at these addresses, with the default settings.
pub(crate) fn upstreams_at(addresses: &[SocketAddr]) -> Upstreams {
    Upstreams::new(addresses.iter().map(|&addr| Upstream::new(Address::Inet(addr))).collect())
}

/// Returns the settings of the proxy.
pub(crate) fn proxy_config(config: &mut Config) -> &mut proxy::Config {
    config.proxy_mut().unwrap()
}

/// Returns the upstream servers of a reverse proxy.
pub(crate) fn upstreams_config(config: &mut Config) -> &mut Upstreams {
    match &mut proxy_config(config).mode {
        ProxyMode::Reverse(upstreams) => upstreams,
        ProxyMode::Forward(_) => panic!("a forward proxy has no upstream servers"),
    }
}

pub(crate) fn workers(count: usize) -> Option<NonZeroUsize> {
    NonZeroUsize::new(count)
}

/// Limits the number of open connections.
pub(crate) fn limit_connections(config: &mut Config, count: usize) {
    config.event_loops.max_connections = NonZeroUsize::new(count);
}

/// Sets the minimum rate of uploads in bytes per second, and the period over which it is measured.
pub(crate) fn limit_uploads(config: &mut Config, min_rate: u64, period: Duration) {
    config.min_rate = min_rate;
    config.timeouts.body = period;
}

/// Sets the timeout of a request with its body.
pub(crate) fn request_timeout(config: &mut Config, timeout: Duration) {
    config.timeouts.upload = timeout;
}

/// Listens on `addr`.
pub(crate) fn listen_on(config: &mut Config, addr: SocketAddr) {
    config.event_loops.listen = addr;
}

/// Sets the name in `Via`. An empty name omits the field.
pub(crate) fn via(config: &mut Config, name: &str) {
    proxy_config(config).fields.via = name.to_owned();
}

/// Sets the policy for received fields that describe the client.
pub(crate) fn x_forwarded(config: &mut Config, policy: HeaderPolicy) {
    proxy_config(config).fields.x_forwarded = policy;
}

/// Writes the access log to `path`, in the combined format.
pub(crate) fn log_to(config: &mut Config, path: &Path) {
    config.access_log = Some(path.to_owned());
}

/// Enables the admin address on a free port.
pub(crate) fn enable_admin(config: &mut Config) {
    config.admin = Some(([127, 0, 0, 1], 0).into());
}

/// Expects a PROXY protocol header on connections from this host.
pub(crate) fn accept_proxy_protocol(config: &mut Config) {
    accept_proxy_protocol_from(config, &[([127, 0, 0, 0].into(), 8)]);
}

/// Expects a PROXY protocol header on connections from these networks.
pub(crate) fn accept_proxy_protocol_from(config: &mut Config, networks: &[(IpAddr, u8)]) {
    config.proxy_protocol = networks.iter().map(|&(ip, bits)| Network::new(ip, bits)).collect();
}

/// A server in this process. It is stopped when dropped, and must end without an error.
#[derive(Debug)]
pub(crate) struct RunningServer {
    server: Option<Server>,
    setup: Setup,
}

impl RunningServer {
    /// Connects a client that reads only when it is called to.
    pub(crate) fn client(&self) -> Client {
        Client::connect(self.addr())
    }

    /// Connects a client that receives while it sends.
    pub(crate) fn connect(&self) -> Connection {
        Connection::connect(self.addr(), Kind::Response)
    }

    /// Stops the server and waits for its end.
    pub(crate) fn end(mut self) {
        self.stop_and_wait();
    }

    /// Waits for the end of a server that was stopped.
    pub(crate) fn wait(mut self) {
        let result = self.server.take().unwrap().wait();
        result.unwrap_or_else(|error| panic!("{:?}: {error}", self.setup));
    }

    /// Asserts that closed connections are not counted: `limit` clients are connected at a time.
    pub(crate) fn assert_all_slots_are_free(&self, limit: usize) {
        // The server may not have noticed all disconnects yet.
        wait_for_metric(self, "hearken_connections_open", 0.0);
        let mut clients: Vec<Client> = (0..limit).map(|_| self.client()).collect();
        // The second round shows that no client was closed to accept another.
        for _ in 0..2 {
            for client in &mut clients {
                let response = client.get("/small");
                assert_eq!(response.body, b"small\n", "{:?}: a connection leaked", self.setup);
            }
        }
    }

    fn stop_and_wait(&mut self) {
        let Some(server) = self.server.take() else { return };
        server.handle().stop();
        let result = server.wait();
        if !thread::panicking() {
            result.unwrap_or_else(|error| panic!("{:?}: {error}", self.setup));
        }
    }
}

impl Deref for RunningServer {
    type Target = Server;

    fn deref(&self) -> &Server {
        self.server.as_ref().unwrap()
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("server: {:?}", self.setup);
        }
        self.stop_and_wait();
    }
}
