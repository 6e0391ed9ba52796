//! The destination of requests, for one worker.

use std::borrow::Cow;
use std::sync::Arc;

use super::access::AccessRules;
use super::balance::Balancer;
use super::config::{Balance, Config, HashKey, Protocol, ProxyMode, ProxyProtocol};
use super::exchange::Route;
use super::resolver::Lookups;
use super::servers::Servers;
use super::upstream::Connections;

/// The destination of requests.
pub(crate) enum Destination {
    /// The configured upstream servers of a reverse proxy.
    Reverse(Box<ReverseProxy>),
    /// The servers that requests to a forward proxy name.
    Forward(Box<ForwardProxy>),
}

pub(crate) struct ReverseProxy {
    pub(super) balancer: Balancer,
    pub(super) servers: Arc<Servers>,
    /// The hashed part of a request.
    pub(super) hash: Option<HashKey>,
    keepalive: usize,
    pub(super) max_queue: usize,
    pub(super) max_attempts: u8,
    /// Version of the header that each connection starts with.
    pub(super) proxy_protocol: Option<ProxyProtocol>,
}

pub(crate) struct ForwardProxy {
    pub(super) access: AccessRules,
    pub(super) lookups: Lookups,
    keepalive: usize,
}

impl Destination {
    /// Creates the destination of the worker at `index`.
    pub(super) fn new(
        config: &Config,
        servers: &Arc<Servers>,
        lookups: Option<Lookups>,
        (index, workers): (usize, usize),
        seed: u64,
    ) -> Destination {
        let share = |all: usize| all.div_ceil(workers);
        let upstreams = match (&config.mode, lookups) {
            (ProxyMode::Forward(forward), Some(lookups)) => {
                let (access, keepalive) = (AccessRules::new(forward), share(forward.keepalive));
                return Destination::Forward(Box::new(ForwardProxy { access, lookups, keepalive }));
            }
            (ProxyMode::Forward(_), None) => &super::config::Upstreams::new(Vec::new()),
            (ProxyMode::Reverse(upstreams), _) => upstreams,
        };
        Destination::Reverse(Box::new(ReverseProxy {
            balancer: Balancer::new(upstreams, servers.clone(), index, workers, seed),
            servers: servers.clone(),
            hash: match &upstreams.balance {
                Balance::Hash(key) => Some(key.clone()),
                _ => None,
            },
            // A connection with a header for one client must not carry requests of another.
            keepalive: match upstreams.send_proxy_protocol {
                Some(_) => 0,
                None => share(upstreams.keepalive),
            },
            max_queue: share(upstreams.max_queue),
            max_attempts: u8::try_from(upstreams.max_attempts.get()).unwrap_or(u8::MAX),
            proxy_protocol: upstreams.send_proxy_protocol,
        }))
    }

    pub(super) fn is_forward(&self) -> bool {
        matches!(self, Destination::Forward(_))
    }

    pub(super) fn balancer(&mut self) -> Option<&mut Balancer> {
        match self {
            Destination::Reverse(to) => Some(&mut to.balancer),
            Destination::Forward(_) => None,
        }
    }

    /// Returns the number of configured servers.
    pub(super) fn servers(&self) -> usize {
        match self {
            Destination::Reverse(to) => to.servers.len(),
            Destination::Forward(_) => 0,
        }
    }

    /// Returns the number of requests in flight at configured servers.
    #[cfg(feature = "simulation")]
    pub(super) fn in_flight(&self) -> usize {
        match self {
            Destination::Reverse(to) => {
                (0..to.servers.len()).map(|server| to.balancer.in_flight(server)).sum()
            }
            Destination::Forward(_) => 0,
        }
    }

    /// Creates the table of upstream connections.
    pub(super) fn connections(&self) -> Connections {
        match self {
            Destination::Reverse(to) => Connections::for_servers(to.servers.len(), to.keepalive),
            Destination::Forward(to) => Connections::for_addresses(to.keepalive),
        }
    }

    /// Returns whether idle connections to this destination are kept open.
    #[inline]
    pub(super) fn keeps_alive(&self, route: Route) -> bool {
        match (self, route) {
            (Destination::Reverse(to), Route::Server(server)) => {
                to.keepalive > 0 && to.servers.condition(server).is_available
            }
            (Destination::Forward(to), _) => to.keepalive > 0,
            _ => false,
        }
    }

    /// Returns the protocol of connections to this destination.
    pub(super) fn protocol(&self, route: Route) -> Protocol {
        match (self, route) {
            (Destination::Reverse(to), Route::Server(server)) => to.servers.protocol(server),
            _ => Protocol::Http1,
        }
    }

    /// Returns the name of a route for the log.
    pub(super) fn name(&self, route: Route) -> Cow<'_, str> {
        match (self, route) {
            (Destination::Reverse(to), Route::Server(server)) => to.servers.name(server).into(),
            (_, Route::Address(addr)) => addr.to_string().into(),
            _ => "".into(),
        }
    }
}

/// Returns whether the proxy needs the addresses of clients.
pub(super) fn needs_client_addresses(config: &Config) -> bool {
    use hearken_http::forward::HeaderPolicy::{Append, Replace};
    let has_address = |policy| matches!(policy, Append | Replace);
    let by_address = match &config.mode {
        ProxyMode::Reverse(upstreams) => {
            upstreams.balance == Balance::Hash(HashKey::Client)
                || upstreams.send_proxy_protocol.is_some()
        }
        ProxyMode::Forward(_) => false,
    };
    by_address || has_address(config.fields.x_forwarded) || has_address(config.fields.forwarded)
}
