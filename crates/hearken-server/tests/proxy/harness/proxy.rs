//! A proxy that is tested, over one of the ways to have events.

use std::net::{IpAddr, SocketAddr};
use std::num::{NonZeroU32, NonZeroUsize};
use std::ops::Deref;
use std::path::Path;
use std::thread;
use std::time::Duration;

use hearken::io;
use hearken::io::readiness::{InterestPolicy, Order};
use hearken::mechanism::Unavailable;
use hearken_http::forward::Given;
use hearken_server::proxy::{
    self,
    config::{Address, Server as Upstream, To, Upstreams},
};
use hearken_server::runtime::network::Network;
use hearken_server::{Config, Server, StartError, start};

use super::link::{HANG, Link};
use super::wire::Kind;

/// How events are had, and bodies are moved.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    pub(crate) events: &'static str,
    pub(crate) splice: bool,
    /// As the papers have it: one is accepted at a time, calls are waited for before they are tried, and
    /// interest is changed at every state.
    pub(crate) papers: bool,
    pub(crate) workers: usize,
}

/// The way that is tested most.
pub(crate) const USUAL: &str = "epoll-edge";

impl Way {
    /// Every mechanism; io_uring with so little that it runs out of everything; and one that copies.
    pub(crate) fn all() -> Vec<Way> {
        let scarce = "uring:sends=ring:buffers=2:size=64:completions=16";
        let named = |events| Way { events, splice: true, papers: false, workers: 1 };
        let mut all: Vec<Way> = io::names().chain([scarce]).map(named).collect();
        all.push(Way { splice: false, ..named(USUAL) });
        all.push(Way { papers: true, ..named(USUAL) });
        all.push(Way { papers: true, ..named("poll") });
        all.push(Way { workers: 3, ..named(USUAL) });
        all
    }

    pub(crate) fn name(&self) -> String {
        let mut name = self.events.to_owned();
        for (is, what) in [
            (!self.splice, "-copying"),
            (self.papers, "-as-the-papers"),
            (self.workers > 1, "-of-three-workers"),
        ] {
            if is {
                name.push_str(what);
            }
        }
        name
    }

    pub(crate) fn is_usual(&self) -> bool {
        self.name() == USUAL
    }

    pub(crate) fn probe(&self) -> Result<(), Unavailable> {
        io::find(self.events).unwrap().probe()
    }

    pub(crate) fn needs_privileges(&self) -> bool {
        io::find(self.events).unwrap().needs_privileges()
    }

    pub(crate) fn config(&self, to: To) -> Config {
        let mut config = Config::proxy(proxy::Config::new(to));
        config.loops.listen = SocketAddr::from(([127, 0, 0, 1], 0));
        config.loops.events = self.events.to_owned();
        proxy_of(&mut config).splice = self.splice;
        config.loops.grace = HANG / 2;
        config.loops.workers = NonZeroUsize::new(self.workers).unwrap();
        if self.papers {
            config.loops.order = Order::WaitFirst;
            config.loops.accept_limit = NonZeroU32::new(1);
            config.loops.interest = InterestPolicy::EveryState;
        }
        config
    }

    /// A proxy to these servers, as `change` has it.
    pub(crate) fn proxy(&self, to: &[SocketAddr], change: impl FnOnce(&mut Config)) -> Proxy {
        self.to(To::Upstreams(upstreams(to)), change)
    }

    pub(crate) fn to(&self, to: To, change: impl FnOnce(&mut Config)) -> Proxy {
        let mut config = self.config(to);
        change(&mut config);
        let server = start(&config).unwrap_or_else(|error: StartError| panic!("{self:?}: {error}"));
        Proxy { server: Some(server), way: self.clone() }
    }
}

/// Servers at these addresses, with the defaults.
pub(crate) fn upstreams(to: &[SocketAddr]) -> Upstreams {
    Upstreams::new(to.iter().map(|&addr| Upstream::new(Address::Inet(addr))).collect())
}

/// The settings of the proxy.
pub(crate) fn proxy_of(config: &mut Config) -> &mut proxy::Config {
    config.first_proxy().unwrap()
}

/// The upstreams of a configuration that has some.
pub(crate) fn of(config: &mut Config) -> &mut Upstreams {
    match &mut proxy_of(config).to {
        To::Upstreams(upstreams) => upstreams,
        To::Anywhere(_) => panic!("a forward proxy"),
    }
}

/// Limits the number of open client connections.
pub(crate) fn limit_connections(config: &mut Config, count: usize) {
    config.loops.max_connections = NonZeroUsize::new(count);
}

/// Sets the minimum rate of uploads in bytes per second, and the time over which it is measured.
pub(crate) fn limit_uploads(config: &mut Config, min_rate: u64, over: Duration) {
    config.min_rate = min_rate;
    config.timeouts.body = over;
}

/// Sets the timeout of a request's whole body.
pub(crate) fn request_timeout(config: &mut Config, timeout: Duration) {
    config.timeouts.request = timeout;
}

/// Returns the timeout of a request's whole body.
pub(crate) fn request_timeout_of(config: &Config) -> Duration {
    config.timeouts.request
}

/// Listens on `addr`.
pub(crate) fn listen_on(config: &mut Config, addr: SocketAddr) {
    config.loops.listen = addr;
}

/// Sets the name in `Via`; empty for none.
pub(crate) fn via(config: &mut Config, name: &str) {
    proxy_of(config).fields.via = name.to_owned();
}

/// Sets how fields about the client are treated that the client has sent.
pub(crate) fn x_forwarded(config: &mut Config, policy: Given) {
    proxy_of(config).fields.x_forwarded = policy;
}

/// Writes the access log to `path`, in the combined format.
pub(crate) fn log_to(config: &mut Config, path: &Path) {
    config.access_log = Some(path.to_owned());
}

/// Expects a PROXY protocol header on connections from this host.
pub(crate) fn accept_proxy_protocol(config: &mut Config) {
    accept_proxy_protocol_from(config, &[([127, 0, 0, 0].into(), 8)]);
}

/// Expects a PROXY protocol header on connections from these networks.
pub(crate) fn accept_proxy_protocol_from(config: &mut Config, networks: &[(IpAddr, u8)]) {
    config.proxy_protocol = networks.iter().map(|&(ip, bits)| Network::new(ip, bits)).collect();
}

/// A running proxy, which has to end well.
#[derive(Debug)]
pub(crate) struct Proxy {
    server: Option<Server>,
    way: Way,
}

impl Proxy {
    pub(crate) fn connect(&self) -> Link {
        Link::connect(self.addr(), Kind::Response)
    }

    /// Stops it and waits for its end.
    pub(crate) fn end(mut self) {
        self.stop_and_wait();
    }

    fn stop_and_wait(&mut self) {
        let Some(server) = self.server.take() else { return };
        server.stopper().stop();
        let ended = server.wait();
        if !thread::panicking() {
            ended.unwrap_or_else(|error| panic!("{:?}: {error}", self.way));
        }
    }
}

impl Deref for Proxy {
    type Target = Server;

    fn deref(&self) -> &Server {
        self.server.as_ref().unwrap()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop_and_wait();
    }
}
